"""Wrong behaviours of what rewrites a graph, judges a rewrite, orders passes, or plans memory."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from behaviours.common import (
    NUMBERS,
    Wrapped,
    after,
    at,
    before,
    each,
    instead,
    neighbour,
    result,
)

# ---- modules -------------------------------------------------------------------------------


@relax.expr_functor.mutator
class _Result(relax.expr_functor.PyExprMutator):
    """Changes what main gives, by a function of tensor expressions."""

    def __init__(self, mod: tvm.IRModule, change: Callable[[Any], Any]) -> None:
        super().__init__(mod)
        self.change = change

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        inner = isinstance(binding.var, relax.DataflowVar)
        var = self.builder_.emit(value) if inner else self.builder_.emit_output(
            self.builder_.call_te(self.change, self.builder_.emit(value),
                                  primfunc_name_hint="changed"))
        self.set_var_remap(binding.var, var)


def _result(change: Callable[[Any], Any]) -> Callable[[Callable], Callable]:
    def changed(mod: tvm.IRModule) -> tvm.IRModule:
        changer = _Result(mod, change)
        main = changer.visit_expr(mod["main"])
        new = changer.builder_.get()
        new.update_func(new.get_global_var("main"), main)
        return new.with_attrs(mod.attrs) if mod.attrs else new
    return result(changed)


def _constants(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that the constants of its main are changed."""
    def of_constant(value: Any) -> Any:
        array = value.value.numpy()
        return relax.const(change(array).astype(array.dtype))

    def changed(mod: tvm.IRModule) -> tvm.IRModule:
        new = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        new.update_func(mod.get_global_var("main"), tvm_ffi.structural_map(
            mod["main"], (ir.GenericConst, of_constant)))
        return new
    return result(changed)


def _first_kept(answer: Callable) -> Callable:
    """Return what gives for every module with inputs of the same shapes that of the first."""
    kept: dict[str, Any] = {}

    def wrong(mod: tvm.IRModule) -> tvm.IRModule:
        return kept.setdefault(str([param.ty for param in mod["main"].params]), answer(mod))
    return wrong


def of_rewrites(number: str) -> Wrapped:
    """Return behaviours of a function from a module to a module."""
    yield "the module as it was", instead(lambda mod: mod)
    yield "its module: that of the first call", _first_kept
    for what, (_array, change) in NUMBERS.items():
        yield f"its result: {what}", _result(partial(each, change=change))
    yield "its result: the last from its neighbour", _result(lambda x: neighbour(x, x.ndim - 1))
    yield "its result: negated", _result(partial(each, change=lambda e: -e))
    if number != "9.1":  # there the constants are the numbers of the clip
        for what in ("rounded to float16", "a thousandth too large", "without their signs"):
            yield f"its constants: {what}", _constants(NUMBERS[what][0])
        yield "its constants: zeroed", _constants(np.zeros_like)
        yield "its constants: rolled", _constants(lambda x: np.roll(x, 1, 0) if x.ndim else x)


# ---- verdicts, orders, plans ---------------------------------------------------------------


_INPUT: dict[str, Callable[[np.ndarray], Any]] = {
    "float64": lambda x: x.astype("float64"), "its first half": lambda x: x[:, :1],
    "ten times as large": lambda x: 10 * x, "NaN": lambda x: x * np.float32("nan"),
    "a list": lambda x: x.tolist(), "zeros": np.zeros_like, "without its signs": np.abs,
    "a hundredth": lambda x: x / np.float32(100)}


def _verdict(letter: str, change: Callable[[Any], Any]) -> Callable[[Callable], Callable]:
    return result(lambda came: came | {letter: change(came[letter])})


def of_verdicts(_: str) -> Wrapped:
    """Return behaviours of a dictionary of verdicts."""
    zeros = np.zeros((1, 2, 4, 4), "float32")
    for letter in "abcde":
        yield (f"{letter}: the other verdict", _verdict(
            letter, lambda given: zeros if given is None else None))
        yield f"{letter}: left out", result(partial(_without, letter))
        for what, change in _INPUT.items() if letter in "ade" else ():
            if letter != "e" or what not in ("zeros", "without its signs", "a hundredth"):
                yield f"{letter}: {what}", _verdict(letter, change)  # e is wrong for any input


def _without(letter: str, came: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in came.items() if key != letter}


def _repeated(place: int, times: int, names: list[str]) -> list[str]:
    return [*names[:place], *times * [names[place]], *names[place + 1:]]


def of_orders(_: str) -> Wrapped:
    """Return behaviours of a list of four names."""
    yield "reversed", result(lambda names: names[::-1])
    for place in range(4):
        yield f"without place {place}", result(partial(_repeated, place, 0))
        yield f"place {place} twice", result(partial(_repeated, place, 2))
    yield "the first two exchanged", result(lambda names: [names[1], names[0], *names[2:]])
    yield "the last two exchanged", result(lambda names: [*names[:2], names[3], names[2]])
    yield "a text", result(", ".join)


def of_plans(_: str) -> Wrapped:
    """Return behaviours of a plan of memory."""
    yield "one storage for all", instead(lambda lives: [0] * len(lives))
    yield "a storage for each", instead(lambda lives: list(range(len(lives))))
    yield "two in turns", instead(lambda lives: [place % 2 for place in range(len(lives))])
    yield "a number too few", result(lambda numbers: numbers[:-1])
    yield "a number too many", result(lambda numbers: [*numbers, 0])
    yield "one below 0", result(lambda numbers: [number - 1 for number in numbers])
    yield "in reversed order", result(lambda numbers: numbers[::-1])
    yield "the last one apart", result(
        lambda numbers: [*numbers[:-1], *(max(numbers, default=0) + 1 for _ in numbers[-1:])])
    yield "as text", result(lambda numbers: list(map(str, numbers)))
    yield "the last one where the first is", result(lambda numbers: [*numbers[:-1], *numbers[:1]])


def of_counts(_: str) -> Wrapped:
    """Return behaviours of a count, of lists of what calls read."""
    yield "a storage for each", instead(lambda reads: len(reads) - 1)
    yield "two in turns", instead(lambda reads: min(2, len(reads) - 1))
    for most in (3, 4, 6):
        yield f"at most {most}", result(partial(min, most))
    yield "one too few where it is above 2", result(lambda count: count - (count > 2))
    yield "one too many where it is above 2", result(lambda count: count + (count > 2))
    yield "one too many for a single call", after(lambda count, reads: count + (len(reads) == 1))
    yield "those of the first call", _first()
    yield "kept for each number of calls", _first(len)
    for most in (8, 16):
        yield f"the first {most} calls", before(at(0, itemgetter(slice(most))))
    yield "each list: its first number", before(at(0, lambda reads: [one[:1] for one in reads]))
    yield "each list: its largest number", before(at(
        0, lambda reads: [[max(one)] for one in reads]))
    yield "each list: its smallest number", before(at(
        0, lambda reads: [[min(one)] for one in reads]))
    yield "reads from more than 3 calls ago: left out", before(at(0, lambda reads: [
        [number for number in one if call - number <= 3 or number == 0] or [0]
        for call, one in enumerate(reads, 1)]))
    yield "as text", result(str)
    yield "a list", result(lambda count: [count])


def _first(key: Callable[[Any], Any] = lambda _reads: None) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that it gives its first result of each key again."""
    def wrap(answer: Callable) -> Callable:
        kept: dict[Any, Any] = {}
        return lambda reads: kept.setdefault(key(reads), answer(reads))
    return wrap
