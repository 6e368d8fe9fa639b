"""Loop nests of PrimFuncs: their loops and blocks, and the order in which they visit elements."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, tirx
from tvm.tirx import IterVar

from course.tir.evaluate import every, iterations_of
from course.tir.walk import Access, Loop, Place, accesses, walk


def is_reduction(axis: IterVar) -> bool:
    """Whether an axis of a block is a reduction axis."""
    return axis.iter_type == IterVar.CommReduce


@dataclass(frozen=True)
class Nest:
    """An sblock with no other inside it, and what is around it."""

    realize: s_tir.SBlockRealize
    place: Place

    @property
    def block(self) -> str:
        """The sblock's name."""
        return self.realize.block.name_hint

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops around it, outermost first."""
        return self.place.loops

    @property
    def reduces(self) -> bool:
        """Whether the block has a reduction axis."""
        return any(map(is_reduction, self.realize.block.iter_vars))

    @property
    def has_init(self) -> bool:
        """Whether T.init is still in the block: the reduction is not decomposed."""
        return self.realize.block.init is not None

    @property
    def buffer(self) -> str:
        """Name of the buffer that the block writes."""
        return self.realize.block.writes[0].source.name


def nests(func: tvm.tirx.PrimFunc) -> list[Nest]:
    """Return the loop nest of each innermost sblock of a PrimFunc, in program order."""
    found = [Nest(node, place) for node, place in walk(func.body)
             if isinstance(node, s_tir.SBlockRealize) and node.block.name_hint != "root"]
    outer = {nest.place.block for nest in found}
    return [nest for nest in found if nest.realize.block not in outer]


def iterations(nest: Nest, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the moment of each iteration of a nest, and the values of the block's axes in it.

    Shapes (iterations,) and (axes, iterations). Lanes of a vectorised loop share a moment. So do
    the iterations of a parallel loop, as with a thread for each, unless `threads` is 1.
    """
    found = every({loop.variable: np.arange(int(loop.extent)) for loop in nest.loops})
    for axis, given in nest.place.axes:
        found.at[axis], = found.values(given)
    at_once = {"vectorized"} if threads == 1 else {"vectorized", "parallel"}
    step = np.zeros(found.runs.shape, dtype=np.int64)
    for loop in nest.loops:
        if loop.kind not in at_once:
            step = step * loop.extent + found.at[loop.variable]
    return step, np.stack(found.values(*nest.realize.iter_values))


def visit_steps(func: tvm.tirx.PrimFunc, shape: tuple[int, int], axes: tuple[int, int] = (0, 1),
                threads: int | None = None) -> np.ndarray:
    """Return the moment at which a PrimFunc first writes each element of its output.

    The last sblock that writes the output counts. Only the first `shape` elements along the two
    `axes` are considered, and the first along other axes. Moments and `threads`: see iterations.
    """
    nest = [nest for nest in nests(func) if nest.buffer == func.params[-1].name][-1]
    step, places = iterations(nest, threads)
    output = len(nest.realize.block.writes[0].region)  # the other block axes are reductions
    places = places[:output]
    limits = np.ones((output, 1), dtype=np.int64)
    limits[list(axes), 0] = shape
    seen = (places < limits).all(axis=0)
    steps = np.full(shape, step.max() + 1)
    np.minimum.at(steps, tuple(places[list(axes)][:, seen]), step[seen])
    return steps


# ---- how long numbers are kept -------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """A buffer inside a PrimFunc, and how long each of its numbers is kept.

    `places`: the numbers that are used, in the order of memory; `first` and `last`: the moments at
    which each is written first and used last. All three of shape (numbers,).
    """

    buffer: Any
    places: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @property
    def most(self) -> int:
        """How many of its numbers are kept at a time, at most."""
        change = np.zeros(int(self.last.max()) + 2, dtype=np.int64)
        np.add.at(change, self.first, 1)
        np.add.at(change, self.last + 1, -1)
        return int(change.cumsum().max())


def _moments(every_access: list[Access]) -> list[np.ndarray]:
    """Return for each access the moment of each of its iterations, on one clock for all.

    A moment is an iteration of an innermost sblock, one after another, as with one thread.
    """
    begins: dict[Any, int] = {}  # of what shares loops, and of each sblock, by its first access
    for number, access in enumerate(every_access):
        loops = access.place.loops
        for depth in range(len(loops)):
            begins.setdefault(loops[:depth + 1], number)
        begins.setdefault(access.place.block, number)
    deepest = max(len(access.place.loops) for access in every_access)
    keys = []
    for access in every_access:
        loops = access.place.loops
        found = iterations_of(access.place, access.indices, always=loops)
        key = np.zeros((len(found.runs), 2 * deepest + 1), dtype=np.int64)
        for depth, loop in enumerate(loops):
            key[:, 2 * depth] = begins[loops[:depth + 1]]
            key[:, 2 * depth + 1] = found.at[loop.variable]
        key[:, 2 * len(loops)] = begins[access.place.block]
        keys.append(key[found.runs])
    moments = np.unique(np.concatenate(keys), axis=0, return_inverse=True)[1].reshape(-1)
    return np.split(moments, np.cumsum([len(key) for key in keys])[:-1])


def lives(func: tvm.tirx.PrimFunc) -> list[Life]:
    """Return for each buffer inside a small PrimFunc how long its numbers are kept."""
    nodes = list(walk(func.body))
    every_access = [access for node, place in nodes if isinstance(node, tirx.BufferStore)
                    for access in accesses(node, place)]
    moments = _moments(every_access)
    found = []
    for buffer in (buffer for node, _ in nodes if isinstance(node, s_tir.SBlockRealize)
                   for buffer in node.block.alloc_buffers):
        shape = tuple(map(int, buffer.shape))
        count = int(np.prod(shape))
        first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        for access, moment in zip(every_access, moments, strict=True):
            if not access.buffer.same_as(buffer):
                continue
            there = iterations_of(access.place, access.indices, always=access.place.loops)
            place = np.ravel_multi_index([index[there.runs] for index in
                                          there.values(*access.indices)], shape)
            if access.writes:
                np.minimum.at(first, place, moment)
            np.maximum.at(last, place, moment)
        places = np.flatnonzero(last >= 0)
        found.append(Life(buffer, places, first[places], last[places]))
    return found
