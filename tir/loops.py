"""Loop nests of PrimFuncs: their loops and blocks, and the order in which they visit elements."""

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import s_tir
from tvm.tirx import IterVar

from tir.evaluate import every
from tir.walk import Loop, Place, walk


def is_reduction(axis: IterVar) -> bool:
    """Whether an axis of a block is one over which it reduces."""
    return axis.iter_type == IterVar.CommReduce


@dataclass(frozen=True)
class Nest:
    """An sblock that has no other inside it, and what is around it."""

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
    `axes` are looked at; along other axes, the first. Moments and `threads` as in iterations.
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
