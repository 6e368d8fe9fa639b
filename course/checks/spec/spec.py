"""An exercise as a specification: what is right, the inputs to try, and mistakes by name.

The check follows from it: what an answer gives is compared with what is right on each of the
inputs. A mistake is named as the cause only if it gives what came for all of them, and for fresh
ones, and no other known mistake does; else the smallest input that shows it stands alone.
"""

import contextlib
import copy
import io
import itertools
import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch

from course.checks.compare.tolerance import ATOL, RTOL
from course.checks.run.answer import checked, place_of
from course.checks.run.check import alarmed, forks, while_inside
from course.checks.say.messages import CheckFailed, reason
from course.checks.say.show import Example, differ, shown
from course.checks.spec.shrink import LATE, Inputs, Search, patience
from course.words import _

_MOST_FRESH = 2000  # numbers of a fresh input
_FEW = 12  # numbers that are named while an answer runs
_FORKED = multiprocessing.get_context("fork" if forks() else None)
_ALONE = _("called first, in another process, it was right for this input")
Cases = Iterable[Inputs]
Mistakes = dict[str, Callable[..., Any]]  # hints, and functions that give what comes of the mistake


class _Changed(CheckFailed):
    """An answer wrote into what it was given."""


@dataclass(frozen=True)
class Spec:
    """A function that an exercise asks for.

    `form` makes of an answer a function of inputs by name, and `right` is one. `cases`: inputs that
    are tried, all of them, so that a mistake has to give what came on each; `beyond`: more, that
    are tried where those are right. `named`: formulas of mistakes, of the inputs by name. `axes`,
    `least` and `fits` are those of a Search. What an answer raises, and `fault` knows, is the
    program's own fault on that input. Of a property nothing is right, an array without numbers:
    what is wanted, `fault` says. `shown`: the inputs as a reader knows them; `result`: what is
    compared, where that is not what the answer returns. `atol` may depend on the inputs.
    """

    form: Callable[[Any], Callable[..., Any]]
    right: Callable[..., Any]
    cases: Callable[[], Cases] = lambda: ()
    axes: Mapping[str, str] = field(default_factory=dict)
    named: Mistakes = field(default_factory=dict)
    beyond: Callable[[], Cases] = lambda: ()
    least: Mapping[str, int] = field(default_factory=dict)
    fits: Callable[[Inputs], bool] = lambda _: True
    fault: type[CheckFailed] | tuple[type[CheckFailed], ...] = ()
    shown: Callable[[Inputs], Inputs] = lambda given: given
    result: str = ""
    atol: float | Callable[[Inputs], float] = ATOL


class Rerun(NamedTuple):
    """How an answer runs, as a function of inputs by name, and what it is to be."""

    run: Callable[..., Any]
    spec: Spec

    def on(self, given: Inputs) -> Any:
        """Return what the answer gives for copies of inputs; raises _Changed if it writes there."""
        own = copy.deepcopy(given)  # an answer may change them
        with while_inside(_("with {inputs}").format(inputs=", ".join(
                f"{name} = {shown(value)}" for name, value in given.items()))) \
                if self.size(given)[1] <= _FEW else contextlib.nullcontext():
            came = self.run(**own)
        for name, value in given.items():
            is_array = isinstance(value, np.ndarray)
            if not (np.array_equal(value, own[name], equal_nan=value.dtype.kind == "f")
                    if is_array else value == own[name]):
                raise _Changed(_("{name} to stay as it was").format(name=name), _of_change(
                    value, own[name]) if is_array else repr(own[name])[:80])
        return came

    def called(self, given: Inputs) -> Any:
        """Return what the answer gives for copies of inputs, as an array, or what it raised."""
        with np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
            try:
                return _as_array(self.on(given), np.empty(0))
            except (Exception, SystemExit) as error:
                return error

    def expected(self, given: Inputs) -> np.ndarray:
        """Return what is right for inputs."""
        with np.errstate(all="ignore"), torch.no_grad():
            return np.asarray(self.spec.right(**copy.deepcopy(given)))

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
        found = self.searched(given)
        return self.shown(*found) if found else None

    def searched(self, given: Inputs) -> tuple[Inputs, Any, np.ndarray] | None:
        """Return the smallest inputs that go wrong as these do, what came, and what is right."""
        search = Search(lambda inputs: self.kind(
            inputs, self.called(inputs), self.expected(inputs)),
            given, self.spec.axes, self.spec.least, self.spec.fits)
        with contextlib.suppress(TimeoutError):
            alarmed(search.run, LATE) if forks() else search.run()
        best = search.best, self.called(search.best), self.expected(search.best)
        return best if self.kind(*best) else None

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


def _of_change(array: np.ndarray, now: np.ndarray) -> str:
    """Return in what an array that an answer wrote into differs from what it was."""
    return _("other numbers in it") if array.shape == now.shape else _("shape {shape}").format(
        shape=now.shape)


def _as_array(came: Any, expected: np.ndarray) -> np.ndarray:
    """Return what an answer gave as an array; raises CheckFailed where it makes none."""
    if isinstance(came, np.ndarray | np.generic):
        return np.array(came)  # an answer may use its memory again
    with contextlib.suppress(ValueError, TypeError):  # a tuple of arrays of several shapes
        return np.asarray(came)
    raise CheckFailed(_("an array of shape {shape}").format(shape=expected.shape),
                      _("a {name} whose parts do not form an array").format(
                          name=type(came).__name__))


def _redrawn(given: Inputs, seed: int) -> Inputs:
    """Return fresh inputs of the same kinds and shapes as these."""
    fresh = dict(given)
    for place, (name, value) in enumerate(given.items()):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
            continue
        draw = np.random.default_rng([7, seed + place])
        for axis in range(value.ndim):  # its places along each axis in another order
            value = value.take(draw.permutation(value.shape[axis]), axis)
        fresh[name] = value if value.dtype.kind != "f" else (
            value * draw.choice([0.5, 0.75, 1.25, 1.5], value.shape)).astype(value.dtype)
    return fresh


def window_fits(given: Inputs) -> bool:
    """Whether a kernel w (o, c, p, q) is not larger than images x (n, c, h, w)."""
    return all(inside >= size for inside, size in
               zip(given["x"].shape[2:], given["w"].shape[2:], strict=True))


# ---- the check -----------------------------------------------------------------------------


class _Tried(NamedTuple):
    """What an answer gave for inputs by name (an array, or what it raised), and what is right.

    `kind`: in which way it went wrong, or "".
    """

    given: Inputs
    came: Any
    expected: np.ndarray
    kind: str


def check(spec: Spec, answer: Any, ready: Callable[[], object] = lambda: None) -> int:
    """Return on how many cases an answer is right; raise CheckFailed where it is not.

    `ready` is called before the cases are tried; it may call the answer.
    """
    rerun, cases = Rerun(spec.form(answer), spec), [*spec.cases()]
    with _before_any_call(rerun) as right_alone:
        ready()
        count = _right(rerun, cases, spec.named, right_alone)
        _right(rerun, itertools.chain(spec.beyond(), _one_changed(rerun, cases)), {}, right_alone)
    return count


@contextlib.contextmanager
def _before_any_call(rerun: Rerun) -> Iterator[Callable[[Inputs], bool]]:
    """Yield what tells whether an answer is right for inputs where it was never called before.

    A process that is forked here waits for them.
    """
    if not forks():
        yield lambda given: False
        return
    ours, theirs = _FORKED.Pipe()
    process = _FORKED.Process(target=_alone, args=(rerun, ours, theirs), daemon=True)

    def right_alone(given: Inputs) -> bool:
        with contextlib.suppress(Exception):  # it may have ended, or not begun
            ours.send(given)
            return ours.poll(LATE) and ours.recv()
        return False
    with contextlib.suppress(OSError):  # no more processes: then there is no such hint
        process.start()
    theirs.close()
    try:
        yield right_alone
    finally:
        if process.pid:
            process.kill()


def _alone(rerun: Rerun, ours: Connection, pipe: Connection) -> None:
    """Tell whether an answer is right for the inputs that come."""
    ours.close()  # so that recv ends when the other side has
    with contextlib.suppress(BaseException):
        given = pipe.recv()
        pipe.send(not rerun.kind(given, rerun.called(given), rerun.expected(given)))


def _one_changed(rerun: Rerun, cases: Cases) -> Cases:
    """Yield one of the cases, then it with another array or number in one place, for each of these.

    What an answer keeps of earlier calls, by some of what it is given, is wrong then.
    """
    given = max((one for one in cases
                 if rerun.size(one)[1] <= _MOST_FRESH and rerun.spec.fits(one)),
                key=lambda one: rerun.size(one)[1], default={})
    for number, (name, value) in enumerate(given.items()):
        if isinstance(value, np.ndarray):
            other = given | _redrawn({name: value}, number)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            other = given | {name: value + 1}
        else:
            continue
        if len(given) > 1 and rerun.spec.fits(other):
            yield given
            yield other


def _right(rerun: Rerun, cases: Cases, mistakes: Mistakes,
           right_alone: Callable[[Inputs], bool]) -> int:
    """Return how many cases there are; raise CheckFailed unless all are right.

    In shape, dtype and value, with the smallest input that fails as the first one does: from the
    least that was tried on. What the answer raises is raised, unless an earlier input went wrong.
    """
    every: list[_Tried] = []
    failed: _Tried | None = None
    for given in cases:
        expected = rerun.expected(given)
        try:
            came: Any = _as_array(rerun.on(given), expected)
        except Exception as error:
            if not failed:
                raise _shown(rerun, error, given, right_alone) from None
            came = error
        every.append(_Tried(given, came, expected, rerun.kind(given, came, expected)))
        failed = failed or (every[-1] if every[-1].kind else None)
    if failed:
        least = min((tried for tried in every if tried.kind == failed.kind),
                    key=lambda tried: rerun.size(tried.given))
        found = rerun.searched(least.given) or failed[:3]
        example = rerun.shown(*found)
        wanted, got = example.parts[-2:]
        raise CheckFailed(wanted.text, got.text, _ALONE if right_alone(found[0])
                          else _same(every) or _cause(rerun, every, mistakes), example=example)
    return len(every)


def _same(every: Sequence[_Tried]) -> str:
    """Say that the same came for all inputs: of several numbers that is no chance."""
    came = every[0].came
    if isinstance(came, np.ndarray) and len(np.unique(came)) > 2 and len(every) > 2 and all(
            np.array_equal(came, one.came, equal_nan=came.dtype.kind == "f") for one in every):
        return _("the same numbers for {count} inputs").format(count=len(every))
    return ""


def _shown(rerun: Rerun, error: Exception, given: Inputs,
           right_alone: Callable[[Inputs], bool]) -> Exception:
    """Return what an answer raised with the smallest input on which it does.

    As it is where it is not the answer's own, or where the check refused more than a number.
    """
    own = not isinstance(error, CheckFailed | NotImplementedError) and any(
        frame.filename in checked.names for frame in traceback.extract_tb(error.__traceback__))
    if not own and not isinstance(error, (rerun.spec.fault, _Changed)):
        return error
    found = rerun.searched(given)
    if found and isinstance(found[1], Exception):  # it may be another error, on another line
        error = found[1]
    parts = error.parts if isinstance(error, CheckFailed) else (
        _("your code to run"), reason(error), place_of(error))
    if found and right_alone(found[0]):
        parts = (*parts[:2], _("; ").join(filter(None, [parts[2], _ALONE])))
    return CheckFailed(*parts, example=rerun.shown(*found) if found else None)


def _cause(rerun: Rerun, every: Sequence[_Tried], mistakes: Mistakes) -> str:
    """Return the hint of the one mistake that gives what came on all inputs, or "".

    On fresh ones too, where the answer can be run on them.
    """
    hints = [hint for hint, mistake in mistakes.items() if _gives(rerun, mistake, every)]
    if hints:
        fresh = _fresh(rerun, every)
        hints = [hint for hint in hints if _gives(rerun, mistakes[hint], fresh, proved=True)]
    return hints[0] if len(hints) == 1 else ""


def _gives(rerun: Rerun, mistake: Callable[..., Any], every: Sequence[_Tried],
           proved: bool = False) -> bool:
    """Whether a mistake gives what came: the numbers, or an error as shapes do not fit."""
    for tried in every:
        raised = isinstance(tried.came, Exception)
        try:
            with torch.no_grad(), np.errstate(all="ignore"):
                gives = np.asarray(mistake(**tried.given))
        except (ValueError, RuntimeError, IndexError):
            same = raised
        else:
            if raised and gives.shape != tried.expected.shape:
                continue  # what has another shape does not fit into out
            same = isinstance(tried.came, np.ndarray) and gives.shape == tried.came.shape \
                and tried.came.dtype.kind in "fiub" \
                and not differ(tried.came, gives, RTOL, rerun.atol(tried.given)).any()
        if not same:
            return False
        proved = True
    return proved


def _fresh(rerun: Rerun, every: Sequence[_Tried]) -> list[_Tried]:
    """Return what the answer gives for inputs that it was not tried on."""
    over, found = patience(), []
    for number, tried in enumerate(every):
        if rerun.size(tried.given)[1] > _MOST_FRESH \
                or not rerun.spec.fits(given := _redrawn(tried.given, number)):
            continue
        found.append(_Tried(given, rerun.called(given), rerun.expected(given), ""))
        if over():
            break
    return found


def require_equal(came: Any, expected: np.ndarray, mistakes: Mistakes, atol: float = ATOL,
                  words: str = "") -> None:
    """Raise CheckFailed unless `came` equals `expected` in shape, dtype and value.

    For a single result, of which `words` say what it is; check is for several inputs, where a cause
    has to hold for all of them.
    """
    spec = Spec(lambda came: lambda: came, lambda: expected, result=words, atol=atol)
    _right(Rerun(spec.form(came), spec), [{}], mistakes, lambda given: False)


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
