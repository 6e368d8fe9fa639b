"""Running a module so that a kernel's reads and writes outside its arrays are noticed.

The virtual machine shows each call before it makes it. Kernels that write into a destination get
copies of their arrays between pages that nobody may touch, and a destination full of one number.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.runtime.vm import VMInstrumentReturnKind

from course.checks.observe.memory import looks_up, require_safe_access, run_fenced
from course.checks.run.check import while_calling
from course.checks.say.messages import CheckFailed
from course.words import _


class _Kernel:
    """A PrimFunc or a library function that writes into its last arguments: `outputs` of them."""

    def __init__(self, name: str, outputs: int, func: tvm.tirx.PrimFunc | None) -> None:
        self.outputs, self.func = outputs, func
        self.name = name
        self.title = (_("PrimFunc {name}") if func else _("library function {name}")).format(
            name=name)
        self.looks_up = func is not None and looks_up(func)

    def run(self, function: Any, arguments: tuple[Any, ...], filling: float, at_start: bool
            ) -> None:
        """Call it on fenced copies, and copy its results into the real destinations.

        Raises CheckFailed where it writes outside its arrays or changes its inputs.
        """
        inputs = [given.numpy() if isinstance(given, tvm.runtime.Tensor) else given
                  for given in arguments[:-self.outputs]]
        destinations = arguments[-self.outputs:]
        if self.func is not None and self.looks_up:
            require_safe_access(self.name, self.func, inputs)
        while_calling(self.title)
        try:
            outputs = run_fenced(function, inputs,
                                 [_full(tensor, filling) for tensor in destinations], self.title,
                                 at_start)
        finally:
            while_calling("")
        for array, tensor in zip(outputs, destinations, strict=True):
            tensor.copyfrom(array)


def _full(tensor: Any, filling: float) -> np.ndarray:
    """Return an array of a tensor's shape and dtype, full of a number that is no likely result."""
    array = np.empty(tuple(tensor.shape), str(tensor.dtype))
    if array.dtype.kind == "f":
        array[...] = filling
    else:
        array.view(np.uint8)[...] = 0x7F
    return array


def _kernels(mod: tvm.IRModule) -> dict[str, _Kernel]:
    """Return by their names the kernels that a module calls with destinations only."""
    outputs: dict[str, set[int]] = {}

    def see(call: Any) -> None:
        if not isinstance(call, relax.Call):
            return
        operator = getattr(call.op, "name", "")
        callee = call.args[0] if operator.startswith("relax.call_") else call.op
        name = getattr(callee, "name_hint", "") or getattr(callee, "global_symbol", "")
        written = 0  # in another way, into what it is given
        if operator in ("relax.call_tir", "relax.call_dps_packed"):
            types = call.ty_args[0]
            written = len(types.fields) if isinstance(types, relax.TupleType) else 1
        outputs.setdefault(str(name), set()).add(written)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, see)
    functions = {variable.name_hint: function for variable, function in mod.functions_items()}
    found = {}
    for name, numbers in outputs.items():
        func = functions.get(name)
        if name and len(numbers) == 1 and (number := min(numbers)):
            func = func if isinstance(func, tvm.tirx.PrimFunc) else None
            symbol = func.attrs["global_symbol"] if func is not None and func.attrs \
                and "global_symbol" in func.attrs else name
            found[str(symbol)] = _Kernel(name, number, func)
    return found


@contextlib.contextmanager
def guarded(machine: relax.VirtualMachine, mod: tvm.IRModule, filling: float = np.nan,
            at_start: bool = False) -> Iterator[None]:
    """Let a machine that was built of a module run its kernels on fenced copies for a while.

    Their outputs are full of `filling` before; for `at_start` see Fenced. Raises CheckFailed at the
    end where a kernel wrote outside its arrays or changed its inputs.
    """
    kernels = _kernels(mod)
    failed: list[CheckFailed] = []

    def instrument(function: Any, symbol: str, before: bool, came: Any, *arguments: Any) -> int:
        if not before or str(symbol) not in kernels:
            return VMInstrumentReturnKind.NO_OP
        try:
            kernels[str(symbol)].run(function, arguments, filling, at_start)
        except CheckFailed as error:  # TVM would make another error of it
            failed.append(error)
            raise
        return VMInstrumentReturnKind.SKIP_RUN

    machine.set_instrument(instrument)
    try:
        yield
    except Exception:
        if failed:
            raise failed[0] from None
        raise
    finally:
        machine.set_instrument(lambda *_: VMInstrumentReturnKind.NO_OP)
    if failed:
        raise failed[0]
