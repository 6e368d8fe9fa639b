"""What a student handed in: read it, whatever it holds, and cut it to what is needed.

Nothing here runs a line of it, or trusts the type of a field.
"""

import ast
import json
import os
import re
import stat
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from course.words import _

MOST_FILE = 200_000_000  # bytes of a notebook
MOST_SOURCE = 300_000  # characters of a cell to execute


# characters that turn, hide or end the text next to them: controls, and marks of direction
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e"
                     r"\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")


def visible(text: str) -> str:
    """Return text with invisible characters written out, as \\x1b."""
    return _UNSEEN.sub(lambda one: f"\\x{ord(one[0]):02x}", text)


def printable(text: str) -> str:
    """Return text for a terminal and a table: one line, nothing invisible, any bytes shown."""
    return re.sub(r"[\t\n]", lambda one: f"\\x{ord(one[0]):02x}", visible(
        text.encode("utf-8", "backslashreplace").decode("utf-8")))


def clean(text: Any) -> str:
    """Return a text of a notebook as a str that can be encoded; a list of parts is joined."""
    parts = text if isinstance(text, list) else [text]
    return "".join(part for part in parts if isinstance(part, str)).encode(
        "utf-8", "replace").decode("utf-8")


def under(item: Any, *keys: str) -> Any:
    """Return the value under nested keys, or None."""
    for key in keys:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def name_of(cell: Any) -> str:
    """Return the name of an exercise's cell by the number that readers know: "4.1", "4.1-solution".

    "" for any other cell. A grade_id is "4-1-solution", because nbgrader allows no dot; until
    autumn 2026 it had one, and students hand in what they began then.
    """
    return re.sub(r"^(\d+)-(\d+)", r"\1.\2", clean(under(cell, "metadata", "nbgrader", "grade_id")))


@dataclass
class Cell:
    """A cell of a submission: its text, whether it is code, and its `name_of`."""

    source: str
    code: bool
    name: str = ""


def read(path: Path) -> bytes:
    """Return a file's bytes; raises ValueError with one line that says what is wrong."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(_("cannot be read ({reason})").format(reason=error.strerror)) from None
    with os.fdopen(opened, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(_("is not an ordinary file"))
        if state.st_size > MOST_FILE:
            raise ValueError(_("larger than {size} MB").format(size=MOST_FILE // 1_000_000))
        return file.read(MOST_FILE + 1)


def parsed(data: bytes) -> Any:
    """Return a notebook's JSON as an object; raises ValueError with what is wrong."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        text = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise ValueError(text) from None


def cells(notebook: Any) -> list[Cell]:
    """Return the cells of a notebook of any format; raises ValueError with what is wrong.

    Anything of the wrong type is left out: only the text of cells counts.
    """
    match notebook:
        case {"cells": [*listed]} | {"worksheets": [{"cells": [*listed]}, *_]}:  # until 2013
            pass
        case _:
            raise ValueError("no cells")
    return [Cell(clean(cell.get("source", cell.get("input", ""))),
                 cell.get("cell_type", "code" if "outputs" in cell else "") == "code",
                 name_of(cell))
            for cell in listed if isinstance(cell, dict)]


@dataclass
class Statement:
    """A statement at the top of a cell: what it binds, reads and changes, by global name."""

    cell: int
    lines: tuple[int, int]  # its first and last line in the cell, from 0, end excluded
    binds: set[str]
    surely: bool  # it binds whenever it runs: not in a branch or a loop
    reads: set[str]
    later: set[str]  # what functions read that it makes: when they are called
    changes: set[str]
    imports: bool


COMPOUND = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match)
# functions called only for their output: print, and the course's own
OUTPUT = {"print", "display", "checks", "helpers", "listing", "plots", "plt"}
_transform = TransformerManager()


def python(source: str) -> str:
    """Return a cell's code as Python: magics and ! lines become calls, %%time is removed."""
    if match := re.match(r"\s*%%(time|capture|prun)\b.*\n", source):
        source = "\n" * match[0].count("\n") + source[match.end():]
    return _transform.transform_cell(source[:MOST_SOURCE])


def _later(table: symtable.SymbolTable) -> set[str]:
    """Return the global names that the functions and classes of a scope read."""
    found = set()
    for inner in table.get_children():
        found |= {symbol.get_name() for symbol in inner.get_symbols()
                  if symbol.is_referenced() and symbol.is_global()} | _later(inner)
    return found


def _root(node: ast.AST) -> str:
    """Return the name at the front of an expression such as a.b[0].c, or ""."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _changes(statement: ast.stmt, own: bool) -> set[str]:
    """Return the names whose values a statement may change without rebinding them.

    `own`: a student wrote it. Then a function called without using its result may change its
    arguments.
    """
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    found = set()
    if own and isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call) \
            and _root(call) not in OUTPUT:
        found |= {_root(part) for part in [*call.args, *(k.value for k in call.keywords)]}
    for node in ast.walk(statement):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                found |= {_root(target) for target in targets if not isinstance(target, ast.Name)}
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                found.add(_root(target))
            case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
                found.add(_root(called))
            case ast.withitem(context_expr=ast.Call(func=ast.Attribute() as called)):
                found.add(_root(called))
    return found - {"", "get_ipython"}


def _tree(code: str) -> ast.Module:
    """Parse Python; again if the parser itself failed, as 3.11 does now and then until 3.11.7.

    https://github.com/python/cpython/issues/106905
    """
    try:
        return ast.parse(code)
    except SystemError:
        return ast.parse(code)


def statements(code: str, cell: int, own: bool = False) -> list[Statement]:
    """Return the statements of a cell, a student's `own` one; none if it is not Python."""
    try:
        tree = _tree(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines, start, last = code.splitlines(keepends=True), 0, 0
    found: list[Statement] = []
    for statement in tree.body:
        whole = [statement, *getattr(statement, "decorator_list", [])]
        first = min(item.lineno for item in whole) - 1
        if first < last:  # two on one line count as one
            found.pop()
            first = start
        start, last = first, statement.end_lineno or statement.lineno
        try:
            table = symtable.symtable("".join(lines[start:last]), "cell", "exec")
        except (SyntaxError, ValueError, RecursionError):
            continue
        symbols = table.get_symbols()
        binds = {symbol.get_name() for symbol in symbols
                 if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()}
        reads = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
        imports = isinstance(statement, ast.Import | ast.ImportFrom)
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            binds.add("*")
        found.append(Statement(cell, (start, last), binds, not isinstance(statement, COMPOUND),
                               reads, _later(table), _changes(statement, own), imports))
    return found


def needed(flat: Sequence[Statement], names: Iterable[str], whole: int) -> list[int]:
    """Return the places of the statements that the names, and the cell `whole`, depend on.

    A statement is needed if it is the last one that binds a needed name, or if it changes the value
    of one, unless that is a module: a change of a module is not an answer.
    """
    modules = {name for statement in flat if statement.imports for name in statement.binds}
    picked: set[int] = set()
    todo = [(name, len(flat)) for name in names]
    asked = set(todo)

    def pick(place: int) -> None:
        picked.add(place)
        statement = flat[place]
        more = {(name, place) for name in statement.reads | statement.changes}
        more |= {(name, len(flat)) for name in statement.later}
        todo.extend(more - asked)
        asked.update(more)

    for place, statement in enumerate(flat):
        if statement.cell == whole or "*" in statement.binds:
            pick(place)
    while todo:
        name, before = todo.pop()
        for place in range(before - 1, -1, -1):
            statement = flat[place]
            binds = name in statement.binds
            if (binds or name in statement.changes - modules) and place not in picked:
                pick(place)
            if binds and statement.surely:
                break
    return sorted(picked)
