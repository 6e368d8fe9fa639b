"""Loop nests of PrimFuncs: their loops and blocks, indices, and the order of visits.

Pictures and checks share it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.tirx import IterVar


@dataclass(frozen=True)
class Loop:
    """One loop of a PrimFunc; kind is serial, parallel, vectorized or unrolled."""

    name: str
    extent: int | str  # a str where the shape is symbolic
    kind: str
    node: Any  # the tvm.tirx.For

    def __str__(self) -> str:
        return f"{self.name}: {self.extent}" + ("" if self.kind == "serial" else f" {self.kind}")


def is_reduction(axis: IterVar) -> bool:
    """Whether an axis of a block is one over which it reduces."""
    return axis.iter_type == IterVar.CommReduce


@dataclass(frozen=True)
class Nest:
    """An sblock and the loops around it, outermost first."""

    block: str
    loops: tuple[Loop, ...]
    realize: Any  # the tvm.s_tir.SBlockRealize

    @property
    def reduces(self) -> bool:
        """Whether the block has a reduction axis."""
        return any(map(is_reduction, self.realize.block.iter_vars))

    @property
    def has_init(self) -> bool:
        """Whether T.init still stands in the block: the reduction is not decomposed."""
        return self.realize.block.init is not None

    @property
    def buffer(self) -> str:
        """Name of the buffer that the block writes."""
        return self.realize.block.writes[0].source.name


def nests(func: tvm.tirx.PrimFunc) -> list[Nest]:
    """Return the loop nest of each sblock of a PrimFunc, in program order."""
    found: list[Nest] = []

    def walk(node: Any, loops: tuple[Loop, ...]) -> None:
        match type(node).__name__:
            case "For":
                kind = tvm.tirx.ForKind(node.kind).name.lower()
                extent = getattr(node.extent, "value", None)
                loop = Loop(node.loop_var.name, str(node.extent) if extent is None else int(extent),
                            kind, node)
                walk(node.body, (*loops, loop))
            case "SeqStmt":
                for part in node.seq:
                    walk(part, loops)
            case "SBlockRealize":
                inner = len(found)
                walk(node.block.body, loops)
                if len(found) == inner and node.block.name_hint != "root":
                    found.append(Nest(node.block.name_hint, loops, node))

    walk(func.body, ())
    return found


def index_value(expression: Any, loops: dict) -> np.ndarray:
    """Evaluate an index expression for all iterations at once; `loops`: each variable's values.

    The keys are the variables themselves: two loops of one nest may have the same name.
    """
    match type(expression).__name__:
        case "Var":
            return loops[expression]
        case "IntImm":
            return np.asarray(expression.value, np.int64)
        case "Cast":
            return index_value(expression.value, loops)
        case name:
            left, right = index_value(expression.a, loops), index_value(expression.b, loops)
            return {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply,
                    "FloorDiv": np.floor_divide, "FloorMod": np.mod,
                    "Min": np.minimum, "Max": np.maximum}[name](left, right)


def iterations(nest: Nest, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the moment of each iteration of a nest, and the values of the block's axes in it.

    Shapes (iterations,) and (axes, iterations). Lanes of a vectorised loop share a moment. So do
    the iterations of a parallel loop, as with a thread for each, unless `threads` is 1.
    """
    grid = np.indices([int(loop.extent) for loop in nest.loops]).reshape(len(nest.loops), -1)
    loops = {loop.node.loop_var: grid[i] for i, loop in enumerate(nest.loops)}
    at_once = {"vectorized"} if threads == 1 else {"vectorized", "parallel"}
    step = np.zeros(grid.shape[1], dtype=np.int64)
    for i, loop in enumerate(nest.loops):
        if loop.kind not in at_once:
            step = step * loop.extent + grid[i]
    return step, np.stack([np.broadcast_to(index_value(value, loops), step.shape)
                           for value in nest.realize.iter_values])


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
