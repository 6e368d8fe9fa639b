"""Watching which functions an answer calls: by its own source, or by the interpreter's events."""

import ast
import contextlib
import inspect
import os
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import te

from checks.saying import CheckFailed

# ---- every call, with its arguments --------------------------------------------------------

_SEE = "__see__"
_FRAMES = {"super", "locals", "globals", "vars", "dir", "eval", "exec"}  # they look at their caller


class _Through(ast.NodeTransformer):
    """Turns f(a) into __see__(f, a)."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAMES:
            return node
        see = ast.copy_location(ast.Name(_SEE, ast.Load()), node.func)
        return ast.copy_location(ast.Call(see, [node.func, *node.args], node.keywords), node)


def _code(code: types.CodeType, name: str, line: int) -> types.CodeType | None:
    """Find the code of a function inside another one's."""
    inside = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    for part in inside:
        if part.co_name == name and part.co_firstlineno == line:
            return part
    return next((found for part in inside if (found := _code(part, name, line))), None)


def through(function: Callable, see: Callable[..., Any]) -> Callable:
    """Return the function with each call f(a) in it replaced by see(f, a).

    So are functions that it calls, if they stand in the same cell or in another one. Lines and
    globals stay. Where there is no source to read, the function itself is returned.
    """
    changed: dict[Any, Callable] = {}

    def seen(called: Callable, *arguments: Any, **options: Any) -> Any:
        if isinstance(called, types.FunctionType) and _of_the_reader(called, function):
            called = changed.setdefault(called, change(called))
        return see(called, *arguments, **options)

    def change(called: Any) -> Callable:
        try:
            free = (*called.__code__.co_freevars, _SEE)
            source = textwrap.dedent(inspect.getsource(called))
            tree = ast.parse(f"def __outer__({', '.join(free)}):\n" + textwrap.indent(source, " "))
            line = called.__code__.co_firstlineno
            ast.increment_lineno(tree, line - 2)
            outer = tree.body[0]
            assert isinstance(outer, ast.FunctionDef)
            definition = outer.body[0]
            if isinstance(definition, ast.FunctionDef):
                definition.decorator_list = []
                line = definition.lineno
            code = compile(ast.fix_missing_locations(_Through().visit(tree)),
                           called.__code__.co_filename, "exec")
            found = _code(code, called.__name__, line)
        except (AttributeError, OSError, TypeError, SyntaxError, ValueError):
            return called
        if found is None:
            return called
        cells = dict(zip(called.__code__.co_freevars, called.__closure__ or (), strict=True))
        cells[_SEE] = types.CellType(seen)
        new = types.FunctionType(found, called.__globals__, called.__name__, called.__defaults__,
                                 tuple(cells[name] for name in found.co_freevars))
        new.__kwdefaults__ = called.__kwdefaults__
        return new

    return change(function)


def _of_the_reader(called: Any, answer: Any) -> bool:
    """Whether a function stands in the answer's file, or in another cell."""
    name = called.__code__.co_filename
    return name == getattr(getattr(answer, "__code__", None), "co_filename", None) \
        or "ipykernel" in name


# ---- TOPI ----------------------------------------------------------------------------------

_TVM = os.path.dirname(os.path.abspath(tvm.__file__)) + os.sep
_TOPI = os.path.join(_TVM, "topi") + os.sep
_OPERATORS = os.path.join(_TOPI, "_te_tensor_overload.py")


@contextlib.contextmanager
def without_topi() -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of TOPI made a te.Tensor inside.

    Seen by where the function that returns one stands, so that no import and no tag matters. An
    operator between whole te.Tensors is TOPI's too.
    """
    by: list[tuple[str, bool]] = []

    def note(frame: types.FrameType, event: str, came: Any) -> None:
        path = frame.f_code.co_filename
        if event != "return" or not path.startswith(_TOPI) or not isinstance(came, te.Tensor):
            return
        above = frame.f_back
        while above and above.f_code.co_filename.startswith(_TVM):
            if above.f_code.co_filename.startswith(_TOPI) \
                    and above.f_code.co_filename != _OPERATORS:
                return  # inside another function of TOPI's
            path = path if path == _OPERATORS else above.f_code.co_filename
            above = above.f_back
        by.append((frame.f_code.co_name, path == _OPERATORS))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
    if by:
        name, operator = by[0]
        if operator:
            raise CheckFailed("an expression of your own, with te and without topi",
                              "an operator between whole te.Tensors (+, *, ...): these are TOPI's",
                              "a te.compute over the elements: lambda i, j: y[i, j] + b[j]")
        raise CheckFailed("an expression of your own", f"one by TOPI: topi's {name}",
                          "the words of the exercise: with te, without topi")
