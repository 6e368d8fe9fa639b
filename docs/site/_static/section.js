// The other language opens at the section that is being read: its anchor is the same there.
addEventListener("DOMContentLoaded", () => {
  const sections = [...document.querySelectorAll("article section[id]")];
  document.querySelector("a.other-language")?.addEventListener("click", (event) => {
    const read = sections.findLastIndex((section) => section.getBoundingClientRect().top < innerHeight / 3);
    if (read > 0) event.currentTarget.hash = sections[read].id;
  });
});
