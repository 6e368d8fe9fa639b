"""Comparing what an answer gave with what is right, and with what named mistakes give.

A mistake is named as the cause only if it gives what came for all inputs that were tried, and for
fresh ones, and no other known mistake does; else the smallest input that shows it stands alone.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from course.checks.compare.tolerance import RTOL
from course.checks.run.answer import checked, line_of_answer
from course.checks.say.messages import CheckFailed, place_in_script, reason, where
from course.checks.say.show import DIGITS, Example, differ
from course.checks.spec.evidence import Changed, Mistakes, Rerun, as_array, kind, redrawn
from course.checks.spec.shrink import Inputs, patience
from course.words import _

_MOST_FRESH = 2000  # numbers of a fresh input


class Tried(NamedTuple):
    """What an answer gave for inputs by name (an array, or what it raised), and what is right.

    `words` say which inputs they were.
    """

    came: Any
    expected: np.ndarray
    given: Inputs
    atol: float
    words: str = ""

    @property
    def kind(self) -> str:
        """In which way it went wrong, or ""."""
        return kind(self.came, self.expected, self.atol)

    def parts(self) -> tuple[str, str]:
        """Return what is expected, for which input, and what came in its place."""
        wanted: str
        got: str
        came, right = self.came, self.expected
        if came.shape != right.shape:
            wanted, got = (_("shape {shape}").format(shape=one.shape) for one in (right, came))
        elif came.dtype != right.dtype:
            wanted, got = _("{dtype} values").format(dtype=right.dtype), f"{came.dtype}"
        elif self.kind == "nan":
            unwritten = np.isnan(came) & ~np.isnan(right)
            wanted = _("a number in every place")
            got = _("NaN or not written at {place}, {share} of all").format(
                place=where(unwritten), share=f"{unwritten.mean():.0%}")
        else:
            wrong = differ(came, right, RTOL, self.atol)
            at = tuple(np.argwhere(wrong)[0])
            texts = [(f"{right[at]:.{digits}g}", f"{came[at]:.{digits}g}") for digits in DIGITS]
            wanted, got = next((pair for pair in texts if pair[0] != pair[1]), texts[-1])
            if right.ndim:
                wanted = _("{number} at {place}").format(number=wanted, place=where(wrong))
                got = _("{number} there; {share} of the values differ").format(
                    number=got, share=f"{wrong.mean():.0%}")
        return _("{what} for {input}").format(what=wanted, input=self.words) if self.words \
            else wanted, got


class Trials:
    """What an answer gave on several inputs, judged together; the mistakes that may be named."""

    def __init__(self, rerun: Rerun, mistakes: Mistakes) -> None:
        self.rerun, self.spec, self.mistakes = rerun, rerun.spec, mistakes
        self.all: list[Tried] = []

    @property
    def failed(self) -> Tried | None:
        """The first that went wrong."""
        return next((tried for tried in self.all if tried.kind), None)

    def on(self, given: Inputs, words: str = "") -> None:
        """Run the answer on inputs by name.

        What it raises is raised, unless an earlier input went wrong: that is told first.
        """
        expected = self.rerun.expected(given)
        try:
            came = self.rerun.on(given)
        except Exception as error:
            if self.failed is None:
                raise self._shown(error, given) from None
            came = error
        else:
            came = as_array(came, expected)
        atol = self.spec.atol(given) if callable(self.spec.atol) else self.spec.atol
        self.all.append(Tried(came, expected, given, atol, words))

    def _shown(self, error: Exception, given: Inputs) -> Exception:
        """Return what an answer raised with the smallest input on which it does.

        As it is where it is not the answer's own, or where the check refused more than a number.
        """
        own = any(frame.filename in checked.names
                  for frame in traceback.extract_tb(error.__traceback__))
        if not isinstance(error, self.spec.fault) and not isinstance(error, Changed) and (
                not own or isinstance(error, CheckFailed | NotImplementedError)):
            return error
        parts = error.parts if isinstance(error, CheckFailed) else (
            _("your code to run"), reason(error), place_in_script(error) or line_of_answer(error))
        return CheckFailed(*parts, example=self.rerun.smallest(given))

    def cause(self) -> str:
        """Return the hint of the one mistake that gives what came on all inputs, or "".

        On fresh ones too, where the answer can be run on them.
        """
        hints = [hint for hint, mistake in self.mistakes.items() if self._gives(mistake, self.all)]
        if hints:
            fresh = self._fresh()
            hints = [hint for hint in hints if self._gives(self.mistakes[hint], fresh)]
        return hints[0] if len(hints) == 1 else ""

    def _gives(self, mistake: Callable[..., Any], every: Sequence[Tried]) -> bool:
        """Whether a mistake gives what came: the numbers, or an error as shapes do not fit."""
        proved = every is not self.all
        for tried in every:
            raised = isinstance(tried.came, Exception)
            try:
                with torch.no_grad(), np.errstate(all="ignore"):
                    gives = np.asarray(mistake(*self.spec.formula(tried.given)))
            except (ValueError, RuntimeError, IndexError):
                same = raised
            else:
                if raised and gives.shape != tried.expected.shape:
                    continue  # what has another shape does not fit into out
                same = isinstance(tried.came, np.ndarray) and gives.shape == tried.came.shape \
                    and tried.came.dtype.kind in "fiub" \
                    and not differ(tried.came, gives, RTOL, tried.atol).any()
            if not same:
                return False
            proved = True
        return proved

    def _fresh(self) -> list[Tried]:
        """Return what the answer gives for inputs that it was not tried on."""
        over, found = patience(), []
        for number, tried in enumerate(self.all):
            if self.rerun.size(tried.given)[1] > _MOST_FRESH \
                    or not self.spec.fits(given := redrawn(tried.given, number)):
                continue
            found.append(Tried(self.rerun.called(given), self.rerun.expected(given), given,
                               tried.atol))
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
        raise CheckFailed(*failed.parts(), self.cause(), example=self._example(failed))

    def _example(self, failed: Tried) -> Example | None:
        """Return the smallest input that fails as one does: from the least that was tried on."""
        least = min((tried for tried in self.all if tried.kind == failed.kind),
                    key=lambda tried: self.rerun.size(tried.given))
        return self.rerun.smallest(least.given, least.atol) if least.given else None
