"""The checks of notebook 13: numbers of few bits."""

import functools
import itertools
import re
from collections.abc import Callable
from numbers import Integral
from typing import Any
from unittest import mock

import numpy as np
import tvm
from tvm import tirx
from tvm.script import tirx as T

from course import intrinsics
from course.checks.compare.tolerance import random
from course.checks.observe import primfuncs
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.forms import Misuse, number, program
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Cases, Spec, check
from course.checks.spec.trials import Mistakes, require_equal
from course.tir.walk import accesses, constant, walk
from course.words import _

# ---- a step for each group -----------------------------------------------------------------


def _back(weights: np.ndarray, bits: int, to: Callable = np.rint,
          axis: int | tuple[int, ...] | None = 2) -> np.ndarray:
    """Return what weights (n, groups, size) stand for; other arguments are mistakes."""
    steps = np.abs(weights).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)
    steps = np.where(steps == 0, 1, steps)
    return (to(weights / steps) * steps).astype("float32")


def _standing_for(answer: Callable) -> Callable[..., np.ndarray]:
    """Return what an answer's integers and steps stand for, of weights (n, groups, size)."""
    def of(weights: np.ndarray, bits: int) -> np.ndarray:
        n, groups, size = weights.shape
        given = weights.reshape(n, groups * size)
        came = answer(given, size, bits)
        said = [f"{each.dtype} {each.shape}" if isinstance(each, np.ndarray) else
                type(each).__name__ for each in (came if isinstance(came, tuple) else [came])]
        wanted = [f"int8 {given.shape}", f"float32 {(n, groups)}"]
        if said != wanted:
            raise CheckFailed(_("a tuple: {arrays}").format(arrays=_(", ").join(wanted)),
                              _(", ").join(said))
        integers, steps = came
        if not (np.isfinite(steps) & (steps > 0)).all():
            raise CheckFailed(_("steps above 0"), f"{steps.min():.4g}")
        most = 2 ** (bits - 1) - 1
        if np.abs(integers.astype(int)).max() > most:
            raise CheckFailed(_("integers from {low} to {high}").format(low=-most, high=most),
                              _("from {low} to {high}").format(
                                  low=int(integers.min()), high=int(integers.max())))
        return (integers.reshape(weights.shape) * steps[..., None]).astype("float32")
    return of


_STEPS: Mistakes = {
    _("rounding: the nearest integer is wanted, and astype cuts off"):
        lambda weights, bits: _back(weights, bits, to=np.trunc),
    _("one step for each group: this is one for all"):
        lambda weights, bits: _back(weights, bits, axis=None),
    _("one step for each group: this is one for each row"):
        lambda weights, bits: _back(weights, bits, axis=(1, 2))}


def _weights() -> Cases:
    for bits in (8, 4, 3, 2):
        for shape in ((3, 2, 5), (1, 4, 1), (2, 1, 7)):
            weights = random(*shape, seed=bits) * np.float32(10.0 ** (bits - 5))
            yield "", {"weights": weights, "bits": bits}
    weights = random(2, 3, 4, seed=9)
    weights[0, 1] = 0
    weights[1, 2] = -np.abs(weights[1, 2])
    yield "", {"weights": weights, "bits": 4}


def _no_ties(given: dict[str, Any]) -> bool:
    """Whether no weight lies between two integers: there either is right."""
    weights, most = given["weights"].astype("float64"), 2 ** (given["bits"] - 1) - 1
    largest = np.abs(weights).max(axis=-1, keepdims=True)
    scaled = np.abs(weights) * most / np.where(largest == 0, 1, largest)
    return bool((np.abs(scaled % 1 - 0.5) > 1e-3).all())


_GROUPED = Spec(_standing_for, _back, _weights, {"weights": "n groups size"}, _STEPS,
                fits=lambda given: 2 <= given["bits"] <= 8 and _no_ties(given), fault=CheckFailed,
                shown=lambda given: {
                    "weights": given["weights"].reshape(len(given["weights"]), -1),
                    "size": given["weights"].shape[2], "bits": given["bits"]},
                result=_("integers times steps"),
                atol=lambda given: 1e-5 * float(np.abs(given["weights"]).max()))


@exercise("13.1", "grouped(weights, size, bits)", seconds=10)
def exercise_13_1(grouped: Callable) -> str:
    """a step for each group of weights."""
    return _("each weight by its nearest integer, for {count} arrays of weights in groups").format(
        count=check(_GROUPED, grouped))


# ---- the best range ------------------------------------------------------------------------


def _losses(x: np.ndarray, ranges: np.ndarray, bits: int) -> np.ndarray:
    """Return the rms error of numbers from 0 on in so many bits, for each of several ranges."""
    def of(some: np.ndarray) -> np.ndarray:
        most, step = some[:, None], some[:, None] / (2**bits - 1)
        return np.sqrt(np.mean((np.rint(np.minimum(x, most) / step) * step - x) ** 2, axis=1))
    x = x.astype("float64")
    return np.concatenate([of(some) for some in np.array_split(ranges, 1 + x.size // 200)])


def _best(x: np.ndarray, bits: int, count: int = 500) -> tuple[float, float]:
    """Return the best of some ranges in equal ratios, and its rms error."""
    ranges = float(x.max()) * np.geomspace(1e-3, 1, count)
    losses = _losses(x, ranges, bits)
    return float(ranges[losses.argmin()]), float(losses.min())


def _fair(given: Inputs) -> bool:
    """Whether a search in coarser ratios finds a range that is as good: no needle in a haystack."""
    x, bits = given["x"], given["bits"]
    return 2 <= bits <= 8 and bool((x >= 0).all() and (x > 0).any()) \
        and _best(x, bits, 300)[1] <= 1.01 * _best(x, bits)[1]


def _samples() -> Cases:
    draw = np.random.default_rng(0)
    outlier, many, few = (draw.uniform(0, 1, size) for size in (4000, 100_000, 12))
    outlier[7], many[7], few[7] = 300, 100, 30
    for x in (draw.uniform(0, 1, 12), few, draw.uniform(0, 1, 2000),
              draw.normal(size=2000).clip(0), 1e-3 * draw.exponential(size=2000), outlier, many,
              np.array([3.5])):
        for bits in (2, 4, 8):
            given = {"x": x.astype("float32"), "bits": bits}
            if len(x) != 12 or _fair(given):
                yield "", given


def _losing_little(answer: Callable) -> Callable[..., np.ndarray]:
    """Return an answer as a function that raises CheckFailed where another range loses less."""
    def of(x: np.ndarray, bits: int) -> np.ndarray:
        came = float(number(answer)(x=x, bits=bits))
        if not 0 < came < np.inf:
            raise CheckFailed(_("a number above 0"), f"{came:.4g}")
        best, least = _best(x, bits)
        found = float(_losses(x, np.array([came]), bits)[0])
        if found > 1.02 * least + 1e-6 * float(x.max()):
            raise CheckFailed(
                _("an rms error of at most 1.02 · {least}, that of the range {best}").format(
                    least=f"{least:.4g}", best=f"{best:.4g}"),
                _("{error} with the range {range}").format(error=f"{found:.4g}",
                                                           range=f"{came:.4g}"),
                _("the largest number is the range: a smaller one may lose less")
                if came == float(x.max()) else "")
        return np.empty(0)
    return of


def _nothing(**_given: Any) -> np.ndarray:
    """Return what is right of a property: no number."""
    return np.empty(0)


_RANGE = Spec(_losing_little, _nothing, _samples, {"x": "n"}, fits=_fair, fault=CheckFailed)


@exercise("13.2", "best_range(x, bits)", seconds=30)
def exercise_13_2(best_range: Callable) -> str:
    """the range that loses least."""
    return _("within 2 % of the least error, for {count} samples and numbers of bits").format(
        count=check(_RANGE, best_range))


# ---- the longest sum -----------------------------------------------------------------------

_FACTORS = [((0, 255), (-127, 127)), ((-128, 127), (-128, 127)), ((-2, 1), (0, 1)),
            ((0, 1), (0, 1)), ((-1, 0), (0, 1)),
            ((-7, 7), (-7, 7)), ((-128, -1), (1, 3)), ((0, 255), (-128, 0)), ((-5, -2), (-4, 0))]


def _sums(one: tuple[int, int], other: tuple[int, int], count: int) -> tuple[int, int]:
    """Return the smallest and the largest sum of so many products."""
    products = [x * y for x, y in itertools.product(one, other)]
    return min(0, count * min(products)), max(0, count * max(products))


def _longest(answer: Callable) -> Callable[..., np.ndarray]:
    """Return an answer as a function that raises CheckFailed where K is too large, or too small."""
    def of(one: tuple[int, int], other: tuple[int, int], bits: int) -> np.ndarray:
        came = answer(one, other, bits)
        if not isinstance(came, Integral) or came < 0:
            raise CheckFailed(_("an integer from 0 on"), _("{value}, of type {type}").format(
                value=repr(came)[:80], type=type(came).__name__))
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        for count, more in ((int(came), 0), (int(came) + 1, 1)):
            least, most = _sums(one, other, count)
            if (low <= least and most <= high) == more:
                raise CheckFailed(
                    _("the largest K with sums from {low} to {high}").format(low=low, high=high),
                    (_("{came}; with {count} they go from {least} to {most}") if more else
                     _("{came}, with sums from {least} to {most}")).format(
                         came=int(came), count=count, least=least, most=most))
        return np.empty(0)
    return of


_LONGEST = Spec(
    _longest, _nothing,
    lambda: (("", {"one": one, "other": other, "bits": bits}) for one, other in _FACTORS
             for bits in (16, 17, 32, 63)),
    fits=lambda given: 2 <= given["bits"] <= 63 and all(
        len(ends) == 2 and ends[0] <= ends[1] for ends in (given["one"], given["other"]))
    and any(_sums(given["one"], given["other"], 1)), fault=CheckFailed)


@exercise("13.3", "longest_sum(one, other, bits)", seconds=10)
def exercise_13_3(longest_sum: Callable) -> str:
    """the longest sum that can't leave its accumulator."""
    check(_LONGEST, longest_sum)
    return _("no sum leaves its accumulator, and one more product can, for {count} pairs of "
             "ranges").format(count=len(_FACTORS))


# ---- four products at once -----------------------------------------------------------------

_ANY = primfuncs.QUICK  # has none of the instructions: they are done in arithmetic
_WITH = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"})
_MULTIPLY = "vpdp", "vpmadd", "vpmul", "imul", "mul"


def _fours(A: np.ndarray, B: np.ndarray, C: np.ndarray, one: str = "uint8", other: str = "int8",
           pairs: bool = False, start: bool = True) -> np.ndarray:
    """Return int32 sums with four products more each; other arguments are mistakes."""
    products = A.astype(one).astype("int32") * B.astype(other).astype("int32")
    if pairs:
        products = products.reshape(-1, 2, 2).sum(2).clip(-2**15, 2**15 - 1)
    return (C * start + products.sum(1)).astype("int32")


_DOTS: Mistakes = {
    _("pairs of products are added in 16 bits, and what does not fit becomes the nearest number"):
        lambda A, B, C: _fours(A, B, C, pairs=True),
    _("A: its numbers have no sign, and these are taken for int8"):
        lambda A, B, C: _fours(A, B, C, one="int8"),
    _("B: its numbers have a sign, and these are taken for uint8"):
        lambda A, B, C: _fours(A, B, C, other="uint8"),
    _("A and B: the first of the two that are multiplied has no sign, the second has one"):
        lambda A, B, C: _fours(A, B, C, one="int8", other="uint8"),
    _("C: the products are added to what it holds"): lambda A, B, C: _fours(A, B, C, start=False)}


def _dot_cases(lanes: int, half: Any) -> Cases:
    draw = np.random.default_rng(lanes)
    for a, b in ((None, None), (255, 127), (255, -128), (200, 100), (None, 1)):
        A = draw.integers(0, 256, 4) if a is None else np.full(4, a)
        B = draw.integers(-128, 128, (lanes, 4)) if b is None else np.full((lanes, 4), b)
        yield "", {"half": half, "A": A.astype("uint8"), "B": B.astype("int8"),
                   "C": draw.integers(-10**6, 10**6, lanes).astype("int32")}


def _adding(func: Any) -> Callable[..., np.ndarray]:
    """Return a PrimFunc that adds to its last buffer as a function of all three."""
    run = intrinsics.compiled(func, _ANY)["main"]

    def of(half: Any, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> np.ndarray:
        sums = tvm.runtime.tensor(C)
        run(tvm.runtime.tensor(A), tvm.runtime.tensor(B), sums)
        return sums.numpy()
    return of


def _names(func: tirx.PrimFunc) -> list[str]:
    """Return the names of LLVM's intrinsics that a PrimFunc calls."""
    return re.findall(r'"(llvm\.[^"]+)"', func.script())


def _require_arguments(func: Any, lanes: int, half: str) -> None:
    """Raise CheckFailed unless a half has its three buffers, with the scope and from any place."""
    primfuncs.with_buffers(func, (4,), (lanes, 4), (lanes,), dtypes=("uint8", "int8", "int32"),
                           sizes=_("{lanes} lanes").format(lanes=lanes))
    if (scope := str(func.params[-1].ty.storage_scope)) != "local":
        raise CheckFailed(_('{half}: {buffer} of the scope "local"').format(
            half=half, buffer=func.params[-1].name), f'"{scope}"')
    for param in func.params:
        if constant(param.ty.elem_offset) is not None:
            raise CheckFailed(_("{half}: {buffer} with offset_factor=1, as it may begin anywhere "
                                "in a matrix").format(half=half, buffer=param.name),
                              _("it begins at its first element"))


def _made(of_fours: Callable, lanes: int) -> Any:
    """Return what an answer gives; raises CheckFailed where LLVM lacks the intrinsic it names."""
    asked, look_up = [], T.llvm_lookup_intrinsic_id

    def noted(name: str) -> int:
        asked.append(name)
        return look_up(name)
    with mock.patch.object(T, "llvm_lookup_intrinsic_id", noted):
        try:
            return of_fours(lanes)
        except RuntimeError:
            if asked and not look_up(asked[-1]):
                raise CheckFailed(_wanted(lanes), _("{name}, which LLVM does not have").format(
                    name=asked[-1])) from None
            raise


def _wanted(lanes: int) -> str:
    return _("an implementation that calls {name} for {lanes} lanes").format(
        name=f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", lanes=lanes)


@exercise("13.4", "of_fours(lanes)", seconds=60)
def exercise_13_4(of_fours: Callable) -> str:
    """an intrinsic that adds four products, as VNNI has it."""
    for lanes in (16, 8, 4):
        came = _made(of_fours, lanes)
        if not isinstance(came, tuple) or len(came) != 2:
            raise CheckFailed(_("a tuple: a description, an implementation"), type(came).__name__)
        halves = _("description"), _("implementation")
        for func, half in zip(came, halves, strict=True):
            _require_arguments(func, lanes, half)
        if called := _names(came[0]):
            raise CheckFailed(_("a description in loops, without a call"), called[0])
        for name in _names(came[1]):  # others can't be done in arithmetic
            if not intrinsics.has(_WITH, name) or "vpdpbusd" in name \
                    and int(name.rpartition(".")[2]) > 32 * lanes:
                raise CheckFailed(_wanted(lanes), name)
        for func, half in zip(came, halves, strict=True):
            check(Spec(_adding, lambda half, A, B, C: _fours(A, B, C),
                       functools.partial(_dot_cases, lanes, half), named=_DOTS, atol=0,
                       formula=lambda given: (given["A"], given["B"], given["C"])), func)
        try:
            words = intrinsics.instructions(came[1], _WITH)
        except RuntimeError as error:
            raise CheckFailed(_("a call that LLVM takes"), reason(error)) from None
        found = {word: count for word, count in words.items() if word.startswith(_MULTIPLY)}
        if found != {"vpdpbusd": 1}:
            raise CheckFailed(_("one vpdpbusd for {lanes} sums, and no other multiplication, "
                                "compiled for AMD Zen 4").format(lanes=lanes),
                              _(", ").join(f"{count} {word}" for word, count in found.items())
                              or _("none"))
        _require_found(came, lanes)
    return _("exact, one vpdpbusd each, and found in the dense layer, for 4, 8 and 16 lanes")


def _require_found(pair: Any, lanes: int) -> None:
    """Raise CheckFailed unless tensorize finds a description in a dense layer, which is exact."""
    draw = np.random.default_rng(0)
    A = draw.integers(0, 256, (6, 24)).astype("uint8")
    W = draw.integers(-128, 128, (4 * lanes, 24)).astype("int8")
    name = intrinsics.register("checked", pair)
    try:
        func = intrinsics.in_registers(intrinsics.dense(6, 24, 4 * lanes, lanes, 4), name, lanes,
                                       4, 3, 2)
    except tvm.s_tir.schedule.ScheduleError as error:
        raise CheckFailed(_("a description that tensorize finds in the loops of the dense layer"),
                          f"ScheduleError: {str(error).strip().splitlines()[-1][:300]}") from None
    out = tvm.runtime.tensor(np.zeros((6, 4 * lanes), "int32"))
    intrinsics.compiled(func, _ANY)["main"](
        tvm.runtime.tensor(A), tvm.runtime.tensor(intrinsics.as_read(W, lanes, 4)), out)
    require_equal(out.numpy(), A.astype("int32") @ W.T.astype("int32"), {},
                  words=_("a dense layer, {lanes} lanes").format(lanes=lanes))


# ---- weights of four bits ------------------------------------------------------------------


def _unpacked(x: np.ndarray, W: np.ndarray, S: np.ndarray, zero: float = 8, turned: bool = False,
              signed: bool = False, inner: bool = False, first: bool = False) -> np.ndarray:
    """Return the product of weights of four bits with x; other arguments are mistakes."""
    halves = [(W & 15).astype("float64"), (W >> 4).astype("float64")]
    whole = np.stack(halves, -1).reshape(*W.shape[:2], -1) if inner else np.concatenate(
        halves[::-1] if turned else halves, 2)
    whole = np.where(whole > 7, whole - 16, whole) if signed else whole - zero
    steps = np.repeat(S[:, :1] if first else S, len(x) if first else 32, 1)
    return np.einsum("pkl,k->pl", whole * steps, x).ravel().astype("float32")


_HALVES: Mistakes = {
    _("the zero point: each weight is stored as 8 more than it is"):
        functools.partial(_unpacked, zero=0),
    _("the zero point: it is 8, not 7"): functools.partial(_unpacked, zero=7),
    _("the halves: they are exchanged"): functools.partial(_unpacked, turned=True),
    _("the halves: the high ones are 16 outputs on, not the next output"):
        functools.partial(_unpacked, inner=True),
    _("the zero point: bits from 8 on are no negative numbers here"):
        functools.partial(_unpacked, signed=True),
    _("the steps: each group has its own"): functools.partial(_unpacked, first=True)}


def _packed_cases(*sizes: tuple[int, int]) -> Cases:
    for panels, groups in sizes or ((1, 1), (1, 3), (3, 2), (2, 4)):
        W = np.random.default_rng(panels).integers(0, 256, (panels, 32 * groups, 16))
        yield "", {"x": random(32 * groups), "W": W.astype("uint8"),
                   "S": 0.1 + abs(random(panels, groups, 32, seed=1))}


def _plain_cases() -> Cases:
    """Yield inputs in which one thing counts: a byte, the steps, a group, a panel."""
    def given(panels: int, groups: int, places: list[int], W: int) -> Inputs:
        x = np.zeros(32 * groups, "float32")
        x[places] = 1
        return {"x": x, "W": np.full((panels, 32 * groups, 16), W, "uint8"),
                "S": np.ones((panels, groups, 32), "float32")}
    for place, byte in itertools.product(((0, 0, 0), (0, 0, 5), (0, 31, 15)), (0x8A, 0xA8, 0x18)):
        one = given(1, 1, [place[1]], 0x88)
        one["W"][place] = byte
        yield "", one
    for output in range(32):
        one = given(1, 1, [0], 0x99)
        one["S"][0, 0, output] = 2
        yield "", one
    yield "", given(1, 1, [0, 1], 0x99)
    yield "", given(1, 2, [0, 32], 0x99)
    for panel in range(2):
        one = given(2, 1, [0], 0x88)
        one["W"][panel] = 0x99
        one["S"][panel] = 2
        yield "", one


def _times(answer: Callable) -> Callable[..., np.ndarray]:
    @functools.cache
    def made(n: int, k: int) -> Callable:
        return program(primfuncs.with_buffers(
            answer(n, k), (k,), (n // 32, k, 16), (n // 32, k // 32, 32), (n,),
            dtypes=("float32", "uint8", "float32", "float32"), sizes=f"n = {n}, k = {k}"))
    return lambda x, W, S: made(32 * len(W), len(x))((x, W, S), (32 * len(W),))


_FOUR_BITS = Spec(_times, _unpacked, lambda: itertools.chain(_plain_cases(), _packed_cases()),
                  named=_HALVES, fault=Misuse, atol=1e-3,
                  beyond=lambda: _packed_cases((31, 1), (1, 31)))


@exercise("13.5", "times_four_bits(n, k)", seconds=30)
def exercise_13_5(times_four_bits: Callable) -> str:
    """a vector times a matrix of four bits."""
    count = check(_FOUR_BITS, times_four_bits)
    n, k = 96, 320
    func = times_four_bits(n, k)
    made, reads = primfuncs.traffic(func)
    if sum(made.values()) > 128:
        raise CheckFailed(
            _("at most 128 numbers of its own at a time, for any n and k"),
            _(", ").join(_("{name} {count}").format(name=name, count=size)
                         for name, size in sorted(made.items())))
    W = func.params[1].name
    if reads[W] > n * k:
        raise CheckFailed(_("each byte of W read at most twice, {count} loads").format(
            count=f"{n * k:,}"), f"{reads[W]:,}")
    for access in (each for node, place in walk(func.body) for each in accesses(node, place)):
        loop = access.place.loops[-1] if access.place.loops else None
        vector = isinstance(access.indices[-1], tirx.Ramp)
        if access.buffer.name == W and not vector and (
                not loop or loop.kind != "vectorized" or loop.extent not in (8, 16)):
            raise CheckFailed(_("W read in 8 or 16 lanes"), _("innermost is {inner}").format(
                inner=loop or _("no loop at all")), _("T.vectorized, for the bytes of a row"))
    return _("equal for {count} inputs, with {numbers} numbers kept, in lanes").format(
        count=count, numbers=sum(made.values()))
