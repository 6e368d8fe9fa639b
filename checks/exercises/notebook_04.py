"""The checks of notebook 04: schedules."""

from collections.abc import Callable

import tvm
from torch import nn
from tvm import relax, te, topi

import helpers
from checks.diagnose.equivalence import batches
from checks.exercises import schedules
from checks.exercises.models import INPUT, cnn, imported_cnn, reference_200
from checks.run.check import exercise
from checks.say.messages import CheckFailed
from tir.loops import nests
from words import _


def _three_steps(shape: tuple[int, int]) -> tvm.tirx.PrimFunc:
    x = te.placeholder(shape, name="x")
    doubled = te.compute(shape, lambda i, j: x[i, j] * 2.0, name="doubled")
    shifted = te.compute(shape, lambda i, j: doubled[i, j] + 1.0, name="shifted")
    result = te.compute(shape, lambda i, j: te.max(shifted[i, j], 0.0), name="result")
    return te.create_prim_func([x, result])


def _addition(shape: tuple[int, int]) -> tvm.tirx.PrimFunc:
    a, b = (te.placeholder(shape, name=name) for name in "AB")
    return te.create_prim_func([a, b, te.compute(shape, lambda i, j: a[i, j] + b[i, j], name="C")])


def _product(n: int, m: int, depth: int) -> tvm.tirx.PrimFunc:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    return te.create_prim_func([a, b, te.compute(
        (n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


@exercise("4.1", seconds=10)
def exercise_4_1(inline_all: Callable) -> str:
    """inlining two steps."""
    for shape in [(16, 16), (5, 33)]:
        before = _three_steps(shape)
        after = schedules.scheduled(inline_all, before, _("one sblock"))
        blocks = [nest.block for nest in nests(after)]
        if len(blocks) != 1:
            raise CheckFailed(_("one sblock"), f"{len(blocks)}: {', '.join(blocks)}",
                              _("compute_inline for {blocks}").format(
                                  blocks=_(" and ").join(blocks[:-1])))
        schedules.require_same_results(before, after)
    return _("one sblock, no buffer between, the same results for two shapes")


@exercise("4.2", seconds=10)
def exercise_4_2(schedule_add: Callable) -> str:
    """threads and lanes of an addition."""
    # then every remainder of 16 rows by the factors 2 to 8
    for apply, shape in [(schedules.scheduled, (64, 128)), (schedules.scheduled, (16, 24)),
                         (schedules.scheduled_too, (136, 264)), (schedules.scheduled_too, (17, 8)),
                         (schedules.scheduled_too, (22, 16)), (schedules.scheduled_too, (31, 40))]:
        before = _addition(shape)
        after = apply(schedule_add, before, _("threads and lanes"))
        found = nests(after)
        schedules.require_threads(4, *found)
        # the sum may have been inlined into a copy of it, which then is the last block
        nest = next((nest for nest in found if nest.block == "C"), found[-1])
        lanes = schedules.require_lanes(nest, _("block {block}").format(block=nest.block))
        if lanes.extent != 8:
            raise CheckFailed(_("8 lanes"), f"{lanes}", _("the factor of the split"))
        if (steps := schedules.moves(nest, lanes, schedules.stored(nest))) != [(0, 1)]:
            raise CheckFailed(_("lanes along a row, each one column on"),
                              _("steps in (i, j) of {steps}").format(steps=steps),
                              _("which loop is split into lanes: i or j?"))
        schedules.require_same_results(before, after)
    return _("a parallel outermost loop, 8 lanes along a row, the same results for six shapes")


@exercise("4.3", seconds=10)
def exercise_4_3(schedule_matmul: Callable) -> str:
    """a matrix product with lanes and a decomposed reduction."""
    # with eight columns a fixed number of vectors has too few lanes, and threads may lack work
    for apply, sizes, least in [
            (schedules.scheduled, (32, 32, 32), 2), (schedules.scheduled, (16, 8, 24), 1),
            (schedules.scheduled_too, (72, 136, 80), 2),
            (schedules.scheduled_too, (24, 40, 56), 1)]:
        before = _product(*sizes)
        after = apply(schedule_matmul, before, _("threads and lanes"))
        schedules.require_decomposed(after)
        update = schedules.summing(after)[0]
        schedules.require_threads(least, *nests(after))
        lanes = schedules.require_lanes(update, _("the update"))
        # along j, only the matrix B moves, by a column: also where rfactor has added an axis
        steps = sorted(schedules.moves(update, lanes, schedules.indices(read))
                       for read in update.realize.block.reads
                       if not read.source.same_as(schedules.written(update)))
        if steps != [[(0, 0)], [(0, 1)]]:
            ways = ", ".join(str(way) for step in steps for way in step)
            raise CheckFailed(_("lanes along j"),
                              _("{lanes}, with steps in the matrices of {steps}").format(
                                  lanes=lanes, steps=ways),
                              _("which loop is innermost and vectorised"))
        schedules.require_same_results(before, after)
    return _("a parallel outermost loop, lanes along j, T.init apart, the same results for four "
             "shapes")


@exercise("4.4", seconds=10, prepare=[imported_cnn, reference_200])
def exercise_4_4(schedule_conv2d: Callable) -> str:
    """the conv2d inside the model, scheduled."""
    original = imported_cnn()
    mod = schedules.returned(schedule_conv2d, original)
    with schedules.changed(mod, original, "conv2d") as func:
        schedules.require_scheduled(func)
    verified = schedules.require_same_model(mod, original, ["conv2d"], cnn()[1], reference_200())
    return _("padding inlined, parallel, unrolled, vectorised, decomposed. {verified}").format(
        verified=verified)


@exercise("4.5", seconds=10, prepare=[cnn])
def exercise_4_5(schedule_conv2d_with_bias: Callable) -> str:
    """the conv2d with a bias block, scheduled."""
    weights, model = cnn()
    bias = weights["conv2d_bias"].reshape(1, 32, 1, 1)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(INPUT, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(bb.emit_te(
                lambda x, w, b: topi.add(topi.nn.conv2d(x, w, 1, 0, 1), b), x,
                relax.const(weights["conv2d_weight"], "float32"), relax.const(bias, "float32"),
                primfunc_name_hint="conv2d"))
        bb.emit_func_output(gv)
    original = bb.get()
    mod = schedules.returned(schedule_conv2d_with_bias, original)
    with schedules.changed(mod, original, "conv2d") as func:
        last = schedules.require_scheduled(func)[-1]
    schedules.require_lanes(last, _("block {block}").format(block=last.block))
    convolution = nn.Sequential(model[0])
    schedules.require_same_model(mod, original, ["conv2d"], convolution,
                                 batches(convolution, helpers.test_loader(count=40)))
    return _("convolution and bias block scheduled, values equal to PyTorch's on 40 images")
