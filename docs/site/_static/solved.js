// What a reader has ticked off: a box at each exercise, and on the map what is solved of each notebook.
// It is kept in this browser alone.
addEventListener("DOMContentLoaded", () => {
  const KEY = "course-solved";
  let solved;
  const load = () => {
    try { solved = new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]")); } catch { solved = new Set(); }
  };
  const tick = (numbers, on) => {
    load(); // another page may have changed it
    for (const number of numbers) solved[on ? "add" : "delete"](number);
    try { localStorage.setItem(KEY, JSON.stringify([...solved])); } catch { /* it is kept until the page is left */ }
    draw();
  };
  const boxes = []; // [box, what it says, the numbers of its exercises]
  const map = document.querySelector(".course-map"), below = document.querySelector("p.solved");
  for (const label of map?.querySelectorAll("label.solved") ?? []) {
    label.hidden = false;
    boxes.push([label.firstElementChild, label.lastElementChild, label.dataset.exercises.split(" ")]);
  }
  if (below) {
    below.hidden = false;
    below.querySelector("button").onclick = () => tick([...solved], false);
  }
  for (const section of map ? [] : document.querySelectorAll("section[id^=exercise-]")) {
    const number = /^exercise-(\d+)-(\d+)/.exec(section.id)?.slice(1).join(".");
    const heading = section.querySelector("h1, h2, h3, h4");
    if (!number || !heading) continue;
    const label = Object.assign(document.createElement("label"), { className: "solved" });
    const box = Object.assign(document.createElement("input"), { type: "checkbox", ariaLabel: `${number} ${document.documentElement.dataset.solved}` });
    label.append(box, ` ${document.documentElement.dataset.solved}`);
    heading.after(label);
    boxes.push([box, null, [number]]);
  }
  const draw = () => {
    for (const [box, said, numbers] of boxes) {
      const count = numbers.filter((number) => solved.has(number)).length;
      box.checked = count === numbers.length;
      box.indeterminate = count > 0 && !box.checked;
      if (said) said.textContent = map.dataset.solved.replace("{0}", count).replace("{1}", numbers.length);
    }
  };
  for (const [box, , numbers] of boxes) box.onchange = () => tick(numbers, box.checked);
  addEventListener("storage", () => { load(); draw(); });
  addEventListener("pageshow", () => { load(); draw(); });
  load(); draw();
});
