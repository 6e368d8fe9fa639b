// What is wider than the screen is scrolled, by the keyboard too.
addEventListener("DOMContentLoaded", () => {
  const mark = () => {
    for (const node of document.querySelectorAll(".bd-article :is(div.math, .pst-scrollable-table-container)"))
      if (node.scrollWidth > node.clientWidth) node.tabIndex = 0; else node.removeAttribute("tabindex");
  };
  mark(); addEventListener("resize", mark);
});
