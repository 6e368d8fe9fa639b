"""Comparing what an answer gives with what is right, and with what named mistakes give.

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
from course.checks.say.messages import CheckFailed, place_in_script, reason
from course.checks.say.show import differ
from course.checks.spec.evidence import Changed, Mistakes, Rerun, as_array, redrawn
from course.checks.spec.shrink import Inputs, patience
from course.words import _

_MOST_FRESH = 2000  # numbers of a fresh input


class Tried(NamedTuple):
    """What an answer gave for inputs by name (an array, or what it raised), and what is right.

    `kind`: in which way it went wrong, or "".
    """

    given: Inputs
    came: Any
    expected: np.ndarray
    kind: str


class Trials:
    """What an answer gave on several inputs, judged together; the mistakes that may be named."""

    def __init__(self, rerun: Rerun, mistakes: Mistakes) -> None:
        self.rerun, self.spec, self.mistakes = rerun, rerun.spec, mistakes
        self.all: list[Tried] = []

    @property
    def failed(self) -> Tried | None:
        """The first that went wrong."""
        return next((tried for tried in self.all if tried.kind), None)

    def on(self, given: Inputs) -> None:
        """Run the answer on inputs by name.

        What it raises is raised, unless an earlier input went wrong: that is told first.
        """
        expected = self.rerun.expected(given)
        try:
            came: Any = as_array(self.rerun.on(given), expected)
        except Exception as error:
            if self.failed is None:
                raise self._shown(error, given) from None
            came = error
        self.all.append(Tried(given, came, expected, self.rerun.kind(given, came, expected)))

    def _shown(self, error: Exception, given: Inputs) -> Exception:
        """Return what an answer raised with the smallest input on which it does.

        As it is where it is not the answer's own, or where the check refused more than a number.
        """
        own = not isinstance(error, CheckFailed | NotImplementedError) and any(
            frame.filename in checked.names
            for frame in traceback.extract_tb(error.__traceback__))
        if not own and not isinstance(error, (self.spec.fault, Changed)):
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
                    and not differ(tried.came, gives, RTOL, self.rerun.atol(tried.given)).any()
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
            found.append(Tried(given, self.rerun.called(given), self.rerun.expected(given), ""))
            if over():
                break
        return found

    def require_right(self) -> None:
        """Raise CheckFailed unless everything is right in shape, dtype and value.

        With the smallest input that fails as the first one does: from the least that was tried on.
        """
        if (failed := self.failed) is None:
            return
        least = min((tried for tried in self.all if tried.kind == failed.kind),
                    key=lambda tried: self.rerun.size(tried.given))
        example = self.rerun.smallest(least.given) \
            or self.rerun.shown(failed.given, failed.came, failed.expected)
        wanted, got = example.parts[-2:]
        raise CheckFailed(wanted.text, got.text, self.cause(), example=example)
