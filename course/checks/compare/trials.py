"""Comparing what an answer gave with what is right, and with what the usual mistakes give.

A mistake is named as the cause only if it gives what came for all inputs that were tried, and no
other known mistake does; else the message says what differs, and where.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import default_rng  # NumPy loads it when used: in each forked check anew

from course.checks.say.messages import CheckFailed, where
from course.words import _

# Measured on the course's model over its 1,000 images: correct programs add up in another order,
# and their logits near 0 differ by up to 2e-5. Probabilities are nearly one-hot: a wrong one of
# 1e-6 would pass with the tolerance for logits.
RTOL, ATOL, ATOL_PROBABILITIES = 1e-4, 1e-4, 1e-7

# Hints, each with a function that computes what comes of that mistake, of the check's inputs; or
# with several, where the mistake has several forms (in float32, in float64).
Mistakes = dict[str, Any]


def to_numpy(value: Any) -> np.ndarray:
    """Return what a VirtualMachine gave as an array: it is a tensor, or a tuple of one."""
    if not hasattr(value, "numpy"):
        (value,) = value
    return value.numpy()


# ---- what differs --------------------------------------------------------------------------


def _shape_hint(came: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if sorted(came) == sorted(expected):
        return _("the order of the axes in the result's shape")
    if len(came) == len(expected):
        axis = next(i for i, pair in enumerate(zip(came, expected, strict=True))
                    if pair[0] != pair[1])
        return _("the result's shape: axis {axis} has {came} places, wanted are {expected}").format(
            axis=axis, came=came[axis], expected=expected[axis])
    if [n for n in came if n != 1] == [n for n in expected if n != 1]:
        return _("an axis of extent 1 too many or too few in the result's shape")
    return _("the result's shape: it has {came} axes, wanted are {expected}").format(
        came=len(came), expected=len(expected))


def _relation(came: np.ndarray, expected: np.ndarray, atol: float) -> str:
    """Say what turns all right values into those that came: a sign, a factor or a shift."""
    right, wrong = expected.astype(np.float64).ravel(), came.astype(np.float64).ravel()
    if len(np.unique(right)) < 4 or not np.isfinite(right).all() or not np.isfinite(wrong).all():
        return ""
    at = np.abs(right).argmax()
    factor, shift = wrong[at] / right[at], wrong[at] - right[at]
    if np.allclose(wrong, -right, RTOL, atol):
        # cause: other-sign
        return _("every value has the other sign")
    if factor and np.allclose(wrong, factor * right, RTOL, atol):
        # cause: factor
        return _("every value is {factor} times what it should be").format(factor=f"{factor:.4g}")
    if np.allclose(wrong, right + shift, RTOL, atol):
        by = f"{abs(shift):.4g}"
        return (_("every value is {by} too large") if shift > 0
                else _("every value is {by} too small")).format(by=by)
    return ""


def _edge(some: np.ndarray, of_one: str = "") -> str:
    """Return which of several places alone is wrong: "first", "last" or ""; `of_one`: of one."""
    if len(some) == 1:
        return of_one
    at = list(np.flatnonzero(some))
    return "first" if at == [0] else "last" if at == [len(some) - 1] else ""


def _along(wrong: np.ndarray, axis: int) -> np.ndarray:
    """Return at which places of an axis something is wrong."""
    return np.asarray(np.moveaxis(wrong, axis, 0).reshape(wrong.shape[axis], -1).any(axis=1))


def _slab(came: np.ndarray, masks: Sequence[np.ndarray], axes: Sequence[str]) -> str:
    """Name the one axis along which right and wrong values part, if there is one.

    `masks`: what is wrong, for this input and then for the others. Where numbers are rounded or
    cut, the places are chance: other ones for most other inputs, and of single numbers any.
    """
    wrong, best, said = masks[0], 0.0, ""
    for axis, extent in enumerate(wrong.shape):
        rest = tuple(i for i in range(wrong.ndim) if i != axis)
        some, every = _along(wrong, axis), wrong.all(axis=rest)
        bad = np.flatnonzero(some)
        edge = _edge(some)
        if wrong.size < 4 * extent and not edge:
            continue
        others = [_along(mask, axis) for mask in masks[1:] if mask.ndim == wrong.ndim]
        agree = [edge == _edge(other, edge) and (len(other) != extent or (other == some).all())
                 for other in others]
        if sum(agree) < len(agree) / 2:
            continue
        # mostly wrong there, all right elsewhere; chance does this to short axes and rare faults
        share = wrong.sum() / (len(bad) * wrong[(slice(None),) * axis + (0,)].size)
        if extent < 2 or len(bad) == extent or share <= max(0.5, best) or not every.any():
            continue
        # cause: none
        name = axes[axis] if axis < len(axes) else _("index of axis {axis}").format(axis=axis)
        good, best = np.flatnonzero(~some), share
        if len(bad) == 1:
            # cause: none
            place = edge and {"first": _(", the first,"), "last": _(", the last,")}[edge]
            # cause: edge
            said = (_("only {name} {number}{place} is wrong: where a loop begins or ends, a "
                      # cause: one-wrong
                      "condition") if place else _("only {name} {number} is wrong")).format(
                          name=name, number=bad[0], place=place)
        elif len(good) == 1:
            alike = np.allclose(came, came.take(good, axis), RTOL, equal_nan=True)
            said = (_("only {name} {number} is right, and the others are as it is: is the loop's "
                      # cause: one-right
                      "variable used?") if alike else _("only {name} {number} is right")
                    ).format(name=name, number=good[0])
        else:
            # cause: some-differ
            said = _("{name} {numbers} differ, the others are right").format(
                name=name, numbers=", ".join(map(str, bad[:4])) + " ..." * (len(bad) > 4))
    return said


def _what_differs(came: np.ndarray, expected: np.ndarray, masks: Sequence[np.ndarray],
                  axes: Sequence[str], atol: float) -> str:
    """Return what is true of all values that differ, as a place to look at, or ""."""
    if slab := _slab(came, masks, axes):
        return slab
    wrong = masks[0]
    if wrong.mean() > 0.5 and (relation := _relation(came, expected, atol)):
        return relation
    if came.ndim == 2 and came.shape[0] == came.shape[1] > 1 \
            and np.allclose(came.T, expected, RTOL, atol, equal_nan=True):
        return _("the result is transposed: the order of the indices")
    values = np.unique(expected[wrong])
    if len(values) == 1 and wrong.sum() > 1 and (expected != values[0]).any():
        return _("what differs is where {value} is right").format(value=f"{values[0]:.4g}")
    return ""


def _of_numbers(every: Sequence["Tried"], atol: float) -> str:
    """Say what became of each number of every result, or of which call they are; else ""."""
    if any(not isinstance(tried.came, np.ndarray) or tried.came.shape != tried.expected.shape
           or tried.came.dtype != tried.expected.dtype or tried.came.dtype.kind != "f"
           or not np.isfinite(tried.came).all() for tried in every):
        return ""
    right = np.concatenate([tried.expected.ravel() for tried in every])
    same = np.concatenate([np.isclose(tried.came, tried.expected, RTOL).ravel()
                           for tried in every])
    if len(np.unique(right)) < 4 or not same.any():  # anything could have become of so few
        return ""
    top, bottom = (edge([edge(tried.came) for tried in every if tried.came.size])
                   for edge in (np.max, np.min))
    became: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        # cause: number-float16
        _("every number is rounded to float16"): lambda x: x.astype("float16").astype(x.dtype),
        _("every number is rounded to bfloat16"):
            lambda x: torch.from_numpy(x).bfloat16().to(torch.float32).numpy(),
        # cause: number-whole
        _("every number is cut to a whole one: an integer's dtype"): np.trunc,
        _("every number is rounded to a whole one"): np.rint,
        # cause: number-sign
        _("every number is without its sign"): np.abs,
        # cause: number-above
        _("numbers above {number} are cut").format(number=f"{top:.4g}"):
            lambda x: np.minimum(x, top),
        # cause: number-below
        _("numbers below {number} are cut").format(number=f"{bottom:.4g}"):
            lambda x: np.maximum(x, bottom)}
    with np.errstate(all="ignore"):
        hints = [hint for hint, change in became.items() if all(
            np.allclose(tried.came, change(tried.expected), RTOL,
                        atol if tried.atol is None else tried.atol) for tried in every)]
    if len(hints) == 1:
        return hints[0]
    wrong = [at for at, tried in enumerate(every) if tried.wrong(atol) is not None]
    if all(any(every[at].came.shape == before.expected.shape and
               np.allclose(every[at].came, before.expected, RTOL, atol) for before in every[:at])
           for at in wrong):
        # cause: earlier-call
        return _("the result of an earlier call with this shape: what is kept between calls?")
    return ""


def _digits(right: Any, came: Any) -> tuple[str, str]:
    """Write two numbers with so many digits that they can be told apart."""
    texts = [(f"{right:.{digits}g}", f"{came:.{digits}g}") for digits in (4, 6, 8, 12, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


# ---- trials --------------------------------------------------------------------------------


class Tried(NamedTuple):
    """What an answer gave for one input (an array, or what it raised), and what is right.

    The mistakes are functions of `inputs`; `words` say which input it was.
    """

    came: Any
    expected: np.ndarray
    inputs: tuple[Any, ...]
    look_at: str = ""
    words: str = ""
    atol: float | None = None  # if not that of all

    def told_of(self, what: str) -> str:
        """Return what is expected, and for which input."""
        return _("{what} for {input}").format(what=what, input=self.words) if self.words else what

    def wrong(self, atol: float) -> np.ndarray | None:
        """Return a mask of where came and expected differ, or None if they do not."""
        atol = atol if self.atol is None else self.atol
        if isinstance(self.came, Exception) or self.came.shape != self.expected.shape \
                or self.came.dtype != self.expected.dtype:
            return np.ones(1, bool)
        differ = ~np.isclose(self.came, self.expected, RTOL, atol, equal_nan=True)
        return differ if differ.any() else None

    def unwritten(self) -> np.ndarray:
        """Return a mask of where no number came, and one is right."""
        if isinstance(self.came, Exception) or self.came.shape != self.expected.shape \
                or self.came.dtype.kind != "f":
            return np.zeros(1, bool)
        return np.asarray(np.isnan(self.came) & ~np.isnan(self.expected))

    def due_to(self, mistake: Callable[..., Any], atol: float) -> bool | None:
        """Whether a mistake gives what came: the numbers, or an error as shapes do not fit.

        None where of this input nothing can be said.
        """
        atol = atol if self.atol is None else self.atol
        try:
            with torch.no_grad(), np.errstate(all="ignore"):
                gives = mistake(*self.inputs)
                if gives is None:
                    return None
                gives = np.asarray(gives)
        except (ValueError, RuntimeError, IndexError):
            return isinstance(self.came, Exception)
        return (isinstance(self.came, np.ndarray) and gives.shape == self.came.shape
                and (np.issubdtype(self.came.dtype, np.number) or self.came.dtype == np.bool_)
                and np.allclose(self.came, gives, RTOL, atol, equal_nan=True))


class Trials:
    """What an answer gave on several inputs, judged together.

    `look_at` is for wrong values of which nothing else is known; `axes` names the result's axes.
    """

    def __init__(self, look_at: str, mistakes: Mistakes, atol: float = ATOL,
                 axes: Sequence[str] = ()) -> None:
        self.look_at, self.mistakes, self.atol, self.axes = look_at, mistakes, atol, axes
        self.all: list[Tried] = []

    @property
    def failed(self) -> Tried | None:
        """The first that went wrong."""
        return next((tried for tried in self.all if tried.wrong(self.atol) is not None), None)

    def add(self, run: Callable[[], Any], expected: np.ndarray, *inputs: Any, words: str = "",
            look_at: str = "", atol: float | None = None) -> None:
        """Run an answer on an input. The mistakes are functions of `inputs`.

        What it raises is raised, unless an earlier input went wrong: that is told first.
        """
        try:
            came = run()
        except Exception as error:
            if self.failed is None:
                raise
            came = error
        else:
            came = _as_array(came, expected)
        self.all.append(Tried(came, expected, inputs, look_at, words, atol))

    def cause(self) -> str:
        """Return the hint of the one mistake that gives what came on all inputs, or ""."""
        def gives(form: Callable[..., Any]) -> bool:
            due = [tried.due_to(form, self.atol) for tried in self.all]
            return any(due) and False not in due
        hints = [hint for hint, forms in self.mistakes.items()
                 if any(map(gives, forms if isinstance(forms, tuple) else (forms,)))]
        return hints[0] if len(hints) == 1 else ""

    def require_right(self) -> None:
        """Raise CheckFailed unless everything is right in shape, dtype and value."""
        failed = self.failed
        if failed is None:
            return
        came, expected = failed.came, failed.expected
        if isinstance(came, Exception):
            raise came
        if came.shape == expected.shape and came.dtype != expected.dtype:
            raise CheckFailed(failed.told_of(_("{dtype} values").format(dtype=expected.dtype)),
                              f"{came.dtype}", _("the dtype of the result"))
        hint = self.cause()
        if came.shape != expected.shape:
            raise CheckFailed(failed.told_of(_("shape {shape}").format(shape=expected.shape)),
                              _("shape {shape}").format(shape=came.shape),
                              hint or _shape_hint(came.shape, expected.shape))
        wrong = failed.wrong(self.atol)
        assert wrong is not None
        unwritten = failed.unwritten()
        became = "" if hint else _of_numbers(self.all, self.atol)
        masks = [mask for tried in self.all  # the first of them is `failed`
                 if (mask := tried.unwritten() if unwritten.any() else tried.wrong(self.atol))
                 is not None and mask.any()]
        differs = "" if hint or became else _what_differs(came, expected, masks, self.axes,
                                                          self.atol)
        places = became, differs, failed.look_at or ("" if became else self.look_at)
        hint = hint or _("; ").join(filter(None, places))
        if unwritten.any():
            raise CheckFailed(failed.told_of(_("a number in every place")),
                              _("NaN or not written at {place}, {share} of all").format(
                                  place=where(unwritten), share=f"{unwritten.mean():.0%}"), hint)
        at = tuple(np.argwhere(wrong)[0])
        right, got = _digits(expected[at], came[at])
        if expected.ndim:
            right = _("{number} at {place}").format(number=right, place=where(wrong))
            got = _("{number} there; {share} of the values differ").format(
                number=got, share=f"{wrong.mean():.0%}")
        raise CheckFailed(failed.told_of(right), got, hint)


def _as_array(came: Any, expected: np.ndarray) -> np.ndarray:
    if isinstance(came, np.ndarray | np.generic):
        return np.asarray(came)
    with contextlib.suppress(ValueError, TypeError):  # a tuple of arrays of several shapes
        return np.asarray(came)
    raise CheckFailed(_("an array of shape {shape}").format(shape=expected.shape),
                      _("a {name} of parts that make no array").format(name=type(came).__name__),
                      _("the return statement"))


def require_equal(came: Any, expected: np.ndarray, look_at: str, mistakes: Mistakes, *inputs: Any,
                  atol: float = ATOL) -> None:
    """Raise CheckFailed unless `came` equals `expected` in shape, dtype and value.

    For a single input; Trials is for several, where a cause has to hold for all of them. `look_at`
    is the hint where no mistake gives what came; the mistakes are functions of `inputs`.
    """
    with judged(look_at, mistakes, atol) as note:
        note(came, expected, *inputs)


@contextlib.contextmanager
def judged(look_at: str, mistakes: Mistakes, atol: float = ATOL) -> Iterator[Callable[..., None]]:
    """Yield a function that notes what came, what is right and the mistakes' inputs: a trial.

    At the end of the `with`, raises CheckFailed unless every trial is right, as Trials does. What
    an answer raises inside it is raised, unless an earlier trial went wrong: that is told first.
    """
    trials = Trials(look_at, mistakes, atol)

    def note(came: Any, expected: np.ndarray, *inputs: Any, **says: Any) -> None:
        trials.add(lambda: came, expected, *inputs, **says)
    try:
        yield note
    except Exception:
        trials.require_right()
        raise
    trials.require_right()


def require_passed_on(run: Callable[..., Any], right: Callable[..., np.ndarray],
                      *inputs: np.ndarray,
                      numbers: Sequence[float] = (np.inf, -np.inf, np.nan)) -> None:
    """Raise CheckFailed where infinity, or NaN, in one of the inputs does not come out as is right.

    For an answer that is right for finite numbers, and a function of which each right answer gives
    the same for these `numbers`: of a product with a mask and a condition only one gives NaN.
    """
    for place, array in enumerate(inputs):
        given = [*inputs[:place], array.copy(), *inputs[place + 1:]]
        given[place].flat[[array.size * (1 + i) // (1 + len(numbers))
                           for i in range(len(numbers))]] = numbers
        with np.errstate(all="ignore"):
            expected = right(*given)
            tried = Tried(_as_array(run(*given), expected), expected, ())
            wrong = tried.wrong(1e-3)
        if wrong is not None:
            at, among = tuple(np.argwhere(wrong)[0]), ", ".join(f"{number:g}" for number in numbers)
            raise CheckFailed(_("{right} at {place}: input {number} has {numbers} in it").format(
                                  right=f"{expected[at]:.4g}", place=where(wrong), number=place,
                                  numbers=among),
                              _("{number} there").format(number=f"{tried.came[at]:.4g}"),
                              # cause: infinity
                              _("infinity and NaN: they come out of the formula as other numbers "
                                "do; what replaces them?"))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers in [-1, 1), the same ones every time."""
    return default_rng([seed, *shape]).uniform(-1, 1, shape).astype("float32")
