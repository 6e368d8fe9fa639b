"""Answers that are a formula: compared, and told by the numbers that came what is wrong."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from course.checks.compare.tolerance import RTOL
from course.checks.say.messages import CheckFailed
from course.words import _


def require_formula(answer: Callable[..., Any], cases: Sequence[tuple], right: Callable[..., float],
                    wrong: Mapping[str, Callable[..., float]],
                    expected: Callable[[tuple, float], str], returned: str, terms: str) -> None:
    """Raise CheckFailed unless an answer gives what `right` does for each case, a tuple.

    The message has the first case that differs, as `expected` says it, and the cause whose formula
    in `wrong` gives what came in all cases, else `terms`. `returned` says what to return.
    """
    came: list[float] = []
    for case in cases:
        number = answer(*case)
        if getattr(number, "ndim", None) == 0 and hasattr(number, "item"):
            number = number.item()  # NumPy's and PyTorch's numbers without an axis are numbers
        if not isinstance(number, numbers.Real):
            raise CheckFailed(_("a number"), f"{type(number).__name__}", returned)
        came.append(float(number))
    for case, number in zip(cases, came, strict=True):
        if not np.isclose(number, right(*case), RTOL, 0):
            cause = next((text for text, formula in wrong.items()
                          if np.allclose(came, [formula(*each) for each in cases], RTOL, 0)), terms)
            raise CheckFailed(expected(case, right(*case)), f"{number:.5g}", cause)
