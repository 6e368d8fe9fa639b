"""Where a module parts from PyTorch: each step is run on the values that the module itself has.

If the module has a step's result, that is its value of this step; else PyTorch's result stands for
it, for a kernel may compute several steps. Where no later step is found either, the module computes
otherwise, up to the first value from which PyTorch's next steps lead to values of the module again.
So a layer whose values are right is never blamed, and several wrong ones are found.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from course.checks.diagnose.steps import Step, run
from course.checks.observe.intermediates import Binding, layout, layouts

_STEPS, _BINDINGS = 12, 40  # how far behind a step that is wrong its end is looked for
_TRIED = 3  # ways to see a parting that are looked at with what follows, of each kind


class Place(NamedTuple):
    """A value of the module: its binding's position, an input's below 0, and its order of axes.

    A binding's value, transposed by `axes`, has the order of PyTorch's.
    """

    position: int
    axes: tuple[int, ...]

    @property
    def after(self) -> int:
        """The position of the first binding behind it."""
        return max(self.position + 1, 0)


class Parting(NamedTuple):
    """Steps that a module computes otherwise, between values of its own.

    The steps are those from `first` to `last` that lead from the values `takes` to the last one;
    `end` is where the module has its value of that, None: nowhere. If it takes another value, the
    one step is right, `last` is before it, and it takes the value at `end` instead of `takes`.
    """

    first: int
    last: int
    takes: tuple[int, ...]
    end: Place | None

    @property
    def takes_another(self) -> bool:
        """Whether the step is right, and takes another value than PyTorch's."""
        return self.last < self.first


class _May(NamedTuple):
    """What a module may do: a place in `fixed` or `instead` of a chain; how many steps it is."""

    into: dict[Any, Place]
    key: Any
    place: Place
    steps: int


class Chain:
    """A model's steps beside a module's bindings, on several inputs at once.

    `inputs`: for each call the model's inputs; `params`: their names in the module. `own` has the
    values of each input and step as the module has them, for each call, and `at` their places, or
    None: PyTorch's stands there.
    """

    def __init__(self, steps: Sequence[Step], inputs: Sequence[Sequence[Tensor]],
                 bindings: Sequence[Binding], params: Sequence[str]) -> None:
        self.steps, self.inputs, self.bindings = steps, inputs, bindings
        self.params = params
        self.count = len(inputs[0])
        self.fixed: dict[int, Place] = {}  # of steps, by the numbers of their values
        self.instead: dict[tuple[int, int], Place] = {}  # what a step takes in a value's place
        self.right = run(steps, inputs[0])  # PyTorch's own values for the first call
        self.takers: dict[int, list[int]] = {}
        for number, step in enumerate(steps, self.count):
            for taken in step.takes:
                self.takers.setdefault(taken, []).append(number)

    # ---- values ----------------------------------------------------------------------------

    def step(self, number: int) -> Step:
        """Return the step that gives a value."""
        return self.steps[number - self.count]

    def value(self, place: Place) -> list[Tensor]:
        """Return the module's value at a place, in PyTorch's order of axes, for each call."""
        return [torch.from_numpy(np.array(value.transpose(place.axes), order="C"))
                for value in self.arrays(place.position)]

    def arrays(self, position: int) -> list[np.ndarray]:
        """Return the module's own value at a position, for each call."""
        if position < 0:
            return [inputs[position].numpy() for inputs in self.inputs]
        return self.bindings[position].values

    def made(self, parting: Parting, values: Mapping[int, Tensor]) -> Tensor:
        """Return what PyTorch makes of the values that a parting's steps take, by their numbers.

        What a step should take, where it takes another value.
        """
        own = dict(values)
        for number in [] if parting.takes_another else self.inside(parting.first, parting.last):
            step = self.step(number)
            own[number] = step.run(*(own[taken] for taken in step.takes))
        return own[parting.takes[0] if parting.takes_another else parting.last]

    def name(self, position: int) -> str:
        """Return the name of a variable of main."""
        return self.bindings[position].name if position >= 0 else self.params[position]

    def gives(self, number: int, own: Sequence[list[Tensor]]) -> list[Tensor] | None:
        """Return what a step gives for the module's values, or None: they do not fit."""
        step = self.step(number)
        given = [self.value(self.instead[number, taken]) if (number, taken) in self.instead
                 else own[taken] for taken in step.takes]
        try:
            return [step.run(*values) for values in zip(*given, strict=True)]
        except (RuntimeError, ValueError, IndexError):
            return None

    def found(self, number: int, values: Sequence[Tensor] | None, start: int) -> Place | None:
        """Return where the module has a step's values, from a binding on."""
        layer = self.step(number).layer
        for position in range(max(start, 0), len(self.bindings)) if values else ():
            axes = [layout(came, right.numpy(), layer) if came.dtype == right.numpy().dtype
                    else None for came, right in
                    zip(self.bindings[position].values, values or (), strict=True)]
            if axes[0] is not None and all(one == axes[0] for one in axes):
                return Place(position, axes[0])
        return None

    @torch.no_grad()
    def follow(self) -> None:
        """Run each step on the module's own values."""
        self.own: list[list[Tensor]] = [[inputs[place] for inputs in self.inputs]
                                        for place in range(self.count)]
        self.at: list[Place | None] = [Place(place - self.count, tuple(range(values[0].ndim)))
                                       for place, values in enumerate(self.own)]
        for number in range(self.count, self.count + len(self.steps)):
            if number in self.fixed:
                place: Place | None = self.fixed[number]
                values = self.value(self.fixed[number])
            else:
                gives = self.gives(number, self.own)
                if gives is None:
                    return
                place = self.found(number, gives, self._start(number))
                values = self.value(place) if place else gives
            self.own.append(values)
            self.at.append(place)

    def _start(self, number: int) -> int:
        """Return the last position of values that a step takes."""
        places = [self.instead.get((number, taken), self.at[taken])
                  for taken in self.step(number).takes]
        return max((place.position for place in places if place), default=-1)

    def behind(self, end: int, given: Iterable[int]) -> set[int]:
        """Return the positions from which the binding at `end` is made: it, and all up to given."""
        found, waiting = {*given}, [end]
        while waiting:
            if (position := waiting.pop()) not in found:
                found.add(position)
                waiting += self.bindings[position].of if position >= 0 else ()
        return found.difference(given)

    def uses_all(self, end: int, given: Collection[int]) -> bool:
        """Whether each of the values that are given has a part in a binding."""
        used = {one for position in self.behind(end, given) if position >= 0
                for one in self.bindings[position].of}
        return used.issuperset(given)

    def takes(self, end: int, place: int) -> bool:
        """Whether a binding, which no step has, is made of a value, and of no step's in between."""
        known = {one.position for one in self.at if one}
        return end not in known and any(
            place in self.bindings[position].of
            for position in self.behind(end, known) if position >= 0)

    # ---- what is lost ----------------------------------------------------------------------

    def lost(self) -> int | None:
        """Return the first step whose result is not the module's and leads to none that is."""
        needed, last = set(), self.count + len(self.steps) - 1
        waiting = [last]
        while waiting:
            if (number := waiting.pop()) not in needed and number >= self.count:
                needed.add(number)
                waiting += self.step(number).takes
        known = [False] * (last + 1)  # whether a value is the module's, or leads to one that is
        for number in reversed(range(len(self.own))):
            known[number] = self.at[number] is not None or any(
                known[taker] for taker in self.takers.get(number, ()))
        return min((number for number in needed if not known[number]), default=None)

    def between(self, first: int, last: int) -> tuple[int, ...]:
        """Return the values that the steps from `first` to `last` take from before, or beside."""
        inside = self.inside(first, last)
        return tuple(dict.fromkeys(taken for number in inside for taken in self.step(number).takes
                                   if taken not in inside))

    def inside(self, first: int, last: int) -> list[int]:
        """Return the steps that lead to `last` from what the module has before `first`."""
        needed, waiting = set(), [last]
        while waiting:
            number = waiting.pop()
            if number in needed or number < first and (
                    number < self.count or self.at[number] is not None):
                continue
            needed.add(number)
            waiting += self.step(number).takes
        return sorted(needed)

    def _goes_on(self, number: int, place: Place, directly: bool) -> bool:
        """Whether with the value at a place for a step's PyTorch leads to a later value."""
        own, changed = list(self.own), {number}
        own += [[]] * (self.count + len(self.steps) - len(own))
        own[number] = self.value(place)
        for taker in range(number + 1, min(number + _STEPS, len(own))):
            step = self.step(taker)
            if not changed.intersection(step.takes):
                continue
            if any(not own[taken] for taken in step.takes):
                continue
            gives = self.gives(taker, own)
            if gives is None:
                continue
            if self.found(taker, gives, place.position + 1):
                return True
            if taker == number + 1 and all(map(torch.equal, gives, own[number])):
                return False  # as behind a ReLU: it is the next step's value
            if not directly:
                own[taker] = gives
                changed.add(taker)
        return False

    def _ends(self, first: int) -> Iterator[tuple[int, Place]]:
        """Yield the steps from one that is wrong on, with places that may hold their values."""
        start = self._start(first)
        last = min(first + _STEPS, self.count + len(self.steps))
        right: dict[int, list[Tensor]] = {}
        own = [*self.own[:first], *[[]] * (self.count + len(self.steps) - first)]
        for number in range(first, last):
            if all(own[taken] for taken in self.step(number).takes):
                own[number] = right[number] = self.gives(number, own) or []
        for position in range(max(start, 0), min(start + _BINDINGS, len(self.bindings) - 1)):
            for number in reversed(right):
                if right[number] and first in self.inside(first, number):
                    for axes in layouts(self.bindings[position].value.shape,
                                        tuple(right[number][0].shape)):
                        yield number, Place(position, axes)

    def _others(self, number: int) -> Iterator[tuple[int, Place]]:
        """Yield what a step may take in the place of a value: its result is in the module then."""
        for taken in self.step(number).takes:
            if not (known := self.at[taken]):  # the module has none that it could take
                continue
            shape = tuple(self.own[taken][0].shape)
            places = [Place(position, axes)
                      for position in range(-self.count, len(self.bindings))
                      for axes in layouts(self.arrays(position)[0].shape, shape)]
            for place in places:
                if place.position == known.position:
                    continue
                value = self.value(place)
                self.instead[number, taken] = place
                gives = self.gives(number, self.own)
                found = self.found(number, gives, place.position + 1)
                del self.instead[number, taken]
                if found and gives and self.takes(found.position, place.position) and not all(
                        torch.equal(a, b) if a.shape == b.shape else False
                        for a, b in zip(gives, value, strict=True)):
                    yield taken, place

    def _may_be(self, first: int) -> list[_May]:
        """Return what the module may do from a step on: what explains most, and few steps."""
        for directly in (True, False):
            found = [_May(self.instead, (first, taken), place, 1)
                     for taken, place in (self._others(first) if directly else ())]
            found += [_May(self.fixed, number, place, len(self.inside(first, number)))
                      for number, place in self._ends(first)
                      if self._goes_on(number, place, directly)]
            if found:
                break
        # before a softmax, a sum may do as much as with a bias: the last one counts
        found.sort(reverse=True, key=lambda one: (
            # how many values of the module are those of steps then
            self._with(one, lambda: len({place.position for place in self.at if place})),
            one.into is self.instead, -one.steps, one.place.position))
        ways = {(one.into is self.instead, one.key): one for one in reversed(found)}
        every = sorted(ways.values(), key=found.index)
        few = sorted(every[_TRIED:], key=lambda one: one.steps)
        return every[:_TRIED] + few[:_TRIED]

    def _with(self, one: _May, look: Callable[[], int]) -> int:
        """Return what `look` gives where the module does what it may."""
        own, at, one.into[one.key] = self.own, self.at, one.place
        self.follow()
        came = look()
        del one.into[one.key]
        self.own, self.at = own, at
        return came

    def _cost(self, rounds: int) -> int:
        """Return in tenths how many steps are computed otherwise; a parting is one tenth more."""
        if (first := self.lost()) is None:
            return 0
        may_be = self._may_be(first) if rounds else []
        return 1 + min((self._cost_with(one, rounds - 1) for one in may_be),
                       default=10 * sum(place is None for place in self.at))

    def _cost_with(self, one: _May, rounds: int) -> int:
        """Return what one way to see a parting costs, with what follows it."""
        return 10 * one.steps + self._with(one, lambda: self._cost(rounds))

    def _part(self, first: int) -> Parting:
        """Return how far the module computes otherwise from a step on.

        There may be several ways to see it: of two ReLUs, each has the other's result for another
        value. That with the fewest steps in it and in what follows counts, of several such the one
        in which they stand together.
        """
        if may_be := self._may_be(first):
            best = min(may_be, key=lambda one: self._cost_with(one, 1)) \
                if len(may_be) > 1 else may_be[0]
            best.into[best.key] = best.place
            if best.into is self.instead:
                return Parting(first, first - 1, (best.key[1],), best.place)
            return Parting(first, best.key, self.between(first, best.key), best.place)
        last = self.count + len(self.steps) - 1
        end = None
        if len(self.own) > last:
            final, shape = len(self.bindings) - 1, tuple(self.own[last][0].shape)
            if self.bindings[final].value.shape == shape:
                self.fixed[last] = end = Place(final, tuple(range(len(shape))))
        return Parting(first, last, self.between(first, last), end)

    @torch.no_grad()
    def partings(self) -> list[Parting]:
        """Return where the module computes otherwise than PyTorch, in the order of the steps."""
        found: list[Parting] = []
        for _round in itertools.repeat(None, len(self.steps)):
            self.follow()
            if (first := self.lost()) is None:
                break
            found.append(self._part(first))
            if found[-1].end is None:
                break
        return found
