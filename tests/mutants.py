"""Change the solutions mechanically, a place at a time, and see which changes the checks miss.

    make mutants               all exercises
    make mutants NB="03 5.1"   those of a notebook, or one exercise

A number off by one, two indices or arguments exchanged, a term, a keyword, a call or a condition
left out, a comparison turned, a statement skipped or doubled: a slip as people make it. Beside them
wrong behaviours are tried, wrapped around the solution: see tests/behaviours. (Names that
an answer gives to its axes and tensors are left alone: nobody may ask for these.) A check that
passes on one is too weak, or the change changes nothing: then it is listed in tests/mutants.toml,
with the reason. A cause that a check names for a behaviour has to be true of it: see truths.py.

What runs is grading's: the statements above that an answer needs, in IPython's shell, and then the
check, which forks.
"""

import ast
import contextlib
import io
import itertools
import os
import random
import re
import select
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import behaviours
import nbformat
from behaviours import truths

from course.checks.run.check import registered
from course.checks.run.isolate import Child, Ended
from course.words import packed, unpacked
from tools.grading import plan, submission
from tools.grading.shell import Shell
from tools.student import SOLUTION, student_version

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "mutants.toml"

_OTHER: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.And: "or",
    ast.Or: "and", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*",
    ast.Mod: "//", ast.Pow: "*"}
_NAMES = {"max": "min", "min": "max", "sum": "max", "maximum": "minimum", "minimum": "maximum",
          "mean": "sum", "median": "min", "zeros": "ones", "vectorize": "unroll",
          "unroll": "vectorize", "parallel": "unroll", "exp": "log", "log": "exp"}


@dataclass(frozen=True)
class Mutant:
    """An answer's cell with one change: the line before and after it, and the whole cell."""

    exercise: str
    line: int  # of the cell, from 1
    was: str
    now: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What the list of equivalent ones names it by: other lines may move."""
        return self.exercise, self.was, self.now

    def __str__(self) -> str:
        return f"{self.exercise} line {self.line}\n  - {self.was}\n  + {self.now}"


# ---- making them ---------------------------------------------------------------------------


def _expression(node: ast.expr) -> Iterator[str]:
    """Yield what may be in the place of an expression, in brackets where they may be needed."""
    if isinstance(node, ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.IfExp):  # one part of it
        yield from (f"({ast.unparse(part)})" for part in ast.iter_child_nodes(node)
                    if isinstance(part, ast.expr) and part is not getattr(node, "test", None))
    match node:
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield f"{value + 1}"
            yield f"({value - 1})" if value < 1 else f"{value - 1}"
        case ast.Constant(value=float(value)):
            yield f"{value + 1!r}"
            yield f"{value / 2!r}" if value else "(-1.0)"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OTHER:
            yield f"({ast.unparse(left)} {_OTHER[type(op)]} {ast.unparse(right)})"
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield f"({ast.unparse(left)} {_OTHER[type(op)]} {ast.unparse(right)})"
            yield from ("True", "False")
        case ast.BoolOp(op=op, values=values):
            parts = (f"({ast.unparse(value)})" for value in values)
            yield f"({f' {_OTHER[type(op)]} '.join(parts)})"
        case ast.Call():
            yield from _call(node)
        case ast.Tuple(elts=items) | ast.List(elts=items) if isinstance(node.ctx, ast.Load):
            texts = [item for item in items if isinstance(getattr(item, "value", None), str)]
            for turned in _exchanged(items) if texts != items else ():  # no list of names
                inside = ", ".join(map(ast.unparse, turned))
                yield f"[{inside}]" if isinstance(node, ast.List) else f"({inside})"
        case ast.Attribute(value=value, attr=name, ctx=ast.Load()) if name in _NAMES:
            yield f"{ast.unparse(value)}.{_NAMES[name]}"
        case ast.Name(id=name, ctx=ast.Load()) if name in _NAMES:
            yield _NAMES[name]


def _call(node: ast.Call) -> Iterator[str]:
    """Yield a call with a keyword less, with two arguments exchanged, or what it is called on."""
    fewer = ([other for other in node.keywords if other is not keyword]
             for keyword in node.keywords if keyword.arg != "name")
    for args, keywords in [*((node.args, some) for some in fewer),
                           *((turned, node.keywords) for turned in _exchanged(node.args))]:
        yield ast.unparse(ast.Call(node.func, args, keywords))
    if isinstance(node.func, ast.Attribute) and not node.args:
        yield ast.unparse(node.func.value)
    elif len(node.args) == 1:
        yield f"({ast.unparse(node.args[0])})"


def _exchanged(parts: list[ast.expr]) -> Iterator[list[ast.expr]]:
    """Yield a list with each pair of neighbours exchanged that differ."""
    for i, (one, other) in enumerate(itertools.pairwise(parts)):
        if ast.dump(one) != ast.dump(other) and not isinstance(one, ast.Starred):
            yield [*parts[:i], other, one, *parts[i + 2:]]


def _statement(node: ast.stmt) -> Iterator[str]:
    """Yield what may be in the place of a statement of one line or several."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Expr() | ast.AugAssign():
            yield "pass"
            yield f"{ast.unparse(node)}; {ast.unparse(node)}"
    if isinstance(node, ast.AugAssign):
        yield f"{ast.unparse(node.target)} = {ast.unparse(node.value)}"


def _targets(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are changed: no annotation but a buffer's or tensor's, no text."""
    skip: set[ast.AST] = set()
    for node in ast.walk(tree):
        note = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if note and "Buffer" not in ast.dump(note) and "Tensor(" not in ast.unparse(note):
            skip |= set(ast.walk(note))
        if isinstance(node, ast.JoinedStr):
            skip |= set(ast.walk(node))
    yield from (node for node in ast.walk(tree) if node not in skip)


def mutants(exercise: str, source: str) -> list[Mutant]:
    """Return the mutants of a solution's cell, in the order of their places, each once."""
    region = SOLUTION.search(source)
    assert region, f"{exercise}: no solution between its markers"
    first, last = (source[:at].count("\n") + 1 for at in region.span())
    data = source.encode()
    starts = list(itertools.accumulate(map(len, data.splitlines(keepends=True)), initial=0))
    found: dict = {}
    for node in _targets(ast.parse(source)):
        if not isinstance(node, ast.expr | ast.stmt) or not first <= node.lineno <= last:
            continue
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        for text in _expression(node) if isinstance(node, ast.expr) else _statement(node):
            changed = (data[:start] + text.encode() + data[end:]).decode()
            with contextlib.suppress(SyntaxError):
                ast.parse(changed)
                at, was, now = _difference(source, changed)
                found.setdefault(changed, Mutant(exercise, at, was, now, changed))
    (name,) = (node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
               and node.lineno <= first <= (node.end_lineno or 0))
    behaving = [Mutant(exercise, 0, "", title, f"{source}\n\nimport behaviours\n"
                       f"{name} = behaviours.wrong({exercise!r}, {name}, {title!r})\n")
                for title in behaviours.titles(exercise)]
    return [*sorted(found.values(), key=lambda mutant: (mutant.line, mutant.now)), *behaving]


def _difference(old: str, new: str) -> tuple[int, str, str]:
    """Return the number of the first line that differs, and what is there before and after."""
    one, other = old.splitlines(), new.splitlines()
    at = len(os.path.commonprefix([one, other]))
    back = len(os.path.commonprefix([one[:at:-1], other[:at:-1]]))
    was, now = (" ".join(line.strip() for line in lines[at:len(lines) - back])
                for lines in (one, other))
    return at + 1, was, now


# ---- trying them ---------------------------------------------------------------------------


@dataclass
class Exercise:
    """An exercise with what its answer needs: cells of which `answer` is the solution's."""

    number: str
    name: str
    sources: list[str]
    answer: str


def exercises(wanted: Sequence[str] = ()) -> list[Exercise]:
    """Return the exercises of the notebooks, in order; `wanted`: 03 is a notebook, 3.1 is one."""
    found = []
    notebooks = {f"{int(text.partition('.')[0]):02}" for text in wanted}
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        if wanted and path.stem[:2] not in notebooks:
            continue
        cells = submission.cells(nbformat.read(path, as_version=4))
        answers = {cell.name: cell.source for cell in cells}
        master = student_version(path)
        sources = plan.make(cells, master)["sources"]
        found += [Exercise(check.number, check.answer, sources[check.number],
                           answers[f"{check.number}-solution"]) for check in plan.checks_of(master)
                  if not wanted or {path.stem[:2], check.number} & set(wanted)]
    return found


def _failed(shell: Shell, exercise: Exercise, source: str) -> Exception | None:
    """Return what the check said of a cell, or how that ended; None where it passes."""
    try:
        shell.run_cell(source, store_history=False).raise_error()
        registered[exercise.number].check(shell.user_ns[exercise.name])
    except Exception as error:
        return error
    return None


def _try(exercise: Exercise, sources: Sequence[str]) -> list[Any]:
    """Return what an exercise's check says of cells, as `packed` has it: None where one passes.

    Raises RuntimeError where the solution itself does not. For a process of its own.
    """
    os.chdir(ROOT / "notebooks")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # what TVM's C++ warns of
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        shell = Shell()
        for source in exercise.sources:
            try:
                shell.run_cell(source, store_history=False).raise_error()
            except Exception as error:
                raise RuntimeError(f"a cell above it does not run: {error}") from None
        if said := _failed(shell, exercise, exercise.answer):
            raise RuntimeError(f"its own solution does not pass\n{said}")
        every = (_failed(shell, exercise, source) for source in sources)
        return [error and packed(getattr(error, "parts", (str(error),))) for error in every]


def equivalent() -> dict[tuple[str, str, str], str]:
    """Return the mutants that change nothing that was asked for, each with the reason."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {(one["exercise"], one["was"], one["now"]): one["reason"] for one in listed}


def judged() -> list[str]:
    """Return the exercises of which every mutant was looked at: none but those listed pass."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["judged"]


@dataclass
class Row:
    """What came of an exercise's mutants."""

    exercise: str
    tried: int
    equivalent: int
    missed: list[Mutant]
    said: list[tuple[Mutant, list[str]]]  # of what was caught: the parts of the check's message

    @property
    def false(self) -> list[str]:
        """Causes that are not true of the wrong behaviour for which they were named, and forms."""
        return [f"{mutant}: {cause}" for mutant, parts in self.said if not mutant.line
                for cause in (*truths.false_causes(self.exercise, mutant.now, parts[-1]),
                              *truths.untried(self.exercise, mutant.now, parts[0]))]


def run(chosen: Sequence[tuple[Exercise, Sequence[Mutant]]], processes: int = 2) -> Iterator[Row]:
    """Try mutants, an exercise in a process of its own; yield a row each as it is done.

    Raises RuntimeError where an exercise's own solution does not pass.
    """
    known, todo = equivalent(), list(reversed(chosen))
    at_work: dict[Child, tuple[Exercise, Sequence[Mutant]]] = {}
    while todo or at_work:
        while todo and len(at_work) < processes:
            exercise, some = todo.pop()
            at_work[Child(_try, exercise, [mutant.source for mutant in some])] = exercise, some
        for child in select.select(list(at_work), [], [])[0]:
            exercise, some = at_work.pop(child)
            try:
                came = child.result()
            except Ended as ended:
                raise RuntimeError(f"{exercise.number}: {ended.words or ended}") from None
            passed = [mutant for mutant, parts in zip(some, came, strict=True) if parts is None]
            yield Row(exercise.number, len(some), sum(m.key in known for m in some),
                      [mutant for mutant in passed if mutant.key not in known],
                      [(mutant, unpacked(parts)) for mutant, parts in zip(some, came, strict=True)
                       if parts is not None])


def sample(count: int, seed: int = 0) -> list[tuple[Exercise, list[Mutant]]]:
    """Return some mutants of the judged exercises, the same ones each time; half are behaviours."""
    every, draw = exercises(judged()), random.Random(seed)
    found = [mutant for exercise in every for mutant in mutants(exercise.number, exercise.answer)]
    chosen = [*draw.sample([mutant for mutant in found if mutant.line], count - count // 2),
              *draw.sample([mutant for mutant in found if not mutant.line], count // 2)]
    return [(exercise, some) for exercise in every
            if (some := [mutant for mutant in chosen if mutant.exercise == exercise.number])]


def main(wanted: Sequence[str]) -> int:
    if strange := [text for text in wanted if not re.fullmatch(r"\d\d|\d+\.\d", text)]:
        print(f"{strange[0]}: a notebook is 03, an exercise 3.1")
        return 2
    every = {text for exercise in exercises() for text in (
        exercise.number, f"{int(exercise.number.partition('.')[0]):02}")} if wanted else set()
    if unknown := [text for text in wanted if text not in every]:
        print(f"There is no exercise {unknown[0]}.")
        return 2
    rows = []
    for row in run([(exercise, mutants(exercise.number, exercise.answer))
                    for exercise in exercises(wanted)], os.cpu_count() or 1):
        rows.append(row)
        print(f"{row.exercise}: {row.tried} tried, {len(row.missed)} passed", flush=True)
        for mutant in row.missed:
            print(f"passed: {mutant}", flush=True)
        for line in row.false:
            print(f"not true of it: {line}", flush=True)
    print(f"\n{'':9}{'mutants':>8}{'equivalent':>12}{'caught':>8}{'passed':>8}{'false':>7}")
    for row in sorted(rows, key=lambda row: [int(part) for part in row.exercise.split(".")]):
        caught = row.tried - row.equivalent - len(row.missed)
        print(f"{row.exercise:9}{row.tried:8}{row.equivalent:12}{caught:8}{len(row.missed):8}"
              f"{len(row.false):7}")
    return any(row.missed or row.false for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
