"""The checks of notebook 00: end-to-end execution."""

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax

from checks.compare.inputs import grids, rows
from checks.compare.mistakes import layer_mistakes
from checks.compare.trials import Mistakes, Trials, random, require_equal
from checks.diagnose.equivalence import build
from checks.observe import primfuncs
from checks.observe.libraries import registered, registry, run_library
from checks.observe.spies import elementwise, watched
from checks.run.check import exercise
from checks.say.messages import CheckFailed, reason, where
from tir.evaluate import variables
from tir.loops import is_reduction
from tir.walk import accesses, sblocks, stores, walk

# ---- low-level NumPy -----------------------------------------------------------------------

_SOFTMAX = nn.Softmax(dim=1)
_LEAST = 4  # numbers at once: np.max([a, b]) of two is fine, and so is a shape


def _softmax_with(subtracted: Callable[[torch.Tensor], Any], powers: Callable = torch.exp,
                  summed: Callable[[torch.Tensor], torch.Tensor] = lambda e: e) -> tuple:
    """Return a softmax that subtracts another number, in float32 and in float64: two forms.

    The result is right whatever is subtracted, until an exponential overflows or all of a row are
    0; in float64 that happens at larger numbers.
    """
    def form(dtype: torch.dtype) -> Callable:
        def wrong(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
            x = x.to(dtype)
            e = powers(x - subtracted(x))
            return (e / summed(e).sum(1, keepdim=True)).float()
        return wrong
    return form(torch.float32), form(torch.float64)


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(1, keepdim=True)


def _largest_from(start: float) -> Callable:
    return lambda x: _largest(x).clamp(start)


# Functions of the layer and its input, as the mistakes of layers are.
_SOFTMAX_MISTAKES: Mistakes = {
    "the exponentials overflow or vanish: is each row's own maximum subtracted?":
        _softmax_with(lambda x: 0),
    "the search for the largest leaves out the last column":
        _softmax_with(lambda x: _largest(x[:, :max(x.shape[1] - 1, 1)]))
        + _softmax_with(lambda x: _largest(x[:, :-1])),
    "the search for the largest leaves out the first column":
        _softmax_with(lambda x: _largest(x[:, min(1, x.shape[1] - 1):]))
        + _softmax_with(lambda x: _largest(x[:, 1:])),
    "the search for the largest starts from a number above some rows; start from the row's first":
        _softmax_with(_largest_from(-999)) + _softmax_with(_largest_from(-1e4))
        + _softmax_with(_largest_from(-1e5)),
    "the largest: it is the smallest of the row that is subtracted":
        _softmax_with(lambda x: x.amin(1, keepdim=True)),
    "the largest: the first number of each row is subtracted instead":
        _softmax_with(lambda x: x[:, :1]),
    "the largest: the last number of each row is subtracted instead":
        _softmax_with(lambda x: x[:, -1:]),
    "the sign: the largest is subtracted, not added": _softmax_with(lambda x: -_largest(x)),
    "the largest: its absolute value is subtracted": _softmax_with(lambda x: _largest(x.abs()))
        + _softmax_with(lambda x: _largest(x).abs()),
    "the sum leaves out the first column": _softmax_with(_largest, summed=lambda e: e[:, 1:]),
    "the sum leaves out the last column": _softmax_with(_largest, summed=lambda e: e[:, :-1]),
    "the exponential: this is 2 to the power of x, not e": _softmax_with(_largest, torch.exp2),
    "the sign of the exponent: it is the number less the largest":
        _softmax_with(_largest, lambda d: torch.exp(-d))}


def _softmax_trials(axes: tuple[str, str] = ("row", "column")) -> tuple[Trials, list]:
    trials = Trials("the search for the largest of the row, then the exponentials and their sum",
                    layer_mistakes(_SOFTMAX) | _SOFTMAX_MISTAKES, 1e-6, axes)
    return trials, [(f" for {x.shape[0]} x {x.shape[1]}, {words}", x)
                    for words, x in grids(6, 9)]


@exercise("0.1", seconds=5)
def exercise_0_1(lnumpy_softmax: Callable) -> str:
    """softmax with explicit loops.

    That the largest number is subtracted first: Blanchard, Higham and Higham, Accurately computing
    the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41(4), 2021.
    """
    whole: list[str] = []
    step_by_step = elementwise(lnumpy_softmax, whole, _LEAST)
    trials, cases = _softmax_trials()
    notes: list[tuple[int, dict, dict, Any]] = []
    for words, x in cases:
        logits = torch.from_numpy(x)
        trials.add(partial(_run_watched, step_by_step, x, notes), _SOFTMAX(logits).numpy(),
                   _SOFTMAX, logits, words=words)
        if len(notes) == 1:  # the first is the largest: an array function is told before its result
            _require_loops(*notes[0][:3], whole)
    trials.require_right()
    if any(returned is not None for *_, returned in notes):
        raise CheckFailed("that nothing is returned", "a value",
                          "the return statement: Y is the caller's, who has it already")
    return (f"equal to NumPy for {len(cases)} arrays, scores of 1000 and of -500,000 among them; "
            "element by element")


def _run_watched(softmax: Callable, x: np.ndarray, notes: list) -> np.ndarray:
    """Return what a softmax writes; append x's size, both arrays' notes, its result to `notes`."""
    given, out = watched(x.copy()), watched(np.full(x.shape, np.nan, "float32"))
    try:
        with np.errstate(all="ignore"):
            returned = softmax(given, out)
    except OverflowError as error:
        raise CheckFailed("a softmax of scores such as 1000", reason(error), "the "
                          "exponentials overflow: subtract the largest number of the row "
                          "first, in whichever column it stands") from None
    if not np.array_equal(np.asarray(given), x):
        raise CheckFailed("that X stays as it was", "other numbers in X",
                          "what is assigned: only elements of Y")
    if np.isnan(np.asarray(out)).all() and not out.notes["writes"]:
        says = "out holds what it held before" + ", and a value was returned" * (
            returned is not None)
        raise CheckFailed("that Y is written", says, "Y[i, j] = ...; `Y = ...` would only "
                          "rebind the name, and nobody takes a returned value")
    notes.append((x.size, given.notes, out.notes, returned))
    return np.asarray(out)


def _require_loops(size: int, given: dict, out: dict, whole: list[str]) -> None:
    """Raise CheckFailed where a softmax did not read and write single elements."""
    says = [*given["whole"], *out["whole"], *whole][:1]
    if out["writes"] < size:
        says.append(f"{out['writes']} assignments for {size} elements of Y")
    if given["reads"] < size:
        says.append(f"{given['reads']} elements of X read one by one, of {size}")
    if says:
        raise CheckFailed("explicit loops over single elements", "; ".join(says),
                          "the words of the exercise: X[i, j] and Y[i, j] in loops, and functions "
                          "of NumPy for single numbers only")


# ---- PrimFuncs -----------------------------------------------------------------------------

_RELU6: Mistakes = {
    "the cut at 6: this is a plain ReLU": lambda x, *_: np.maximum(x, 0),
    "the cut at 0: negative numbers have to become 0": lambda x, *_: np.minimum(x, 6),
    "T.min and T.max: they are exchanged, so everything is 6":
        lambda x, *_: np.maximum(np.minimum(x, 0), 6),
    "T.min and T.max, which are exchanged": lambda x, *_: np.minimum(np.maximum(x, 6), 0),
    "the sign: this is |x|, cut at 6": lambda x, *_: np.minimum(np.abs(x), 6),
    "the sign: it is -x that is cut": lambda x, *_: np.clip(-x, 0, 6),
    "the condition, which is the wrong way round": (
        lambda x, *_: np.minimum(np.where(x < 0, x, 0), 6), lambda x, *_: np.where(x > 6, x, 6)),
    "the columns: every one gets column 0": lambda x, *_: np.clip(x[:, :1], 0, 6) + 0 * x,
    "the rows: every one gets row 0": lambda x, *_: np.clip(x[:1], 0, 6) + 0 * x,
    "x: it is copied as it is": lambda x, *_: x}


def _other_constants(trials: Trials) -> Mistakes:
    """Return the mistake of a cut at other constants: at the least and the most that came."""
    came = [tried.came for tried in trials.all if isinstance(tried.came, np.ndarray)]
    least, most = (float(f(array)) for f in (np.min, np.max) for array in [np.stack(came)])
    if not np.isfinite([least, most]).all() or least >= most or (least, most) == (0, 6):
        return {}
    says = " and ".join(f"the {which} constant: it is {value:g}, not {right}"
                        for which, value, right in (("upper", most, 6), ("lower", least, 0))
                        if value != right)
    return {says: lambda x, *_: np.clip(x, np.float32(least), np.float32(most))}


def _require_usable(func: tvm.tirx.PrimFunc, reads: str, **start: str) -> None:
    """Raise CheckFailed unless a PrimFunc in TVMScript can be run, and reads its first argument.

    `reads`: what to look at where it does not. `start`: where a first value is missing.
    """
    primfuncs.require_tvmscript(func)
    primfuncs.require_order(func)
    name = primfuncs.name_of(func)
    primfuncs.require_inside_buffers(tvm.IRModule({name: func}))
    x, y = func.params[0].name, func.params[-1].name
    read = set().union(*(primfuncs.names_read(store.value)
                         for store, _ in stores(func, inits=True)))
    if x not in read:
        raise CheckFailed(f"that {x} is read", f"{x} is read nowhere" + f", {y} is" * (y in read),
                          reads)
    primfuncs.require_first_values(func, name, **start)


def _require_sblocks(func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed where something is assigned outside of all sblocks, or without axes."""
    for store, block in stores(func):
        if block is None:
            raise CheckFailed("every assignment in an sblock", f"one to {store.buffer.name} in "
                              'none', 'with T.sblock("Y"): around it, and the axes by T.axis.remap')
        if not block.iter_vars:
            raise CheckFailed("an sblock with axes", f"sblock {block.name_hint} has none",
                              "vi, vj = T.axis.remap(...): one axis for each loop")


@exercise("0.2", seconds=10)
def exercise_0_2(make_relu6: Callable) -> str:
    """ReLU6 as a PrimFunc: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html."""
    func = primfuncs.with_buffers(make_relu6(), (4, 10), (4, 10))
    _require_usable(func, "the formula: min(max(x, 0), 6), and x is an element of X",
                    look_at="which buffer is read: X, or what is written already")
    run = primfuncs.filled(func)
    trials = Trials("the formula: min(max(x, 0), 6), and which element of X it takes", _RELU6,
                    axes=("row", "column"))
    edges = np.linspace(-8, 11.5, 40, dtype="float32").reshape(4, 10)

    def written(x: np.ndarray, filling: float) -> np.ndarray:
        return _all_written(run(x, x.shape, filling), filling, np.clip(x, 0, 6))

    for words, x in [("numbers from -8 to 11.5", edges), *rows(4, 10)]:
        for filling in (np.nan, 1e30, -2.7):
            trials.add(partial(written, x, filling), np.clip(x, 0, 6), x, words=f" for {words}")
    if not trials.cause():
        trials.mistakes = _other_constants(trials)
    trials.require_right()
    _require_sblocks(func)
    if any(is_reduction(axis) for block in sblocks(func) for axis in block.iter_vars):
        raise CheckFailed("spatial axes only", "a reduction axis",
                          'remap("SS", ...): each pair of vi and vj writes another element')
    return ("TVMScript, in sblocks with spatial axes; min(max(x, 0), 6) for all 40 elements,\n"
            "whatever Y held before")


def _all_written(came: np.ndarray, filling: float, right: np.ndarray) -> np.ndarray:
    untouched = np.isnan(came) if np.isnan(filling) else came == np.float32(filling)
    untouched &= right != np.float32(filling)
    if untouched.any():
        raise CheckFailed("that every element of Y is written",
                          f"{untouched.sum()} of {came.size} are not, the first at "
                          f"{where(untouched)}", "the extents of the loops, and the indices")
    return came


# Functions of X, of what Y held before, and of what came.
_FORGETS: Mistakes = {
    "the update: it forgets what was there before": lambda x, *_: x[:, -1]}
_MARKED_S: Mistakes = {
    "the axis over the columns: it is marked S, so T.init runs at every step and only "
    "the last number counts; a reduction is R": lambda x, *_: x[:, -1],
    "the axis over the columns: it is marked S, so T.init runs at every step; and it "
    "starts from 0": lambda x, *_: np.maximum(x[:, -1], 0)}
_ROW_MAX: Mistakes = {
    "T.max: this is the smallest of each row": lambda x, *_: x.min(1),
    "T.max: this is the sum of each row": lambda x, *_: x.sum(1),
    "T.max: this is the largest absolute value of each row": lambda x, *_: np.abs(x).max(1),
    "the loop over the columns: the first is left out": lambda x, *_: x[:, 1:].max(1),
    "the loop over the columns: the last is left out": lambda x, *_: x[:, :-1].max(1),
    "the axis: the row is the loop over columns": lambda x, *_: x[:, :5].max(0),
    "the rows: every one gets the largest of row 0": lambda x, *_: np.full(5, x[0].max()),
    "the rows: every one gets the largest of all": lambda x, *_: np.full(5, x.max()),
    "the loop over the columns: only the first is read": lambda x, *_: x[:, 0],
    "T.init: T.max_value is the highest number; start from the lowest":
        lambda *_: np.full(5, np.finfo("float32").max),
    "T.init: it starts from X[0, 0], which belongs to row 0 only":
        lambda x, *_: np.maximum(x.max(1), x[0, 0]),
    "a first value: this is what Y held before":
        lambda x, held: np.maximum(x.max(1), held)}


def _starts_from(trials: Trials) -> Mistakes:
    """Return the mistake of another first value, if one number came that is above all of a row."""
    above = {float(came) for tried in trials.all if isinstance(tried.came, np.ndarray)
             for came, right in zip(tried.came, tried.expected, strict=True) if came > right}
    if len(above) != 1 or not np.isfinite(start := above.pop()) \
            or start == np.finfo("float32").max:
        return {}
    if start == 0:
        says = "T.init: it starts from 0, and rows below zero give 0"
    elif 0 < start <= 1.2e-38:
        says = f"T.init: {start:.3g} is the smallest number above 0; rows below zero give it"
    else:
        says = f"T.init: {start:g} is not low enough"
    says += '; T.min_value("float32") is lower than any number'
    # equal to the last bit: with a tolerance, 1e-38 would be 0
    return {says: lambda x, *_: np.maximum(x.max(1), np.float32(start))}


@exercise("0.3", seconds=10)
def exercise_0_3(make_row_max: Callable) -> str:
    """The largest of each row as a PrimFunc."""
    func = primfuncs.with_buffers(make_row_max(), (5, 12), (5,))
    _require_usable(func, "the update: the larger of what is there and what comes from X")
    run = primfuncs.filled(func)
    reduces = any(is_reduction(axis) and str(axis.dom.extent) not in ("1", "T.int64(1)")
                  for block in sblocks(func) for axis in block.iter_vars)
    trials = Trials("the update, T.max of what is there and what comes, and its axes", {},
                    axes=("row",))
    for words, x in _row_max_inputs():
        for filling in (np.nan, 3e38, -3e38):
            trials.add(partial(run, x, (5,), filling), x.max(1), x, np.float32(filling),
                       words=f" for {words}")
    trials.mistakes = (_FORGETS if reduces else _MARKED_S) | _ROW_MAX
    if not trials.cause():
        trials.mistakes |= _starts_from(trials)
    trials.require_right()
    if not reduces:
        raise CheckFailed("an sblock with a reduction axis", "spatial axes only, or no sblock",
                          'T.axis.remap("SR", [i, k])')
    _require_sblocks(func)
    reductions = [block for block in sblocks(func)
                  if any(map(is_reduction, block.iter_vars))]
    for block in reductions:
        if block.init is None:
            raise CheckFailed("the first value in T.init", f"sblock {block.name_hint} has a "
                              "reduction axis and no T.init", "with T.init(): in the sblock that "
                              "reduces; a schedule can then move both together")
    if not any(_reads_along(block) for block in reductions):
        raise CheckFailed("the columns as a reduction axis", f"sblock {reductions[0].name_hint} "
                          "has one, and reads nothing that depends on it",
                          "the indices: the sblock that takes the largest reads X[vi, vk]")
    return ("TVMScript, a reduction axis and its T.init; the largest of each row, negative rows\n"
            "too, whatever Y held before")


def _reads_along(block: Any) -> bool:
    """Whether an index of what an sblock reads depends on one of its reduction axes."""
    along = {axis.var for axis in block.iter_vars if is_reduction(axis)}
    return any(not access.writes and along & variables(access.indices)
               for node, place in walk(block.body) for access in accesses(node, place))


def _row_max_inputs() -> Iterator[tuple[str, np.ndarray]]:
    mixed = 5 * random(5, 12)
    mixed[1], mixed[3], mixed[4, 0] = -np.abs(mixed[1]) - 1, -2e30, 40  # rows with none above zero
    mixed[3, 5], mixed[0, 11] = -1e30, 9
    yield "rows with nothing above zero among them", mixed
    yield from rows(5, 12)


# ---- pure or not ---------------------------------------------------------------------------


class _Function(NamedTuple):
    """A function f(x, out): a title, and what it writes, of x, what out held and the call's number.

    `leaves` gives what is in x after a call, of x and the call's number. `x` is its argument or the
    shape of it, `shape` that of out.
    """

    title: str
    writes: Callable[[np.ndarray, np.ndarray, int], Any]
    hint: str = ""
    pure: bool = False
    leaves: Callable[[np.ndarray, int], Any] = lambda x, _: x
    x: tuple[int, ...] | np.ndarray = (3, 4)
    shape: tuple[int, ...] = (3, 4)


def _where(x: np.ndarray, held: np.ndarray, chosen: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return x at the chosen places, counted from 0 on, and what out held at the others."""
    return np.where(chosen(np.arange(x.size).reshape(x.shape)), x, held)


_SHAPE = "the shape of out: it is `shape`"
_GIVEN = "the input after the call: compare it with numbers that the function could not change"
_EVERY = "the input after each of the calls: compare every copy with x"
_FILLS = "two fillings of out that differ"
_BOTH = f"{_FILLS}, one of them above all numbers, one below"
_AGAIN = "a second call with the same input"
_PURE = partial(_Function, pure=True)

_FUNCTIONS = [
    _PURE("doubles x", lambda x, *_: 2 * x),
    _PURE("transposes x, so out is (4, 3)", lambda x, *_: x.T, _SHAPE, shape=(4, 3)),
    _PURE("sums the rows of x, so out is (5,)", lambda x, *_: x.sum(-1), _SHAPE, x=(5, 7),
          shape=(5,)),
    _PURE("doubles a row of x", lambda x, *_: 2 * x, x=(1,), shape=(1,)),
    _PURE("works in a temporary of its own", lambda x, *_: 2 * x + 1, "what is compared",
          x=(2, 3, 4), shape=(2, 3, 4)),
    _PURE("writes NaN where x < 0", lambda x, *_: np.where(x < 0, np.float32(np.nan), x),
          "NaN is not equal to NaN: equal_nan=True"),
    _Function("changes x in place, and to the same the second time",
              lambda x, *_: np.maximum(x, 0), _GIVEN, leaves=lambda x, _: np.maximum(x, 0)),
    _Function("adds x to what out held", lambda x, held, _: held + x, _FILLS),
    _Function("does not write column 0",
              lambda x, held, _: _where(x, held, lambda place: place % 4 > 0), _FILLS),
    _Function("does not write the last element",
              lambda x, held, _: _where(x, held, lambda place: place < 6), _FILLS, x=(7, 1),
              shape=(7, 1)),
    _Function("writes the larger of x and what out held", lambda x, held, _: np.maximum(x, held),
              _BOTH),
    _Function("writes the smaller of x and what out held", lambda x, held, _: np.minimum(x, held),
              _BOTH),
    _Function("changes x by a millionth", lambda x, *_: x,
              "np.array_equal: a tolerance hides small changes",
              leaves=lambda x, _: x * np.float32(1 + 1e-6)),
    _Function("changes the last element of x", lambda x, *_: x, _GIVEN,
              leaves=lambda x, _: _where(x, x + 1, lambda place: place < 11)),
    _Function("changes x in its first call only", lambda x, *_: x, _EVERY,
              leaves=lambda x, call: x + (call == 1)),
    _Function("changes x from the second call on", lambda x, *_: x, _EVERY,
              leaves=lambda x, call: x + (call > 1)),
    _Function("writes every other element, and the rest in its next call",
              lambda x, held, call: _where(x, held, lambda place: place % 2 == call % 2),
              "the output after each single call"),
    _Function("changes the sign of x, and changes it back in its next call",
              lambda x, *_: np.abs(x), _EVERY, leaves=lambda x, _: -x),
    _Function("adds noise", lambda x, _, call: x + random(*x.shape, seed=call), _AGAIN),
    _Function("multiplies by the number of its calls", lambda x, _, call: x * call, _AGAIN),
    _PURE("doubles an x with NaN in it", lambda x, *_: 2 * x,
          "NaN is not equal to NaN, in x neither: equal_nan=True",
          x=np.where(random(3, 4) < 0, np.float32(np.nan), random(3, 4)))]


def _spied(function: _Function, x: np.ndarray, other: list[tuple[str, str, str]]) -> Callable:
    """Return f(x, out), which appends to `other` a message for an array that it should not get."""
    calls = itertools.count(1)

    def spied(given: Any, out: Any) -> None:
        for name, array, wanted, text in (
                ("x", given, x.shape, "x.copy()"),
                ("out", out, function.shape, 'np.full(shape, number, dtype="float32")')):
            dtype = getattr(array, "dtype", None)
            if not isinstance(array, np.ndarray) or dtype != np.float32:
                other.append((f"{name} as a float32 array, handed to the function",
                              f"{dtype or type(array).__name__}", f"{name}: {text}"))
            elif array.shape != wanted:
                other.append((f"{name} of shape {wanted}, handed to the function",
                              f"{array.shape}", function.hint or f"{name}: {text}"))
        call = next(calls)
        written, left = function.writes(given, out, call), function.leaves(given, call)
        out[...] = written
        if left is not given:
            given[...] = left
    return spied


@exercise("0.4", seconds=10)
def exercise_0_4(looks_pure: Callable) -> str:
    """Finding impure functions."""
    for function in _FUNCTIONS:
        x = random(*function.x) if isinstance(function.x, tuple) else function.x.copy()
        before = x.copy()
        other: list[tuple[str, str, str]] = []
        try:
            came = looks_pure(_spied(function, before, other), x, function.shape)
        except Exception:
            if not other:
                raise
            came = None  # the function could not work with what it was handed
        if other:
            expected, says, look_at = other[0]
            raise CheckFailed(f"{expected} that {function.title}", says, look_at)
        if not isinstance(came, bool | np.bool_):
            raise CheckFailed("True or False", f"{type(came).__name__}", "the return statement")
        if bool(came) != function.pure:
            raise CheckFailed(f"{function.pure} for a function that {function.title}", f"{came}",
                              function.hint or "what is compared: it gives the same each time and "
                              "leaves x alone")
        if not np.array_equal(x, before, equal_nan=True):
            raise CheckFailed("that the caller's x stays as it was", "other numbers in it, after "
                              f"a function that {function.title}",
                              "x.copy(): hand copies to the function")
    pure = sum(function.pure for function in _FUNCTIONS)
    return f"right about {len(_FUNCTIONS)} functions, {pure} of them pure"


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


# Functions of the MLP's arrays by name, and of what came.
_DEEP_MISTAKES: Mistakes = {
    "the bias is added at every step of the sum, not once":
        lambda given, _: _deep(**given, bias=(784, 128, 64)),
    "the ReLU after the first layer is missing":
        lambda given, _: _deep(**given, relu=(False, True, False)),
    "the ReLU after the second layer is missing":
        lambda given, _: _deep(**given, relu=(True, False, False)),
    "both ReLUs are missing": lambda given, _: _deep(**given, relu=(False, False, False)),
    "a ReLU after the last layer: the scores have none":
        lambda given, _: _deep(**given, relu=(True, True, True)),
    "the bias: the linear PrimFunc does not add it":
        lambda given, _: _deep(**given, bias=(0, 0, 0)),
    "every image gets the scores of image 0":
        lambda given, _: np.broadcast_to(_deep(**given)[:1], (len(given["x"]), 10)),
    "only image 0 is right: do the loops of each PrimFunc run over all images?":
        lambda given, came: np.concatenate([_deep(**given)[:1], came[1:]])}


def _require_signature(mod: tvm.IRModule) -> None:
    params = list(mod["main"].params)
    if len(params) != len(_DEEP):
        raise CheckFailed(f"main with 7 parameters, {', '.join(_DEEP)}",
                          ", ".join(param.name for param in params) or "none", "its signature")
    for param, (name, shape) in zip(params, _DEEP.items(), strict=True):
        extents = getattr(getattr(param.ty, "shape", None), "values", None)
        wanted = f"({', '.join('n' if n is None else str(n) for n in shape)})"
        if extents is None or len(extents) != len(shape) or any(
                isinstance(came, tvm.tirx.IntImm) and int(came) != (size or -1)
                for came, size in zip(extents, shape, strict=True)):
            came = re.sub(r"T\.int64\((\d+)\)", r"\1", f"({', '.join(map(str, extents))})") \
                if extents is not None else "a shape that is not given"
            hint = "a symbol for the number of images: \"n\" in the signature" if name == "x" \
                else "the signature of main, and the order of its parameters"
            raise CheckFailed(f"{name} of shape {wanted}", came, hint)
        if str(param.ty.dtype).removeprefix("T.") != "float32":
            raise CheckFailed(f"{name} as float32", str(param.ty.dtype), "the signature of main")


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
        says = "the output" if argument is call else getattr(argument, "name", "a constant")
        extents = getattr(getattr(argument.ty, "shape", None), "values", None)
        if extents is None or len(extents) != len(getattr(param.ty, "shape", ())):
            continue
        for symbol, extent in zip(param.ty.shape, extents, strict=True):
            if not isinstance(extent, tvm.tirx.IntImm):
                continue
            size, other = (int(symbol), param.name) if isinstance(symbol, tvm.tirx.IntImm) else \
                known.setdefault(symbol, (int(extent), says))
            if size != int(extent):
                where_from = "has" if other == param.name else f"of {other} is"
                raise CheckFailed(
                    f"arguments of {call.args[0].name_hint} whose shapes fit one another",
                    f"for {name}: {symbol} {where_from} {size}, of {says} {int(extent)}",
                    f"the arguments in the line of {name}: which variable does this step take?")


def _require_calls(mod: tvm.IRModule) -> None:
    """Raise CheckFailed unless main is calls by call_tir of PrimFuncs that can be run safely."""
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and getattr(value.op, "name", "") != "relax.call_tir":
                name = getattr(value.op, "name", type(value.op).__name__)
                raise CheckFailed("PrimFuncs that are called by R.call_tir",
                                  f"{binding.var.name} is {name}", "R.call_tir(cls.linear, ...)")
            if isinstance(value, relax.Call):
                _require_shapes(mod, binding.var.name, value)
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            if primfuncs.has_while(func):
                raise CheckFailed("loops by T.grid or range", f"a while loop in "
                                  f"{variable.name_hint}", "the loop of this PrimFunc")
            for block in sblocks(func):
                for written in (region.source for region in block.writes):
                    if any(written.same_as(param) for param in func.params[:-1]):
                        raise CheckFailed(
                            "PrimFuncs that leave what they are given as it was",
                            f"{variable.name_hint} writes into {written.name}",
                            f"{variable.name_hint}: it may write its last argument, and buffers "
                            "that it allocates")
            primfuncs.require_first_values(func, f"PrimFunc {variable.name_hint}")


@exercise("0.5", seconds=20)
def exercise_0_5(create_deep_mlp: Callable) -> str:
    """A module with three layers and a symbolic number of images."""
    mod = create_deep_mlp()
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed("an IRModule", type(mod).__name__, "the return statement")
    if "main" not in (names := [variable.name_hint for variable in mod.get_global_vars()]):
        raise CheckFailed("a Relax function named main", f"functions {names}", "def main(...)")
    _require_signature(mod)
    _require_calls(mod)
    with registry():
        machine = build(mod, primfuncs.QUICK)
    weights = {name: random(*shape) / 4 for name, shape in _DEEP.items() if name != "x"}
    for n in (1, 5, 3):
        arrays: dict[str, Any] = {"x": random(n, 784), **weights}
        tensors = [tvm.runtime.tensor(array) for array in arrays.values()]
        try:
            output = machine["main"](*tensors)
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(f"main to take {n} images", reason(error), "the shapes of main and "
                              "of the PrimFuncs: what is 1 there?") from None
        if not hasattr(output, "numpy"):
            raise CheckFailed("one output", f"a tuple of {len(output)}", "what main returns")
        for (name, array), given in zip(arrays.items(), tensors, strict=True):
            if not np.array_equal(given.numpy(), array):
                raise CheckFailed(f"that {name} stays as it was", "other numbers in it",
                                  "the PrimFunc that is given it: what does it write?")
        came = output.numpy()
        require_equal(came, _deep(**arrays), "the linear PrimFunc, then the five calls in main: "
                      "each takes the result of the one before", _DEEP_MISTAKES, arrays, came)
    return "equal to NumPy for 1, 5 and 3 images with one executable; every step by R.call_tir"


# ---- a library function --------------------------------------------------------------------


@exercise("0.6", seconds=10)
def exercise_0_6(register_softmax: Callable) -> str:
    """env.softmax writes the softmax of each row into out."""
    trials, cases = _softmax_trials()
    with registry():
        function = registered(register_softmax, "env.softmax")

        def run(x: np.ndarray) -> np.ndarray:
            try:
                return run_library(function, "env.softmax", x.shape, x=x)
            except CheckFailed as failed:
                if trials.failed is None or "NaN" not in failed.parts[1]:
                    raise
                return np.full(x.shape, np.nan, "float32")  # it was written before, so it is here
        for words, x in cases:
            logits = torch.from_numpy(x)
            with np.errstate(all="ignore"):
                trials.add(partial(run, x), _SOFTMAX(logits).numpy(), _SOFTMAX, logits,
                           words=words)
    trials.require_right()
    return ("env.softmax is registered, can be registered again, and writes the softmax of each\n"
            f"row into out; tried with {len(cases)} arrays, scores of 1000 among them")
