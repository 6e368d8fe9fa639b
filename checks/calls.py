"""Watching which functions an answer calls: by its own source, or by the interpreter's events."""

import ast
import contextlib
import functools
import inspect
import os
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
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


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the codes of the functions inside a function, and inside these."""
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield part
            yield from _inside(part)


def _plain(called: Any) -> Any:
    """Return the function in a method, a partial or a callable object."""
    if isinstance(called, functools.partial):
        return _plain(called.func)
    if isinstance(called, types.MethodType | types.FunctionType):
        return getattr(called, "__func__", called)
    return inspect.getattr_static(type(called), "__call__", called)


def through(function: Callable, see: Callable[..., Any]) -> Callable:
    """Return the function with each call f(a) in it replaced by see(f, a).

    So are functions, methods and callable objects that it calls or hands on, if they stand in the
    same cell or in another one. Lines and globals stay. Raises CheckFailed where the function has
    no source to read.
    """
    answer = _plain(function)
    changed: dict[Any, Callable] = {}
    done: set[types.CodeType] = set()  # with functions inside functions

    def seen(called: Callable, *arguments: Any, **options: Any) -> Any:
        return see(instead(called), *map(handed_on, arguments),
                   **{name: handed_on(value) for name, value in options.items()})

    def instead(called: Any) -> Any:
        """What is called in the place of a callable: the changed one, where it is the reader's."""
        match called:
            case functools.partial():
                return functools.partial(instead(called.func), *called.args, **called.keywords)
            case types.MethodType():
                return types.MethodType(instead(called.__func__), called.__self__)
            case types.FunctionType() if _of_the_reader(called, answer):
                if called not in changed and called.__code__ not in done:
                    changed[called] = change(called)
                return changed.get(called, called)
        own = inspect.getattr_static(type(called), "__call__", None)
        return types.MethodType(instead(own), called) \
            if isinstance(own, types.FunctionType) and _of_the_reader(own, answer) else called

    def handed_on(value: Any) -> Any:
        """What stands for an argument that is called elsewhere, as in map(np.exp, rows)."""
        if not callable(value) or isinstance(value, type):
            return value
        module = getattr(value, "__module__", None) or ""
        of_library = isinstance(value, np.ufunc) or module.split(".")[0] in ("numpy", "torch")
        return functools.partial(see, value) if of_library else instead(value)

    def change(called: Any) -> Callable:
        found = None
        with contextlib.suppress(AttributeError, OSError, TypeError, SyntaxError, ValueError):
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
            found = next((part for part in _inside(code) if part.co_name == called.__name__
                          and part.co_firstlineno == line), None)
        if found is None and called is answer:
            raise CheckFailed("an answer that this check can read", f"{called.__name__} has no "
                              "source", "where it comes from: write it out in the cell above")
        if found is None:
            return called
        done.update(_inside(found))
        cells = dict(zip(called.__code__.co_freevars, called.__closure__ or (), strict=True))
        cells[_SEE] = types.CellType(seen)
        new = types.FunctionType(found, called.__globals__, called.__name__, called.__defaults__,
                                 tuple(cells[name] for name in found.co_freevars))
        new.__kwdefaults__ = called.__kwdefaults__
        return new

    return instead(function)


def _of_the_reader(called: Any, answer: Any) -> bool:
    """Whether a function stands in the answer's file, or in another cell."""
    name = called.__code__.co_filename
    return "ipykernel" in name \
        or name == getattr(getattr(answer, "__code__", None), "co_filename", None)


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
