"""Plan what to do with a submission: the cells for its page, and what each check needs.

A check gets the *source* of an answer: its cell, and the statements that it needs from the cells
above. Nothing else of the notebook is there when the check runs.
"""

import ast
import contextlib
import hashlib
import re
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any

import nbformat

from tools.grading import submission
from tools.grading.submission import Cell

GIVEN = "given"  # the name of a cell that was put back


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
            found.append(Check(submission.name_of(cell), data.points, answer[1], cell.source))
    return found


def _names(cells: list[Cell], checks: list[Check]) -> None:
    """Give cells that lost their grade_id their name, and remove false ones."""
    names = {name for check in checks for name in (check.number, f"{check.number}-solution")}
    by_line = {check.source: check.number for check in checks}
    for cell in cells:
        if cell.name not in names:
            cell.name = by_line.get(cell.source.strip(), "")
        if not cell.code:  # an answer or a check that was turned into Markdown
            cell.name = ""


def _restored(cells: list[Cell], master: nbformat.NotebookNode) -> list[Cell]:
    """Return a submission's cells and the given ones, each where the master has it.

    A given cell goes before the student's version of it, whose definitions come later and win.
    """
    def key(source: str, code: bool, name: str) -> tuple[str, bool]:
        return (name, True) if name else (source.strip(), code)

    given = [Cell(cell.source, cell.cell_type == "code", submission.name_of(cell))
             for cell in master.cells]
    came = SequenceMatcher(None, [key(**vars(cell)) for cell in given],
                           [key(**vars(cell)) for cell in cells], autojunk=False)
    whole = []
    for what, first, last, start, end in came.get_opcodes():
        if what != "equal":
            whole += [Cell(cell.source, True, GIVEN) for cell in given[first:last]
                      if cell.code and not cell.name]
        whole += cells[start:end]
    return whole


def _place(cells: list[Cell], checks: list[Check], given: set[str]
           ) -> tuple[dict[str, int], list[list[str]]]:
    """Return where each answer and check is, and what was wrong, by the names in grader.NOTES.

    Of two, the last one counts; but an untouched stub never counts if there is an answer.
    """
    where: dict[str, list[int]] = {}
    for at, cell in enumerate(cells):
        if cell.name and cell.name != GIVEN:
            where.setdefault(cell.name, []).append(at)
    place, notes = {name: at[-1] for name, at in where.items()}, []
    for check in checks:
        name, number = f"{check.number}-solution", check.number
        answers = [at for at in where.get(name, []) if cells[at].source.strip() not in given]
        if answers:
            place[name] = answers[-1]
        if len({cells[at].source.strip() for at in where.get(name, [])}) > 1:
            notes.append(["two", number])
        if len(where.get(number, [])) > 1:
            notes.append(["twice", number])
        if number not in place:
            notes.append(["missing", number])
        elif cells[place[number]].source.strip() != check.source:
            notes.append(["edited", number])
    return place, notes


def _sources(cells: list[Cell], checks: list[Check], place: dict[str, int], given: set[str]
             ) -> dict[str, list[str]]:
    """Return what has to run for each check: the answer's cell, and what that depends on."""
    codes: list[str] = []
    flat: list[submission.Statement] = []
    for at, cell in enumerate(cells):
        try:
            codes.append(submission.python(cell.source) if cell.code else "")
        except Exception:  # IPython's transformer, on anything but Python
            codes.append(cell.source)
        flat += submission.statements(codes[at], at, own=cell.source.strip() not in given)

    def cut(at: int, picked: list[submission.Statement]) -> str:
        """Return a cell's Python; the lines of statements that are not picked are empty."""
        kept = {line for one in picked if one.cell == at for line in range(*one.lines)}
        return "".join(line if number in kept else "\n"
                       for number, line in enumerate(codes[at].splitlines(keepends=True)))

    others = {place[check.number] for check in checks if check.number in place}
    found = {}
    for check in checks:
        whole = place.get(f"{check.number}-solution", -1)
        end = max(place.get(check.number, len(cells)), whole + 1)
        above = [one for one in flat if one.cell < end and one.cell not in others]
        picked = [above[i] for i in submission.needed(above, [check.answer], whole)]
        found[check.number] = [codes[at] if at == whole else cut(at, picked)
                               for at in sorted({one.cell for one in picked} | {whole} - {-1})]
    return found


def _shown(cells: list[Cell], master: nbformat.NotebookNode, checks: list[Check],
           place: dict[str, int]) -> list[Cell]:
    """Return the cells for the page: the submission's own, with the master's checks."""
    timed = {cell.source for cell in master.cells if "timing" in cell.metadata.get("tags", [])}
    known = {check.number: check for check in checks}
    shown = []
    for at, cell in enumerate(cells):
        if cell.source in timed:  # no check needs its times, and 06 and 07 measure for minutes
            continue
        if cell.name != GIVEN and not (cell.name in known and place[cell.name] != at):
            shown.append(Cell(known[cell.name].source if cell.name in known else cell.source,
                              cell.code, cell.name))
    for number, check in known.items():
        if number not in place:
            after = [i for i, cell in enumerate(shown) if cell.name == f"{number}-solution"]
            shown.insert(after[-1] + 1 if after else len(shown), Cell(check.source, True, number))
    return shown


def likeness(source: str) -> str:
    """Return a value that is equal for answers that differ only in names and comments.

    What a cell binds is renamed by its order; texts that nothing reads, and name=, do not count.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(submission.python(source))
        names: dict[str, str] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) \
                        | ast.FunctionDef(name=name):
                    names.setdefault(name, f"name{len(names)}")
        for node in ast.walk(tree):
            for part in ("id", "arg", "name"):
                if isinstance(old := getattr(node, part, None), str):
                    setattr(node, part, names.get(old, old))
            if isinstance(node, ast.Call):
                node.keywords = [one for one in node.keywords if one.arg != "name"]
            if isinstance(body := getattr(node, "body", None), list):
                node.body = [one for one in body  # type: ignore[attr-defined]
                             if not (isinstance(one, ast.Expr)
                                     and isinstance(one.value, ast.Constant))]
        source = ast.dump(tree)
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def make(cells: list[Cell], master: nbformat.NotebookNode) -> dict[str, Any]:
    """Return what to do with a submission, as JSON; `master` is the student version.

    "cells": as the page shows them; "sources": by check the cells to run for it; "answers": by
    check the answer's text and its `likeness`, if something was written; "notes".
    """
    checks = checks_of(master)
    given = {cell.source.strip() for cell in master.cells}
    _names(cells, checks)
    cells = _restored(cells, master)
    place, notes = _place(cells, checks, given)
    answers = {check.number: cells[at].source for check in checks
               if (at := place.get(f"{check.number}-solution")) is not None}
    return {"cells": [asdict(cell) for cell in _shown(cells, master, checks, place)],
            "sources": _sources(cells, checks, place, given), "notes": notes,
            "answers": {number: (text, likeness(text)) for number, text in answers.items()
                        if text.strip() not in given}}


def of_file(data: bytes, master: dict[str, Any]) -> dict[str, Any]:
    """Return what `make` gives for a file, and its "language"; or what is "wrong" with the file."""
    try:
        notebook = submission.parsed(data)
        cells = submission.cells(notebook)
    except ValueError as error:
        return {"wrong": str(error)}
    language = "zh" if submission.under(notebook, "metadata", "lang") == "zh" else "en"
    return {"language": language, **make(cells, nbformat.from_dict(master))}
