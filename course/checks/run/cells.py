"""Whose answer is it? A check judges what the cell above it defined, and no older function.

A kernel keeps a function when the cell that defined it is changed and raises, or defines another
name. So each cell is looked at before and after it runs: which names its text binds, and which it
has bound. JupyterLab also says which cell it is; other programs do not (nbclient), and there the
cell that ran before the check's counts.
"""

import ast
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from IPython import get_ipython

from course.checks.run.answer import line_of_answer
from course.checks.say.messages import CheckFailed, reason
from course.words import _, listed

_BINDS = re.compile(r"(?:async[ \t]+)?(def|class)[ \t]+(\w+)"
                    r"|(\w+)[ \t]*(?::[^=]+)?=(?!=)[ \t]*(lambda\b)?")
_OWN_NAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp,
              ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MISSING = object()


def bound_by(text: str) -> dict[str, str]:
    """Return the names that a cell binds outside of functions: "def", "class", "lambda" or "=".

    How, by its lines; which, by its code, but it may be no Python.
    """
    found = _bound_in_lines(text)
    try:
        with warnings.catch_warnings(action="ignore"):  # the reader gets them when the cell runs
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return found
    return {name: found.get(name, "=") for name in _bound_in(tree)}


def _bound_in(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield child.name
            case ast.Name(ctx=ast.Store()):
                yield child.id
            case ast.alias():
                yield (child.asname or child.name).partition(".")[0]
        if not isinstance(child, _OWN_NAMES):
            yield from _bound_in(child)


def _bound_in_lines(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    inside: list[int] = []  # how far the functions around a line are indented
    for line in text.splitlines():
        rest = line.lstrip()
        indent = len(line) - len(rest)
        if not rest or rest.startswith(("#", "@")):
            continue
        while inside and indent <= inside[-1]:
            inside.pop()
        if match := _BINDS.match(rest):
            kind, defined, assigned, function = match.groups()
            if not inside:
                found[defined or assigned] = kind or function or "="
            if kind:
                inside.append(indent)
    return found


@dataclass
class _Cell:
    """A cell that runs or ran: its text, its name in the notebook."""

    text: str = ""
    id: str = ""
    before: dict[str, Any] = field(default_factory=dict)  # what its names stood for
    checks: bool = False

    @property
    def functions(self) -> list[str]:
        """The functions that its text defines."""
        return [name for name, kind in bound_by(self.text).items() if kind in ("def", "lambda")]


@dataclass
class _Stale:
    """Why the last cell that should have bound a name did not."""

    error: BaseException | None
    instead: list[str]


class Notebook:
    """The cells that ran in a kernel, and whose names are not theirs any more."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names  # what is defined in the kernel
        self.now = self.last = _Cell()  # the one that runs, and the last that called no check
        self.stale: dict[str, _Stale] = {}
        self.home: dict[str, str] = {}  # in which cell a name was bound, where that is known

    def begins(self, text: str, id: str = "") -> None:
        """Note what the names of a cell stand for before it runs."""
        self.now = _Cell(text, id, {name: self.names.get(name, _MISSING)
                                    for name in bound_by(text)})

    def ended(self, error: BaseException | None) -> None:
        """Note which names the cell has bound, and which it should have."""
        cell = self.now
        kinds = bound_by(cell.text)
        for name, before in cell.before.items():
            after = self.names.get(name, _MISSING)
            if after is not before or not error and kinds[name] == "=" \
                    and after is not _MISSING:
                self.stale.pop(name, None)
                self.home[name] = cell.id
            else:
                self.stale[name] = _Stale(error, [])
        if cell.id:
            for name, home in self.home.items():
                if home == cell.id and name not in cell.before:
                    self.stale[name] = _Stale(error, cell.functions)
        if not cell.checks:
            self.last = cell
        self.now = _Cell()

    def why_stale(self, name: str, answer: Any, known: Callable[[str], bool] | None
                  ) -> _Stale | None:
        """Return why a function is not that of its cell, or None: it is.

        `known` are names of other answers, in a check: there the cell above has to define it.
        """
        self.now.checks = True
        if self.now.before.get(name, answer) is not answer:
            return None  # the cell of the check has it
        if known and not self.last.id and self.last.functions \
                and name not in self.last.before \
                and not any(map(known, self.last.functions)) \
                and not _used(answer).intersection(self.last.functions):
            return _Stale(None, self.last.functions)
        return self.stale.get(name)


def _used(answer: Any) -> set[str]:
    """Return the global names that a function uses, and those that they use in their turn."""
    found: set[str] = set()
    todo, seen = [answer], set()
    while todo:
        function = todo.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        function = getattr(function, "func", getattr(function, "__func__", function))
        for code in _codes(getattr(function, "__code__", None)):
            new = set(code.co_names) - found
            found |= new
            known = getattr(function, "__globals__", {})
            todo += [known[name] for name in new
                     if isinstance(known.get(name), types.FunctionType)]
        todo += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()
                 if isinstance(cell.cell_contents, types.FunctionType)]
    return found


def _codes(code: types.CodeType | None) -> Iterator[types.CodeType]:
    if code is not None:
        yield code
        for part in code.co_consts:
            if isinstance(part, types.CodeType):
                yield from _codes(part)


_notebook: Notebook | None = None


def watch_cells() -> None:
    """Look at each cell of this kernel from now on; elsewhere do nothing."""
    global _notebook
    if not (shell := get_ipython()):
        return
    _notebook = notebook = Notebook(shell.user_ns)
    shell.events.register("pre_run_cell", lambda info: notebook.begins(
        info.raw_cell or "", str(getattr(info, "cell_id", None) or "")))
    shell.events.register("post_run_cell", lambda result: notebook.ended(
        result.error_before_exec or result.error_in_exec))


def stale(answer: Any, usual: str, known: Callable[[str], bool] | None = None
          ) -> tuple[str, _Stale] | None:
    """Return the name of an answer and why it is not of its cell, or None: it is.

    `usual` is the name that the notebook gives it; `known` as in why_stale.
    """
    if _notebook is None:
        return None
    names = [usual] if _notebook.names.get(usual) is answer \
        else [name for name, value in _notebook.names.items() if value is answer]
    found = [(name, _notebook.why_stale(name, answer, known)) for name in names]
    return next(((name, why) for name, why in found if why), None) \
        if all(why for _name, why in found) else None


def require_of_the_cell_above(answer: Any, usual: str, known: Callable[[str], bool]) -> None:
    """Raise CheckFailed where the cell above the check did not define its answer."""
    if not (found := stale(answer, usual, known)):
        return
    name, why = found
    older = _("{name} is still the one from an earlier cell").format(name=name)
    if why.error is not None:
        raise CheckFailed(_("the cell with your answer to run"),
                          _("{reason}; {older}").format(reason=reason(why.error), older=older),
                          line_of_answer(why.error))
    if why.instead:
        raise CheckFailed(_("the cell above to define {name}").format(name=name),
                          _("it defines {names}; {older}").format(names=listed(why.instead),
                                                                  older=older),
                          _("the name after def, letter by letter; if it is right, run the cell of "
                            "{name} again, then its check").format(name=name))
    raise CheckFailed(_("the cell above to define {name}").format(name=name),
                      _("it ran and did not; {older}").format(older=older))
