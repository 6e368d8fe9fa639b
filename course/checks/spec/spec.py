"""An exercise as a specification: what is right, the inputs to try, and mistakes by name.

The check follows from it: what an answer gives is compared with what is right on each of the
inputs; where it differs, the smallest input that shows it is looked for, and a mistake is named
where it alone gives all that came.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course.checks.compare.tolerance import ATOL
from course.checks.say.messages import CheckFailed
from course.checks.spec.evidence import Rerun
from course.checks.spec.shrink import Inputs
from course.checks.spec.trials import Mistakes, Trials

Cases = Iterable[tuple[str, Inputs]]  # each with words that say which it is, or ""


@dataclass(frozen=True)
class Spec:
    """A function that an exercise asks for.

    `form` makes of an answer a function of inputs by name, and `right` is one. `cases`: inputs that
    are tried, all of them, so that a mistake has to give what came on each; `beyond`: more, that
    are tried where those are right. `named`: formulas of mistakes, of the inputs or of what
    `formula` makes of them. For `axes`, `least` and `fits` see Search; for `fault`, `shown` and
    `result` Rerun. `atol` may depend on the inputs.
    """

    form: Callable[[Any], Callable[..., Any]]
    right: Callable[..., Any]
    cases: Callable[[], Cases]
    axes: Mapping[str, str] = field(default_factory=dict)
    named: Mistakes = field(default_factory=dict)
    beyond: Callable[[], Cases] = lambda: ()
    least: Mapping[str, int] = field(default_factory=dict)
    fits: Callable[[Inputs], bool] = lambda _: True
    formula: Callable[[Inputs], tuple[Any, ...]] = lambda given: tuple(given.values())
    fault: type[CheckFailed] | tuple[type[CheckFailed], ...] = ()
    shown: Callable[[Inputs], Inputs] = lambda given: given
    result: str = ""
    atol: float | Callable[[Inputs], float] = ATOL


def check(spec: Spec, answer: Any, meanwhile: Callable[[Trials], None] = lambda _: None) -> int:
    """Return on how many cases an answer is right; raise CheckFailed where it is not.

    `meanwhile` is called after each case, and may refuse more than numbers.
    """
    rerun = Rerun(spec.form(answer), spec.right, spec.axes, spec.least, spec.fits, spec.formula,
                  spec.fault, spec.shown, spec.result)
    within = spec.atol if callable(spec.atol) else lambda _given: spec.atol
    trials = Trials(spec.named, rerun=rerun)
    for words, given in spec.cases():
        trials.on(given, words=words, atol=within(given))
        meanwhile(trials)
    trials.require_right()
    more = Trials({}, rerun=rerun)
    for words, given in spec.beyond():
        more.on(given, words=words, atol=within(given))
    more.require_right()
    return len(trials.all)


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
            yield "", given | {name: array}
