"""The checks of notebook 13: numbers of few bits."""

from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np

from course.checks.compare.tolerance import random
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.spec import Cases, Spec, check
from course.checks.spec.trials import Mistakes
from course.words import _

# ---- a step for each group -----------------------------------------------------------------


def _back(W: np.ndarray, bits: int, to: Callable = np.rint, tensor: bool = False,
          largest: Callable = np.abs, levels: int = 0, axis: int = -1) -> np.ndarray:
    """Return what weights (n, groups, size) stand for; other arguments are mistakes."""
    most = 2 ** (bits - 1) - 1
    steps = largest(W).max(axis=None if tensor else axis, keepdims=True) / (levels + most)
    steps = np.where(steps == 0, 1, np.abs(steps))
    return (to(W / steps).clip(-most - 1, most) * steps).astype("float32")


def _standing_for(answer: Callable) -> Callable[..., np.ndarray]:
    """Return what an answer's integers and steps stand for, of weights (n, groups, size)."""
    def of(W: np.ndarray, bits: int) -> np.ndarray:
        n, groups, size = W.shape
        given = W.reshape(n, groups * size)
        kept = given.copy()
        came = answer(given, size, bits)
        shapes = [(getattr(each, "shape", None), str(getattr(each, "dtype", type(each).__name__)))
                  for each in came] if isinstance(came, tuple) else type(came).__name__
        if shapes != [((n, groups * size), "int8"), ((n, groups), "float32")]:
            raise CheckFailed(
                _("a tuple: int8 {integers}, float32 {steps}; {groups} groups of {size}").format(
                    integers=(n, groups * size), steps=(n, groups), groups=groups, size=size),
                f"{shapes}")
        integers, steps = came
        if not np.array_equal(given, kept):
            raise CheckFailed(_("the given array as it was"), _("other numbers in it"),
                              _("what is changed: /= and *= write into the given array"))
        if not (np.isfinite(steps) & (steps > 0)).all():
            raise CheckFailed(_("steps above 0"), f"{steps.ravel()[:8]}",
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
    _("rounding: the nearest integer is wanted, not the next lower one"):
        lambda W, bits: _back(W, bits, to=np.floor),
    _("one step for each group: this is one for all"):
        lambda W, bits: _back(W, bits, tensor=True),
    _("one step for each group: this is one for each row"):
        lambda W, bits: _back(W, bits, axis=(1, 2)),  # type: ignore[arg-type]
    _("the largest magnitude of a group: a negative weight may be the largest"):
        lambda W, bits: _back(W, bits, largest=np.asarray)}


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
    for words, x in ((_("even numbers up to 1"), draw.uniform(0, 1, 2000)),
                     (_("a ReLU of normal numbers"), draw.normal(size=2000).clip(0)),
                     (_("exponential numbers"), 1e-3 * draw.exponential(size=2000)),
                     (_("even numbers, and one outlier"), outlier),
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
            if not isinstance(came, Real | np.floating) or not 0 < came < np.inf:
                raise CheckFailed(_("a number above 0; {title}").format(title=title),
                                  _("{value}, a {type}").format(
                                      value=repr(came)[:80], type=type(came).__name__))
            tried = [float(x.max()) * share for share in np.geomspace(1e-3, 1, 500)]
            best = min(tried, key=lambda most: _loss(x, most, bits))
            found, least = _loss(x, float(came), bits), _loss(x, best, bits)
            if found > 1.05 * least + 1e-6 * float(x.max()):
                raise CheckFailed(
                    _("an rms error of at most {most}, 5 % above that of the range {best}; "
                      "{title}").format(most=f"{1.05 * least:.4g}", best=f"{best:.4g}",
                                        title=title),
                    _("{error} with the range {range}").format(
                        error=f"{found:.4g}", range=f"{float(came):.4g}"),
                    _("the largest number is the range: a smaller one may lose less")
                    if float(came) == float(x.max()) else "")
            count += 1
    return _("within 5 % of the least error, for {count} samples and numbers of bits").format(
        count=count)


# ---- the longest sum -----------------------------------------------------------------------

_FACTORS = [((0, 255), (-127, 127)), ((-128, 127), (-128, 127)), ((-2, 1), (0, 1)), ((0, 1), (0, 1)),
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
                raise CheckFailed(_("an integer; {title}").format(title=title),
                                  _("{value}, a {type}").format(
                                      value=repr(came)[:80], type=type(came).__name__))
            products = [a * b for a in one for b in other]
            for product in products:
                if not low <= int(came) * product <= high:
                    raise CheckFailed(
                        _("a sum from {low} to {high}; {title}").format(
                            low=low, high=high, title=title),
                        _("{count} products of {product} are {sum}").format(
                            count=int(came), product=product, sum=int(came) * product))
            if all(low <= (int(came) + 1) * product <= high for product in products):
                raise CheckFailed(
                    _("the largest K; {title}").format(title=title),
                    _("{count}, and {more} products fit too: their sums go from {least} to "
                      "{most}").format(count=int(came), more=int(came) + 1,
                                       least=min(0, (int(came) + 1) * min(products)),
                                       most=max(0, (int(came) + 1) * max(products))))
    return _("no sum leaves its accumulator, and one more product can, for {count} pairs of "
             "ranges").format(count=len(_FACTORS))
