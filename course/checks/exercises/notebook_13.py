"""The checks of notebook 13: numbers of few bits."""

import functools
import itertools
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from course import intrinsics
from course.checks.compare.tolerance import random
from course.checks.observe import primfuncs
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.forms import Misuse, program
from course.checks.spec.spec import Cases, Spec, check
from course.checks.spec.trials import Mistakes, require_equal
from course.tir.walk import accesses, constant, walk
from course.words import _

# ---- a step for each group -----------------------------------------------------------------


def _back(W: np.ndarray, bits: int, to: Callable = np.rint,
          axis: int | tuple[int, ...] | None = 2) -> np.ndarray:
    """Return what weights (n, groups, size) stand for; other arguments are mistakes."""
    steps = np.abs(W).max(axis=axis, keepdims=True) / (2 ** (bits - 1) - 1)
    steps = np.where(steps == 0, 1, steps)
    return (to(W / steps) * steps).astype("float32")


def _standing_for(answer: Callable) -> Callable[..., np.ndarray]:
    """Return what an answer's integers and steps stand for, of weights (n, groups, size)."""
    def of(W: np.ndarray, bits: int) -> np.ndarray:
        n, groups, size = W.shape
        given = W.reshape(n, groups * size)
        kept = given.copy()
        came = answer(given, size, bits)
        said = [f"{each.dtype} {each.shape}" if isinstance(each, np.ndarray) else
                type(each).__name__ for each in (came if isinstance(came, tuple) else [came])]
        wanted = [f"int8 {given.shape}", f"float32 {(n, groups)}"]
        if said != wanted:
            raise CheckFailed(_("a tuple: {arrays}; groups of {size}").format(
                arrays=_(", ").join(wanted), size=size), _(", ").join(said))
        integers, steps = came
        if not np.array_equal(given, kept):
            raise CheckFailed(_("the given array as it was"), _("other numbers in it"))
        if not (np.isfinite(steps) & (steps > 0)).all():
            raise CheckFailed(_("steps above 0"), f"{steps.min():.4g}",
                              _("a group of zeros: any step above 0 will do"))
        most = 2 ** (bits - 1) - 1
        if np.abs(integers.astype(int)).max() > most:
            raise CheckFailed(_("integers from {low} to {high}").format(low=-most, high=most),
                              _("from {low} to {high}").format(
                                  low=int(integers.min()), high=int(integers.max())))
        return (integers.reshape(W.shape) * steps[..., None]).astype("float32")
    return of


_STEPS: Mistakes = {
    _("rounding: the nearest integer is wanted, and astype cuts off"):
        lambda W, bits: _back(W, bits, to=np.trunc),
    _("one step for each group: this is one for all"):
        lambda W, bits: _back(W, bits, axis=None),
    _("one step for each group: this is one for each row"):
        lambda W, bits: _back(W, bits, axis=(1, 2))}


def _weights() -> Cases:
    for bits in (8, 4, 3, 2):
        for shape in ((3, 2, 5), (1, 4, 1), (2, 1, 7)):
            W = random(*shape, seed=bits) * np.float32(10.0 ** (bits - 5))
            yield "", {"W": W, "bits": bits}
    W = random(2, 3, 4, seed=9)
    W[0, 1] = 0
    W[1, 2] = -np.abs(W[1, 2])
    yield "", {"W": W, "bits": 4}


def _no_ties(given: dict[str, Any]) -> bool:
    """Whether no weight lies between two integers: there either is right."""
    W, most = given["W"].astype("float64"), 2 ** (given["bits"] - 1) - 1
    largest = np.abs(W).max(axis=-1, keepdims=True)
    scaled = np.abs(W) * most / np.where(largest == 0, 1, largest)
    return bool((np.abs(scaled % 1 - 0.5) > 1e-3).all())


_GROUPED = Spec(_standing_for, _back, _weights, {"W": "n groups size"}, _STEPS,
                fits=lambda given: 2 <= given["bits"] <= 8 and _no_ties(given),
                atol=lambda given: 1e-5 * float(np.abs(given["W"]).max()))


@exercise("13.1", "grouped(weights, size, bits)", seconds=10)
def exercise_13_1(grouped: Callable) -> str:
    """a step for each group of weights."""
    return _("each weight by its nearest integer, for {count} arrays of weights in groups").format(
        count=check(_GROUPED, grouped))


# ---- the best range ------------------------------------------------------------------------


def _loss(x: np.ndarray, most: float, bits: int) -> float:
    """Return the rms error of numbers from 0 on, in so many bits up to `most`."""
    x, step = x.astype("float64"), most / (2**bits - 1)
    return float(np.sqrt(np.mean((np.rint(x.clip(0, most) / step) * step - x) ** 2)))


def _samples() -> Iterator[tuple[str, np.ndarray]]:
    draw = np.random.default_rng(0)
    outlier = draw.uniform(0, 1, 4000)
    outlier[7] = 300
    many = draw.uniform(0, 1, 100_000)
    many[7] = 100
    for words, x in ((_("uniform numbers from 0 to 1"), draw.uniform(0, 1, 2000)),
                     (_("a ReLU of normal numbers"), draw.normal(size=2000).clip(0)),
                     (_("exponential numbers"), 1e-3 * draw.exponential(size=2000)),
                     (_("uniform numbers, and one outlier"), outlier),
                     (_("100,000 uniform numbers, and one outlier"), many),
                     (_("one number"), np.array([3.5]))):
        yield words, x.astype("float32")


@exercise("13.2", "best_range(x, bits)", seconds=30)
def exercise_13_2(best_range: Callable) -> str:
    """the range that loses least."""
    count = 0
    for words, x in _samples():
        for bits in (2, 4, 8):
            title = _("{numbers}, {bits} bits").format(numbers=words, bits=bits)
            came = best_range(x.copy(), bits)
            if not isinstance(came, int | float | np.number) or not 0 < came < np.inf:
                raise CheckFailed(_("a number above 0; {title}").format(title=title),
                                  _("{value}, a {type}").format(
                                      value=repr(came)[:80], type=type(came).__name__))
            tried = [float(x.max()) * share for share in np.geomspace(1e-3, 1, 500)]
            best = min(tried, key=lambda most: _loss(x, most, bits))
            found, least = _loss(x, float(came), bits), _loss(x, best, bits)
            if found > 1.02 * least + 1e-6 * float(x.max()):
                raise CheckFailed(
                    _("an rms error of at most {most}, 2 % above that of the range {best}; "
                      "{title}").format(most=f"{1.02 * least:.4g}", best=f"{best:.4g}",
                                        title=title),
                    _("{error} with the range {range}").format(
                        error=f"{found:.4g}", range=f"{float(came):.4g}"),
                    _("the largest number is the range: a smaller one may lose less")
                    if float(came) == float(x.max()) else "")
            count += 1
    return _("within 2 % of the least error, for {count} samples and numbers of bits").format(
        count=count)


# ---- the longest sum -----------------------------------------------------------------------

_FACTORS = [((0, 255), (-127, 127)), ((-128, 127), (-128, 127)), ((-2, 1), (0, 1)),
            ((0, 1), (0, 1)), ((-1, 0), (0, 1)),
            ((-7, 7), (-7, 7)), ((-128, -1), (1, 3)), ((0, 255), (-128, 0)), ((-5, -2), (-4, 0))]


@exercise("13.3", "longest_sum(one, other, bits)", seconds=10)
def exercise_13_3(longest_sum: Callable) -> str:
    """the longest sum that can't leave its accumulator."""
    for one, other in _FACTORS:
        for bits in (16, 17, 32, 64):
            low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
            title = _("factors from {one} and from {other}, {bits} bits").format(
                one=_("{low} to {high}").format(low=one[0], high=one[1]),
                other=_("{low} to {high}").format(low=other[0], high=other[1]), bits=bits)
            came = longest_sum(one, other, bits)
            if not isinstance(came, Integral) or came < 0:
                raise CheckFailed(_("an integer from 0 on; {title}").format(title=title),
                                  _("{value}, a {type}").format(
                                      value=repr(came)[:80], type=type(came).__name__))
            products = [x * y for x, y in itertools.product(one, other)]
            for one_product in products:
                if not low <= int(came) * one_product <= high:
                    raise CheckFailed(
                        _("a sum from {low} to {high}; {title}").format(
                            low=low, high=high, title=title),
                        _("{count} products of {product} are {sum}").format(
                            count=int(came), product=one_product, sum=int(came) * one_product))
            if all(low <= (int(came) + 1) * product <= high for product in products):
                raise CheckFailed(
                    _("the largest K; {title}").format(title=title),
                    _("{count}, and {more} products fit too: their sums go from {least} to "
                      "{most}").format(count=int(came), more=int(came) + 1,
                                       least=min(0, (int(came) + 1) * min(products)),
                                       most=max(0, (int(came) + 1) * max(products))))
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


def _buffers(func: Any, *wanted: tuple[tuple[int, ...], str]) -> Any:
    """Return what is a PrimFunc of buffers of these shapes and types, or raise CheckFailed."""
    came = [(tuple(map(constant, param.ty.shape)), str(param.ty.dtype))
            if hasattr(param.ty, "shape") else str(param.ty) for param in func.params] \
        if isinstance(func, tvm.tirx.PrimFunc) else type(func).__name__
    if came != list(wanted):
        raise CheckFailed(_("a PrimFunc of buffers {wanted}").format(wanted=list(wanted)),
                          str(came))
    return func


@exercise("13.4", "of_fours(lanes)", seconds=60)
def exercise_13_4(of_fours: Callable) -> str:
    """an intrinsic that adds four products, as VNNI has it."""
    for lanes in (16, 8, 4):
        came = of_fours(lanes)
        if not isinstance(came, tuple) or len(came) != 2:
            raise CheckFailed(_("a tuple: a description, an implementation"), type(came).__name__)
        buffers = ((4,), "uint8"), ((lanes, 4), "int8"), ((lanes,), "int32")
        for func, half in zip(came, (_("description"), _("implementation")), strict=True):
            check(Spec(_adding, lambda half, A, B, C: _fours(A, B, C),
                       functools.partial(_dot_cases, lanes, half), named=_DOTS, atol=0,
                       formula=lambda given: (given["A"], given["B"], given["C"])),
                  _buffers(func, *buffers))
        try:
            words = intrinsics.instructions(came[1], _WITH)
        except RuntimeError as error:
            raise CheckFailed(_("a call that LLVM takes"), reason(error)) from None
        found = {word: count for word, count in words.items() if word.startswith(_MULTIPLY)}
        if found != {"vpdpbusd": 1}:
            raise CheckFailed(_("one vpdpbusd for {lanes} sums, and no other multiplication, "
                                "compiled for AMD Zen 4").format(lanes=lanes), str(found))
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
                          f"ScheduleError: {str(error).strip().splitlines()[-1][:160]}") from None
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


def _times(answer: Callable) -> Callable[..., np.ndarray]:
    @functools.cache
    def made(n: int, k: int) -> Callable:
        return program(_buffers(answer(n, k), ((k,), "float32"), ((n // 32, k, 16), "uint8"),
                                ((n // 32, k // 32, 32), "float32"), ((n,), "float32")))
    return lambda x, W, S: made(32 * len(W), len(x))((x, W, S), (32 * len(W),))


_FOUR_BITS = Spec(_times, _unpacked, _packed_cases, named=_HALVES, fault=Misuse, atol=1e-3,
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
