// The other language opens at the section that is being read: the n-th one there too.
addEventListener("DOMContentLoaded", () => {
  const sections = [...document.querySelectorAll("article section[id]")];
  const asked = /^#section-(\d+)$/.exec(location.hash);
  if (asked && sections[asked[1]]) location.replace(`#${sections[asked[1]].id}`);
  document.querySelector("a.other-language")?.addEventListener("click", (event) => {
    const read = sections.findLastIndex((section) => section.getBoundingClientRect().top < innerHeight / 3);
    if (read > 0) event.currentTarget.hash = `#section-${read}`;
  });
});
