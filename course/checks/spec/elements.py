"""Arrays of which single elements are offered: for answers that are to work element by element.

The reader's NumPy and PyTorch are guarded meanwhile: their functions take a few numbers at once,
and what they make offers single elements in its turn.
"""

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from course.checks.run.answer import checked, line_at
from course.checks.say.messages import CheckFailed
from course.words import _

MOST = 3  # numbers at once: np.max([a, b]) of two is fine, and so is a shape
_LIBRARIES = ("numpy", "torch", "scipy")
# They allocate, copy or convert: what comes offers single elements too.
_MOVES = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like",
          "array", "asarray", "asanyarray", "ascontiguousarray", "copy", "astype", "reshape",
          "ravel", "flatten", "view", "transpose", "squeeze", "item", "tolist", "shape", "size",
          "ndim", "ndindex", "ndenumerate", "nditer", "dtype", "errstate"}


class _Refusals(list[CheckFailed]):
    """What was done with many elements at once; an answer may catch what is raised."""

    def refuse(self, what: str) -> NoReturn:
        """Raise CheckFailed, and keep it."""
        # an answer may catch what is raised, and lose its traceback
        frame: types.FrameType | None = sys._getframe()
        while frame and frame.f_code.co_filename not in checked.names:
            frame = frame.f_back
        line = line_at(frame.f_code.co_filename, frame.f_lineno) if frame else ""
        # form: no-loops
        self.append(CheckFailed(_("explicit loops over single elements"), what, line))
        raise self[-1]

    def called(self, name: str, function: Callable, given: tuple, options: dict) -> Any:
        """Return what a library's function gives; refuse one that works on many numbers."""
        size = max(map(_size, (*given, *options.values())), default=0)
        if size > MOST and name.rpartition(".")[2] not in _MOVES \
                and not isinstance(function, type):
            self.refuse((_("{call} on an iterator") if size == float("inf")
                         else _("{call} on {size} numbers")).format(call=name, size=size))
        return self.guarded(function(*tree_map(_plain, given), **tree_map(_plain, options)))

    def guarded(self, value: Any, own: bool = True) -> Any:
        """Return an array that offers single elements; what has no axis, and the rest, as it is."""
        is_array = isinstance(value, np.ndarray) and not isinstance(value, Elements)
        return Elements(value, self, own) if is_array and value.ndim else value


class Elements(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that offers X[i, j], and X[i] as a row; whole, nobody gets it.

    `own`: the answer made it, and may assign to several of its elements.
    """

    def __init__(self, array: np.ndarray, refused: _Refusals, own: bool) -> None:
        self._array, self._refused, self._own = array, refused, own

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray  # to an answer that asks

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # no other way into the array
            raise AttributeError(name)
        found = self._array.reshape(-1) if name == "flat" else getattr(self._array, name)
        if not callable(found):
            return self._refused.guarded(found, self._own)
        if name not in _MOVES:
            return lambda *given, **options: self._refused.refuse(
                _("the method {name}").format(name=name))
        return lambda *given, **options: self._refused.guarded(
            found(*map(_plain, given), **tree_map(_plain, options)),
            self._own or name not in ("reshape", "view"))

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, at: Any) -> Any:
        return self._refused.guarded(self._array[at], self._own)

    def __setitem__(self, at: Any, value: Any) -> None:
        if (size := np.size(self._array[at])) > 1 and not self._own:
            self._refused.refuse(
                _("an assignment to {size} elements at once").format(size=size))
        self._array[at] = value

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._refused.refuse(_("an assignment to the attribute {name}").format(name=name))
        super().__setattr__(name, value)

    def __float__(self) -> float:
        return float(self._array)

    def __array__(self, *given: Any, **options: Any) -> np.ndarray:
        if self._array.size > MOST:
            self._refused.refuse(_("{size} numbers handed to NumPy at once").format(
                size=self._array.size))
        return np.array(self._array, *given, **options)

    def __array_ufunc__(self, function: np.ufunc, method: str, *given: Any, **options: Any) -> Any:
        return self._refused.called(f"np.{function.__name__}", getattr(function, method), given,
                                    options)

    def __array_function__(self, function: Callable, types: Any, given: Any, options: Any) -> Any:
        return self._refused.called(f"np.{function.__name__}", function, given, options)


class _Guarded:
    """A module, a function or a class of a library's, whose functions are guarded."""

    def __init__(self, found: Any, name: str, refused: _Refusals) -> None:
        self._found, self._name, self._refused = found, name, refused

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._found, name)
        return _Guarded(found, f"{self._name}.{name}", self._refused) if _is_guarded(found) \
            else found

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._found)

    def __call__(self, *given: Any, **options: Any) -> Any:
        return self._refused.called(self._name, self._found, given, options)


def _plain(value: Any) -> Any:
    """Return what stands behind a guard, and anything else as it is."""
    return value._array if isinstance(value, Elements) \
        else value._found if isinstance(value, _Guarded) else value


def _size(value: Any) -> float:
    """Return how many numbers a value holds; of an iterator, inf: nobody knows."""
    return sum(float("inf") if isinstance(leaf, Iterator)
               else leaf.numel() if isinstance(leaf, torch.Tensor)
               else leaf.size if isinstance(leaf, Elements | np.ndarray) else 1
               for leaf in tree_leaves(value))


def _is_guarded(found: Any) -> bool:
    """Whether something of a library's may be handed numbers, or has functions that may."""
    if isinstance(found, type):
        return found.__name__ in _MOVES
    return callable(found) or isinstance(found, types.ModuleType)


def _of_library(value: Any) -> str:
    """Return the name of something that comes from a library and is to be guarded, or ""."""
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__name__", "")
    if isinstance(value, np.ufunc):
        return f"np.{name}"
    library = (name if isinstance(value, types.ModuleType) else module).partition(".")[0]
    if library not in _LIBRARIES or not _is_guarded(value):
        return ""
    whole = name if isinstance(value, types.ModuleType) else f"{library}.{name}"
    return "np" + whole.removeprefix("numpy") if library == "numpy" else whole


def _globals_of(answer: Any) -> dict[str, Any]:
    """Return the names that an answer knows: a function, a method, a partial, a callable object."""
    while not hasattr(answer, "__globals__"):
        answer = getattr(answer, "func", None) or getattr(answer, "__func__", None) \
            or type(answer).__call__
        if isinstance(answer, types.MethodWrapperType | types.WrapperDescriptorType):
            return {}
    return answer.__globals__


@contextlib.contextmanager
def _guards(answer: Any, refused: _Refusals) -> Iterator[None]:
    known = _globals_of(answer)
    guards = {name: _Guarded(value, own, refused) for name, value in known.items()
              if not name.startswith("_") and (own := _of_library(value))}
    modules = {name: _Guarded(module, _of_library(module), refused)
               for name in _LIBRARIES if (module := sys.modules.get(name))}
    before = {name: known[name] for name in guards}
    known.update(guards)
    try:
        with mock.patch.dict(sys.modules, modules):  # for an import inside a function
            yield
    finally:
        known.update({name: value for name, value in before.items()
                      if known.get(name) is guards[name]})


def element_by_element(answer: Callable) -> Callable[..., np.ndarray]:
    """Return answer(X, Y), which writes Y (n, m) from X (n, m), as a function of X.

    Raises CheckFailed where it does something with many elements at once, changes X, leaves Y as
    it was, or returns a value.
    """
    def run(X: np.ndarray) -> np.ndarray:
        refused = _Refusals()
        given, out = X.copy(), np.full(X.shape, np.nan, "float32")
        try:
            with _guards(answer, refused):
                returned = answer(Elements(given, refused, False), Elements(out, refused, False))
        finally:
            if refused:
                raise refused[0] from None
        if not np.array_equal(given, X, equal_nan=True):
            raise CheckFailed(_("X to stay as it was"), _("other numbers in X"))
        if np.isnan(out).all() and not np.isnan(X).all() and returned is not None:
            raise CheckFailed(_("Y to be written"),
                              _("Y is full of NaN, as before the call, and a value was returned"))
        if returned is not None:
            raise CheckFailed(_("no return value"), _("a value"))
        return out
    return run
