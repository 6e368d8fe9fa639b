"""Forms of an answer: how each becomes a function of arrays."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import te

from course.checks.observe.primfuncs import Unwritten, require_inside_buffers, run_prim_func
from course.checks.observe.spies import Expressions
from course.checks.say.messages import CheckFailed
from course.checks.spec.interpret import Fault, Interpreted, Unknown
from course.words import _

STEPS = 20_000  # stores that are interpreted, at 2 microseconds each; LLVM takes 25 to 300 ms


class Misuse(CheckFailed):
    """What a program did that none may do: an index outside, a read of what nobody wrote."""

    @classmethod
    def of(cls, fault: Fault) -> "Misuse":
        """Return in words what the interpreter saw."""
        place = f"{fault.buffer}{list(fault.index)}"
        match fault.kind:
            case "outside":
                return cls(_("every index inside its buffer"), (
                    _("{place} is written, outside of its shape {shape}") if fault.writes
                    else _("{place} is read, outside of its shape {shape}")).format(
                        place=place, shape=fault.shape))
            case "unwritten":
                return cls(_("every element to be written before it is read"),
                           _("{place} is read, and nothing was written there before").format(
                               place=place))
            case "given":
                return cls(_("the inputs to stay as they were"),
                           _("{place} is written").format(place=place))
            case "left":
                return cls(*Unwritten.at(fault.buffer, fault.index, fault.others).parts)
        return cls(_("a program that ends"),
                   _("still running after two million steps"))


def program(func: tvm.tirx.PrimFunc) -> Callable[..., np.ndarray]:
    """Return a PrimFunc of float32 buffers as a function of its inputs and its output's shape.

    One of few steps is interpreted, another is compiled. Raises Misuse, and CheckFailed as
    run_prim_func does.
    """
    try:
        require_inside_buffers(tvm.IRModule({"main": func}))
    except CheckFailed as outside:  # it depends on the sizes: the smallest are looked for
        raise Misuse(*outside.parts) from None

    def run_compiled(arrays: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
        try:
            return run_prim_func(func, arrays, shape)
        except Unwritten as left:
            raise Misuse(*left.parts) from None
    try:
        interpreted = Interpreted(func)
    except Unknown:
        return run_compiled

    def run(arrays: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
        out = np.full(shape, np.nan, "float32")
        try:
            interpreted(*arrays, out)
        except Fault as fault:
            raise Misuse.of(fault) from None
        return out
    return run if interpreted.steps <= STEPS else run_compiled


def number(answer: Callable[..., Any], kind: type = float) -> Callable[..., np.ndarray]:
    """Return a plain function of one number, an int or a float, as one of arguments by name."""
    wanted = _("an int of 64 bits at most") if kind is int else _("a number")

    def run(**given: Any) -> np.ndarray:
        came = answer(*given.values())
        if getattr(came, "ndim", None) == 0 and hasattr(came, "item"):
            came = came.item()  # NumPy's and PyTorch's numbers without an axis are numbers
        is_one = isinstance(came, numbers.Integral if kind is int else numbers.Real)
        if not is_one or kind is int and not -2**63 <= came < 2**63:
            raise CheckFailed(wanted, _("{value}, of type {type}").format(
                value=" ".join(repr(came).split())[:80], type=type(came).__name__))
        return np.asarray(came, kind)
    return run


def expression(describe: Callable, topi: bool = False) -> Callable[..., np.ndarray]:
    """Return a function of te.Tensors as one of arrays by name; TOPI only where it may be used.

    What is no array is handed on as it is. There is a program for the shapes of each inputs.
    """
    made: dict[Any, tuple[Callable[..., np.ndarray], list[int]]] = {}

    def run(**given: Any) -> np.ndarray:
        key = tuple((name, value.shape if isinstance(value, np.ndarray) else value)
                    for name, value in given.items())
        if key not in made:
            made[key] = _made(describe, topi, given)
        run_program, shape = made[key]
        return run_program([value for value in given.values() if isinstance(value, np.ndarray)],
                           shape)
    return run


def _made(describe: Callable, topi: bool, given: dict[str, Any]
          ) -> tuple[Callable[..., np.ndarray], list[int]]:
    taken = {name: te.placeholder(value.shape, name=name) if isinstance(value, np.ndarray)
             else value for name, value in given.items()}
    inputs = [value for value in taken.values() if isinstance(value, te.Tensor)]
    if topi:
        output = describe(*taken.values())
    else:
        with Expressions() as made:
            output = describe(*taken.values())
        made.require_own(*[output] if isinstance(output, te.Tensor) else [])
    if not isinstance(output, te.Tensor):
        raise CheckFailed(_("a te.Tensor as the result"), type(output).__name__)
    if output.dtype != "float32":
        raise CheckFailed(_("a float32 result"), f"{output.dtype}")
    shape = [getattr(extent, "value", extent) for extent in output.shape]
    if any(not isinstance(extent, int) or extent < 1 for extent in shape):
        raise Misuse(_("a result with one element or more"),
                     _("shape ({shape})").format(shape=", ".join(map(str, shape))))
    if any(output.same_as(one) for one in inputs):  # no PrimFunc has a buffer twice
        given_back = output
        output = te.compute(output.shape, lambda *at: given_back(*at))
    return program(te.create_prim_func([*inputs, output])), [int(extent) for extent in output.shape]
