"""Find out what is to be done with a submission: cells for its page, and what each check needs.

A check gets the *source* of an answer: its cell, and of the cells above the statements that it
needs. Whatever else a student's notebook does, to modules, to IPython or to the checks, is not
there when the check runs.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

import nbformat

from tools.grading import submission
from tools.grading.submission import Cell

# own lines that may be an attempt to pass without an answer: for a person to look at
SUSPECT = re.compile(r"\bchecks\b(?!\.(exercise_\d_\d|check_equivalence)\()|CheckFailed|_exit\b|"
                     r"sys\.modules|builtins|get_ipython|_render_traceback_|_getframe|\bgc\.|"
                     r"__globals__|__closure__|__code__")


@dataclass
class Check:
    """An exercise of the master: its number, points, and the name that its check takes."""

    number: str
    points: float
    answer: str
    source: str


def checks_of(master: nbformat.NotebookNode) -> list[Check]:
    """Return the checks of a master or a student version, in order."""
    found = []
    for cell in master.cells:
        data = cell.metadata.get("nbgrader", {})
        if data.get("grade"):
            answer = re.match(r"checks\.exercise_\w+\((\w+)\)\s*$", cell.source)
            if not answer:
                raise ValueError(f"check {data.grade_id}: not checks.exercise_x_y(name)")
            found.append(Check(data.grade_id, data.points, answer[1], cell.source))
    return found


def _placed(cells: list[Cell], checks: list[Check]) -> tuple[dict[str, int], list[str]]:
    """Give cells that lost their grade_id their name; return where each is, and what was wrong.

    Of a cell that is there twice the last one counts.
    """
    names = {check.number for check in checks}
    by_line = {check.source: check.number for check in checks}
    place: dict[str, int] = {}
    notes = []
    for at, cell in enumerate(cells):
        if cell.name.removesuffix("-solution") not in names:
            cell.name = by_line.get(cell.source.strip(), "")
        if not cell.code:  # an answer or a check that was made a Markdown cell
            cell.name = ""
        if cell.name:
            if cell.name in place and cell.name in names:
                notes.append(f"check {cell.name} is there more than once: the last one counts")
            place[cell.name] = at
    return place, list(dict.fromkeys(notes))


def _cut(code: str, picked: list[submission.Statement]) -> str:
    """Return a cell's Python with the lines of some statements only; the others are empty."""
    lines = code.splitlines(keepends=True)
    kept = {number for statement in picked for number in range(*statement.lines)}
    return "".join(line if number in kept else "\n" for number, line in enumerate(lines))


def _parsed(cells: list[Cell]) -> tuple[list[str], list[submission.Statement]]:
    """Return the Python of each cell, "" of one that is no code, and all their statements."""
    codes, flat = [], []
    for at, cell in enumerate(cells):
        try:
            code = submission.python(cell.source) if cell.code else ""
        except Exception:  # IPython's transformer, on anything that is no Python
            code = cell.source
        codes.append(code)
        flat += submission.statements(code, at)
    return codes, flat


def _sources(cells: list[Cell], checks: list[Check], place: dict[str, int]) -> dict[str, list[str]]:
    """Return for each check what has to run for it: the answer's cell, and what that depends on."""
    codes, flat = _parsed(cells)
    others = {place[check.number] for check in checks if check.number in place}
    found = {}
    for check in checks:
        whole = place.get(f"{check.number}-solution", -1)
        end = max(place.get(check.number, len(cells)), whole + 1)
        above = [statement for statement in flat
                 if statement.cell < end and statement.cell not in others]
        picked = [above[i] for i in submission.needed(above, [check.answer], whole)]
        found[check.number] = [
            codes[at] if at == whole else
            _cut(codes[at], [statement for statement in picked if statement.cell == at])
            for at in sorted({statement.cell for statement in picked} | {whole} - {-1})]
    return found


def _shown(cells: list[Cell], first: int, master: nbformat.NotebookNode, checks: list[Check],
           place: dict[str, int]) -> tuple[list[Cell], list[str]]:
    """Return the cells for the page, with the master's checks, and the lines to look at.

    `first`: the place of the submission's own first cell.
    """
    given = {cell.source.strip() for cell in master.cells}
    given_lines = {line.strip() for cell in master.cells for line in cell.source.splitlines()}
    timed = {cell.source for cell in master.cells if "timing" in cell.metadata.get("tags", [])}
    known = {check.number: check for check in checks}
    shown, notes = [], []
    for at, cell in enumerate(cells[first:], first):
        if cell.source in timed:  # no check needs its times, and notebook 06 measures for minutes
            continue
        if cell.name in known and place[cell.name] != at:
            continue
        source = cell.source if cell.name not in known else known[cell.name].source
        shown.append(Cell(source, cell.code, cell.name))
        if cell.code and cell.name not in known and cell.source.strip() not in given:
            notes += [f"look at: {submission.printable(line.strip()[:80])}"
                      for line in cell.source.splitlines()
                      if line.strip() not in given_lines and SUSPECT.search(line)]
    for number, check in known.items():
        if number not in place:
            after = [i for i, cell in enumerate(shown) if cell.name == f"{number}-solution"]
            shown.insert(after[-1] + 1 if after else len(shown), Cell(check.source, True, number))
    return shown, notes


def make(cells: list[Cell], master: nbformat.NotebookNode) -> dict[str, Any]:
    """Return what is to be done with a submission, as JSON; `master` is the student version.

    "cells": as the page shows them; "sources": by check the cells to be run for it; "notes".
    """
    checks = checks_of(master)
    own = {cell.source.strip() for cell in cells}
    lacking = [Cell(cell.source, True) for cell in master.cells if cell.cell_type == "code"
               and "nbgrader" not in cell.metadata and cell.source.strip() not in own]
    cells = [*lacking, *cells]  # what is given to everybody runs first
    place, notes = _placed(cells, checks)
    for check in checks:
        if check.number not in place:
            notes.append(f"check {check.number} was missing: put back")
        elif cells[place[check.number]].source.strip() != check.source:
            notes.append(f"check {check.number} was edited: put back")
    shown, suspect = _shown(cells, len(lacking), master, checks, place)
    return {"cells": list(map(asdict, shown)), "sources": _sources(cells, checks, place),
            "notes": notes + suspect}


def of_file(data: bytes, master: dict[str, Any]) -> dict[str, Any]:
    """Return what `make` gives for a file, and its "language"; or what is "wrong" with the file."""
    try:
        notebook = submission.parsed(data)
        cells = submission.cells(notebook)
    except ValueError as error:
        return {"wrong": str(error)}
    return {"language": submission.language(notebook), **make(cells, nbformat.from_dict(master))}
