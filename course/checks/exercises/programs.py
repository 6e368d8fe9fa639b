"""Answers that make a PrimFunc for some sizes: run as functions of arrays, and counted."""

import dataclasses
import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from course.checks.observe.primfuncs import with_buffers
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import program
from course.tir.evaluate import Unknown, iterations_of, most_of
from course.tir.walk import Access, Place, accesses, loads, walk
from course.words import _


def made_for(build: Callable, shapes: Callable[..., Sequence[tuple[int, ...]]],
             dtypes: Sequence[str] = ()) -> Callable[..., np.ndarray]:
    """Return an answer that makes a PrimFunc for some sizes as a function of these and of arrays.

    `shapes` gives for the sizes, by whose names it is called in messages, those of its buffers, the
    output's last; they are float32, if `dtypes` does not say otherwise.
    """
    names = inspect.signature(shapes).parameters

    @functools.cache
    def made(*sizes: int) -> Callable[..., np.ndarray]:
        return program(with_buffers(
            build(*sizes), *shapes(*sizes), dtypes=dtypes,
            sizes=", ".join(f"{name} = {size}" for name, size in zip(names, sizes, strict=True))))
    return lambda sizes, *arrays: made(*sizes)(arrays, shapes(*sizes)[-1])


class _Read(NamedTuple):
    """How often elements of a buffer are read, under conditions on what arrays hold.

    Of each condition what it tests, as numbers, and whether it wants the opposite.
    """

    name: str
    times: int
    conditions: list[tuple[tuple[int, int], bool]]


def _traffic(func: tvm.tirx.PrimFunc) -> tuple[dict[str, int], Counter[str]]:
    """Return the sizes of the buffers that a PrimFunc makes, and how many elements it reads.

    Of opposite conditions on what an array holds only one is met: that with more reads counts.
    """
    every = [access for node, place in walk(func.body) for access in accesses(node, place)]
    made = {access.buffer.name: math.prod(map(int, access.buffer.shape)) for access in every}
    since = _writes_before(every)
    reads = _reads([_read(access, since) for access in every if not access.writes])
    return {name: made[name] for name in made.keys() - {each.name for each in func.params}}, reads


def _writes_before(every: Sequence[Access]) -> dict[int, int]:
    """Return, by the hash of each test, how many stores before it go into buffers that it loads."""
    before: dict[int, int] = {}
    stores = Counter[str]()
    for access in every:
        for guard in access.place.guards:
            test = guard.a if isinstance(guard, tirx.Not) else guard
            before.setdefault(hash(test), sum(stores[load.buffer.name] for load in loads(test)))
        stores[access.buffer.name] += access.writes
    return before


def _test_of(condition: Any) -> tuple[Any, bool]:
    """Return what a condition tests, and whether it wants the opposite: a <= b that of b < a."""
    match condition:
        case tirx.Not():
            test, opposite = _test_of(condition.a)
            return test, not opposite
        case tirx.GT():
            return tirx.LT(condition.b, condition.a), False
        case tirx.GE():
            return tirx.LT(condition.a, condition.b), True
        case tirx.LE():
            return tirx.LT(condition.b, condition.a), True
    return condition, False


def _read(access: Access, writes_before: Mapping[int, int]) -> _Read:
    known: list[Any] = []
    conditions: list[tuple[tuple[int, int], bool]] = []
    for guard in access.place.guards:
        if _times(dataclasses.replace(access.place, guards=(guard,))) is not None:
            known.append(guard)
            continue
        written = hash(guard.a if isinstance(guard, tirx.Not) else guard)
        test, opposite = _test_of(guard)
        conditions.append(((tvm_ffi.structural_hash(test), writes_before[written]), opposite))
    times = _times(dataclasses.replace(access.place, guards=tuple(known))) or 0
    lanes = max((index.ty.dtype.lanes for index in access.indices), default=1)
    return _Read(access.buffer.name, times * lanes, conditions)


def _times(place: Place) -> int | None:
    """Return how often a place is reached; None where a condition or an extent is not known."""
    try:
        found = iterations_of(place, [], [loop for loop in place.loops
                                          if isinstance(loop.extent, str)])  # it varies
        extents = {loop.variable: most_of(loop, place) for loop in place.loops}
    except Unknown:
        return None
    among = math.prod(extents.pop(variable) for variable in found.at if variable in extents)
    every = math.prod(extents.values())
    # where there are so many that not each was looked at, none is taken as left out
    return every * (int(found.runs.sum()) if found.runs.size == among else among)


def _reads(every: Sequence[_Read], depth: int = 0) -> Counter[str]:
    """Count elements, by their buffers' names; `depth`: how many conditions are dealt with."""
    reads = Counter[str]()
    branches: dict[tuple[int, int], tuple[list[_Read], list[_Read]]] = {}
    for read in every:
        if len(read.conditions) == depth:
            reads[read.name] += read.times
            continue
        test, opposite = read.conditions[depth]
        branches.setdefault(test, ([], []))[opposite].append(read)
    for one, other in branches.values():
        reads += _reads(one, depth + 1) | _reads(other, depth + 1)
    return reads


def require_little(func: tvm.tirx.PrimFunc, kept: float, most: int, *params: int, sizes: str
                   ) -> int:
    """Return how many numbers the buffers hold that a PrimFunc makes.

    Raises CheckFailed where they are more than `kept`, or it loads more than `most` times from
    one of some parameters. `sizes`: for which it was made.
    """
    made, reads = _traffic(func)
    if (total := sum(made.values())) > kept:
        raise CheckFailed(_("at most {most} numbers of its own, for {sizes}").format(
                              most=f"{kept:,}", sizes=sizes),
                          _(", ").join(_("{name} {count}").format(name=name, count=f"{size:,}")
                                       for name, size in sorted(made.items())))
    for name in (func.params[place].name for place in params):
        if reads[name] > most:
            raise CheckFailed(_("at most {most} loads of {name}, for {sizes}").format(
                most=f"{most:,}", name=name, sizes=sizes), f"{reads[name]:,}")
    return total
