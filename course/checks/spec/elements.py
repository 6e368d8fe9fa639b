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

from course.checks.say.messages import CheckFailed
from course.words import _

MOST = 3  # numbers at once: np.max([a, b]) of two is fine, and so is a shape
_LIBRARIES = ("numpy", "torch", "scipy")
# They allocate, copy or convert: what comes offers single elements too.
_MOVES = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like",
          "array", "asarray", "asanyarray", "ascontiguousarray", "copy", "astype", "reshape",
          "ravel", "flatten", "view", "transpose", "squeeze", "item", "tolist", "shape", "size",
          "ndim", "ndindex", "ndenumerate", "nditer", "dtype", "errstate"}
_SIZE = {"shape", "size", "ndim", "dtype", "nbytes", "itemsize", "strides", "flags"}


class ManyAtOnce(CheckFailed):
    """An answer does something with many elements at once."""

    @classmethod
    def by(cls, what: str) -> "ManyAtOnce":
        """Return it in words."""
        # form: no-loops
        return cls(_("explicit loops over single elements"), what)


class Elements:
    """An array that offers X[i, j], and X[i] as a row; whole, nobody gets it.

    `own`: the answer made it, and may assign to several of its elements. `refused` takes the
    refusals, for an answer may catch what is raised.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: np.ndarray, refused: list[ManyAtOnce], own: bool = False) -> None:
        self._array, self._refused, self._own = array, refused, own

    def __getattr__(self, name: str) -> Any:
        if name in _SIZE:
            return getattr(self._array, name)
        if name in ("T", "flat"):
            return self._of(self._array.T if name == "T" else self._array.reshape(-1))
        if name.startswith("_") or not hasattr(self._array, name):
            raise AttributeError(f"'numpy.ndarray' object has no attribute '{name}'")
        if name in _MOVES:
            return lambda *given, **options: self._of(
                getattr(self._array, name)(*given, **options), own=name not in ("reshape", "view"))
        return lambda *given, **options: self._refuse(_("the method {name}").format(name=name))

    def _of(self, array: Any, own: bool = False) -> Any:
        if not isinstance(array, np.ndarray) or not array.ndim:
            return array
        return Elements(array, self._refused, self._own or own)

    def _refuse(self, what: str) -> NoReturn:
        self._refused.append(ManyAtOnce.by(what))
        raise self._refused[-1]

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return (self._of(part) for part in self._array)

    def __getitem__(self, at: Any) -> Any:
        return self._of(self._array[at])

    def __setitem__(self, at: Any, value: Any) -> None:
        if (size := np.size(self._array[at])) > 1 and not self._own:
            self._refuse(_("an assignment to {size} elements at once").format(size=size))
        self._array[at] = value

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._refuse(_("an assignment to {size} elements at once").format(
                size=self._array.size))
        super().__setattr__(name, value)

    def __float__(self) -> float:
        return float(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __array__(self, *given: Any, **options: Any) -> np.ndarray:
        if self._array.size > MOST:
            self._refuse(_("{call} on {size} numbers").format(call="np.asarray",
                                                              size=self._array.size))
        return np.array(self._array, *given, **options)

    def __array_ufunc__(self, function: np.ufunc, method: str, *given: Any, **options: Any) -> Any:
        return self._whole(f"np.{function.__name__}", getattr(function, method), given, options)

    def __array_function__(self, function: Callable, types: Any, given: Any, options: Any) -> Any:
        return self._whole(f"np.{function.__name__}", function, given, options)

    def _whole(self, name: str, function: Callable, given: Any, options: dict) -> Any:
        if (size := max(map(_size, (*given, *options.values())), default=0)) > MOST:
            self._refuse(_("{call} on {size} numbers").format(call=name, size=size))
        return self._of(function(*map(_plain, given), **_plain(options)), own=True)


def _operated(name: str) -> Callable[..., Any]:
    def method(self: Elements, *other: Any) -> Any:
        return self._refuse(_("{call} on {size} numbers").format(
            call=f"np.{name}", size=self._array.size))
    return method


for _name, _ufunc in {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
        "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "matmul": "matmul",
        "neg": "negative", "abs": "absolute", "lt": "less", "le": "less_equal", "gt": "greater",
        "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}.items():
    for _kind in ("", "r", "i"):  # Python looks for those that there are
        setattr(Elements, f"__{_kind}{_name}__", _operated(_ufunc))


def _plain(value: Any) -> Any:
    """Return a value with arrays in the place of Elements."""
    match value:
        case Elements():
            return value._array
        case list() | tuple():
            return type(value)(map(_plain, value))
        case dict():
            return {name: _plain(one) for name, one in value.items()}
    return value


def _size(value: Any) -> float:
    """Return how many numbers a value holds; of an iterator, inf: nobody knows."""
    if isinstance(value, Elements | np.ndarray):
        return value.size
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return float("inf") if isinstance(value, Iterator) else 1


class _Guarded:
    """A function, a class of numbers or a module of a library's, whose functions are guarded."""

    def __init__(self, found: Any, name: str, refused: list[ManyAtOnce]) -> None:
        self._found, self._name, self._refused = found, name, refused
        if isinstance(found, type) and issubclass(found, np.generic):
            self.dtype = np.dtype(found)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._found, name)
        short = {"numpy": "np"}.get(self._name, self._name)
        return _guarded(found, f"{short}.{name}", self._refused)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._found)

    def __call__(self, *given: Any, **options: Any) -> Any:
        name = self._name.rpartition(".")[2]
        size = max(map(_size, (*given, *options.values())), default=0)
        if name not in _MOVES and size > MOST and not isinstance(self._found, type):
            self._refused.append(ManyAtOnce.by((
                _("{call} on many numbers") if size == float("inf")
                else _("{call} on {size} numbers")).format(call=self._name, size=size)))
            raise self._refused[-1]
        came = self._found(*map(_plain, given), **_plain(options))
        return Elements(came, self._refused, own=True) \
            if isinstance(came, np.ndarray) and came.ndim else came


def _guarded(found: Any, name: str, refused: list[ManyAtOnce]) -> Any:
    """Return what stands for something of a library's: itself, where it is no function."""
    if isinstance(found, type):
        takes = issubclass(found, np.generic) or found.__name__ in _MOVES
        return _Guarded(found, name, refused) if takes else found
    return _Guarded(found, name, refused) \
        if callable(found) or isinstance(found, types.ModuleType) else found


def _of_library(value: Any) -> str:
    """Return the name of something that comes from a library, or ""."""
    if isinstance(value, types.ModuleType):
        return value.__name__ if value.__name__.split(".")[0] in _LIBRARIES else ""
    if isinstance(value, np.ufunc):
        return f"np.{value.__name__}"
    module = (getattr(value, "__module__", None) or "").split(".")[0]
    if module not in _LIBRARIES or not callable(value) \
            or isinstance(value, type) and not issubclass(value, np.generic) \
            and value.__name__ not in _MOVES:
        return ""
    return f"{ {'numpy': 'np'}.get(module, module)}.{getattr(value, '__name__', '')}"


def _globals_of(answer: Any) -> dict[str, Any]:
    """Return the names that an answer knows: a function, a method, a partial, a callable object."""
    while not hasattr(answer, "__globals__"):
        answer = getattr(answer, "func", None) or getattr(answer, "__func__", None) \
            or type(answer).__call__
        if isinstance(answer, types.MethodWrapperType | types.WrapperDescriptorType):
            return {}
    return answer.__globals__


@contextlib.contextmanager
def _guards(answer: Any, refused: list[ManyAtOnce]) -> Iterator[None]:
    known = _globals_of(answer)
    guards = {name: _Guarded(value, own, refused) for name, value in known.items()
              if not name.startswith("_") and (own := _of_library(value))}
    modules = {name: _Guarded(sys.modules[name], name, refused)
               for name in _LIBRARIES if name in sys.modules}
    before = {name: known[name] for name in guards}
    known.update(guards)
    try:
        with mock.patch.dict(sys.modules, modules):  # for an import inside a function
            yield
    finally:
        for name, value in before.items():
            if known.get(name) is guards[name]:
                known[name] = value


def element_by_element(answer: Callable) -> Callable[..., np.ndarray]:
    """Return answer(X, Y), which writes Y (n, m) from X (n, m), as a function of X.

    Raises CheckFailed where it does something with many elements at once, changes X, leaves Y as
    it was, or returns a value.
    """
    def run(X: np.ndarray) -> np.ndarray:
        refused: list[ManyAtOnce] = []
        given, out = X.copy(), np.full(X.shape, np.nan, "float32")
        try:
            with _guards(answer, refused):
                returned = answer(Elements(given, refused), Elements(out, refused))
        except ManyAtOnce:
            raise
        except Exception:
            if refused:
                raise refused[0] from None
            raise
        if refused:
            raise refused[0]
        if not np.array_equal(given, X, equal_nan=True):
            raise CheckFailed(_("X to stay as it was"), _("other numbers in X"))
        if np.isnan(out).all() and not np.isnan(X).all() and returned is not None:
            raise CheckFailed(_("Y to be written"),
                              _("Y holds what it held before, and a value was returned"))
        if returned is not None:
            raise CheckFailed(_("no return value"), _("a value"))
        return out
    return run
