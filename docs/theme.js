// Follow the theme of what a page is in: JupyterLab around a frame, the site's switch, else the system.
const followTheme = (root) => {
  let lab = null; // a page of the course in a frame of JupyterLab's has its origin
  try { lab = parent !== window && "jpThemeLight" in parent.document.body.dataset ? parent.document.body : null; } catch { /* another's page */ }
  const page = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    const dark = lab ? lab.dataset.jpThemeLight === "false" : page.dataset.theme ? page.dataset.theme === "dark" : system.matches;
    root.toggleAttribute("data-dark", dark);
  };
  follow(); system.addEventListener("change", follow);
  for (const watched of [page, lab]) {
    if (watched) new MutationObserver(follow).observe(watched, { attributeFilter: ["data-theme", "data-jp-theme-light"] });
  }
};
