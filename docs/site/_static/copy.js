// Each block of code has a button that copies it; what a listing prints has none.
addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return; // a page that came neither by https nor from this machine
  const [before, after] = document.documentElement.dataset.copy.split("|");
  for (const block of document.querySelectorAll(".cell_input .highlight, div.highlight")) {
    if (block.closest(".cell_output") || block.querySelector("button")) continue;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: before });
    button.onclick = async () => {
      await navigator.clipboard.writeText(block.querySelector("pre").textContent.trimEnd());
      button.textContent = after;
      setTimeout(() => { button.textContent = before; }, 1500);
    };
    block.append(button);
  }
});
