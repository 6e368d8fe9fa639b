"""The student's version of a notebook, with stubs instead of solutions; and the copies in work/.

    python -m tools.student            make the copies in work/ that are not there yet
    python -m tools.student 03         set one back; the old copy is kept under another name
"""

import re
import sys
from pathlib import Path

import nbformat

from course.words import ROOT, _
from tools import lang

SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION[ \t]*$",
                      re.DOTALL | re.MULTILINE)
# before autumn 2026 notebooks imported these as modules of their own
MOVED = re.compile(r"^(import|from) (checks|plots|gpu|ship|kernels|devices)\b", re.MULTILINE)
STUB = r"\1# TODO: your code here\n\1raise NotImplementedError"


def for_students(notebook: nbformat.NotebookNode, keep_given: bool = False
                 ) -> nbformat.NotebookNode:
    """Replace every solution by a stub and clear the outputs, which would give answers away.

    The markers are nbgrader's (### BEGIN SOLUTION, ### END SOLUTION); nbgrader is not needed.
    `keep_given`: keep outputs above the first exercise, which come from given cells only.
    """
    given = keep_given
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        given = given and not cell.metadata.get("nbgrader")
        cell.source = SOLUTION.sub(STUB, cell.source)
        if not given:
            cell.outputs, cell.execution_count = [], None
        graded = cell.metadata.get("nbgrader", {}).get("grade")
        if graded:  # protects it from accidental changes
            cell.metadata.update(deletable=False, editable=False)
        if graded or cell.source.startswith("# needs exercise"):
            # "Run all cells" continues after a failed check or a wrong answer
            cell.metadata.setdefault("tags", []).append("raises-exception")
    return notebook


def student_version(master: Path, edition: str = "en", keep_given: bool = False
                    ) -> nbformat.NotebookNode:
    """Return the student's version of a solved notebook; one of a handout is returned as it is."""
    notebook = lang.read(master, edition)
    if not any(SOLUTION.search(cell.source) for cell in notebook.cells):
        return notebook
    return for_students(notebook, keep_given)


def fill(work: Path, fresh: str | None = None) -> list[str]:
    """Write the missing copies into `work` and return what was done, a line each.

    Never overwrites, but for imports that have moved. The copy that `fresh` (the notebook's number)
    sets back is renamed first.
    """
    work.mkdir(parents=True, exist_ok=True)
    done: list[str] = []
    for master in lang.masters():
        copy = work / master.name
        if fresh and master.name.startswith(f"{fresh}_") and copy.exists():
            number = 1
            while (kept := work / f"{master.stem}.old{number}.ipynb").exists():
                number += 1
            copy.rename(kept)
            done.append(_("{file}: your old copy is now {kept}").format(
                file=copy.name, kept=kept.name))
        if not copy.exists():
            _write(student_version(master, lang.CHOSEN), copy)
            done.append(_("{file}: made").format(file=copy.name))
        elif _follows(copy):
            done.append(_("{file}: it imports from course/ now").format(file=copy.name))
    return done


def _write(notebook: nbformat.NotebookNode, copy: Path) -> None:
    """Write a notebook atomically: a full disk leaves no half file."""
    unfinished = copy.with_suffix(".part")
    nbformat.write(notebook, unfinished)
    unfinished.replace(copy)


def _follows(copy: Path) -> bool:
    """Let a student's notebook import from course/ what moved there; return whether it changed."""
    try:
        notebook = nbformat.read(copy, as_version=4)
    except (ValueError, nbformat.reader.NotJSONError):
        return False  # the student's own file: JupyterLab will say what is wrong with it
    cells = [cell for cell in notebook.cells
             if cell.cell_type == "code" and MOVED.search(cell.source)]
    for cell in cells:
        cell.source = MOVED.sub(lambda was: f"from course import {was[2]}" if was[1] == "import"
                                else f"from course.{was[2]}", cell.source)
    if cells:
        _write(notebook, copy)
    return bool(cells)


def main(number: str = "") -> None:
    """Make the missing copies, and reset that of one notebook."""
    lang.chosen(lang.masters(), [number] if number else [], "FRESH=03")
    work = lang.place("work")
    try:
        done = fill(ROOT / work, number)
    except OSError as error:
        sys.exit(_("The copies in {folder} cannot be written: {reason}. Is the disk full, or the "
                   "clone not yours to write to? What is there already is left as it was.").format(
                       folder=f"{work}/", reason=error.strerror))
    for line in done or [_("Your notebooks in {folder} are left as they are.").format(
            folder=f"{work}/")]:
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
