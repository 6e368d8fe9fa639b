"""The checks of notebook 00: end-to-end execution."""

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from course.checks.compare.inputs import rows
from course.checks.compare.tolerance import ATOL, random
from course.checks.diagnose.equivalence import build
from course.checks.exercises.softmax import softmax_spec
from course.checks.observe import primfuncs
from course.checks.observe.libraries import registry
from course.checks.run.answer import line_of_answer
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.elements import element_by_element
from course.checks.spec.forms import Misuse, whatever_was_there
from course.checks.spec.spec import Cases, Spec, check, not_finite
from course.checks.spec.trials import Mistakes, Trials
from course.tir.evaluate import variables
from course.tir.loops import is_reduction
from course.tir.walk import accesses, sblocks, stores, walk
from course.words import _

# ---- low-level NumPy -----------------------------------------------------------------------

_SOFTMAX = softmax_spec(element_by_element, "X")


@exercise("0.1", "lnumpy_softmax(X, Y)", seconds=5)
def exercise_0_1(lnumpy_softmax: Callable) -> str:
    """softmax with explicit loops.

    That the largest number is subtracted first: Blanchard, Higham and Higham, Accurately computing
    the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41(4), 2021.
    """
    return _("equal to NumPy for {count} arrays, scores of 1000 and of -500,000 among them; "
             "element by element").format(count=check(_SOFTMAX, lnumpy_softmax))


# ---- PrimFuncs -----------------------------------------------------------------------------

_RELU6: Mistakes = {
    _("the cut at 6: this is a plain ReLU"): lambda x: np.maximum(x, 0),
    _("T.min and T.max: they are exchanged, so everything is 6"):
        lambda x: np.maximum(np.minimum(x, 0), 6),
    _("T.min and T.max, which are exchanged"): lambda x: np.minimum(np.maximum(x, 6), 0),
    # cause: absolute-cut
    _("the sign: this is |x|, cut at 6"): lambda x: np.minimum(np.abs(x), 6),
    _("the condition, which is the wrong way round"): (
        lambda x: np.minimum(np.where(x < 0, x, 0), 6), lambda x: np.where(x > 6, x, 6))}


def _other_constants(trials: Trials) -> Mistakes:
    """Return the mistake of a cut at other constants: at the least and the most that came."""
    came = np.stack([tried.came for tried in trials.all if isinstance(tried.came, np.ndarray)])
    least, most = float(came.min()), float(came.max())
    if not np.isfinite([least, most]).all() or least >= most or (least, most) == (0, 6):
        return {}
    # cause: upper-constant
    upper = _("the upper constant: it is {value}, not 6").format(value=f"{most:g}")
    lower = _("the lower constant: it is {value}, not 0").format(value=f"{least:g}")
    says = _(" and ").join([upper] * (most != 6) + [lower] * (least != 0))
    return {says: lambda x: np.clip(x, np.float32(least), np.float32(most))}


def _relu6_cases() -> Cases:
    yield "", {"X": np.linspace(-8, 11.5, 40, dtype="float32").reshape(4, 10)}
    yield from (("", {"X": x}) for x in rows(4, 10))


_CUT = Spec(lambda func: whatever_was_there(func, (4, 10)), lambda X: np.clip(X, 0, 6),
            _relu6_cases, named=_RELU6, fitted=_other_constants, fault=Misuse,
            beyond=lambda: not_finite({"X": random(4, 10)}, [np.inf]))


def _require_usable(func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed unless a PrimFunc in TVMScript can be run, and reads its first argument."""
    primfuncs.require_tvmscript(func)
    primfuncs.require_order(func)
    name = primfuncs.name_of(func)
    primfuncs.require_inside_buffers(tvm.IRModule({name: func}))
    x, y = func.params[0].name, func.params[-1].name
    read = set().union(*(primfuncs.names_read(store.value)
                         for store, _ in stores(func, inits=True)))
    if x not in read:
        raise CheckFailed(_("that {x} is read").format(x=x),
                          (_("{x} is read nowhere, {y} is") if y in read
                           else _("{x} is read nowhere")).format(x=x, y=y))
    primfuncs.require_first_values(func, name)


def _require_sblocks(func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed where something is assigned outside of all sblocks, or without axes."""
    for store, block in stores(func):
        if block is None:
            raise CheckFailed(_("every assignment in an sblock"),
                              _("one to {name} in none").format(name=store.buffer.name),
                              _('with T.sblock("Y"): around it, and the axes by T.axis.remap'))
        if not block.iter_vars:
            raise CheckFailed(_("an sblock with axes"),
                              _("sblock {name_hint} has none").format(name_hint=block.name_hint),
                              _("vi, vj = T.axis.remap(...): one axis for each loop"))


@exercise("0.2", "make_relu6()", seconds=10)
def exercise_0_2(make_relu6: Callable) -> str:
    """ReLU6 as a PrimFunc: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html."""
    func = primfuncs.with_buffers(make_relu6(), (4, 10), (4, 10))
    _require_usable(func)
    check(_CUT, func)
    _require_sblocks(func)
    if any(is_reduction(axis) for block in sblocks(func) for axis in block.iter_vars):
        raise CheckFailed(_("spatial axes only"), _("a reduction axis"),
                          _('remap("SS", ...): each pair of vi and vj writes another element'))
    return _("TVMScript, in sblocks with spatial axes; min(max(x, 0), 6) for all 40 elements,\n"
             "whatever Y held before")


# Functions of X.
_ROW_MAX: Mistakes = {
    _("T.max: this is the smallest of each row"): lambda x: x.min(1),
    _("T.max: this is the sum of each row"): lambda x: x.sum(1),
    # cause: absolute-of-rows
    _("T.max: this is the largest absolute value of each row"): lambda x: np.abs(x).max(1),
    # cause: last-column
    _("the loop over the columns: the last is left out"): lambda x: x[:, :-1].max(1),
    # cause: max-of-row-0
    _("the rows: every one gets the largest of row 0"): lambda x: np.full(5, x[0].max()),
    _("T.init: it starts from X[0, 0], which belongs to row 0 only"):
        lambda x: np.maximum(x.max(1), x[0, 0]),
    _("only the last number of a row counts, as where the axis over the columns is marked S, or "
      "the update forgets what was there"):
        (lambda x: x[:, -1], lambda x: np.maximum(x[:, -1], 0))}


def _starts_from(trials: Trials) -> Mistakes:
    """Return the mistake of another first value, if one number came that is above all of a row."""
    above = {float(came) for tried in trials.all if isinstance(tried.came, np.ndarray)
             for came, right in zip(tried.came, tried.expected, strict=True) if came > right}
    if len(above) != 1 or not np.isfinite(start := above.pop()) \
            or start == np.finfo("float32").max:
        return {}
    if start == 0:
        says = _("T.init: it starts from 0, and rows below zero give 0")
    elif 0 < start <= 1.2e-38:
        says = _("T.init: {start} is the smallest number above 0; rows below zero give it").format(
            start=f"{start:.3g}")
    else:
        # cause: start-of-max
        says = _("T.init: {start} is not low enough").format(start=f"{start:g}")
    says += _('; T.min_value("float32") is lower than any number')
    # equal to the last bit: with a tolerance, 1e-38 would be 0
    return {says: lambda x: np.maximum(x.max(1), np.float32(start))}


def _row_max_cases() -> Cases:
    mixed = 5 * random(5, 12)
    mixed[1], mixed[3], mixed[4, 0] = -np.abs(mixed[1]) - 1, -2e30, 40  # rows with none above zero
    mixed[3, 5], mixed[0, 11] = -1e30, 9
    yield "", {"X": mixed}
    yield from (("", {"X": x}) for x in rows(5, 12))


_LARGEST = Spec(lambda func: whatever_was_there(func, (5,)), lambda X: X.max(1), _row_max_cases,
                named=_ROW_MAX, fitted=_starts_from, fault=Misuse,
                beyond=lambda: not_finite({"X": random(5, 12)}, [np.inf, -np.inf]))


@exercise("0.3", "make_row_max()", seconds=10)
def exercise_0_3(make_row_max: Callable) -> str:
    """The largest of each row as a PrimFunc."""
    func = primfuncs.with_buffers(make_row_max(), (5, 12), (5,))
    _require_usable(func)
    check(_LARGEST, func)
    reduces = any(is_reduction(axis) and str(axis.dom.extent) not in ("1", "T.int64(1)")
                  for block in sblocks(func) for axis in block.iter_vars)
    if not reduces:
        raise CheckFailed(_("an sblock with a reduction axis"),
                          _("spatial axes only, or no sblock"), 'T.axis.remap("SR", [i, k])')
    _require_sblocks(func)
    reductions = [block for block in sblocks(func)
                  if any(map(is_reduction, block.iter_vars))]
    for block in reductions:
        if block.init is None:
            raise CheckFailed(_("the first value in T.init"),
                              _("sblock {name_hint} has a reduction axis and no T.init").format(
                                  name_hint=block.name_hint),
                              _("with T.init(): in the sblock that reduces; a schedule can then "
                                "move both together"))
    if not any(_reads_along(block) for block in reductions):
        raise CheckFailed(_("the columns as a reduction axis"),
                          _("sblock {name} has one, and reads nothing that depends on it").format(
                              name=reductions[0].name_hint),
                          _("the indices: the sblock that takes the largest reads X[vi, vk]"))
    return _("TVMScript, a reduction axis and its T.init; the largest of each row, negative rows\n"
             "too, whatever Y held before")


def _reads_along(block: Any) -> bool:
    """Whether an index of what an sblock reads depends on one of its reduction axes."""
    along = {axis.var for axis in block.iter_vars if is_reduction(axis)}
    return any(not access.writes and along & variables(access.indices)
               for node, place in walk(block.body) for access in accesses(node, place))


# ---- pure or not ---------------------------------------------------------------------------


class _Function(NamedTuple):
    """A function f(x, out): a title, and what it writes, of x, what out held and the call's number.

    `leaves` gives what is in x after a call, of x and the call's number. `x` is its argument or the
    shape of it, `shape` that of out.
    """

    title: str
    writes: Callable[[np.ndarray, np.ndarray, int], Any]
    pure: bool = False
    leaves: Callable[[np.ndarray, int], Any] = lambda x, _: x
    x: tuple[int, ...] | np.ndarray = (3, 4)
    shape: tuple[int, ...] = (3, 4)


def _where(x: np.ndarray, held: np.ndarray, chosen: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return x at the chosen places, counted from 0 on, and what out held at the others."""
    return np.where(chosen(np.arange(x.size).reshape(x.shape)), x, held)


def _next(x: np.ndarray, times: int) -> np.ndarray:
    """Return x with one small number as many of float32's numbers further on."""
    came = x.copy()
    for _time in range(times):
        came.flat[3] = np.nextafter(came.flat[3], np.float32(np.inf))
    return came


_PURE = partial(_Function, pure=True)

_COUNTED = np.arange(12, dtype="float32").reshape(3, 4)
_SIZES = random(5, 6) * np.logspace(-6, 6, 30, dtype="float32").reshape(5, 6)  # small and large

_FUNCTIONS = [
    _PURE(_("doubles x"), lambda x, *_: 2 * x),
    _PURE(_("transposes x, so out is (4, 3)"), lambda x, *_: x.T, shape=(4, 3)),
    _PURE(_("sums the rows of x, so out is (5,)"), lambda x, *_: x.sum(-1), x=(5, 7),
          shape=(5,)),
    _PURE(_("doubles a row of x"), lambda x, *_: 2 * x, x=(1,), shape=(1,)),
    _PURE(_("works in a temporary of its own"), lambda x, *_: 2 * x + 1, x=(2, 3, 4),
          shape=(2, 3, 4)),
    _PURE(_("writes NaN where x < 0"), lambda x, *_: np.where(x < 0, np.float32(np.nan), x)),
    _Function(_("changes x in place, and to the same the second time"),
              lambda x, *_: np.maximum(x, 0), leaves=lambda x, _: np.maximum(x, 0)),
    _Function(_("adds x to what out held"), lambda x, held, _: held + x),
    _Function(_("does not write column 0"),
              lambda x, held, _: _where(x, held, lambda place: place % 4 > 0)),
    _Function(_("does not write the last element"),
              lambda x, held, _: _where(x, held, lambda place: place < 6), x=(7, 1),
              shape=(7, 1)),
    _Function(_("writes the larger of x and what out held"),
              lambda x, held, _: np.maximum(x, held)),
    _Function(_("writes the smaller of x and what out held"),
              lambda x, held, _: np.minimum(x, held)),
    _Function(_("changes x by a millionth"), lambda x, *_: x,
              leaves=lambda x, _: x * np.float32(1 + 1e-6)),
    _Function(_("changes the last element of x"), lambda x, *_: x,
              leaves=lambda x, _: _where(x, x + 1, lambda place: place < 11)),
    # of whole numbers, whose sum is the same in any order
    _Function(_("moves every element of x by one place"), lambda x, *_: x,
              x=_COUNTED, leaves=lambda x, _: np.roll(x, 1)),
    _Function(_("writes the same numbers in another order in each call"),
              lambda x, held, call: np.roll(x, call), x=_COUNTED),
    _Function(_("changes x in its first call only"), lambda x, *_: x,
              leaves=lambda x, call: x + (call == 1)),
    _Function(_("changes x from the second call on"), lambda x, *_: x,
              leaves=lambda x, call: x + (call > 1)),
    _Function(_("writes every other element, and the rest in its next call"),
              lambda x, held, call: _where(x, held, lambda place: place % 2 == call % 2)),
    _Function(_("changes the sign of x, and changes it back in its next call"),
              lambda x, *_: np.abs(x), leaves=lambda x, _: -x),
    _Function(_("adds noise"), lambda x, _, call: x + random(*x.shape, seed=call)),
    _Function(_("multiplies by the number of its calls"), lambda x, _, call: x * call),
    _Function(_("writes the other sign in each call"), lambda x, _, call: (-1) ** call * x),
    _Function(_("writes a thousandth more in each call"), lambda x, _, call: x + call / 1000,
              x=_COUNTED),
    _Function(_("writes a thousand more in each call"), lambda x, _, call: x + 1000 * call),
    _Function(_("writes NaN in its first call and 0 in the next"),
              lambda x, _, call: np.where(call == 1, np.float32(np.nan), 0 * x)),
    _Function(_("does not write the first element"),
              lambda x, held, _: _where(x, held, lambda place: place > 0)),
    _Function(_("changes the first element of x"), lambda x, *_: x,
              leaves=lambda x, _: _where(x, x + 1, lambda place: place > 0)),
    _Function(_("changes an x of thousands"), lambda x, *_: x, x=1000 + _COUNTED,
              leaves=lambda x, _: x + 1000),
    _Function(_("writes 0 into x where it is NaN"), lambda x, *_: x,
              x=np.where(_COUNTED < 2, np.float32(np.nan), _COUNTED),
              leaves=lambda x, _: np.nan_to_num(x)),
    _Function(_("changes one small element of x by the least that float32 can"), lambda x, *_: x,
              x=_SIZES, shape=(5, 6), leaves=lambda x, _: _next(x, 1)),
    _Function(_("writes a small element larger by the least that float32 can in each call"),
              lambda x, _, call: _next(x, call), x=_SIZES, shape=(5, 6)),
    _PURE(_("doubles an x with NaN in it"), lambda x, *_: 2 * x,
          x=np.where(random(3, 4) < 0, np.float32(np.nan), random(3, 4)))]


def _spied(function: _Function, x: np.ndarray, other: list[CheckFailed]) -> Callable:
    """Return f(x, out), which appends to `other` what to say of an array that it should not get."""
    calls = itertools.count(1)

    def spied(given: Any, out: Any) -> None:
        for name, array, wanted in (("x", given, x.shape), ("out", out, function.shape)):
            dtype = getattr(array, "dtype", None)
            if not isinstance(array, np.ndarray) or dtype != np.float32:
                other.append(CheckFailed(
                    _("{name} as a float32 array, handed to the function that {title}").format(
                        name=name, title=function.title), f"{dtype or type(array).__name__}"))
            elif array.shape != wanted:
                other.append(CheckFailed(
                    _("{name} of shape {wanted}, handed to the function that {title}").format(
                        name=name, wanted=wanted, title=function.title), f"{array.shape}"))
        call = next(calls)
        written, left = function.writes(given, out, call), function.leaves(given, call)
        out[...] = written
        if left is not given:
            given[...] = left
    return spied


@exercise("0.4", "looks_pure(function, x, shape)", seconds=10)
def exercise_0_4(looks_pure: Callable) -> str:
    """Finding impure functions."""
    for function in _FUNCTIONS:
        x = random(*function.x) if isinstance(function.x, tuple) else function.x.copy()
        before, other = x.copy(), list[CheckFailed]()
        wanted = _("{pure} for a function that {title}").format(pure=function.pure,
                                                                title=function.title)
        try:
            came = looks_pure(_spied(function, before, other), x, function.shape)
        except NotImplementedError:
            raise
        except Exception as error:
            if not other:
                raise CheckFailed(wanted, reason(error), line_of_answer(error)) from None
        if other:  # the function could not work with what it was handed
            raise other[0]
        if not isinstance(came, bool | np.bool_) or bool(came) != function.pure:
            raise CheckFailed(wanted, str(came) if isinstance(came, bool | np.bool_)
                              else type(came).__name__)
        if not np.array_equal(x, before, equal_nan=True):
            raise CheckFailed(_("that the caller's x stays as it was"),
                              _("other numbers in it, after a function that {title}").format(
                                  title=function.title))
    pure = sum(function.pure for function in _FUNCTIONS)
    return _("right about {count} functions, {pure} of them pure").format(count=len(_FUNCTIONS),
                                                                          pure=pure)


# ---- a module ------------------------------------------------------------------------------


_DEEP: dict[str, tuple[Any, ...]] = {
    "x": (None, 784), "w0": (128, 784), "b0": (128,), "w1": (64, 128), "b1": (64,),
    "w2": (10, 64), "b2": (10,)}


def _deep(x: np.ndarray, w0: np.ndarray, b0: np.ndarray, w1: np.ndarray, b1: np.ndarray,
          w2: np.ndarray, b2: np.ndarray, relu: tuple[bool, bool, bool] = (True, True, False),
          bias: tuple[int, int, int] = (1, 1, 1)) -> np.ndarray:
    """The MLP with three layers, with room for one mistake."""
    for w, b, cut, times in zip((w0, w1, w2), (b0, b1, b2), relu, bias, strict=True):
        x = x @ w.T + times * b
        x = np.maximum(x, 0) if cut else x
    return x


_DEEP_MISTAKES: Mistakes = {
    _("the bias is added at every step of the sum, not once"): partial(_deep, bias=(784, 128, 64)),
    # cause: no-first-relu
    _("the ReLU after the first layer is missing"): partial(_deep, relu=(False, True, False)),
    _("the ReLU after the second layer is missing"): partial(_deep, relu=(True, False, False)),
    _("a ReLU after the last layer: the scores have none"): partial(_deep, relu=(True, True, True)),
    _("the bias: the linear PrimFunc does not add it"): partial(_deep, bias=(0, 0, 0))}


def _require_signature(mod: tvm.IRModule) -> None:
    params = list(mod["main"].params)
    if len(params) != len(_DEEP):
        raise CheckFailed(_("main with 7 parameters, {deep}").format(deep=", ".join(_DEEP)),
                          ", ".join(param.name for param in params) or _("none"))
    for param, (name, shape) in zip(params, _DEEP.items(), strict=True):
        extents = getattr(getattr(param.ty, "shape", None), "values", None)
        wanted = f"({', '.join('n' if n is None else str(n) for n in shape)})"
        if extents is None or len(extents) != len(shape) or any(
                isinstance(came, tvm.tirx.IntImm) and int(came) != (size or -1)
                for came, size in zip(extents, shape, strict=True)):
            came = re.sub(r"T\.int64\((\d+)\)", r"\1", f"({', '.join(map(str, extents))})") \
                if extents is not None else _("a shape that is not given")
            raise CheckFailed(_("{name} of shape {wanted}").format(name=name, wanted=wanted), came)
        if str(param.ty.dtype).removeprefix("T.") != "float32":
            raise CheckFailed(_("{name} as float32").format(name=name), str(param.ty.dtype))


def _require_shapes(mod: tvm.IRModule, name: str, call: relax.Call) -> None:
    """Raise CheckFailed where two shapes in a call differ for which the PrimFunc has one symbol.

    TVM compares them only when the model runs, and says which number it found but not where.
    """
    func = mod[call.args[0]] if isinstance(call.args[0], tvm.ir.GlobalVar) else None
    if not isinstance(func, tvm.tirx.PrimFunc):
        return
    given = [*(call.args[1].fields if isinstance(call.args[1], relax.Tuple) else ()), call]
    known: dict[Any, tuple[int, str]] = {}
    for param, argument in zip(func.params, given, strict=False):
        says = _("the output") if argument is call else getattr(argument, "name", _("a constant"))
        extents = getattr(getattr(argument.ty, "shape", None), "values", None)
        if extents is None or len(extents) != len(getattr(param.ty, "shape", ())):
            continue
        for symbol, extent in zip(param.ty.shape, extents, strict=True):
            if not isinstance(extent, tvm.tirx.IntImm):
                continue
            size, other = (int(symbol), param.name) if isinstance(symbol, tvm.tirx.IntImm) else \
                known.setdefault(symbol, (int(extent), says))
            if size != int(extent):
                came = (_("for {name}: {symbol} has {size}, of {says} {extent}")
                        if other == param.name else
                        _("for {name}: {symbol} of {other} is {size}, of {says} {extent}")).format(
                            name=name, symbol=symbol, other=other, size=size, says=says,
                            extent=int(extent))
                raise CheckFailed(_("arguments of {kernel} whose shapes fit one another").format(
                                      kernel=call.args[0].name_hint), came)


def _require_calls(mod: tvm.IRModule) -> None:
    """Raise CheckFailed unless main is calls by call_tir of PrimFuncs that can be run safely."""
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and getattr(value.op, "name", "") != "relax.call_tir":
                name = getattr(value.op, "name", type(value.op).__name__)
                raise CheckFailed(_("PrimFuncs that are called by R.call_tir"),
                                  _("{name} is {call}").format(name=binding.var.name, call=name),
                                  "R.call_tir(cls.linear, ...)")
            if isinstance(value, relax.Call):
                _require_shapes(mod, binding.var.name, value)
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            if primfuncs.has_while(func):
                raise CheckFailed(_("loops by T.grid or range"),
                                  _("a while loop in {name_hint}").format(
                                      name_hint=variable.name_hint))
            for block in sblocks(func):
                for written in (region.source for region in block.writes):
                    if any(written.same_as(param) for param in func.params[:-1]):
                        raise CheckFailed(_("PrimFuncs that leave what they are given as it was"),
                                          _("{name_hint} writes into {name}").format(
                                              name_hint=variable.name_hint, name=written.name),
                                          _("{name_hint}: it may write its last argument, and "
                                            "buffers that it allocates").format(
                            name_hint=variable.name_hint))
            primfuncs.require_first_values(func,
                                           _("PrimFunc {name_hint}").format(
                                               name_hint=variable.name_hint))


def _called(main: Callable) -> Callable[..., np.ndarray]:
    """Return a compiled main as a function of its arrays by name, which it may not change."""
    def run(**arrays: np.ndarray) -> np.ndarray:
        tensors = [tvm.runtime.tensor(array) for array in arrays.values()]
        try:
            output = main(*tensors)
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(_("main to take {number} images").format(number=len(arrays["x"])),
                              reason(error)) from None
        if not hasattr(output, "numpy"):
            raise CheckFailed(_("one output"), _("a tuple of {count}").format(count=len(output)))
        for (name, array), given in zip(arrays.items(), tensors, strict=True):
            if not np.array_equal(given.numpy(), array):
                raise CheckFailed(_("that {name} stays as it was").format(name=name),
                                  _("other numbers in it"))
        return output.numpy()
    return run


def _deep_inputs() -> Cases:
    weights = {name: random(*shape) / 4 for name, shape in _DEEP.items() if name != "x"}
    for n, scale in ((1, 1), (5, 1), (3, 40), (90, 1)):
        yield (_("{number} images").format(number=n),
               {"x": np.float32(scale) * random(n, 784), **weights})


_DEEP_MLP = Spec(_called, _deep, _deep_inputs, {"x": "n 784"}, _DEEP_MISTAKES,
                 atol=lambda given: ATOL * max(1, float(np.abs(given["x"]).max(initial=0))))


@exercise("0.5", "create_deep_mlp()", seconds=20)
def exercise_0_5(create_deep_mlp: Callable) -> str:
    """A module with three layers and a symbolic number of images."""
    mod = create_deep_mlp()
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed(_("an IRModule"), type(mod).__name__)
    if "main" not in (names := [variable.name_hint for variable in mod.get_global_vars()]):
        raise CheckFailed(_("a Relax function named main"),
                          _("functions {names}").format(names=names),
                          "def main(...)")
    _require_signature(mod)
    _require_calls(mod)
    with registry():
        machine = build(mod, primfuncs.QUICK)
    check(_DEEP_MLP, machine["main"])
    return _("equal to NumPy for 1, 5, 3 and 90 images with one executable; every step by "
             "R.call_tir")
