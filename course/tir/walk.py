"""Statements, stores and loads of a PrimFunc in program order, each with what is around it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm
from tvm import ir, s_tir, tirx


def constant(expression: Any) -> int | None:
    """Return the integer that an expression is, or None if it is not one."""
    return int(expression) if isinstance(expression, tirx.IntImm) else None


@dataclass(frozen=True)
class Loop:
    """One loop of a PrimFunc; kind is serial, parallel, vectorized or unrolled."""

    node: tirx.For
    variable: tirx.Var  # two loops of one nest may have the same name
    extent: int | str  # a str if it is symbolic
    kind: str

    @classmethod
    def of(cls, node: tirx.For) -> "Loop":
        """Return a loop by its statement."""
        extent = constant(node.extent)
        return cls(node, node.loop_var, str(node.extent) if extent is None else extent,
                   tirx.ForKind(node.kind).name.lower())

    @property
    def name(self) -> str:
        """The name of its variable."""
        return self.variable.name

    def __str__(self) -> str:
        return f"{self.name}: {self.extent}" + ("" if self.kind == "serial" else f" {self.kind}")


@dataclass(frozen=True)
class Place:
    """What is around a statement or an expression.

    `loops`: outermost first. `guards`: the conditions that hold there. `axes`: the variables of all
    sblocks around it, each with the expression that gives its value. `block`: the innermost of
    these sblocks, or None where there is only the root. `init`: whether it is in a T.init.
    """

    loops: tuple[Loop, ...] = ()
    guards: tuple[Any, ...] = ()
    axes: tuple[tuple[Any, Any], ...] = ()
    block: Any = None
    init: bool = False

    @cached_property
    def analyzer(self) -> Any:
        """TVM's analyzer, which knows the ranges of the loops and what the axes are."""
        found = tvm.sym.Analyzer()
        for loop in self.loops:
            found.bind(loop.variable, ir.Range.from_min_extent(loop.node.min, loop.node.extent))
        for variable, given in self.axes:
            found.bind(variable, given)
        return found

    def under(self, condition: Any) -> "Place":
        """Return this place with one more condition."""
        return self if constant(condition) else replace(self, guards=(*self.guards, condition))

    def inside(self, realize: s_tir.SBlockRealize) -> "Place":
        """Return the place inside an sblock that is here: under its predicate, with its axes."""
        block = realize.block
        axes = zip((axis.var for axis in block.iter_vars), realize.iter_values, strict=True)
        return replace(self.under(realize.predicate), axes=(*self.axes, *axes),
                       block=block if block.name_hint != "root" else self.block)


TOP = Place()  # nothing is around it


def walk(node: tirx.Stmt, place: Place = TOP) -> Iterator[tuple[Any, Place]]:
    """Yield a statement and all statements inside it in program order, each with its place."""
    yield node, place
    match node:
        case tirx.SeqStmt():
            for part in node.seq:
                yield from walk(part, place)
        case tirx.For():
            yield from walk(node.body, replace(place, loops=(*place.loops, Loop.of(node))))
        case tirx.IfThenElse():
            yield from walk(node.then_case, place.under(node.condition))
            if node.else_case is not None:
                yield from walk(node.else_case, place.under(tirx.Not(node.condition)))
        case s_tir.SBlockRealize():
            inside = place.inside(node)
            if node.block.init is not None:
                yield from walk(node.block.init, replace(inside, init=True))
            yield from walk(node.block.body, inside)
        case tirx.While() | tirx.AttrStmt():
            yield from walk(node.body, place)


def sblocks(func: tvm.tirx.PrimFunc) -> list[s_tir.SBlock]:
    """Return the sblocks of a PrimFunc in program order, without the root."""
    return [node.block for node, _ in walk(func.body)
            if isinstance(node, s_tir.SBlockRealize) and node.block.name_hint != "root"]


def stores(func: tvm.tirx.PrimFunc, inits: bool = False) -> list[tuple[tirx.BufferStore, Any]]:
    """Return each store of a PrimFunc in program order, with its sblock (None: in none but root).

    T.init's stores are left out unless `inits`.
    """
    return [(node, place.block) for node, place in walk(func.body)
            if isinstance(node, tirx.BufferStore) and (inits or not place.init)]


@dataclass(frozen=True)
class Access:
    """A load or a store of one element of a buffer, or of several if an index is a vector."""

    place: Place
    buffer: Any
    indices: tuple[Any, ...]
    writes: bool


def loads(expression: Any, place: Place = TOP) -> Iterator[Access]:
    """Yield the loads in an expression; those in a branch have its condition."""
    parts: Sequence[Any] = ()
    match expression:
        case tirx.Var() | tirx.IntImm():  # most are: the other cases need no look
            pass
        case ir.TensorLoad():
            yield Access(place, expression.source, tuple(expression.indices), False)
            parts = expression.indices
        case (tirx.Select(condition=condition, true_value=yes, false_value=no)
              | ir.Call(op=ir.Op(name="prim.if_then_else"), args=[condition, yes, no])):
            yield from loads(condition, place)
            yield from loads(yes, place.under(condition))
            yield from loads(no, place.under(tirx.Not(condition)))
        case tirx.expr.BinaryOpExpr() | tirx.expr.CmpExpr() | tirx.And() | tirx.Or():
            parts = expression.a, expression.b
        case tirx.Not():
            parts = expression.a,
        case tirx.Cast() | tirx.Broadcast():
            parts = expression.value,
        case tirx.Ramp():
            parts = expression.base, expression.stride
        case tirx.Let():
            parts = expression.value, expression.body
        case ir.Call():
            parts = expression.args
    for part in parts:
        yield from loads(part, place)


def accesses(node: tirx.Stmt, place: Place = TOP) -> Iterator[Access]:
    """Yield the loads of one statement, then its store; not those of the statements inside it."""
    parts: Sequence[Any] = ()
    match node:
        case tirx.BufferStore():
            parts = *node.indices, node.value
        case tirx.For():
            parts = node.min, node.extent
        case tirx.IfThenElse() | tirx.While() | tirx.AssertStmt():
            parts = node.condition,
        case tirx.Bind() | tirx.Evaluate() | tirx.AttrStmt() | tirx.Return():
            parts = node.value,
        case s_tir.SBlockRealize():
            parts = *node.iter_values, node.predicate
    for part in parts:
        yield from loads(part, place)
    if isinstance(node, tirx.BufferStore):
        yield Access(place, node.buffer, tuple(node.indices), True)
