"""The checks of notebook 13: numbers of few bits."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from course import fewbits, intrinsics
from course.checks.compare.tolerance import random
from course.checks.exercises.programs import made_for, require_little
from course.checks.observe import primfuncs
from course.checks.run.check import exercise, prepared
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.forms import Misuse, number
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Cases, Spec, check, require_equal
from course.tir.walk import Access, accesses, constant, walk
from course.words import _

# ---- a step for each group -----------------------------------------------------------------


def _standing_for(answer: Callable) -> Callable[..., np.ndarray]:
    """Return what an answer's integers and steps stand for, of weights (n, k)."""
    def of(weights: np.ndarray, size: int, bits: int) -> np.ndarray:
        n, k = weights.shape
        most = 2 ** (bits - 1) - 1
        came = answer(weights, size, bits)
        said = [f"{one.dtype} {one.shape}" if isinstance(one, np.ndarray) else type(one).__name__
                for one in (came if isinstance(came, tuple) else [came])]
        wanted = [f"int8 {(n, k)}", f"float32 {(n, k // size)}"]
        if said == wanted:
            integers, steps = came
            if np.abs(integers.astype(int)).max() <= most and (steps > 0).all():
                return integers * np.repeat(steps, size, axis=1)
            said = [f"{text} in [{one.min():.4g}, {one.max():.4g}]"
                    for text, one in zip(said, came, strict=True)]
        raise CheckFailed(_("a tuple: {arrays}").format(
            arrays=f"{wanted[0]} in [-{most}, {most}], {wanted[1]} > 0"), ", ".join(said))
    return of


def _weights() -> Cases:
    for bits in (8, 4, 3, 2):
        for n, k, size in ((3, 12, 6), (2, 8, 8), (1, 40, 1)):
            weights = random(n, k, seed=bits) * np.float32(10.0 ** (bits - 5))
            yield {"weights": weights, "size": size, "bits": bits}
    weights = random(2, 12, seed=9)
    weights[0, 4:8] = 0
    weights[1, 8:] = -np.abs(weights[1, 8:])
    yield {"weights": weights, "size": 4, "bits": 4}
    yield {"weights": np.zeros((2, 4), "float32"), "size": 2, "bits": 4}
    yield {"weights": random(4, 14, seed=8) * np.float32(1e-9), "size": 7, "bits": 4}


def _without_ties(given: Inputs) -> bool:
    """Whether there are groups, and no weight lies between two integers: there either is right."""
    weights, size, bits = given.values()
    if size < 2 or weights.shape[1] % size or not 2 <= bits <= 8:
        return False
    groups = np.abs(weights.astype("float64")).reshape(-1, size)
    scaled = groups * (2 ** (bits - 1) - 1) / np.maximum(groups.max(axis=1, keepdims=True), 1e-30)
    return bool((np.abs(scaled % 1 - 0.5) > 1e-3).all())


_GROUPED = Spec(_standing_for, _standing_for(fewbits.in_groups), _weights, {"weights": "n k"},
                fits=_without_ties, fault=CheckFailed, result=_("integers times steps"),
                atol=lambda given: 1e-5 * float(np.abs(given["weights"]).max()))


def _steps_of(answer: Callable) -> Callable[..., np.ndarray]:
    """Return an answer's steps; of groups of zeros 0, as any step is right there."""
    def of(weights: np.ndarray, size: int, bits: int) -> np.ndarray:
        steps: np.ndarray = answer(weights, size, bits)[1]
        return steps * weights.reshape(*steps.shape, size).any(axis=2)
    return of


_STEPS = replace(_GROUPED, form=_steps_of, right=_steps_of(fewbits.in_groups), result=_("steps"))


@exercise("13.1", "grouped(weights, size, bits)", seconds=10)
def exercise_13_1(grouped: Callable) -> str:
    """a step for each group of weights."""
    check(_GROUPED, grouped)
    return _("each weight by its nearest integer, for {count} arrays of weights in groups").format(
        count=check(_STEPS, grouped))


# ---- the best range ------------------------------------------------------------------------


def _losses(x: np.ndarray, ranges: np.ndarray, bits: int) -> np.ndarray:
    """Return the rms error of numbers from 0 on in so many bits, for each of several ranges."""
    def of(some: np.ndarray) -> np.ndarray:
        most, step = some[:, None], some[:, None] / (2**bits - 1)
        return np.sqrt(np.mean((np.rint(np.minimum(x, most) / step) * step - x) ** 2, axis=1))
    x = x.astype("float64")
    return np.concatenate([of(some) for some in np.array_split(ranges, 1 + x.size // 200)])


def _best_of(x: np.ndarray, bits: int, ranges: np.ndarray) -> tuple[float, float]:
    """Return the best of some ranges, and its rms error."""
    losses = _losses(x, ranges, bits)
    return float(ranges[losses.argmin()]), float(losses.min())


_RATIOS = 500


def _in_ratios(x: np.ndarray, count: int) -> np.ndarray:
    return float(x.max()) * np.geomspace(1e-3, 1, count)


def _beside(x: np.ndarray, bits: int, near: float) -> tuple[float, float]:
    """Return the best of 200 ranges beside one, and its rms error."""
    return _best_of(x, bits, np.minimum(near * np.linspace(0.98, 1.02, 200), float(x.max())))


def _fair(given: Inputs) -> bool:
    """Whether the best range loses something, and is found in coarser ratios too."""
    x, bits = given["x"], given["bits"]
    if not (2 <= bits <= 8 and (x >= 0).all() and (x > 0).any()):
        return False
    coarse = [_best_of(x, bits, _in_ratios(x, count)) for count in (300, _RATIOS)]
    _range, least = _beside(x, bits, coarse[-1][0])  # else an example shows but the rounding of it
    return least > 1e-6 * float(x.max()) and all(loss <= 1.01 * least for _near, loss in coarse)


@prepared
def _samples() -> list[Inputs]:
    draw = np.random.default_rng(0)
    outlier, many, few = (draw.uniform(0, 1, size) for size in (4000, 40_000, 12))
    outlier[7], many[7], few[7] = 300, 40, 30
    apart = np.append(np.ones(20_000), 40)  # for this, ranges in equal distances are too far apart
    ones = np.append(np.ones(300), 20)  # the smallest of which one far number is worth its loss
    bins = np.append(np.ones(560), 24.325193)  # a histogram of 512 bins is too coarse for it
    every = (np.array([1, 2]), draw.uniform(0, 1, 30), few, ones, bins, draw.uniform(0, 1, 2000),
             draw.normal(size=2000).clip(0), 1e-3 * draw.exponential(size=2000), outlier, apart,
             many)
    fair = filter(_fair, ({"x": x.astype("float32"), "bits": bits}
                          for x in every for bits in (2, 4, 8)))
    return [*fair, {"x": np.array([3.5], "float32"), "bits": 4}]


def _losing_little(answer: Callable) -> Callable[..., np.ndarray]:
    """Return an answer as a function that raises CheckFailed where another range loses less."""
    def of(x: np.ndarray, bits: int) -> np.ndarray:
        given, x = x, x.copy()  # an answer may write into what it is given
        came = float(number(answer)(x=given, bits=bits))
        best, least = _beside(x, bits, _best_of(x, bits, _in_ratios(x, _RATIOS))[0])
        found = float(_losses(x, np.array([came]), bits)[0])
        if not found <= 1.02 * least + 1e-6 * float(x.max()):  # nor NaN, of a range of 0
            raise CheckFailed(
                _("an rms error of at most 1.02 · {least}, that of the range {best}").format(
                    least=f"{least:.6g}", best=f"{best:.4g}"),
                _("{error} with the range {range}").format(error=f"{found:.6g}",
                                                           range=f"{came:.4g}"))
        return np.empty(0)
    return of


_RANGE = Spec(_losing_little, lambda x, bits: np.empty(0), _samples, {"x": "n"}, fits=_fair,
              fault=CheckFailed)


@exercise("13.2", "best_range(x, bits)", seconds=30, prepare=[_samples])
def exercise_13_2(best_range: Callable) -> str:
    """the range that loses least."""
    return _("within 2 % of the least error, for {count} samples and numbers of bits").format(
        count=check(_RANGE, best_range))


# ---- the longest sum -----------------------------------------------------------------------

_FACTORS = [((0, 255), (-127, 127)), ((-128, 127), (-128, 127)), ((-2, 1), (0, 1)),
            ((0, 1), (0, 1)), ((-1, 0), (0, 1)), ((-7, 7), (-7, 7)), ((-128, -1), (1, 3)),
            ((0, 255), (-128, 0)), ((-5, -2), (-4, 0)), ((2, 7), (3, 5)),
            ((-1, 1), (0, 1)), ((0, 65535), (0, 65535))]  # equally far; beyond 32 bits


def _longest(one: tuple[int, int], other: tuple[int, int], bits: int) -> np.ndarray:
    """Return how many of any products fit: those at the ends, up to the highest or the lowest."""
    products = [x * y for x, y in itertools.product(one, other) if x * y]
    return np.asarray(min((2 ** (bits - 1) - (each > 0)) // abs(each) for each in products))


_LONGEST = Spec(
    lambda answer: number(answer, int), _longest,
    lambda: ({"one": one, "other": other, "bits": bits} for one, other in _FACTORS
             for bits in (8, 16, 17, 32, 63)),
    fits=lambda given: 2 <= given["bits"] <= 63 and all(
        len(ends) == 2 and ends[0] <= ends[1] for ends in (given["one"], given["other"]))
    and any(given["one"]) and any(given["other"]), fault=CheckFailed)


@exercise("13.3", "longest_sum(one, other, bits)", seconds=10)
def exercise_13_3(longest_sum: Callable) -> str:
    """the longest sum that can't leave its accumulator."""
    check(_LONGEST, longest_sum)
    return _("no sum leaves its accumulator, and one more product can, for {count} pairs of "
             "ranges").format(count=len(_FACTORS))


# ---- four products at once -----------------------------------------------------------------

_ANY = primfuncs.QUICK  # has none of the instructions: they are done in arithmetic
_WITH = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"})
_MULTIPLY = "vpdp", "vpmadd", "vpmul", "vmul", "vfm", "vfnm", "imul", "mul"


def _dot_cases(lanes: int) -> Cases:
    draw = np.random.default_rng(lanes)
    for least, (low, high) in ((0, (-128, 127)), (255, (127, 127)), (255, (-128, -128))):
        yield {"A": draw.integers(least, 256, 4).astype("uint8"),
               "B": draw.integers(low, high + 1, (lanes, 4)).astype("int8"),
               "C": draw.integers(-10**6, 10**6, lanes).astype("int32")}


def _adding(func: tirx.PrimFunc) -> Callable[..., np.ndarray]:
    """Return a PrimFunc that adds to its last buffer as a function of all three."""
    run = intrinsics.compiled(func, _ANY)["main"]

    def of(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> np.ndarray:
        sums = tvm.runtime.tensor(C)
        run(tvm.runtime.tensor(A), tvm.runtime.tensor(B), sums)
        return sums.numpy()
    return of


def _require_one(func: tirx.PrimFunc, lanes: int) -> None:
    """Raise CheckFailed unless a PrimFunc multiplies with one instruction, where a CPU has it."""
    try:
        words = intrinsics.instructions(func, _WITH)
        found = {word: count for word, count in words.items() if word.startswith(_MULTIPLY)}
        came = ", ".join(f"{count} {word}" for word, count in found.items()) or _("none")
    except RuntimeError as error:
        came = reason(error)
    if came != "1 vpdpbusd":
        raise CheckFailed(_("an implementation with one vpdpbusd for {lanes} sums, and no other "
                            "multiplication, compiled for AMD Zen 4").format(lanes=lanes), came)


def _require_found(pair: Any, lanes: int) -> None:
    """Raise CheckFailed unless tensorize takes an intrinsic in a dense layer, which is exact."""
    draw, layer = np.random.default_rng(0), _("a dense layer, {lanes} lanes").format(lanes=lanes)
    A = draw.integers(0, 256, (6, 24)).astype("uint8")
    W = draw.integers(-128, 128, (4 * lanes, 24)).astype("int8")
    out = tvm.runtime.tensor(np.zeros((6, 4 * lanes), "int32"))
    wanted = _("a pair that tensorize takes in {layer}")
    try:
        func = intrinsics.in_registers(intrinsics.dense(6, 24, 4 * lanes, lanes, 4),
                                       intrinsics.register("checked", pair), lanes, 4, 3, 2)
        wanted = _("a pair that compiles in {layer}")
        run = intrinsics.compiled(func, _ANY)["main"]
    except RuntimeError as error:
        raise CheckFailed(wanted.format(layer=layer), reason(error)) from None
    run(tvm.runtime.tensor(A), tvm.runtime.tensor(intrinsics.as_read(W, lanes, 4)), out)
    require_equal(out.numpy(), A.astype("int32") @ W.T.astype("int32"), {}, words=layer)


@exercise("13.4", "of_fours(lanes)", seconds=60)
def exercise_13_4(of_fours: Callable) -> str:
    """an intrinsic that adds four products, as VNNI has it."""
    for lanes in (16, 8, 4):
        pair = of_fours(lanes)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise CheckFailed(_("a tuple: a description, an implementation"),
                              _("a tuple of {count}").format(count=len(pair))
                              if isinstance(pair, tuple) else type(pair).__name__)
        for func in pair:
            primfuncs.with_buffers(func, (4,), (lanes, 4), (lanes,),
                                   dtypes=("uint8", "int8", "int32"),
                                   sizes=_("{lanes} lanes").format(lanes=lanes))
        _require_one(pair[1], lanes)  # before it runs: a CPU may lack other instructions
        check(Spec(_adding, lambda A, B, C: C + B.astype("int32") @ A.astype("int32"),
                   functools.partial(_dot_cases, lanes)), pair[1])
        _require_found(pair, lanes)
    return _("exact, one vpdpbusd each, and found in the dense layer, for 4, 8 and 16 lanes")


# ---- weights of four bits ------------------------------------------------------------------


def _unpacked(x: np.ndarray, W: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return the product of weights of four bits with x."""
    weights = (np.concatenate([W & 15, W >> 4], 2) - 8.0) * np.repeat(S, 32, 1)
    return np.einsum("pkl,k->pl", weights, x).ravel().astype("float32")


def _packed_cases(*sizes: tuple[int, int]) -> Cases:
    for panels, groups in sizes or ((1, 1), (1, 3), (3, 2), (2, 4)):
        W = np.random.default_rng(panels).integers(0, 256, (panels, 32 * groups, 16))
        yield {"x": random(32 * groups), "W": W.astype("uint8"),
               "S": 0.1 + abs(random(panels, groups, 32, seed=1))}


def _times(answer: Callable) -> Callable[..., np.ndarray]:
    run = made_for(answer, lambda n, k: [(k,), (n // 32, k, 16), (n // 32, k // 32, 32), (n,)],
                   ("float32", "uint8", "float32", "float32"))
    return lambda x, W, S: run((32 * len(W), len(x)), x, W, S)


_FOUR_BITS = Spec(_times, _unpacked, _packed_cases, fault=Misuse, atol=1e-3,
                  beyond=lambda: _packed_cases((31, 1), (1, 31)))


def _in_lanes(access: Access) -> bool:
    """Whether 8 or 16 neighbours are read at a time: as a vector, or by a vectorized loop."""
    *others, last = map(access.place.analyzer.simplify, access.indices)
    if isinstance(last, tirx.Ramp):
        return constant(last.stride) in (1, -1) and constant(last.lanes) in (8, 16)
    lanes = [loop.variable for loop in access.place.loops
             if loop.kind == "vectorized" and loop.extent in (8, 16)]
    return any(_step(last, lane) in (1, -1) and all(_step(index, lane) == 0 for index in others)
               for lane in lanes)


def _step(index: Any, variable: tirx.Var) -> int | None:
    """Return by how much a variable moves an index; None where that varies."""
    factors = tvm.sym.detect_linear_equation(index, [variable])
    return constant(factors[0]) if factors else None


@exercise("13.5", "times_four_bits(n, k)", seconds=30)
def exercise_13_5(times_four_bits: Callable) -> str:
    """a vector times a matrix of four bits."""
    count = check(_FOUR_BITS, times_four_bits)
    for n, k in ((96, 320), (32, 8192), (8192, 32)):  # "whatever n and k are"
        func = times_four_bits(n, k)
        # each byte of W at most twice
        kept = require_little(func, 128, n * k, 1, sizes=f"n = {n}, k = {k}")
    W = func.params[1].name
    for access in (each for node, place in walk(func.body) for each in accesses(node, place)):
        if access.buffer.name == W and not _in_lanes(access):
            raise CheckFailed(_("W read in lanes, 8 or 16 neighbours at a time"),
                              _("{block} in {loops}").format(
                                  block=f"{W}[{', '.join(map(str, access.indices))}]",
                                  loops=" > ".join(map(str, access.place.loops))))
    return _("equal for {count} inputs, with {numbers} numbers kept, in lanes").format(
        count=count, numbers=kept)
