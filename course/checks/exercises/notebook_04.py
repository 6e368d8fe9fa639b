"""The checks of notebook 04: schedules."""

from collections.abc import Callable

import numpy as np
import tvm
from tvm import te

from course.checks.exercises import schedules
from course.checks.exercises.models import imported_cnn, imported_cnn_of_8, reference_200
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.tir.loops import nests
from course.tir.walk import sblocks
from course.words import _


def _three_steps(*shape: int) -> tvm.tirx.PrimFunc:
    x = te.placeholder(shape, name="x")
    doubled = te.compute(shape, lambda *at: x[at] * 2.0, name="doubled")
    shifted = te.compute(shape, lambda *at: doubled[at] + 1.0, name="shifted")
    result = te.compute(shape, lambda *at: te.max(shifted[at], 0.0), name="result")
    return te.create_prim_func([x, result])


def _addition(*shape: int) -> tvm.tirx.PrimFunc:
    a, b = (te.placeholder(shape, name=name) for name in "AB")
    return te.create_prim_func([a, b, te.compute(shape, lambda i, j: a[i, j] + b[i, j], name="C")])


@exercise("4.1", "inline_all(schedule)", seconds=10)
def exercise_4_1(inline_all: Callable) -> str:
    """inlining two steps."""
    for _shape, after in schedules.applied(inline_all, _three_steps, (4, 4), (16, 16), (5, 33),
                                           (7,), (2, 3, 4)):
        blocks = [block.name_hint for block in sblocks(after) if block.name_hint != "root"]
        if len(blocks) != 1:
            with schedules.sized(after):
                raise CheckFailed(_("one sblock"), f"{len(blocks)}: {', '.join(blocks)}")
    return _("one sblock, no buffer between, the same results for five shapes")


@exercise("4.2", "schedule_add(schedule)", seconds=10)
def exercise_4_2(schedule_add: Callable) -> str:
    """threads and lanes of an addition."""
    # then every remainder of 16 rows by the factors 2 to 8
    for _shape, after in schedules.applied(schedule_add, _addition, (16, 24), (48, 128),
                                           (136, 264), (17, 8), (22, 16), (31, 40)):
        with schedules.sized(after):
            _require_addition(after)
    return _("a parallel outermost loop, 8 lanes along a row, the same results for six shapes")


def _require_addition(func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed unless threads share the rows, and eight lanes run along a row."""
    found = nests(func)
    # the sum may have been inlined into a copy of it, which then is the last block
    nest = next((nest for nest in found if nest.block == "C"), found[-1])
    lanes = schedules.require_lanes(nest, _("block {block}").format(block=nest.block), 8)
    schedules.require_neighbours(nest, lanes, nest.realize.block.writes[0])
    schedules.require_threads(4, *found)


@exercise("4.3", "schedule_matmul(schedule)", seconds=10)
def exercise_4_3(schedule_matmul: Callable) -> str:
    """a matrix product with lanes and a decomposed reduction."""
    # with eight columns a fixed number of vectors has too few lanes, and threads may lack work
    for (_sizes, after), least in zip(schedules.applied(
            schedule_matmul, schedules.product, (32, 32, 32), (16, 8, 24), (72, 136, 80),
            (24, 40, 56)), (2, 1, 2, 1), strict=True):
        with schedules.sized(after):
            _require_product(after, least)
    return _("a parallel outermost loop, lanes along j, T.init apart, the same results for four "
             "shapes")


def _require_product(func: tvm.tirx.PrimFunc, least: int) -> None:
    """Raise CheckFailed unless a product is decomposed, and has threads and lanes along j.

    The outermost loops have to have at least `least` iterations.
    """
    update = schedules.summing(func)[0]
    found = nests(func)
    # the small sums of the partial ones may be left to one thread
    small = [nest.block for nest in schedules.after_sums(found, update) if nest.reduces]
    schedules.require_threads(least, *(
        nest for nest in found if nest.block.removesuffix("_init") not in
        {block.removesuffix("_update") for block in small} and nest.block not in small))
    lanes = schedules.require_lanes(update, _("the update"))
    # along j, only the matrix B moves, by a column: also where rfactor has added an axis
    schedules.require_neighbours(update, lanes, *(
        read for read in update.realize.block.reads
        if not read.source.same_as(schedules.written(update))))
    schedules.require_decomposed(func)


@exercise("4.4", "schedule_conv2d(mod)", seconds=10,
          prepare=[imported_cnn, imported_cnn_of_8, reference_200])
def exercise_4_4(schedule_conv2d: Callable) -> str:
    """the conv2d inside the model, scheduled."""
    original = imported_cnn()
    mod = schedules.returned(schedule_conv2d, original)
    with schedules.changed(mod, original, "conv2d") as func, schedules.sized(func):
        schedules.require_scheduled(func)
    verified = schedules.require_same_model(mod, original, "conv2d")
    more = imported_cnn_of_8()
    with schedules.for_more(more["conv2d"], _("a schedule for 4 images and for 8")):
        mod = schedules.returned(schedule_conv2d, more)
    with schedules.changed(mod, more, "conv2d") as func:
        with schedules.sized(func):
            schedules.require_scheduled(func)
        schedules.require_same_results(more["conv2d"], func)
    return _("padding inlined, parallel, unrolled, vectorised, decomposed, for 4 and for 8 "
             "images.\n{verified}").format(verified=verified)


# ---- blocks that move ----------------------------------------------------------------------


def _sums_and_pooling(n: int, m: int, depth: int) -> tvm.tirx.PrimFunc:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k, p, q = (te.reduce_axis((0, e), name=name) for e, name in ((depth, "k"), (2, "p"), (2, "q")))
    sums = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="sums")
    return te.create_prim_func([a, b, te.compute((n // 2, m // 2), lambda i, j: te.max(
        sums[2 * i + p, 2 * j + q], axis=[p, q]), name="pooled")])


def _by_rows(*sizes: int) -> tvm.tirx.PrimFunc:
    by_rows = tvm.s_tir.Schedule(schedules.product(*sizes))
    i, j, k = by_rows.get_loops("C")
    by_rows.reorder(i, k, j)
    return by_rows.mod["main"]


def _sums_of_rows(n: int, m: int) -> tvm.tirx.PrimFunc:
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), name="k")
    return te.create_prim_func([a, te.compute((n,), lambda i: te.sum(a[i, k], k), name="total")])


@exercise("4.5", "sums_where_needed(schedule)")
def exercise_4_5(sums_where_needed: Callable) -> str:
    """sums that are made where they are needed."""
    for (_rows, columns, _depth), after in schedules.applied(
            sums_where_needed, _sums_and_pooling, (8, 8, 4), (12, 20, 3), (4, 4, 3), (2, 6, 5),
            (20, 6, 3)):
        with schedules.sized(after):
            schedules.require_few_sums(after, schedules.adds_up(after), 2 * columns)
    return _("at most two rows of sums at a time, the same results for five shapes")


@exercise("4.6", "row_in_registers(schedule)")
def exercise_4_6(row_in_registers: Callable) -> str:
    """a row of sums in a local buffer."""
    for (_rows, columns, _depth), after in schedules.applied(
            row_in_registers, _by_rows, (8, 8, 4), (5, 16, 3), (6, 7, 9)):
        with schedules.sized(after):
            _require_row(after, columns)
    return _("a row of sums in a local buffer, copied when complete, the same results for three "
             "shapes")


def _require_row(func: tvm.tirx.PrimFunc, columns: int) -> None:
    """Raise CheckFailed unless the sums of a row grow side by side, in a local buffer."""
    update = schedules.adds_up(func)
    schedules.require_local(update)
    schedules.require_complete(func, update, _("the sums"))
    schedules.require_few_sums(func, update, columns)
    first = update.loops.index(schedules.reducing_loops(update)[-1])
    if (together := schedules.tile(update, first, schedules.stored(update))) < columns:
        raise CheckFailed(_("{count} sums side by side, inside the loop over k").format(
                              count=columns), f"{together}; {schedules.told([update])}")


@exercise("4.7", "eight_partial_sums(schedule)")
def exercise_4_7(eight_partial_sums: Callable) -> str:
    """eight partial sums."""
    for (rows, _columns), after in schedules.applied(eight_partial_sums, _sums_of_rows,
                                                     (4, 32), (3, 48), (5, 8)):
        with schedules.sized(after):
            _require_partial_sums(after, rows)
    return _("eight partial sums of each row as the lanes of a vector, the same results for three "
             "shapes")


def _require_partial_sums(func: tvm.tirx.PrimFunc, rows: int) -> None:
    """Raise CheckFailed unless a row's eight partial sums are the lanes of a vector."""
    partial = schedules.summing(func)[0]  # the row may be read through a copy
    if partial.buffer == "total":
        raise CheckFailed(_("eight partial sums for each of {rows} rows, in a buffer of their own"
                            ).format(rows=rows),
                          _("block {block} adds up each row").format(block=partial.block),
                          schedules.told([partial]))
    if (count := int(np.prod(schedules.written(partial).shape))) != 8 * rows:
        raise CheckFailed(_("eight partial sums for each of {count} rows").format(count=rows),
                          _("{count} in all").format(count=count), schedules.told([partial]))
    lanes = schedules.require_lanes(partial, _("the partial sums"), 8)
    block = partial.realize.block
    for region in (*block.writes, *(read for read in block.reads if not read.source.same_as(
            schedules.written(partial)))):  # which a decomposed block reads too
        schedules.require_neighbours(partial, lanes, region)
