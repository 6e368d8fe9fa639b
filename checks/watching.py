"""Watching what an answer does to arrays, and what it calls."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from checks.saying import CheckFailed


def _noting(name: str) -> Any:
    """Return a method of arrays that notes its call in a Watched one."""
    def method(self: "Watched", *arguments: Any, **options: Any) -> Any:
        self.notes["whole"].append(f"the method {name}")
        return getattr(np.asarray(self), name)(*arguments, **options)
    return method


class Watched(np.ndarray):
    """An array that notes what is done to it as a whole, and which elements are assigned."""

    notes: dict[str, Any]

    def __array_finalize__(self, source: Any) -> None:
        self.notes = getattr(source, "notes", {"whole": [], "writes": 0, "reads": 0})

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

    def item(self, *index: Any) -> Any:
        self.notes["reads"] += 1
        return super().item(*index)

    def tolist(self) -> list[Any]:
        self.notes["reads"] += self.size
        return super().tolist()

    @property
    def flat(self) -> Any:
        self.notes["reads"] += self.size
        return np.asarray(self).flat

    argmax, argmin, argsort, sort, dot, cumsum = map(
        _noting, ("argmax", "argmin", "argsort", "sort", "dot", "cumsum"))

    def __setitem__(self, index: Any, value: Any) -> None:
        size = np.asarray(self)[index].size
        if size > 1:
            self.notes["whole"].append(f"an assignment to {size} elements at once")
        self.notes["writes"] += 1
        super().__setitem__(index, value)


def watched(array: np.ndarray) -> Watched:
    """Return a view of an array that notes from now on what is done to it."""
    view = array.view(Watched)
    view.notes = {"whole": [], "writes": 0, "reads": 0}
    return view


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
def numpy_only(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of PyTorch was called inside."""
    with TorchCalls() as calls:
        yield
    if calls.names:
        raise CheckFailed(expected, f"PyTorch's {calls.names[0]} was called", look_at)


# In the names of PyTorch's functions: whatever convolves multiplies, by one of these. (Below them,
# TorchDispatchMode would see the same, and imports for more than a second first.)
_MULTIPLIES = ("conv", "mm", "mul", "dot", "mv", "addr", "linear", "einsum", "kron", "inner",
               "outer")


@contextlib.contextmanager
def by_torch(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if PyTorch multiplied nothing inside."""
    with TorchCalls() as calls:
        yield
    if not any(word in name for name in calls.names for word in _MULTIPLIES):
        raise CheckFailed(expected, "PyTorch multiplied nothing", look_at)
