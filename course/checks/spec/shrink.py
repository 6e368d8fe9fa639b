"""The smallest input on which an answer is wrong: a search that starts from one that was found.

It tries simpler inputs, each once and always in the same order: fewer places along an axis ("x":
"n k" and "w": "m k" share k), then one input after the other: zeros for more and more elements,
small whole numbers. Each that fails in the same way is the next to start from.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Inputs = dict[str, Any]

NUMBERS = (0, 1, -1, 2, 3, 0.5, 10, -10, 100, 1000, -1000)  # the simplest first
MOST, FEW = 400, 12  # tries in all; in vain, of a step of the first round
LARGE = 1000  # numbers: of a whole model's values
SECONDS, LATE = 1.0, 4.0  # of this thread's processor time, of wall time for an answer that waits
_NO_LEAST: Mapping[str, int] = {}


def patience() -> Callable[[], bool]:
    """Return what tells whether a search that begins now has had its time.

    Processor time, so that a busy machine does not show a student a larger example.
    """
    own, wall = time.thread_time() + SECONDS, time.monotonic() + LATE
    return lambda: time.thread_time() > own or time.monotonic() > wall


def _stretches(size: int) -> Iterator[slice]:
    """Yield stretches of a list: halves, quarters, ..., pairs, single places; the last ones first.

    Halves of an odd number leave out its middle place until it comes alone.
    """
    length = max(size // 2, min(size, 1))
    while length:
        yield from (slice(start, start + length) for start in range(size - length, -1, -length))
        length = (length + 1) // 2 if length > 1 else 0


def _rank(value: float) -> int:
    return NUMBERS.index(value) if value in NUMBERS else len(NUMBERS)


def _numbers(value: float) -> Iterator[float]:
    """Yield simpler numbers than this one."""
    yield from NUMBERS[:_rank(value)]
    if np.isfinite(value) and value != round(value):
        yield float(round(value))
        yield float(f"{value:.4g}")  # what is shown of it


def _whole(value: int) -> Iterator[int]:
    """Yield ints nearer to 0: half, and the next."""
    step = 1 if value > 0 else -1
    yield from (less for less in (step * (abs(value) // 2), value - step) if less not in NUMBERS)


def _holds(dtype: np.dtype, number: float) -> bool:
    """Whether an array of a dtype can have a number: integers neither fractions nor too many."""
    if dtype.kind not in "iu":
        return True
    return number == int(number) and np.iinfo(dtype).min <= number <= np.iinfo(dtype).max


def _arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays with more zeros, then with simpler numbers; of a large one first one of ones."""
    places = np.flatnonzero(array)
    kept = array.flat[places]
    if len(places) > 1:
        yield np.zeros_like(array)
    if len(places) > LARGE and not np.isin(kept, NUMBERS).all():  # else it ends where the
        yield (array != 0).astype(array.dtype)  # difference is as small as the tolerance
    for some in _stretches(len(places)):
        fewer = array.copy()
        fewer.flat[places[some]] = 0
        yield fewer
    least = len(NUMBERS) if not np.isin(kept, NUMBERS).all() \
        else max(map(_rank, kept.tolist()), default=0)
    for number in NUMBERS[1:least]:
        if _holds(array.dtype, number):
            same = array.copy()  # all of them at once
            same.flat[places] = number
            yield same
    for place in places:
        value = array.flat[place]
        for number in (*_numbers(float(value)),
                       *(_whole(int(value)) if array.dtype.kind in "iu" else ())):
            if _holds(array.dtype, number):
                other = array.copy()
                other.flat[place] = number
                yield other


def _values(value: Any) -> Iterator[Any]:
    """Yield simpler values: fewer parts, then simpler parts."""
    match value:
        case np.ndarray() if value.dtype.kind in "fiu":
            yield from _arrays(value)
        case bool():
            return
        case int() | np.integer():
            whole = int(value)
            yield from (int(number) for number in _numbers(float(whole))
                        if number == int(number) and abs(number) <= abs(whole))
            yield from _whole(whole)
        case float() | np.floating():
            yield from map(float, _numbers(float(value)))
        case list() | tuple():
            for some in _stretches(len(value)):
                yield type(value)([*value[:some.start], *value[some.stop:]])
            for place, part in enumerate(value):
                for other in _values(part):
                    yield type(value)([*value[:place], other, *value[place + 1:]])


def _shorter(inputs: Inputs, axes: Mapping[str, str], least: Mapping[str, int]
             ) -> Iterator[Inputs]:
    """Yield inputs with fewer places along all axes, then along one, in all arrays that have it."""
    names = {name: text.split() for name, text in axes.items()}
    sizes = {axis: size for name in axes
             for axis, size in zip(names[name], np.shape(inputs[name]), strict=True)
             if not axis.isdigit()}

    def kept(whole: Inputs, axis: str, places: Sequence[int]) -> Inputs:
        """Return inputs with these places of an axis alone, wherever it stands."""
        cut = dict(whole)
        for name, every in names.items():
            for number, one in enumerate(every):
                if one == axis:
                    cut[name] = cut[name].take(places, number)
        return cut

    for most in (1, 2, 3, 4, 5, 6):  # of squares no axis can be cut alone
        shorter = inputs
        for axis, size in sizes.items():
            shorter = kept(shorter, axis, range(min(size, max(most, least.get(axis, 1)))))
        if any(np.shape(shorter[name]) != np.shape(inputs[name]) for name in axes):
            yield shorter
    for axis, size in sizes.items():
        if size > (few := max(2, least.get(axis, 1))):
            yield kept(inputs, axis, range(few))
        for some in _stretches(size):
            if size - (some.stop - some.start) >= least.get(axis, 1):
                yield kept(inputs, axis, [*range(some.start), *range(some.stop, size)])


def _key(inputs: Inputs) -> str:
    return repr([(value.shape, hash(value.tobytes())) if isinstance(value, np.ndarray) else value
                 for value in inputs.values()])


class Search:
    """A search for the simplest inputs that fail as some do; `best` has them at any time.

    `fails` returns in which way inputs fail ("values", "shape", an error's name), or "". `axes`
    names the axes of arrays: "x": "n k"; a number is the size of one that stays. `least`: how many
    places an axis keeps. `fits`: which inputs make sense. `tries` counts the calls of `fails`.
    """

    def __init__(self, fails: Callable[[Inputs], str], inputs: Inputs, axes: Mapping[str, str],
                 least: Mapping[str, int] = _NO_LEAST,
                 fits: Callable[[Inputs], bool] = lambda _: True) -> None:
        self.fails, self.best, self.axes = fails, inputs, axes
        self.least, self.fits, self.tries = least, fits, 0

    def run(self, most: int = MOST) -> bool:
        """Look for `most` tries or until time is over; return whether the inputs fail again."""
        over, tried = patience(), {_key(self.best)}
        self.tries = 1
        if not (kind := self.fails(self.best)):
            return False
        # at first no step takes all the time that there is
        names, unchanged = ["", *self.best], 0
        for name, few in itertools.chain(zip(names, itertools.repeat(FEW)),
                                         zip(itertools.cycle(names), itertools.repeat(most))):
            if unchanged == len(names):  # no step makes it simpler
                break
            simpler, unchanged, misses = self._simpler(name), unchanged + (few == most), 0
            while misses < few and (candidate := next(simpler, None)):
                if (key := _key(candidate)) in tried or not self.fits(candidate):
                    continue
                if self.tries >= most or over():
                    return True
                tried.add(key)
                self.tries += 1
                if self.fails(candidate) == kind:
                    self.best, unchanged, misses = candidate, 0, 0
                    simpler = self._simpler(name)
                else:
                    misses += 1
        return True

    def _simpler(self, name: str) -> Iterator[Inputs]:
        """Yield simpler inputs, the most promising first: shorter ones, or with another `name`."""
        inputs = self.best
        if not name:  # zeros first: a search that is ended shows what the others hide
            zeros = (inputs | {one: np.zeros_like(value)} for one, value in inputs.items()
                     if isinstance(value, np.ndarray) and value.dtype.kind in "fiu")
            return itertools.chain(zeros, _shorter(inputs, self.axes, self.least))
        return (inputs | {name: other} for other in _values(inputs[name]))
