// Follow the theme of what a page is in: JupyterLab's or the site's around a frame, the site's switch, else the system.
const followTheme = (root) => {
  let around = null; // a page of another origin tells nothing
  try { around = parent !== window && parent.document; } catch { /* as on pages opened from files */ }
  const places = [document.documentElement, ...around ? [around.documentElement, around.body] : []];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    const said = places.map(({ dataset }) => dataset.theme ?? { true: "light", false: "dark" }[dataset.jpThemeLight]).find((one) => one);
    root.toggleAttribute("data-dark", said ? said === "dark" : system.matches);
  };
  follow(); system.addEventListener("change", follow);
  for (const place of places) new MutationObserver(follow).observe(place, { attributeFilter: ["data-theme", "data-jp-theme-light"] });
};
