"""Comparing what an answer gave with what is right, and with what named mistakes give.

A mistake is named as the cause only if it gives what came for all inputs that were tried, and for
fresh ones, and no other known mistake does; else the smallest input that shows it stands alone.
"""

import functools
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from course.checks.compare.tolerance import ATOL, RTOL
from course.checks.run.answer import checked, line_of_answer
from course.checks.say.messages import CheckFailed, place_in_script, reason, where
from course.checks.say.show import Example, differ
from course.checks.spec.evidence import Changed, Rerun, as_array, kind, redrawn
from course.checks.spec.shrink import Inputs, patience
from course.words import _

_MOST_FRESH = 2000  # numbers of a fresh input

# Hints, each with a function that computes what comes of that mistake, of the check's inputs; or
# with several, where the mistake has several forms (in float32, in float64).
Mistakes = dict[str, Any]


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
    words: str = ""
    atol: float | None = None  # if not that of all
    given: Inputs | None = None  # by name, if it can be tried on others

    def told_of(self, what: str) -> str:
        """Return what is expected, and for which input."""
        return _("{what} for {input}").format(what=what, input=self.words) if self.words else what

    def wrong(self, atol: float) -> np.ndarray | None:
        """Return a mask of where came and expected differ, or None if they do not."""
        atol = atol if self.atol is None else self.atol
        if isinstance(self.came, Exception) or self.came.shape != self.expected.shape \
                or self.came.dtype != self.expected.dtype:
            return np.ones(1, bool)
        wrong = differ(self.came, self.expected, RTOL, atol)
        return wrong if wrong.any() else None

    def kind(self, atol: float) -> str:
        """Return in which way it went wrong, or ""."""
        return kind(self.came, self.expected, atol if self.atol is None else self.atol)

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
        if isinstance(self.came, Exception):  # what has another shape does not fit into out
            return None if gives.shape != self.expected.shape else False
        return (isinstance(self.came, np.ndarray) and gives.shape == self.came.shape
                and (np.issubdtype(self.came.dtype, np.number) or self.came.dtype == np.bool_)
                and not differ(self.came, gives, RTOL, atol).any())


class Trials:
    """What an answer gave on several inputs, judged together.

    `rerun`: how the answer runs on other inputs; then what is wrong is shown on the smallest.
    """

    def __init__(self, mistakes: Mistakes, atol: float = ATOL, rerun: Rerun | None = None) -> None:
        self.mistakes, self.atol, self.rerun = mistakes, atol, rerun
        self.all: list[Tried] = []

    @property
    def failed(self) -> Tried | None:
        """The first that went wrong."""
        return next((tried for tried in self.all if tried.wrong(self.atol) is not None), None)

    def on(self, given: Inputs, **says: Any) -> None:
        """Run an answer on inputs by name, as `rerun` has it."""
        assert self.rerun
        with np.errstate(all="ignore"):
            inputs = self.rerun.formula(given)
        self.add(functools.partial(self.rerun.on, given), self.rerun.expected(given),
                 *inputs, given=given, **says)

    def add(self, run: Callable[[], Any], expected: np.ndarray, *inputs: Any, words: str = "",
            atol: float | None = None, given: Inputs | None = None) -> None:
        """Run an answer on an input. The mistakes are functions of `inputs`.

        What it raises is raised, unless an earlier input went wrong: that is told first.
        """
        try:
            came = run()
        except Exception as error:
            if self.failed is None:
                raise self._shown(error, given) from None
            came = error
        else:
            came = as_array(came, expected)
        self.all.append(Tried(came, expected, inputs, words, atol, given))

    def _shown(self, error: Exception, given: Inputs | None) -> Exception:
        """Return what an answer raised with the smallest input on which it does.

        As it is where it is not the answer's own, or where the check refused more than a number.
        """
        own = any(frame.filename in checked.names
                  for frame in traceback.extract_tb(error.__traceback__))
        fault = self.rerun and isinstance(error, self.rerun.fault) or isinstance(error, Changed)
        if not self.rerun or given is None or not fault and (
                not own or isinstance(error, CheckFailed | NotImplementedError)):
            return error
        example = self.rerun.smallest(given)
        if isinstance(error, CheckFailed):
            return CheckFailed(*error.parts, example=example)
        return CheckFailed(_("your code to run"), reason(error),
                           place_in_script(error) or line_of_answer(error), example=example)

    def cause(self) -> str:
        """Return the hint of the one mistake that gives what came on all inputs, or "".

        On fresh ones too, where the answer can be run on them.
        """
        def gives(form: Callable[..., Any], every: Sequence[Tried]) -> bool:
            proved = every is not self.all
            for tried in every:
                if (due := tried.due_to(form, self.atol)) is False:
                    return False
                proved |= bool(due)
            return proved

        left = {hint: [form for form in (forms if isinstance(forms, tuple) else (forms,))
                       if gives(form, self.all)] for hint, forms in self.mistakes.items()}
        if any(left.values()):
            fresh = self._fresh()
            left = {hint: [form for form in forms if gives(form, fresh)]
                    for hint, forms in left.items()}
        hints = [hint for hint, forms in left.items() if forms]
        return hints[0] if len(hints) == 1 else ""

    def _fresh(self) -> list[Tried]:
        """Return what the answer gives for inputs that it was not tried on."""
        if (rerun := self.rerun) is None:
            return []
        over, found = patience(), []
        for number, tried in enumerate(self.all):
            if tried.given is None or rerun.size(tried.given)[1] > _MOST_FRESH \
                    or not rerun.fits(given := redrawn(tried.given, number)):
                continue
            with np.errstate(all="ignore"):
                inputs = rerun.formula(given)
            found.append(Tried(rerun.called(given), rerun.expected(given), inputs,
                               atol=tried.atol))
            if over():
                break
        return found

    def require_right(self) -> None:
        """Raise CheckFailed unless everything is right in shape, dtype and value."""
        failed = self.failed
        if failed is None:
            return
        if isinstance(failed.came, Exception):
            raise failed.came
        try:
            self._require_same(failed)
        except CheckFailed as refused:
            raise CheckFailed(*refused.parts, example=self._example(failed)) from None

    def _example(self, failed: Tried) -> Example | None:
        """Return the smallest input that fails as one does: from the least that was tried on."""
        if (rerun := self.rerun) is None or failed.given is None:
            return None
        alike = [tried for tried in self.all if tried.given is not None
                 and tried.kind(self.atol) == failed.kind(self.atol)]
        least = min(alike, key=lambda tried: rerun.size(tried.given or {}))
        assert least.given is not None
        return rerun.smallest(least.given, self.atol if least.atol is None else least.atol)

    def _require_same(self, failed: Tried) -> None:
        came, expected, hint = failed.came, failed.expected, self.cause()
        if came.shape == expected.shape and came.dtype != expected.dtype:
            raise CheckFailed(failed.told_of(_("{dtype} values").format(dtype=expected.dtype)),
                              f"{came.dtype}", hint)
        if came.shape != expected.shape:
            raise CheckFailed(failed.told_of(_("shape {shape}").format(shape=expected.shape)),
                              _("shape {shape}").format(shape=came.shape), hint)
        if (unwritten := failed.unwritten()).any():
            raise CheckFailed(failed.told_of(_("a number in every place")),
                              _("NaN or not written at {place}, {share} of all").format(
                                  place=where(unwritten), share=f"{unwritten.mean():.0%}"), hint)
        wrong = failed.wrong(self.atol)
        assert wrong is not None
        at = tuple(np.argwhere(wrong)[0])
        right, got = _digits(expected[at], came[at])
        if expected.ndim:
            right = _("{number} at {place}").format(number=right, place=where(wrong))
            got = _("{number} there; {share} of the values differ").format(
                number=got, share=f"{wrong.mean():.0%}")
        raise CheckFailed(failed.told_of(right), got, hint)


def require_equal(came: Any, expected: np.ndarray, mistakes: Mistakes, *inputs: Any,
                  atol: float = ATOL, words: str = "") -> None:
    """Raise CheckFailed unless `came` equals `expected` in shape, dtype and value.

    For a single input, of which `words` say what it is; Trials is for several, where a cause has to
    hold for all of them. The mistakes are functions of `inputs`.
    """
    trials = Trials(mistakes, atol)
    trials.add(lambda: came, expected, *inputs, words=words)
    trials.require_right()
