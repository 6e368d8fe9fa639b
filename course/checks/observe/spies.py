"""Spies on an answer: which functions it calls, and what it does to arrays.

Calls are seen by the answer's own source, by the interpreter's events, or by PyTorch's modes.
"""

import ast
import contextlib
import functools
import inspect
import os
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from tvm import te

from course.checks.say.messages import CheckFailed
from course.words import _

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


def _rewritten(called: Any) -> types.CodeType | None:
    """Return a function's code with __see__(f, a) for each call f(a), or None: it has no source.

    What it takes from functions around it, and __see__, are the code's free variables.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError, SyntaxError, ValueError):
        free = (*called.__code__.co_freevars, _SEE)
        source = textwrap.dedent(inspect.getsource(called.__code__))  # not what it wraps
        # in a class, whose names its functions do not see, and which decides what self.__name is
        owner = "".join(called.__qualname__.split(".")[-2:-1]).replace("<locals>", "") or "_"
        tree = ast.parse(f"def __outer__({', '.join(free)}):\n class {owner}:\n"
                         + textwrap.indent(source, "  "))
        line = called.__code__.co_firstlineno
        ast.increment_lineno(tree, line - 3)
        outer = tree.body[0]
        assert isinstance(outer, ast.FunctionDef) and isinstance(outer.body[0], ast.ClassDef)
        definition = outer.body[0].body[0]
        outer.lineno = outer.body[0].lineno = line  # which is above the file's first
        if isinstance(definition, ast.FunctionDef):
            definition.decorator_list = []
            line = definition.lineno
        code = compile(ast.fix_missing_locations(_Through().visit(tree)),
                       called.__code__.co_filename, "exec")
        return next((part for part in _inside(code) if part.co_name == called.__code__.co_name
                     and part.co_firstlineno == line), None)
    return None


class _Changed:
    """Functions of the reader's, changed so that their calls go through `see`."""

    def __init__(self, answer: Any, see: Callable[..., Any]) -> None:
        self.answer, self.see = answer, see
        self.known: dict[Any, Callable] = {}
        self.done: set[types.CodeType] = set()  # with functions inside functions

    def of_the_reader(self, called: Any) -> bool:
        """Whether a function is in the answer's file, or in another cell."""
        name = called.__code__.co_filename
        return "ipykernel" in name \
            or name == getattr(getattr(self.answer, "__code__", None), "co_filename", None)

    def seen(self, called: Callable, *arguments: Any, **options: Any) -> Any:
        """Call `see`, as __see__ in a changed function does."""
        return self.see(self.instead(called), *map(self.handed_on, arguments),
                        **{name: self.handed_on(value) for name, value in options.items()})

    def instead(self, called: Any) -> Any:
        """Return what is called in place of a callable: it changed, where it is the reader's."""
        match called:
            case functools.partial():
                return functools.partial(self.instead(called.func), *called.args, **called.keywords)
            case types.MethodType():
                return types.MethodType(self.instead(called.__func__), called.__self__)
            case types.FunctionType() if self.of_the_reader(called):
                if called not in self.known and called.__code__ not in self.done:
                    self.known[called] = self.change(called)
                return self.known.get(called, called)
        own = inspect.getattr_static(type(called), "__call__", None)
        return types.MethodType(self.instead(own), called) \
            if isinstance(own, types.FunctionType) and self.of_the_reader(own) else called

    def handed_on(self, value: Any) -> Any:
        """Return what takes the place of an argument that others call, as in map(np.exp, rows)."""
        if not callable(value) or isinstance(value, type):
            return value
        module = getattr(value, "__module__", None) or ""
        of_library = isinstance(value, np.ufunc) or module.split(".")[0] in ("numpy", "torch")
        return functools.partial(self.see, value) if of_library else self.instead(value)

    def change(self, called: Any) -> Callable:
        """Return a function changed; where it has no source, itself, but for the answer's own."""
        found = _rewritten(called)
        if found is None and called is self.answer:
            # form: unreadable
            raise CheckFailed(_("an answer that this check can read"),
                              _("{name} has no source").format(name=called.__name__),
                              _("where it comes from: write it out in the cell above"))
        if found is None:
            return called
        self.done.update(_inside(found))
        cells = dict(zip(called.__code__.co_freevars, called.__closure__ or (), strict=True))
        cells[_SEE] = types.CellType(self.seen)
        new = types.FunctionType(found, called.__globals__, called.__name__, called.__defaults__,
                                 tuple(cells[name] for name in found.co_freevars))
        new.__kwdefaults__ = called.__kwdefaults__
        return new


def through(function: Callable, see: Callable[..., Any]) -> Callable:
    """Return the function with each call f(a) in it replaced by see(f, a).

    So are functions, methods and callable objects that it calls or hands on, if they are in the
    same cell or in another one. Lines and globals stay. Raises CheckFailed where the function has
    no source to read.
    """
    return _Changed(_plain(function), see).instead(function)


# ---- TVM: TOPI, compiling ------------------------------------------------------------------

_TVM = os.path.dirname(os.path.abspath(tvm.__file__)) + os.sep
_TOPI = os.path.join(_TVM, "topi") + os.sep
_OPERATORS = os.path.join(_TOPI, "_te_tensor_overload.py")


@contextlib.contextmanager
def _events(note: Callable[[types.FrameType, str, Any], None]) -> Iterator[None]:
    """Hand the interpreter's events, calls and returns, to a function for a while."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextlib.contextmanager
def require_no_topi() -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of TOPI made a te.Tensor inside.

    Seen by the file of the function that returns one, so that no import and no tag matters. An
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

    with _events(note):
        yield
    if by:
        name, operator = by[0]
        if operator:
            raise CheckFailed(_("an expression of your own, with te and without topi"),
                              _("an operator between whole te.Tensors (+, *, ...): these are "
                                "TOPI's"),
                              _("a te.compute over the elements: lambda i, j: y[i, j] + b[j]"))
        raise CheckFailed(_("an expression of your own"),
                          _("one by TOPI: topi's {name}").format(name=name),
                          _("the words of the exercise: with te, without topi"))


@contextlib.contextmanager
def require_no_tvm(expected: str, look_at: str,
                   asked: Sequence[str] = ("compile", "build")) -> Iterator[None]:
    """Raise CheckFailed after the `with` if one of these functions of TVM was called inside.

    Seen by the file of the function that does it, whatever its name is in the answer.
    """
    found: list[str] = []

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name in asked \
                and frame.f_code.co_filename.startswith(_TVM):
            found.append(frame.f_code.co_name)

    with _events(note):
        yield
    if found:
        raise CheckFailed(expected, _("TVM was called: {name}").format(name=found[0]), look_at)


# ---- PyTorch -------------------------------------------------------------------------------

# In the names of PyTorch's functions: whatever convolves multiplies, by one of these. (Below them,
# TorchDispatchMode would see the same, and imports for more than a second first.)
_MULTIPLIES = ("conv", "mm", "mul", "dot", "mv", "addr", "linear", "einsum", "kron", "inner",
               "outer")


class TorchCalls(torch.overrides.TorchFunctionMode):
    """Notes every function of PyTorch that is called inside `with`, in threads begun there too."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Callable, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.names.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))

    def __enter__(self) -> "TorchCalls":
        def enter(*_: Any) -> None:  # by the first event of a new thread: a mode is the thread's
            sys.setprofile(None)
            super(TorchCalls, self).__enter__()
        threading.setprofile(enter)
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        threading.setprofile(None)
        super().__exit__(*raised)


@contextlib.contextmanager
def require_numpy_only(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of PyTorch was called inside."""
    with TorchCalls() as calls:
        yield
    if calls.names:
        raise CheckFailed(expected, _("PyTorch's {names} was called").format(names=calls.names[0]),
                          look_at)


@contextlib.contextmanager
def require_torch(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if PyTorch multiplied nothing inside."""
    with TorchCalls() as calls:
        yield
    if not any(word in name for name in calls.names for word in _MULTIPLIES):
        raise CheckFailed(expected, _("PyTorch multiplied nothing"), look_at)


# ---- arrays: what is done to them ----------------------------------------------------------


def _noting(name: str) -> Any:
    """Return a method of arrays that notes its call in a Watched one."""
    def method(self: "Watched", *arguments: Any, **options: Any) -> Any:
        self.notes["whole"].append(_("the method {name}").format(name=name))
        return getattr(np.asarray(self), name)(*arguments, **options)
    return method


class Watched(np.ndarray):
    """An array that notes what is done to it as a whole, and which elements are assigned.

    `notes`: "whole", what was done; "reads" and "writes", how many single elements.
    """

    notes: dict[str, Any]

    def __array_finalize__(self, source: Any) -> None:
        self.notes = getattr(source, "notes", None) or _notes()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        self.notes["whole"].append(f"np.{ufunc.__name__}" + f".{method}" * (method != "__call__"))
        inputs = tuple(np.asarray(item) if isinstance(item, Watched) else item for item in inputs)
        if "out" in kwargs:
            kwargs["out"] = tuple(np.asarray(item) for item in kwargs["out"])
        return getattr(ufunc, method)(*inputs, **kwargs)

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ in ("shape", "size", "ndim", "empty_like", "zeros_like", "full_like"):
            return function(*(np.asarray(arg) if isinstance(arg, Watched) else arg
                              for arg in args), **kwargs)
        self.notes["whole"].append(f"np.{function.__name__}")
        return super().__array_function__(function, types, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        came = super().__getitem__(index)
        if not isinstance(came, np.ndarray):
            self.notes["reads"] += 1
        return came

    def __setitem__(self, index: Any, value: Any) -> None:
        size = np.asarray(self)[index].size
        if size > 1 and not self.notes.get("own"):
            self.notes["whole"].append(_("an assignment to {size} elements at once").format(
                                           size=size))
        self.notes["writes"] += size == 1
        super().__setitem__(index, value)

    def item(self, *index: Any) -> Any:
        """Return an element as a Python number: one that is read."""
        self.notes["reads"] += 1
        return super().item(*index)

    def tolist(self) -> list[Any]:
        """Return all elements as Python numbers: each is read."""
        self.notes["reads"] += self.size
        return super().tolist()

    @property
    def flat(self) -> Any:
        """The elements in a row, watched too, where they lie in a row in memory."""
        return watched(np.asarray(self).reshape(-1), self.notes) \
            if self.flags.c_contiguous else np.asarray(self).flat

    @flat.setter
    def flat(self, value: Any) -> None:
        self.reshape(-1)[...] = value

    argmax, argmin, argsort, sort, dot, cumsum, fill, put, partition, argpartition, searchsorted \
        = map(_noting, ("argmax", "argmin", "argsort", "sort", "dot", "cumsum", "fill", "put",
                        "partition", "argpartition", "searchsorted"))


def _notes() -> dict[str, Any]:
    return {"whole": [], "writes": 0, "reads": 0}


def watched(array: np.ndarray, notes: dict[str, Any] | None = None) -> Watched:
    """Return a view of an array that notes from now on what is done to it, in `notes` or anew."""
    view = array.view(Watched)
    view.notes = notes or _notes()
    return view


# They allocate, copy or convert: what comes is watched in its turn.
_MOVES = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like",
          "array", "asarray", "asanyarray", "ascontiguousarray", "copy", "astype", "reshape",
          "ravel", "flatten", "view", "transpose", "squeeze", "float32", "float64", "item",
          "tolist", "shape", "size", "ndim", "ndindex", "ndenumerate", "nditer"}


def _size(value: Any) -> float:
    """Return how many numbers a value holds; of an iterator, inf: nobody knows."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.numel() if isinstance(value, torch.Tensor) else value.size
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return float("inf") if isinstance(value, Iterator) else 1


def elementwise(function: Callable, whole: list[str], least: int) -> Callable:
    """Return a function that notes in `whole` where it gives NumPy or PyTorch `least` numbers.

    They may be in an array, a list, a tuple or an iterator. Its arrays are watched too.
    """
    own = {"whole": whole, "writes": 0, "reads": 0, "own": True}

    def see(called: Callable, *arguments: Any, **options: Any) -> Any:
        owner = getattr(called, "__self__", None)
        module = (getattr(called, "__module__", None) or getattr(owner, "__module__", None)
                  or type(called).__module__)
        name, kind = getattr(called, "__name__", type(called).__name__), ""
        given = (*arguments, *options.values())
        if isinstance(owner, np.ndarray | torch.Tensor):
            given, kind = ((owner, *given), _("the method "))
        elif isinstance(owner, np.ufunc):
            kind, module = f"np.{owner.__name__}.", "numpy"
        elif module.split(".")[0] == "numpy":
            kind = "np."
        elif module.split(".")[0] in ("torch", "scipy"):
            kind = f"{module.split('.')[0]}."
        moves = name in _MOVES and (not kind or "torch" not in kind)
        watches = [item for item in given if isinstance(item, Watched)]
        if called is np.ndenumerate and watches:
            watches[0].notes["reads"] += watches[0].size
        size = max(map(_size, given), default=0)
        if kind and not moves and size >= least:
            whole.append((_("{call} on many numbers") if size == float("inf")
                          else _("{call} on {size} numbers")).format(call=kind + name, size=size))
        came = called(*arguments, **options)
        if kind and type(came) is np.ndarray:
            return watched(came, watches[0].notes if watches else own)
        return came
    return through(function, see)
