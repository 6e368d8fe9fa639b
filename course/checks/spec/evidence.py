"""Evidence: an answer run on other inputs than a check's, down to the smallest that shows a fault.

What a check found wrong stays what it is; here it is run again and again, silently.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from course.checks.compare.tolerance import ATOL, RTOL
from course.checks.run.check import forks
from course.checks.run.timeout import alarmed
from course.checks.say.messages import CheckFailed, reason
from course.checks.say.show import Example, differ
from course.checks.spec.shrink import LATE, Inputs, Search
from course.words import _

Cases = Iterable[Inputs]
Mistakes = dict[str, Callable[..., Any]]  # hints, and functions that give what comes of the mistake


class Changed(CheckFailed):
    """An answer wrote into what it was given."""


@dataclass(frozen=True)
class Spec:
    """A function that an exercise asks for.

    `form` makes of an answer a function of inputs by name, and `right` is one. `cases`: inputs that
    are tried, all of them, so that a mistake has to give what came on each; `beyond`: more, that
    are tried where those are right. `named`: formulas of mistakes, of the inputs or of what
    `formula` makes of them. `axes`, `least` and `fits` are those of a Search. What an answer
    raises, and `fault` knows, is the program's own fault on that input. Of a property nothing is
    right, an array without numbers: what is wanted, `fault` says. `shown`: the inputs as a reader
    knows them; `result`: what is compared, where that is not what the answer returns. `atol` may
    depend on the inputs.
    """

    form: Callable[[Any], Callable[..., Any]]
    right: Callable[..., Any]
    cases: Callable[[], Cases] = lambda: ()
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


class Rerun(NamedTuple):
    """How an answer runs, as a function of inputs by name, and what it is to be."""

    run: Callable[..., Any]
    spec: Spec

    def on(self, given: Inputs) -> Any:
        """Return what the answer gives for copies of inputs; raises Changed if it writes there."""
        own = copies(given)
        came = self.run(**own)
        for name, value in given.items():
            if isinstance(value, np.ndarray) and not np.array_equal(
                    value, own[name], equal_nan=value.dtype.kind == "f"):
                raise Changed(_("{name} to stay as it was").format(name=name),
                              _("other numbers in it"))
        return came

    def called(self, given: Inputs) -> Any:
        """Return what the answer gives for copies of inputs, as an array, or what it raised."""
        with np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
            try:
                return as_array(self.on(given), np.empty(0))
            except (Exception, SystemExit) as error:
                return error

    def expected(self, given: Inputs) -> np.ndarray:
        """Return what is right for inputs."""
        with np.errstate(all="ignore"), torch.no_grad():
            return np.asarray(self.spec.right(**copies(given)))

    def atol(self, given: Inputs) -> float:
        """Return how far a right number may be off for inputs."""
        return self.spec.atol(given) if callable(self.spec.atol) else self.spec.atol

    def kind(self, given: Inputs, came: Any, right: np.ndarray) -> str:
        """Return in which way a result is wrong, or ""."""
        if isinstance(came, CheckFailed):
            return f"refused {getattr(came.parts[0], 'template', came.parts[0])}"
        if isinstance(came, BaseException):
            return type(came).__name__
        if came.shape != right.shape:
            return "shape"
        if came.dtype != right.dtype:
            return "dtype"
        if came.dtype.kind not in "fiub":
            return "" if (came == right).all() else "values"
        if (np.isnan(came) & ~np.isnan(right)).any():
            return "nan"
        if (np.isnan(right) & ~np.isnan(came)).any():  # one mistake may also be seen without it
            return "no nan"
        return "values" if differ(came, right, RTOL, self.atol(given)).any() else ""

    def smallest(self, given: Inputs) -> Example | None:
        """Return the smallest example of what is wrong for inputs; None where it does not recur."""
        search = Search(lambda inputs: self.kind(
            inputs, self.called(inputs), self.expected(inputs)),
            given, self.spec.axes, self.spec.least, self.spec.fits)
        with contextlib.suppress(TimeoutError):
            alarmed(search.run, LATE) if forks() else search.run()
        best = search.best, self.called(search.best), self.expected(search.best)
        return self.shown(*best) if self.kind(*best) else None

    def shown(self, given: Inputs, came: Any, right: np.ndarray) -> Example:
        """Return an example of inputs, of what came and of what is right."""
        wanted: Any = right
        got: Any = came
        if isinstance(came, CheckFailed):
            wanted, got = came.parts[0], came.parts[1] or came.parts[0]
        elif isinstance(came, BaseException):
            wanted, got = right if right.size else _("your code to run"), reason(came)
        return Example.of(self.spec.shown(given), wanted, got, RTOL, self.atol(given),
                          "" if isinstance(wanted, str) else self.spec.result)

    def size(self, given: Inputs) -> tuple[bool, int]:
        """Return what orders inputs to start a search from: whether an axis is short, numbers."""
        short = any(size < self.spec.least.get(axis, 1)
                    for name, text in self.spec.axes.items()
                    for axis, size in zip(text.split(), np.shape(given[name]), strict=True))
        return short, sum(len(value) if isinstance(value, list) else np.size(value)
                          for value in given.values())


def copies(given: Inputs) -> Inputs:
    """Return inputs that an answer may change."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in given.items()}


def as_array(came: Any, expected: np.ndarray) -> np.ndarray:
    """Return what an answer gave as an array; raises CheckFailed where it makes none."""
    if isinstance(came, np.ndarray | np.generic):
        return np.asarray(came)
    with contextlib.suppress(ValueError, TypeError):  # a tuple of arrays of several shapes
        return np.asarray(came)
    raise CheckFailed(_("an array of shape {shape}").format(shape=expected.shape),
                      _("a {name} whose parts do not form an array").format(
                          name=type(came).__name__))


def redrawn(given: Inputs, seed: int) -> Inputs:
    """Return fresh inputs of the same kinds and shapes as these."""
    return {name: _redrawn(value, seed + place)
            for place, (name, value) in enumerate(given.items())}


def _redrawn(value: Any, seed: int) -> Any:
    """Return an array with its places along each axis in another order, and other fractions."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
        return value
    draw = np.random.default_rng([7, seed])
    for axis in range(value.ndim):
        value = value.take(draw.permutation(value.shape[axis]), axis)
    if value.dtype.kind != "f":
        return value
    return (value * draw.choice([0.5, 0.75, 1.25, 1.5], value.shape)).astype(value.dtype)


def window_fits(given: Inputs) -> bool:
    """Whether a kernel w (o, c, p, q) is not larger than images x (n, c, h, w)."""
    return all(inside >= size for inside, size in
               zip(given["x"].shape[2:], given["w"].shape[2:], strict=True))
