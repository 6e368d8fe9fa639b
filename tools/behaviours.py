"""Wrong behaviours, each around a right answer: what no change of one line of a solution makes.

    wrong("2.3", conv2d, "its result: rounded to float16")

`make mutants` tries them beside the mechanical changes. Each is a class of mistakes that a check
may overlook, whatever the exercise: numbers rounded or cut off, a row taken for another, what was
kept from the first call, a constant exchanged. `KINDS` says which exercises are of which kind.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

KINDS = {"te": ("2.1", "2.2", "2.3", "2.4", "5.1"), "array": ("1.1", "1.2"),
         "registered": ("0.6", "3.1", "3.3", "3.4"), "module": ("2.5", "2.6", "2.7", "3.5")}

# what may become of a number: of an array, and of an element of a tensor expression
_NUMBERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[Any], Any]]] = {
    "rounded to float16": (lambda x: x.astype("float16").astype("float32"),
                           lambda e: e.astype("float16").astype("float32")),
    "rounded to whole numbers": (lambda x: np.trunc(x).astype("float32"),
                                 lambda e: e.astype("int32").astype("float32")),
    "cut off above 6": (lambda x: np.minimum(x, np.float32(6)), lambda e: te.min(e, 6.0)),
    "cut off above 100": (lambda x: np.minimum(x, np.float32(100)), lambda e: te.min(e, 100.0)),
    "cut off below -6": (lambda x: np.maximum(x, np.float32(-6)), lambda e: te.max(e, -6.0)),
    "without their signs": (np.abs, te.abs),
    "a thousandth too large": (lambda x: x * np.float32(1.001), lambda e: e * 1.001),
}
# what is below 0 becomes 0 in nearly every layer's output
_FEW = ("rounded to float16", "cut off above 6", "a thousandth too large")


# ---- tensor expressions --------------------------------------------------------------------


def _each(tensor: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tensor of changed elements."""
    return te.compute(tensor.shape, lambda *at: change(tensor(*at)), name="changed")


def _neighbour(tensor: Any, axis: int) -> Any:
    """Return a tensor whose last place along an axis is the one before it."""
    extent = tensor.shape[axis]
    return te.compute(tensor.shape, lambda *at: tensor(*(
        te.max(te.min(i, extent - 2), 0) if place == axis else i for place, i in enumerate(at))),
        name="neighbour")


def _of_te(title: str) -> Callable[[Callable], Callable]:
    who, what = title.split(": ")

    def wrap(answer: Callable) -> Callable:
        def wrong(*given: Any) -> Any:
            if who == "its result":
                if what.startswith("the last"):
                    return _neighbour(answer(*given), int(what[-1]))
                return _each(answer(*given), _NUMBERS[what][1])
            place = int(who[-1])
            return answer(*(_each(one, _NUMBERS[what][1]) if at == place else one
                            for at, one in enumerate(given)))
        return wrong
    return wrap


# ---- functions of arrays, and registered ones ------------------------------------------------


def _array(what: str, array: np.ndarray) -> np.ndarray:
    """Return a changed array."""
    array = np.asarray(array)
    if what in _NUMBERS:
        return _NUMBERS[what][0](array)
    if what == "the last one from its neighbour" and array.size > 1:
        changed = array.copy()
        changed.flat[-1] = changed.flat[-2]
        return changed
    if what == "in reversed order":
        return array[::-1].copy()
    if what == "NaN as 0":
        return np.nan_to_num(array)
    return array


_ARRAYS = (*_NUMBERS, "the last one from its neighbour", "in reversed order", "NaN as 0")


def _of_arrays(title: str) -> Callable[[Callable], Callable]:
    who, what = title.split(": ")

    def wrap(answer: Callable) -> Callable:
        def wrong(*given: Any) -> Any:
            if who == "its result":
                return _array(what, answer(*given))[()]
            return answer(_array(what, given[0]), *given[1:])
        return wrong
    return wrap


def _registered(title: str) -> Callable[[Callable], Callable]:
    """Wrap a function that registers another: the other one is wrong afterwards."""
    who, what = title.split(": ")

    def wrap(answer: Callable) -> Callable:
        def wrong() -> None:
            before = set(tvm_names())
            answer()
            (name,) = set(tvm_names()) - before or {n for n in before if n.startswith("env.")}
            right = tvm.get_global_func(name)
            kept: dict[tuple[int, ...], np.ndarray] = {}

            def changed(*given: Any) -> None:
                *inputs, out = map(np.from_dlpack, given)
                if who == "its first input" or who == "its weights" and len(inputs) > 1:
                    place = int(who == "its weights")
                    inputs[place] = kept.setdefault(inputs[place].shape, inputs[place].copy()) \
                        if what == "those of the first call" else _array(what, inputs[place])
                right(*map(tvm.runtime.tensor, inputs), given[-1])
                if who == "its result":
                    out[...] = _array(what, out.copy()).reshape(out.shape)
            tvm.register_global_func(name, changed, override=True)
        return wrong
    return wrap


def tvm_names() -> list[str]:
    """Return the names of all registered functions."""
    import tvm_ffi
    return list(tvm_ffi.registry.list_global_func_names())


# ---- modules -------------------------------------------------------------------------------


@relax.expr_functor.mutator
class _Changed(relax.expr_functor.PyExprMutator):
    """Changes the elements of what one binding of main gives, or one constant in it."""

    def __init__(self, mod: tvm.IRModule, place: int, what: str) -> None:
        super().__init__(mod)
        self.place, self.what, self.seen = place, what, 0

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        if isinstance(binding.value, relax.Call) and isinstance(binding.var, relax.DataflowVar):
            self.seen += 1
            if self.seen == self.place:
                var = self.builder_.emit(value)
                self.set_var_remap(binding.var, self.builder_.emit_te(
                    lambda x: _each(x, _NUMBERS[self.what][1]), var))
                return
        self.set_var_remap(binding.var, self.builder_.emit(value) if isinstance(
            binding.var, relax.DataflowVar) else self.builder_.emit_output(value))


def _of_modules(title: str) -> Callable[[Callable], Callable]:
    who, what = title.split(": ")

    def wrap(answer: Callable) -> Callable:
        @functools.wraps(answer)
        def wrong(weights: dict[str, np.ndarray], *more: Any) -> tvm.IRModule:
            if who in weights:
                array = weights[who]
                weights = weights | {who: np.roll(array, 1, 0) if what == "rolled" else
                                     _NUMBERS[what][0](array)}
                return answer(weights, *more)
            mod = answer(weights, *more)
            changer = _Changed(mod, int(who.removeprefix("value ")), what)
            main = changer.visit_expr(mod["main"])
            new = changer.builder_.get()
            new.update_func(new.get_global_var("main"), main)
            return new
        return wrong
    return wrap


_WEIGHTS = ("conv2d_weight", "conv2d_bias", "linear0_weight", "linear0_bias", "linear1_weight",
            "linear1_bias")
_VALUES = 7  # of main that a module has, whichever way its layers are written


# ---- all -----------------------------------------------------------------------------------


def titles(number: str) -> Iterator[str]:
    """Yield the wrong behaviours of an exercise's kind; none where there is no such kind yet."""
    kind = next((kind for kind, numbers in KINDS.items() if number in numbers), "")
    inputs = {"2.2": 3, "2.3": 2}.get(number, 1)
    match kind:
        case "te":
            for who in ("its result", *(f"input {place}" for place in range(inputs))):
                yield from (f"{who}: {what}" for what in _NUMBERS)
            yield from (f"its result: the last from its neighbour along axis {axis}"
                        for axis in range({"2.3": 4, "2.4": 4}.get(number, 2)))
        case "array":
            yield from (f"{who}: {what}" for who in ("its result", "its argument")
                        for what in _ARRAYS)
        case "registered":
            yield from (f"{who}: {what}" for who in ("its result", "its first input")
                        for what in _ARRAYS)
            if number in ("3.3", "3.4"):
                yield from (f"its weights: {what}" for what in
                            (*_NUMBERS, "in reversed order", "those of the first call"))
        case "module":
            yield from (f"value {place}: {what}" for place, what in
                        itertools.product(range(1, _VALUES + 1), _FEW))
            yield from (f"{name}: {what}" for name in _WEIGHTS
                        for what in ("rolled", "rounded to float16", "a thousandth too large"))


def wrong(number: str, answer: Callable, title: str) -> Callable:
    """Return a right answer to an exercise with a wrong behaviour, by its title."""
    kind = next(kind for kind, numbers in KINDS.items() if number in numbers)
    return {"te": _of_te, "array": _of_arrays, "registered": _registered,
            "module": _of_modules}[kind](title)(answer)
