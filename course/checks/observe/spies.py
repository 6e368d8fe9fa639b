"""Spies on an answer: which functions it calls.

Calls are seen by the interpreter's events, or by PyTorch's modes.
"""

import contextlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import tvm
from tvm import te

from course.checks.say.messages import CheckFailed
from course.words import _

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
