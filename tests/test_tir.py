"""tir: what is in a PrimFunc and where, expressions for all iterations, blocks in blocks."""

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx
from tvm.script import tirx as T

from course.tir.evaluate import Unknown, iterations_of, value, variables
from course.tir.loops import iterations, lives, nests
from course.tir.walk import accesses, loads, sblocks, stores, walk


@T.prim_func(s_tir=True)
def blocks(X: T.Buffer((8, 6), "float32"), Y: T.Buffer((8, 6), "float32"),
           Z: T.Buffer((8,), "float32")):
    for i in range(4):
        with T.sblock("outer"):
            vo = T.axis.spatial(4, i)
            for ii, j in T.grid(2, 8):
                with T.sblock("inner"):
                    T.where(j < 6)
                    vi = T.axis.spatial(8, vo * 2 + ii)
                    vj = T.axis.spatial(8, j)
                    if vi > 0:
                        Y[vi, vj] = X[vi - 1, vj]
                    else:
                        Y[vi, vj] = T.if_then_else(vj < 3, X[vi, vj + 3], T.float32(0))
    for i in T.parallel(8):
        with T.sblock("sum"):
            v, k = T.axis.spatial(8, i), T.axis.reduce(1, 0)
            with T.init():
                Z[v] = T.float32(0)
            Z[v] = Z[v] + Y[v, k]


def test_walking_in_program_order() -> None:
    assert [block.name_hint for block in sblocks(blocks)] == ["outer", "inner", "sum"]
    assert [(store.buffer.name, block.name_hint) for store, block in stores(blocks)] \
        == [("Y", "inner"), ("Y", "inner"), ("Z", "sum")]
    assert [store.buffer.name for store, _ in stores(blocks, inits=True)] == ["Y", "Y", "Z", "Z"]
    found = [access for node, place in walk(blocks.body) for access in accesses(node, place)]
    assert [f"{'=' * access.writes}{access.buffer.name}" for access in found] \
        == ["X", "=Y", "X", "=Y", "=Z", "Z", "Y", "=Z"]
    read = found[2]
    assert list(map(str, read.place.guards)) == ["j < 6", "not vi > 0", "vj < 3"]
    assert list(map(str, read.place.loops)) == ["i: 4", "ii: 2", "j: 8"]
    assert [axis.name for axis, _ in read.place.axes] == ["vo", "vi", "vj"]
    assert found[4].place.init and not found[5].place.init


def test_values_are_those_of_the_iterations_that_are_run() -> None:
    read = next(access for node, place in walk(blocks.body) for access in accesses(node, place))
    found = iterations_of(read.place, read.indices)
    rows, columns = (values[found.runs] for values in found.values(*read.indices))
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) \
        == [(row, column) for row in range(7) for column in range(6)]


def test_nests_are_of_innermost_blocks_also_in_other_blocks() -> None:
    inner, last = nests(blocks)
    assert (inner.block, last.block) == ("inner", "sum")
    assert list(map(str, inner.loops)) == ["i: 4", "ii: 2", "j: 8"]
    assert last.reduces and last.has_init and not inner.reduces
    step, places = iterations(last)
    assert step.tolist() == [0] * 8 and places.tolist() == [list(range(8)), [0] * 8]
    step, places = iterations(inner, threads=1)  # where a predicate forbids it, too
    assert step.tolist() == list(range(64))
    assert places.tolist() == [sorted([*range(8)] * 8), [*range(8)] * 8]


@pytest.mark.parametrize(("make", "expected"), [
    (lambda i: i * 3 - 4, [-4, -1, 2]), (lambda i: (i + 1) // 2, [0, 1, 1]),
    (lambda i: tirx.Div(i - 2, tirx.const(2)), [-1, 0, 0]), (lambda i: (i - 2) // 2, [-1, -1, 0]),
    (lambda i: tirx.Mod(i - 3, tirx.const(2)), [-1, 0, -1]), (lambda i: (i - 3) % 2, [1, 0, 1]),
    (lambda i: i << 2, [0, 4, 8]), (lambda i: i >> 1 | 4, [4, 4, 5]),
    (lambda i: (i & 1) ^ 1, [1, 0, 1]), (lambda i: tirx.Not(i == 1), [True, False, True]),
    (lambda i: tirx.Select(i < 1, 7, i), [7, 1, 2]), (lambda i: tirx.max(i, 1), [1, 1, 2]),
    (lambda i: tirx.Cast("int64", i), [0, 1, 2]), (lambda i: tirx.likely(i > 1), [0, 0, 1])])
def test_expressions(make, expected: list[int]) -> None:
    i = tirx.Var("i", "int32")
    assert value(make(i), {i: np.arange(3)}).tolist() == expected


def test_what_depends_on_data_is_unknown_unless_they_are_given() -> None:
    table, i = tirx.decl_buffer((4,), "int32", "table"), tirx.Var("i", "int32")
    with pytest.raises(Unknown):
        value(table[i], {i: np.arange(2)})
    data = np.int32([5, 6, 7, 8])
    assert value(table[i + 1] * 2, {i: np.arange(2), table: data}).tolist() == [12, 14]
    assert variables([table[i]]) == {table, i}
    assert [access.buffer.name for access in loads(table[table[i]])] == ["table", "table"]


def test_values_of_axes_are_expressions() -> None:
    """An sblock made in Python may be given numbers."""
    block = nests(blocks)[-1].realize.block
    realize = s_tir.SBlockRealize([0, 0], True, block)
    func = tvm.tirx.PrimFunc(blocks.params, realize)
    given = [type(given) for node, place in walk(func.body) for _, given in place.axes]
    assert given and set(given) == {tirx.IntImm}


def test_how_long_numbers_are_kept() -> None:
    """By hand: four numbers are doubled, then read in pairs; or two by two."""
    x = te.placeholder((4,), name="x")
    doubled = te.compute((4,), lambda i: x[i] * 2.0, name="doubled")
    k = te.reduce_axis((0, 2), name="k")
    pairs = te.compute((2,), lambda i: te.sum(doubled[2 * i + k], k), name="pairs")
    func = te.create_prim_func([x, pairs])
    (life,) = lives(func)
    assert (life.buffer.name, life.most) == ("doubled", 4)
    assert life.first.tolist() == [0, 1, 2, 3] and life.last.tolist() == [4, 5, 6, 7]
    schedule = tvm.s_tir.Schedule(func)
    schedule.compute_at(schedule.get_sblock("doubled"),
                        schedule.get_loops(schedule.get_sblock("pairs"))[0])
    (life,) = lives(schedule.mod["main"])
    assert life.first.tolist() == [0, 1, 4, 5] and life.last.tolist() == [2, 3, 6, 7]
    assert life.most == 2 and life.places.tolist() == [0, 1, 2, 3]
    assert lives(blocks) == []
