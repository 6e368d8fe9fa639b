"""Watching what an answer does to arrays, and what it calls."""

import contextlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

from checks.calls import through
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
        return np.asarray(self).reshape(-1).view(Watched)._with(self.notes) \
            if self.flags.c_contiguous else np.asarray(self).flat

    @flat.setter
    def flat(self, value: Any) -> None:
        self.reshape(-1)[...] = value

    def _with(self, notes: dict[str, Any]) -> "Watched":
        self.notes = notes
        return self

    argmax, argmin, argsort, sort, dot, cumsum, fill, put, partition, argpartition, searchsorted \
        = map(_noting, ("argmax", "argmin", "argsort", "sort", "dot", "cumsum", "fill", "put",
                        "partition", "argpartition", "searchsorted"))

    def __setitem__(self, index: Any, value: Any) -> None:
        size = np.asarray(self)[index].size
        if size > 1 and not self.notes.get("own"):
            self.notes["whole"].append(f"an assignment to {size} elements at once")
        self.notes["writes"] += size == 1
        super().__setitem__(index, value)


def watched(array: np.ndarray) -> Watched:
    """Return a view of an array that notes from now on what is done to it."""
    view = array.view(Watched)
    view.notes = {"whole": [], "writes": 0, "reads": 0}
    return view


# They allocate, copy or convert: what comes is watched in its turn.
_MOVES = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like",
          "array", "asarray", "asanyarray", "ascontiguousarray", "copy", "astype", "reshape",
          "ravel", "flatten", "view", "transpose", "squeeze", "float32", "float64", "item",
          "tolist", "shape", "size", "ndim", "ndindex", "ndenumerate", "nditer"}


def _size(value: Any) -> float:
    """How many numbers a value holds; of an iterator nobody knows."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.numel() if isinstance(value, torch.Tensor) else value.size
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return float("inf") if isinstance(value, Iterator) else 1


def elementwise(function: Callable, whole: list[str], least: int) -> Callable:
    """Return a function that notes in `whole` where it gives NumPy or PyTorch `least` numbers.

    They may stand in an array, a list, a tuple or an iterator. Its arrays are watched too.
    """
    own = {"whole": whole, "writes": 0, "reads": 0, "own": True}

    def see(called: Callable, *arguments: Any, **options: Any) -> Any:
        owner = getattr(called, "__self__", None)
        module = (getattr(called, "__module__", None) or getattr(owner, "__module__", None)
                  or type(called).__module__)
        name, kind = getattr(called, "__name__", type(called).__name__), ""
        given = (*arguments, *options.values())
        if isinstance(owner, np.ndarray | torch.Tensor):
            given, kind = (owner, *given), "the method "
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
            whole.append(f"{kind}{name} on {'many' if size == float('inf') else size} numbers")
        came = called(*arguments, **options)
        if kind and type(came) is np.ndarray:
            return came.view(Watched)._with(watches[0].notes if watches else own)
        return came
    return through(function, see)


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


_TVM = str(Path(tvm.__file__).parent) + os.sep


@contextlib.contextmanager
def without_tvm(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if TVM compiled a kernel inside.

    Seen by where the function that does it stands, whatever its name is in the answer.
    """
    compiled: list[str] = []

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name in ("compile", "build") \
                and frame.f_code.co_filename.startswith(_TVM):
            compiled.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
    if compiled:
        raise CheckFailed(expected, f"TVM compiled a kernel: tvm.{compiled[0]}", look_at)


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
