// a page that is read in the dark is printed as in the light
(() => {
  const page = document.documentElement.dataset;
  let theme;
  addEventListener("beforeprint", () => { theme = page.theme; page.theme = "light"; });
  addEventListener("afterprint", () => { page.theme = theme; });
})();
