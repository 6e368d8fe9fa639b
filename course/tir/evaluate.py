"""Expressions of a PrimFunc, evaluated for all iterations of its loops at once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from course.tir.walk import Loop, Place

MOST_TRIED = 3_000_000  # iterations of the loops that an index depends on; more are thinned out


class Unknown(Exception):
    """An expression depends on data, on a symbolic shape, or on something unknown here."""


def _quotient(a: Any, b: Any) -> Any:
    """Divide integers towards 0, as C does. Raises Unknown for other numbers."""
    if not (np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer)):
        raise Unknown
    return np.trunc(a / b).astype(np.int64)


OPERATORS: dict[type, Callable[..., Any]] = {
    tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply,
    tirx.Div: _quotient, tirx.Mod: lambda a, b: a - b * _quotient(a, b),
    tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.mod,
    tirx.Min: np.minimum, tirx.Max: np.maximum, tirx.And: np.logical_and, tirx.Or: np.logical_or,
    tirx.LT: np.less, tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal,
    tirx.EQ: np.equal, tirx.NE: np.not_equal, tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift, tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or, tirx.BitwiseXor: np.bitwise_xor}


def value(expression: Any, at: Mapping[Any, Any]) -> Any:
    """Return an expression's value for the values of variables in `at`: a number, or an array.

    `at` may also have arrays for buffers; an index outside of one is moved inside it. Raises
    Unknown if the expression has anything else.
    """
    if operator := OPERATORS.get(type(expression)):
        with np.errstate(all="ignore"):  # divisions by 0 are in iterations that do not run
            return operator(value(expression.a, at), value(expression.b, at))
    match expression:
        case tirx.Var() if expression in at:
            return at[expression]
        case tirx.IntImm():
            return np.int64(int(expression))
        case tirx.FloatImm():
            return np.float32(float(expression))
        case ir.TensorLoad(source=buffer) if buffer in at:
            return at[buffer][tuple(
                np.clip(value(index, at), 0, size - 1)  # where no iteration is run, or refused
                for index, size in zip(expression.indices, at[buffer].shape, strict=True))]
        case tirx.Cast() if "int" in str(expression.ty.dtype):
            with np.errstate(all="ignore"):
                return np.asarray(value(expression.value, at)).astype(np.int64)  # towards 0
        case tirx.Not():
            return np.logical_not(value(expression.a, at))
        case (tirx.Select(condition=condition, true_value=yes, false_value=no)
              | ir.Call(op=ir.Op(name="prim.if_then_else"), args=[condition, yes, no])):
            return np.where(value(condition, at), value(yes, at), value(no, at))
        case ir.Call(op=ir.Op(name="prim.likely"), args=[condition]):
            return value(condition, at)
    raise Unknown


def variables(expressions: Sequence[Any]) -> set[Any]:
    """Return the variables of expressions, without those that a let inside them binds."""
    found: set[Any] = set()
    bound: set[Any] = set()
    tvm_ffi.structural_walk(list(expressions), [
        (tirx.Var, found.add), (tirx.Let, lambda let: bound.add(let.var))])
    return found - bound


@dataclass(frozen=True)
class Iterations:
    """Some iterations of loops.

    `at`: the values of each variable in them, and perhaps arrays of buffers. `runs`: whether each
    of them runs, bool of shape (iterations,).
    """

    at: dict[Any, Any]
    runs: np.ndarray

    def values(self, *expressions: Any) -> list[np.ndarray]:
        """Return the values of expressions, each of shape (iterations,). Raises Unknown."""
        return [np.broadcast_to(value(expression, self.at), self.runs.shape)
                for expression in expressions]


def every(counts: Mapping[Any, np.ndarray]) -> Iterations:
    """Return all iterations of nested loops, from each variable's values, outermost first."""
    grid = np.meshgrid(*counts.values(), indexing="ij")
    return Iterations({variable: values.reshape(-1)
                       for variable, values in zip(counts, grid, strict=True)},
                      np.ones(math.prod(map(len, counts.values())), bool))


def iterations_of(place: Place, expressions: Sequence[Any], always: Sequence[Loop] = (),
                  data: Mapping[Any, np.ndarray] | None = None) -> Iterations:
    """Return all iterations of the loops around a place on which expressions depend.

    The loops in `always` are always among them. `data`: arrays of buffers that the program only
    reads. Raises Unknown if an extent or a guard cannot be evaluated. If there are too many
    iterations, each loop keeps its ends and some in between: then all that is found is true, but
    not everything is found.
    """
    loops, axes = _needed(place, expressions, always)
    found = every(dict(zip((loop.variable for loop in loops), _thinned(
        [np.arange(most_of(loop, place)) for loop in loops]), strict=True)))
    at, runs = found.at, found.runs
    at.update(data or {})
    for loop in loops:
        if isinstance(loop.extent, str):
            runs &= at[loop.variable] < value(loop.node.extent, at)
        at[loop.variable] = at[loop.variable] + value(loop.node.min, at)
    for variable, given in axes:
        at[variable], = found.values(given)
    for guard in found.values(*place.guards):
        runs &= guard.astype(bool)
    return found


def _needed(place: Place, expressions: Sequence[Any], always: Sequence[Loop]
            ) -> tuple[list[Loop], list[tuple[Any, Any]]]:
    """Return the loops and the sblocks' axes on which expressions, or whether they run, depend."""
    wanted = variables([*expressions, *place.guards])
    axes: list[tuple[Any, Any]] = []
    for variable, given in reversed(place.axes):
        if variable in wanted:
            axes.insert(0, (variable, given))
            wanted |= variables([given])
    loops: list[Loop] = []
    for loop in reversed(place.loops):  # inner extents may depend on outer loops
        if loop.variable in wanted or loop in always:
            loops.insert(0, loop)
            wanted |= variables([loop.node.min, loop.node.extent])
    return loops, axes


def most_of(loop: Loop, place: Place) -> int:
    """Return the number of a loop's iterations, or the largest one. Raises Unknown."""
    most = int(place.analyzer.const_int_bound(loop.node.extent).max_value)
    if not 0 <= most < 2**31:
        raise Unknown
    return most


def _thinned(counts: list[np.ndarray]) -> list[np.ndarray]:
    """Drop values from the longest of several lists until they make no more than MOST_TRIED."""
    while math.prod(map(len, counts)) > MOST_TRIED and any(len(count) > 2 for count in counts):
        largest = max(range(len(counts)), key=lambda i: len(counts[i]))
        some = counts[largest]
        counts[largest] = np.unique(np.concatenate(
            [some[:2], some[2:-2][::2], some[-2:]])) if len(some) > 8 else some[[0, -1]]
    return counts
