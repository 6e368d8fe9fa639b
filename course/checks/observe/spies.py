"""Spies on an answer: which functions it calls.

Calls are seen by the interpreter's events, or by PyTorch's modes.
"""

import contextlib
import itertools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import tvm
import tvm_ffi
from torch.utils._pytree import tree_leaves
from tvm import te

from course.checks.run.answer import line_that_runs
from course.checks.say.messages import CheckFailed
from course.words import _

# ---- TVM: TOPI, compiling ------------------------------------------------------------------

_TVM = os.path.dirname(os.path.abspath(tvm.__file__)) + os.sep
_TOPI = os.path.join(_TVM, "topi") + os.sep
_OPERATORS = os.path.join(_TOPI, "_te_tensor_overload.py")
_OPERATION = os.path.join(_TVM, "te", "operation.py")
_PASSES = os.path.join(_TVM, "ir", "transform.py")


@contextlib.contextmanager
def _events(note: Callable[[types.FrameType, str, Any], None]) -> Iterator[None]:
    """Hand the interpreter's events, calls and returns, to a function for a while."""
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


class Expressions:
    """What tensor expressions were made of inside `with`, as PrimFuncs and as te.Tensors.

    A tensor is the answer's own if te.compute made it, called from outside of TOPI. All others are
    TOPI's, whoever fetched the function and from where: an import, tvm.topi.cpp, the registry, or
    an operator between whole te.Tensors.
    """

    def __init__(self) -> None:
        self.own: set[Any] = set()  # operations
        self.from_operator: dict[Any, str] = {}  # of an operation, the line of the answer
        self.by: dict[Any, str] = {}  # of an operation, the function of TOPI's that returned it
        self.made: list[tuple[tvm.tirx.PrimFunc, list[Any]]] = []  # PrimFuncs, operations of TOPI's

    def __enter__(self) -> "Expressions":
        self.events = contextlib.ExitStack()
        self.events.enter_context(_events(self._note))
        return self

    def __exit__(self, *raised: Any) -> None:
        self.events.close()

    def _note(self, frame: types.FrameType, event: str, came: Any) -> None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if event != "return" or not path.startswith(_TVM):
            return
        if path == _OPERATION and name == "create_prim_func":
            if isinstance(came, tvm.tirx.PrimFunc):
                self.made.append((came, self.foreign(*_tensors(frame.f_locals["ops"]))))
        elif path == _OPERATION or path.startswith(_TOPI):
            made = {tensor.op for tensor in _tensors(came)}
            inside = path
            above = frame.f_back
            while above and above.f_code.co_filename.startswith(_TVM):
                inside = max(inside, above.f_code.co_filename, key=lambda one: (
                    one.startswith(_TOPI), one == _OPERATORS))
                above = above.f_back
            if not inside.startswith(_TOPI):
                self.own |= made
            elif inside == _OPERATORS:
                self.from_operator |= dict.fromkeys(made, line_that_runs())
            if path.startswith(_TOPI):
                self.by |= dict.fromkeys(made, name)  # the outermost returns last

    def foreign(self, *tensors: te.Tensor) -> list[Any]:
        """Return the operations of TOPI's by which tensors are made."""
        # a variable of Relax is a placeholder of another class
        return [operation for operation in operations(*tensors)
                if isinstance(operation, te.ComputeOp | te.ExternOp | te.ScanOp)
                and operation not in self.own]

    def require_own(self, *tensors: te.Tensor) -> None:
        """Raise CheckFailed where TOPI made one of these tensors, or part of a PrimFunc."""
        every = [self.foreign(*tensors), *(some for _func, some in self.made)]
        for operation in itertools.chain(*every):
            if operation in self.from_operator:
                raise CheckFailed(_("an expression of your own, with te and without topi"),
                                  _("an operator on a whole te.Tensor (+, *, ...): these are "
                                    "TOPI's"), self.from_operator[operation])
            raise CheckFailed(_("an expression of your own"),
                              _("one by TOPI: topi's {name}").format(name=self.by[operation])
                              if operation in self.by else
                              _("the operation {name}, which no te.compute in your function "
                                "made").format(
                                  name=operation.name))


def operations(*tensors: te.Tensor) -> Iterator[Any]:
    """Yield each operation by which tensors are made once, the placeholders among them."""
    seen, waiting = set(), [tensor.op for tensor in tensors]
    while waiting:
        if (operation := waiting.pop()) in seen:
            continue
        seen.add(operation)
        yield operation
        waiting += [tensor.op for tensor in operation.input_tensors]


def _tensors(value: Any) -> Iterator[te.Tensor]:
    """Yield the te.Tensors in what a function got or gave."""
    if isinstance(value, te.Tensor):
        yield value
    elif isinstance(value, list | tuple | tvm_ffi.Array):
        for part in value:
            yield from _tensors(part)


@contextlib.contextmanager
def require_no_tvm(expected: str, asked: Sequence[str] = ("compile", "build")) -> Iterator[None]:
    """Raise CheckFailed after the `with` if a pass of TVM's ran inside, or one of these functions.

    A pass is seen by TVM itself, whoever fetched it; a function by the file in which it stands,
    whatever its name is in the answer. A PassContext of the answer's would hide passes: it counts.
    """
    found: list[tuple[str, str]] = []  # the first one's name, and the answer's line

    def noted(name: str) -> None:
        if not found:
            found.append((name, line_that_runs()))

    def note(frame: types.FrameType, event: str, _: object) -> None:
        name, path = frame.f_code.co_name, frame.f_code.co_filename
        if event == "call" and path.startswith(_TVM):
            if name in asked:
                noted(name)
            elif name == "__enter__" and path == _PASSES:
                noted("PassContext")

    @tvm.ir.instrument.pass_instrument
    class Passes:
        """Notes the passes that run."""

        def run_before_pass(self, mod: tvm.IRModule, info: Any) -> None:
            """Note one."""
            noted(info.name)

    with tvm.transform.PassContext(instruments=[Passes()]), _events(note):
        yield
    if found:
        name, line = found[0]
        raise CheckFailed(expected, _("TVM was called: {name}").format(name=name), line)


# ---- PyTorch -------------------------------------------------------------------------------

# In the names of PyTorch's functions: whatever convolves multiplies, by one of these. (Below them,
# TorchDispatchMode would see the same, and imports for more than a second first.)
_MULTIPLIES = ("conv", "mm", "mul", "dot", "mv", "addr", "linear", "einsum", "kron", "inner",
               "outer")


def _is_varied(tensor: torch.Tensor) -> bool:
    """Whether there are different numbers in a tensor; under torch.vmap nobody may ask."""
    with contextlib.suppress(RuntimeError):
        return bool((tensor != tensor.flatten()[:1]).any())
    return True


def name_of(function: Any) -> str:
    """Return the name of a function of PyTorch's, or of the attribute that it reads."""
    name = getattr(function, "__name__", str(function))
    return name if name != "__get__" else function.__self__.__name__


class TorchCalls(torch.overrides.TorchFunctionMode):
    """Notes every function of PyTorch that is called inside `with`, in threads begun there too."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.first = "", ""  # the name of the first, as one writes it, and the line that called it
        self.products = False  # whether a tensor was multiplied by another

    def __torch_function__(self, function: Callable, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        name = name_of(function)
        if not self.names:
            of_tensor = "TensorBase." in getattr(function, "__qualname__", "")
            self.first = f"{'Tensor.' * of_tensor}{name}", line_that_runs()
        self.names.append(name)
        came = function(*args, **(kwargs or {}))
        if not self.products and any(word in name for word in _MULTIPLIES):
            with torch._C.DisableTorchFunction():
                given = [leaf for leaf in tree_leaves((args, kwargs))  # in torch.export others
                         if type(leaf) in (torch.Tensor, torch.nn.Parameter)]
                self.products = len(given) > 1 and any(map(_is_varied, given))
        return came

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
def require_numpy_only(expected: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of PyTorch was called inside."""
    with TorchCalls() as calls:
        yield
    if calls.names:
        name, line = calls.first
        raise CheckFailed(expected, _("PyTorch's {names} was called").format(names=name), line)


@contextlib.contextmanager
def require_torch(expected: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if PyTorch multiplied no two tensors inside."""
    with TorchCalls() as calls:
        yield
    if not calls.products:
        raise CheckFailed(expected, _("no product of two tensors by PyTorch was seen"))
