"""Wrong behaviours of tensor expressions, PrimFuncs and modules."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx

from behaviours import statistics
from behaviours.common import (
    NOT_FINITE,
    NUMBERS,
    VALUE,
    Wrapped,
    at,
    before,
    doubled_where,
    each,
    extents,
    first_kept,
    neighbour,
    pairs,
    result,
)
from behaviours.importing import MODEL
from course.tir.walk import walk

# ---- tensor expressions --------------------------------------------------------------------


# how large the notebook has what these give
_NOTEBOOK: dict[str, tuple[int, ...]] = {
    "2.1": (128, 128), "2.2": (4, 100), "2.3": (4, 32, 26, 26), "2.4": (4, 32, 13, 13),
    "5.2": (4, 32, 13, 13)}


def of_te(number: str) -> Wrapped:
    """Return behaviours of a tensor expression."""
    inputs, axes = {"2.2": (3, 2), "2.3": (2, 4), "2.4": (1, 4), "5.2": (1, 4)}.get(number, (1, 2))
    for what, (_, change) in (NUMBERS | NOT_FINITE).items():
        yield f"its result: {what}", result(partial(each, change=change))
        for place in range(inputs):
            yield f"input {place}: {what}", before(at(place, partial(each, change=change)))
    for axis in range(axes):
        yield (f"its result: the last from its neighbour along axis {axis}",
               result(partial(neighbour, axis=axis)))
        for what, test in extents(_NOTEBOOK[number][axis]).items():
            yield (f"its result: doubled where axis {axis} is {what}",
                   result(partial(doubled_where, axis=axis, test=test)))
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
        change = (NUMBERS | NOT_FINITE)[what][1]
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

    def of_row(func: tirx.PrimFunc) -> tirx.PrimFunc:
        x, (n, m) = func.params[0].name, func.params[0].ty.shape
        row, column = statistics.OF[what]
        assert row is not None

        def taken(load: Any) -> Any:
            i, k = load.indices
            return tirx.BufferLoad(load.source, [row(i, n), column(k, te.max(m, 2))])
        return _stores(func, lambda store: _with(store, _loads(store.value, taken, x)))

    def parallel(func: tirx.PrimFunc) -> tirx.PrimFunc:
        def changed(loop: tirx.For) -> tirx.For:
            return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.PARALLEL, loop.body,
                            span=loop.span) if innermost(loop) else loop

        def innermost(loop: tirx.For) -> bool:
            return not any(isinstance(node, tirx.For) for node, _ in walk(loop.body))
        body = tvm_ffi.structural_map(func.body, (tirx.For, changed))
        return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)
    if who == "its largest":
        return of_row
    return {"the last not written": not_last, "doubled where axis 0 is 1 long": if_1,
            "parallel": parallel}.get(what, of_number)


FUNC = (*(f"{who}: {what}" for who in ("its result", "its first input") for what in NUMBERS),
         "its result: the last not written")
PARALLEL = "its innermost loops: parallel"


def of_primfuncs(number: str) -> Wrapped:
    rows = [what for what in statistics.titles() if what.startswith("its largest: ")
            and "all rows" not in what] if number == "0.3" else []
    for what in (*FUNC, PARALLEL, *rows, *(f"{who}: {what}" for who in (
            "its result", "its first input") for what in NOT_FINITE)):
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
    """Changes what one binding of main gives, or one that keeps its argument's shape, a ReLU.

    `later`: this one is left out, and what the next one gives is changed.
    """

    def __init__(self, mod: tvm.IRModule, place: int, change: Callable, relu: bool, later: bool
                 ) -> None:
        super().__init__(mod)
        self.place, self.change, self.relu, self.later, self.seen = place, change, relu, later, 0

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        taken = [one for one in getattr(value, "args", ()) if isinstance(one, relax.Tuple)]
        given = list(taken[0].fields) if taken else []
        inner = isinstance(binding.var, relax.DataflowVar)
        fits = inner and isinstance(value, relax.Call) and (not self.relu or (
            len(given) == 1 and tvm_ffi.structural_equal(given[0].ty.shape, binding.var.ty.shape)))
        if self.later and inner and self.seen == self.place:
            self.seen, fits = self.seen + 1, False
            self.set_var_remap(binding.var, self.builder_.emit_te(
                self.change, self.builder_.emit(value), primfunc_name_hint="changed"))
            return
        self.seen += fits
        if fits and self.seen == self.place:
            if self.later:
                self.set_var_remap(binding.var, given[0])
                return
            var = given[0] if self.relu else self.builder_.emit(value)
            self.set_var_remap(binding.var, self.builder_.emit_te(
                self.change, var, primfunc_name_hint="changed"))
            return
        self.set_var_remap(binding.var, self.builder_.emit(value) if inner
                           else self.builder_.emit_output(value))


def _main(place: int, change: Callable, relu: bool = False, later: bool = False
          ) -> Callable[[Callable], Callable]:
    def changed(mod: tvm.IRModule) -> tvm.IRModule:
        changer = _Changed(mod, place, change, relu, later)
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


def _constants(mod: tvm.IRModule, order: Callable[[list[Any]], list[Any]]) -> tvm.IRModule:
    """Return a module whose constants of one shape, and of several numbers, change places."""
    alike: dict[Any, list[Any]] = {}

    def see(value: Any) -> None:
        if isinstance(value, ir.GenericConst) and value.value.numpy().size > 1:
            same = alike.setdefault(tuple(value.value.shape), [])
            if not any(value.same_as(one) for one in same):
                same.append(value)
    relax.analysis.post_order_visit(mod["main"], see)
    new = [(one, other) for same in alike.values()
           for one, other in zip(same, order(same), strict=True)]
    changed = tvm.IRModule(dict(mod.functions_items()))
    changed.update_func(mod.get_global_var("main"), tvm_ffi.structural_map(mod["main"], (
        ir.GenericConst, lambda value: next((b for a, b in new if a.same_as(value)), value))))
    return changed


def _fixed(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module for a batch of 3."""
    batch = mod["main"].params[0].ty.shape[0]
    return relax.transform.BindSymbolicVars({batch: 3}, "main")(mod)


def _kept_module(answer: Callable) -> Callable:
    """Return what gives for models of one structure the module of the first."""
    kept: dict[str, Any] = {}
    return lambda model, *more: kept.setdefault(f"{model}{more}", answer(model, *more))


def of_modules(number: str) -> Wrapped:
    # values of main that each module has, however its layers are written, and what it is made of
    known: dict[str, tuple[int, int, tuple[str, ...]]] = {
        "0.5": (4, 0, ()), "3.3": (1, 0, ("0", "1")), "5.5": (3, 1, ())}
    values, relus, names = known.get(number, (7, 2, tuple(
        f"{layer}_{part}" for layer in ("conv2d", "linear0", "linear1")
        for part in ("weight", "bias"))))
    for place, (what, change) in itertools.product(range(1, values + 1), VALUE.items()):
        if number in ("0.5", "5.5") or not what.startswith("doubled") and (
                number != "3.3" or "row" not in what):
            yield f"value {place}: {what}", _main(place, change)
    for place, (what, of) in itertools.product(range(1, relus + 1), _RELU.items()):
        yield f"ReLU {place}: {what}", _main(place, partial(each, change=of), True)
    if number != "3.3":
        moved = 2 if relus == 2 else 1  # behind the pooling a ReLU does the same
        yield f"ReLU {moved}: after the next operator", _main(
            moved, partial(each, change=lambda e: te.max(e, 0.0)), True, later=True)
    if relus == 2:
        yield "the softmax: doubled", _main(3, lambda x: statistics.te_softmax(
            "", statistics.te_softmax("", x)), True)
        for title in statistics.titles():
            if title.startswith("its largest") and number != "2.7":
                continue  # topi's, which is stable: it is asked for there
            yield f"the softmax: {title}", _main(3, partial(statistics.te_softmax, title), True)
    for name, what in itertools.product(names, _CONSTANT):
        def change(given: list[Any], n: str = name, c: Callable = _CONSTANT[what]) -> list[Any]:
            return at(int(n), c)(given) if n.isdigit() else \
                [given[0] | {n: c(given[0][n])}, *given[1:]]
        yield f"{name}: {what}", before(change)
    if number == "3.3":
        for place in range(2):
            yield f"{place}: that of the first call", first_kept(place)
    elif names:
        yield "its weights: those of the first call", first_kept(0)
    if number == "0.5":
        for name, what in itertools.product(
                ("linear", "relu"), (*FUNC, "its result: doubled where axis 0 is 1 long",
                                 PARALLEL)):
            yield f"{name}: {what}", result(
                partial(replaced, name=name, change=wrong_func(what)))
    if number == "5.5":
        yield from ((what, before(at(0, change))) for what, change in MODEL.items())
        yield "its batch: fixed", result(_fixed)
        yield "its module: that of the first model of this structure", _kept_module
        yield "its constants of one shape: exchanged", result(
            partial(_constants, order=lambda same: [*same[1:], *same[:1]]))
