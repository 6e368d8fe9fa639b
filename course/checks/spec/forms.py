"""Forms of an answer: how each becomes a function of arrays."""

import contextlib
import functools
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax, te

from course.checks.compare.tolerance import ATOL, to_numpy
from course.checks.observe.guard_pages import guarded
from course.checks.observe.primfuncs import Misuse, require_inside_buffers, run_prim_func
from course.checks.observe.spies import Expressions, operations
from course.checks.run.answer import place_of
from course.checks.say.messages import CheckFailed, reason, require_type
from course.checks.spec.interpret import Interpreted, Unknown
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Mistakes, Spec
from course.tir.walk import constant
from course.words import _

Main = Callable[..., Any]  # a compiled function of TVM's tensors
STEPS = 20_000  # stores that are interpreted, at 2 microseconds each; LLVM takes 25 to 300 ms


def program(func: tvm.tirx.PrimFunc) -> Callable[..., np.ndarray]:
    """Return a PrimFunc of float32 buffers as a function of its inputs and its output's shape.

    One of few steps is interpreted, another is compiled. Raises Misuse, and CheckFailed as
    run_prim_func does.
    """
    try:
        require_inside_buffers(tvm.IRModule({"main": func}))
    except CheckFailed as outside:  # it depends on the sizes: the smallest are looked for
        raise Misuse(*outside.parts) from None
    run_compiled = functools.partial(run_prim_func, func)
    try:
        interpreted = Interpreted(func)
    except Unknown:
        return run_compiled

    def run(arrays: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
        out = np.full(shape, np.nan, "float32")
        interpreted(*arrays, out)
        return out
    return run if interpreted.steps <= STEPS else run_compiled


def number(answer: Callable[..., Any], kind: type = float) -> Callable[..., np.ndarray]:
    """Return a plain function of one number, an int or a float, as one of arguments by name."""
    wanted = _("an int") if kind is int else _("an int or a float")

    def run(**given: Any) -> np.ndarray:
        came = answer(*given.values())
        name = type(came).__name__
        if getattr(came, "ndim", None) == 0 and hasattr(came, "item"):
            came = came.item()  # NumPy's and PyTorch's numbers without an axis are numbers
        is_one = isinstance(came, numbers.Integral if kind is int else numbers.Real)
        is_far = is_one and kind is int and not -2**63 <= came < 2**63
        if not is_one or is_far:
            raise CheckFailed(_("an int within 64 bits") if is_far else wanted,
                              _("{value}, of type {type}").format(
                                  value=" ".join(repr(came).split())[:80], type=name))
        return np.asarray(came, kind)
    return run


def array(answer: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Return a plain function of one array, as one of arguments by name."""
    def run(**given: Any) -> np.ndarray:
        if type(came := answer(*given.values())) is not np.ndarray or came.dtype == object:
            raise CheckFailed(_("a NumPy array of numbers"),
                              f"ndarray {came.dtype}" if isinstance(came, np.ndarray)
                              else type(came).__name__)
        return came
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
    with Expressions() as made:
        # what is kept of these tensors is wrong for the next ones
        describe(*(te.placeholder(value.shape, name=name) if isinstance(value, te.Tensor)
                   else value for name, value in taken.items()))
        output = describe(*taken.values())
    if not topi:
        made.require_own(*[output] if isinstance(output, te.Tensor) else [])
    require_type(output, te.Tensor, _("a te.Tensor as the result"))
    known = {tensor.op for tensor in inputs}
    if foreign := [one.name for one in operations(output)
                   if isinstance(one, te.PlaceholderOp) and one not in known]:
        raise CheckFailed(_("an expression of the tensors that it is given"),
                          _("one of {name} of an earlier call").format(name=foreign[0]))
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


# ---- compiled functions side by side, by their titles ---------------------------------------


@contextlib.contextmanager
def naming(title: str, runs: bool = True) -> Iterator[None]:
    """Raise CheckFailed with a title where a check does, and where an answer raises, if it runs."""
    try:
        yield
    except NotImplementedError:
        raise
    except CheckFailed as failed:
        expected, came, look_at = failed.parts
        raise CheckFailed(_("; ").join([expected, title]), came or None, look_at) from None
    except Exception as error:  # whatever the answer raises
        if not runs:
            raise
        raise CheckFailed(_("your code to run; {title}").format(title=title), reason(error),
                          place_of(error)) from None


def is_float32(type_: Any, *shape: int | None) -> bool:
    """Whether a type of Relax's is a float32 tensor of this shape; any extent may be a symbol."""
    extents = getattr(getattr(type_, "shape", None), "values", None)
    return extents is not None and str(type_.dtype).removeprefix("T.") == "float32" \
        and len(extents) == len(shape) and all(
            constant(came) in (None, size) for came, size in zip(extents, shape, strict=True))


def fenced(machine: relax.VirtualMachine, mod: tvm.IRModule, name: str = "main") -> Main:
    """Return a function of a machine, whose kernels run on guarded arrays."""
    def run(*given: Any) -> Any:
        with guarded(machine, mod):
            return machine[name](*given)
    return run


def result(main: Main, *arrays: np.ndarray, title: str) -> np.ndarray:
    """Return what a compiled function gives; raises CheckFailed where it does not run."""
    try:
        came = main(*map(tvm.runtime.tensor, arrays))
    except (ValueError, TypeError, RuntimeError) as error:
        raise CheckFailed(_("a module that runs; {title}").format(title=title),
                          reason(error)) from None
    return to_numpy(came)


class Mains(dict[str, Main]):
    """The compiled functions of an answer by their titles.

    `make` compiles those of some titles. One that is asked for before all are is compiled alone.
    """

    def __init__(self, make: Callable[[Sequence[str]], Mapping[str, Main]], titles: Sequence[str]
                 ) -> None:
        super().__init__()
        self.make, self.titles = make, titles

    def __missing__(self, title: str) -> Main:
        self.update(self.make([title]))
        return self[title]

    def all(self) -> None:
        """Compile those of all titles."""
        self.update(self.make(self.titles))


def compiled(what: Mapping[str, Any], right: Callable[..., torch.Tensor],
             arrays: Mapping[str, Sequence[Sequence[np.ndarray]]],
             atol: float | Callable[[Inputs], float] = ATOL, named: Mistakes | None = None) -> Spec:
    """Return the specification of compiled functions, which an answer has by their titles.

    Their inputs keep their shapes: the smallest has most zeros.
    `right`, and the formulas of mistakes, take `what` stands under a title, and tensors; `arrays`
    has under each title the inputs of several calls.
    """
    def of(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
        return lambda program, **inputs: function(
            what[program], *map(torch.from_numpy, inputs.values())).numpy()
    return Spec(
        lambda mains: lambda program, **inputs: result(
            mains[program], *inputs.values(), title=program), of(right),
        lambda: ({"program": title, **dict(zip(_names(what[title], len(inputs)), inputs,
                                               strict=True))}
                 for title, every in arrays.items() for inputs in every),
        named={hint: of(mistake) for hint, mistake in (named or {}).items()}, atol=atol)


def _names(what: Any, count: int) -> list[str]:
    """Return what the inputs of a program are called: as it says, or x, or x0, x1 and so on."""
    if inputs := getattr(what, "inputs", ()):
        return [*inputs]
    return ["x"] if count == 1 else [f"x{place}" for place in range(count)]
