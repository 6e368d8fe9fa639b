"""Right answers keep their points, whatever a student did to the cells that are given.

Each right answer of tests/candidates/ is graded as it stands in its notebook, and after random
edits of given cells: a line printed, one deleted, moved, split, copied. What has to run for a check
is mostly the same then; where it is not, it is run.
"""

import ast
import contextlib
import io
import os
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
import two_sided
from nbformat.v4 import new_code_cell

from course import plots  # noqa: F401 (once, before processes are forked)
from course.checks.run.check import registered
from course.checks.run.isolate import Child, Limits
from tools.grading import plan, submission
from tools.grading.shell import Shell
from tools.student import student_version

ROOT = Path(__file__).resolve().parents[2]
STEMS = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
TIMES = 3  # that each answer's notebook is edited


def _notebook(solved: nbformat.NotebookNode, shared: list[str], candidate: two_sided.Candidate
              ) -> nbformat.NotebookNode:
    """Return the solved notebook with a candidate in the place of its answer."""
    notebook = deepcopy(solved)
    name = f"{candidate.exercise}-solution"
    (at,) = (place for place, cell in enumerate(notebook.cells)
             if submission.name_of(cell) == name)
    notebook.cells[at].source = candidate.source
    notebook.cells[at:at] = map(new_code_cell, shared)
    return notebook


def _edited(notebook: nbformat.NotebookNode, given: set[str], draw: random.Random
            ) -> nbformat.NotebookNode:
    """Return a notebook of which about half of the `given` cells were edited, by chance."""
    cells: list[nbformat.NotebookNode] = []
    moved = []
    for cell in deepcopy(notebook.cells):
        what = draw.choice(["print", "delete", "move", "split", "copy"] + ["leave"] * 5)
        if cell.cell_type != "code" or cell.source not in given:
            what = "leave"
        cell.outputs = [] if cell.cell_type == "code" else None
        if what == "print":
            cell.source = f"print('here')\n{cell.source}\nprint('and here')"
        parts = [cell.source]
        if what == "split":
            with contextlib.suppress(SyntaxError):
                lines = cell.source.splitlines()
                at = draw.choice(ast.parse(cell.source).body).lineno - 1
                parts = ["\n".join(lines[:at]), "\n".join(lines[at:])]
        if what == "move":
            moved.append(cell)
        elif what == "split":
            cells += map(new_code_cell, parts)
        elif what != "delete":
            cells += [cell] * (1 + (what == "copy"))
    for cell in moved:
        cells.insert(draw.randrange(len(cells) + 1), cell)
    notebook = deepcopy(notebook)
    notebook.cells = cells
    return notebook


def _sources(notebook: nbformat.NotebookNode, master: nbformat.NotebookNode, number: str
             ) -> list[str]:
    return plan.make(submission.cells(notebook), master)["sources"][number]


def _meaning(sources: list[str]) -> str:
    """Return what is the same for cells in which the same statements run."""
    with contextlib.suppress(SyntaxError):
        return ast.dump(ast.parse("\n".join(sources)))
    return "\n".join(sources)


def _said(number: str, name: str, sources: list[str]) -> str:
    """Return what a check says of an answer that does not pass; "" of another."""
    os.chdir(ROOT / "notebooks")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        shell = Shell()
        for source in sources:
            shell.run_cell(source, store_history=False)
        try:
            registered[number].check(shell.user_ns[name])
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _wrong(stem: str) -> Iterator[str]:
    """Yield what is said of a notebook's right answers, where one does not pass."""
    path = ROOT / "notebooks" / f"{stem}.ipynb"
    solved, master = nbformat.read(path, as_version=4), student_version(path)
    names = {check.number: check.answer for check in plan.checks_of(master)}
    given = {cell.source for cell in master.cells if "nbgrader" not in cell.metadata}
    every = two_sided.candidates(stem)
    shared = [candidate.source for candidate in every if candidate.exercise == two_sided.SHARED]
    for at, candidate in enumerate(c for c in every if c.right and c.exercise in names):
        notebook, number = _notebook(solved, shared, candidate), candidate.exercise
        registered[number].get_ready()
        draw = random.Random(at)
        versions = [notebook, *(_edited(notebook, given, draw) for _ in range(TIMES))]
        runs = {_meaning(sources): sources for sources in
                (_sources(version, master, number) for version in versions)}
        for sources in runs.values():
            said = Child(_said, number, names[number], sources, limits=Limits(wall=120)).result()
            if said:
                text = "\n----\n".join(filter(str.strip, sources))
                yield f"{number} {candidate.title}: {said}\n{text}"


@pytest.mark.parametrize("stem", STEMS)
def test_right_answers_keep_their_points(stem: str) -> None:
    wrong = list(_wrong(stem))
    assert not wrong, "\n\n".join(wrong)
