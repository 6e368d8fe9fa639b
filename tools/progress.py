"""What is solved of each notebook in work/, by the verdicts that its cells showed when saved.

    python -m tools.progress
"""

import sys
from pathlib import Path

import nbformat

from course.words import ROOT, _, language, told
from tools import lang


def solved(notebook: nbformat.NotebookNode) -> dict[str, bool]:
    """Return by its number whether the check of an exercise has accepted an answer."""
    return {cell.metadata.nbgrader.grade_id.replace("-", "."):
            any("✓" in output.get("text", "") for output in cell.outputs)
            for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")}


def table(work: Path) -> list[str]:
    """Return a line for each notebook in a folder; empty where there is none."""
    found = {path: solved(nbformat.read(path, as_version=4))
             for path in sorted(work.glob("[0-9]*.ipynb")) if ".old" not in path.name}
    lines: list[str] = []
    for path, exercises in found.items():
        left = ", ".join(number for number, done in exercises.items() if not done)
        line = (_("{name}: {done} of {all}; not yet: {left}") if left
                else _("{name}: {done} of {all}"))
        lines.append(told(line.format(name=path.stem, done=sum(exercises.values()),
                                      all=len(exercises), left=left), language()))
    return lines


def main() -> int:
    """Print the table; return 1 where there is nothing to look at."""
    work = lang.place("work")
    lines = table(ROOT / work)
    print("\n".join(lines) or _(
        "There is no notebook in {work}/: make lab puts yours there.").format(work=work))
    return not lines


if __name__ == "__main__":
    sys.exit(main())
