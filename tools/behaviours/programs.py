"""Wrong behaviours of tensor expressions, PrimFuncs and modules."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx

from tools.behaviours.common import (
    NUMBERS,
    VALUE,
    Wrapped,
    at,
    before,
    doubled_if_1,
    each,
    first_kept,
    neighbour,
    pairs,
    result,
)
from tools.behaviours.importing import MODEL

# ---- tensor expressions --------------------------------------------------------------------


def of_te(number: str) -> Wrapped:
    """Return behaviours of a tensor expression."""
    inputs, axes = {"2.2": (3, 2), "2.3": (2, 4), "2.4": (1, 4), "5.2": (1, 4)}.get(number, (1, 2))
    for what, (_, change) in NUMBERS.items():
        yield f"its result: {what}", result(partial(each, change=change))
        for place in range(inputs):
            yield f"input {place}: {what}", before(at(place, partial(each, change=change)))
    for axis in range(axes):
        yield (f"its result: the last from its neighbour along axis {axis}",
               result(partial(neighbour, axis=axis)))
        yield (f"its result: doubled where axis {axis} is 1 long",
               result(partial(doubled_if_1, axis=axis)))
    if number == "5.2":
        yield from pairs({
            "an oblong window": lambda x, kernel, stride: kernel[0] != kernel[1],
            "a window 1 high": lambda x, kernel, stride: kernel[0] == 1,
            "a window 1 wide": lambda x, kernel, stride: kernel[1] == 1,
            "steps that differ": lambda x, kernel, stride: stride[0] != stride[1],
            "rows left over": lambda x, kernel, stride: (x.shape[2] - kernel[0]) % stride[0] != 0,
            "columns left over":
                lambda x, kernel, stride: (x.shape[3] - kernel[1]) % stride[1] != 0,
            "windows that overlap": lambda x, kernel, stride: kernel[0] > stride[0],
            "windows apart": lambda x, kernel, stride: kernel[1] < stride[1],
        }, lambda t, *_: each(t, lambda e: e * 1.01))


# ---- PrimFuncs -----------------------------------------------------------------------------


def _stores(func: tirx.PrimFunc, change: Callable[[tirx.BufferStore], Any]) -> tirx.PrimFunc:
    """Return a PrimFunc with other stores into its last buffer."""
    last = func.params[-1].name

    def changed(store: tirx.BufferStore) -> Any:
        return change(store) if store.buffer.name == last else store
    body = tvm_ffi.structural_map(func.body, (tirx.BufferStore, changed))
    return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)


def _with(store: tirx.BufferStore, value: Any) -> tirx.BufferStore:
    return tirx.BufferStore(store.buffer, value, store.indices, span=store.span)


def _loads(value: Any, change: Callable[[Any], Any], name: str) -> Any:
    return tvm_ffi.structural_map(value, (
        ir.TensorLoad, lambda load: change(load) if load.source.name == name else load))


def wrong_func(what: str) -> Callable[[tirx.PrimFunc], tirx.PrimFunc]:
    """Return what makes a PrimFunc wrong, by its title."""
    who, _, what = what.partition(": ")

    def of_number(func: tirx.PrimFunc) -> tirx.PrimFunc:
        change = NUMBERS[what][1]
        if who == "its result":
            return _stores(func, lambda store: store if isinstance(  # no first value
                store.value, tirx.FloatImm) else _with(store, change(store.value)))
        x = func.params[0].name
        body = tvm_ffi.structural_map(func.body, (tirx.BufferStore, lambda store: _with(
            store, _loads(store.value, change, x))))
        return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)

    def not_last(func: tirx.PrimFunc) -> tirx.PrimFunc:
        shape = func.params[-1].ty.shape
        return _stores(func, lambda store: tirx.IfThenElse(
            store.indices[-1] < shape[-1] - 1, store, None))

    def if_1(func: tirx.PrimFunc) -> tirx.PrimFunc:
        rows = func.params[-1].ty.shape[0]
        return _stores(func, lambda store: _with(store, te.if_then_else(
            rows == 1, 2.0 * store.value, store.value)))
    return {"the last not written": not_last, "doubled where axis 0 is 1 long": if_1}.get(
        what, of_number)


FUNC = (*(f"{who}: {what}" for who in ("its result", "its first input") for what in NUMBERS),
         "its result: the last not written")


def of_primfuncs(_: str) -> Wrapped:
    for what in FUNC:
        yield what, result(wrong_func(what))


def replaced(mod: tvm.IRModule, name: str, change: Callable) -> tvm.IRModule:
    """Return a module with one function changed; its name begins so."""
    changed = tvm.IRModule(dict(mod.functions_items()))
    for variable, func in mod.functions_items():
        if variable.name_hint.startswith(name) and isinstance(func, tirx.PrimFunc):
            changed.update_func(variable, change(func))
    return changed


# ---- modules -------------------------------------------------------------------------------

_RELU: dict[str, Callable[[Any], Any]] = {
    "GELU": lambda e: 0.5 * e * (1.0 + te.erf(e * 0.5**0.5)), "left out": lambda e: e,
    "the minimum": lambda e: te.min(e, 0.0), "leaky": lambda e: te.max(e, 0.01 * e)}


@relax.expr_functor.mutator
class _Changed(relax.expr_functor.PyExprMutator):
    """Changes what one binding of main gives, or one that keeps its argument's shape, a ReLU."""

    def __init__(self, mod: tvm.IRModule, place: int, change: Callable, relu: bool) -> None:
        super().__init__(mod)
        self.place, self.change, self.relu, self.seen = place, change, relu, 0

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        taken = [one for one in getattr(value, "args", ()) if isinstance(one, relax.Tuple)]
        given = list(taken[0].fields) if taken else []
        inner = isinstance(binding.var, relax.DataflowVar)
        fits = inner and isinstance(value, relax.Call) and (not self.relu or (
            len(given) == 1 and tvm_ffi.structural_equal(given[0].ty.shape, binding.var.ty.shape)))
        self.seen += fits
        if fits and self.seen == self.place:
            var = given[0] if self.relu else self.builder_.emit(value)
            self.set_var_remap(binding.var, self.builder_.emit_te(
                self.change, var, primfunc_name_hint="changed"))
            return
        self.set_var_remap(binding.var, self.builder_.emit(value) if inner
                           else self.builder_.emit_output(value))


def _main(place: int, change: Callable, relu: bool = False) -> Callable[[Callable], Callable]:
    def changed(mod: tvm.IRModule) -> tvm.IRModule:
        changer = _Changed(mod, place, change, relu)
        main = changer.visit_expr(mod["main"])
        new = changer.builder_.get()
        new.update_func(new.get_global_var("main"), main)
        return new
    return result(changed)


def _one_off(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed.flat[np.abs(array).argmax()] *= np.float32(1.01)
    return changed


_CONSTANT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rolled": lambda x: np.roll(x, 1, 0), "one number a hundredth too large": _one_off,
    **{what: NUMBERS[what][0] for what in ("rounded to float16", "a thousandth too large")}}


def of_modules(number: str) -> Wrapped:
    # values of main that each module has, however its layers are written, and what it is made of
    known: dict[str, tuple[int, int, tuple[str, ...]]] = {
        "0.5": (4, 0, ()), "3.2": (1, 0, ("0", "1")), "5.5": (3, 0, ())}
    values, relus, names = known.get(number, (7, 2, tuple(
        f"{layer}_{part}" for layer in ("conv2d", "linear0", "linear1")
        for part in ("weight", "bias"))))
    for place, (what, change) in itertools.product(range(1, values + 1), VALUE.items()):
        if number in ("0.5", "5.5") or not what.startswith("doubled") and (
                number != "3.2" or "row" not in what):
            yield f"value {place}: {what}", _main(place, change)
    for place, (what, of) in itertools.product(range(1, relus + 1), _RELU.items()):
        yield f"ReLU {place}: {what}", _main(place, partial(each, change=of), True)
    for name, what in itertools.product(names, _CONSTANT):
        def change(given: list[Any], n: str = name, c: Callable = _CONSTANT[what]) -> list[Any]:
            return at(int(n), c)(given) if n.isdigit() else \
                [given[0] | {n: c(given[0][n])}, *given[1:]]
        yield f"{name}: {what}", before(change)
    if number == "3.2":
        for place in range(2):
            yield f"{place}: that of the first call", first_kept(place)
    elif names:
        yield "its weights: those of the first call", first_kept(0)
    if number == "0.5":
        for name, what in itertools.product(
                ("linear", "relu"), (*FUNC, "its result: doubled where axis 0 is 1 long")):
            yield f"{name}: {what}", result(
                partial(replaced, name=name, change=wrong_func(what)))
    if number == "5.5":
        yield from ((what, before(at(0, change))) for what, change in MODEL.items())
