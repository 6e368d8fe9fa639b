"""An exercise as a specification: what is right, the inputs to try, and mistakes by name.

The check follows from it: what an answer gives is compared with what is right on each of the
inputs; where it differs, the smallest input that shows it is looked for, and a mistake is named
where it alone gives all that came.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from course.checks.compare.tolerance import ATOL
from course.checks.spec.evidence import Cases, Mistakes, Rerun, Spec
from course.checks.spec.shrink import Inputs
from course.checks.spec.trials import Trials


def check(spec: Spec, answer: Any) -> int:
    """Return on how many cases an answer is right; raise CheckFailed where it is not."""
    rerun = Rerun(spec.form(answer), spec)

    def tried(cases: Cases, named: Mistakes) -> int:
        trials = Trials(rerun, named)
        for given in cases:
            trials.on(given)
        trials.require_right()
        return len(trials.all)

    count = tried(spec.cases(), spec.named)
    tried(spec.beyond(), {})
    return count


def require_equal(came: Any, expected: np.ndarray, mistakes: Mistakes, atol: float = ATOL,
                  words: str = "") -> None:
    """Raise CheckFailed unless `came` equals `expected` in shape, dtype and value.

    For a single result, of which `words` say what it is; check is for several inputs, where a cause
    has to hold for all of them.
    """
    check(Spec(lambda came: lambda: came, lambda: expected, lambda: [{}], named=mistakes,
               result=words, atol=atol), came)


def not_finite(given: Inputs, numbers: Iterable[float] = (np.inf, -np.inf, np.nan)) -> Cases:
    """Yield inputs with infinity and NaN in one of the arrays, for each of them.

    For a function of which each right answer gives the same for these `numbers`: of a product with
    a mask and a condition only one gives NaN.
    """
    some = list(numbers)
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            array = value.copy()
            array.flat[[array.size * (1 + i) // (1 + len(some)) for i in range(len(some))]] = some
            yield given | {name: array}
