"""The checks of notebook 04: schedules."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from torch import nn
from tvm import relax, te, topi

import helpers
from checks.answers import CheckFailed, compare, exercise, random, run_prim_func
from checks.equivalence import check_same, cnn
from loops import Loop, Nest, index_value, is_reduction, nests


def _same_results(before: tvm.tirx.PrimFunc, after: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed unless both PrimFuncs (inputs, output) give the same on random numbers."""
    *inputs, output = [tuple(map(int, p.shape)) for p in before.params]
    arrays = [random(*shape, seed=i) for i, shape in enumerate(inputs)]
    compare(run_prim_func(after, arrays, output), run_prim_func(before, arrays, output),
            "the results: a schedule must not change them", {})


def places(nest: Nest, expressions: Sequence[Any],
           loops: Sequence[Loop]) -> np.ndarray:
    """Values of expressions of a block's axes, (iterations, expressions), as some loops run.

    The other loops stand at 0. Loops are known by their variables: names may occur twice.
    """
    extents = [_most(loop) for loop in loops]
    grid = np.indices(extents).reshape(len(loops), int(np.prod(extents)))
    at: dict[Any, Any] = {loop.node.loop_var: np.int64(0) for loop in nest.loops}
    at |= {loop.node.loop_var: grid[i] for i, loop in enumerate(loops)}
    axes = [axis.var for axis in nest.realize.block.iter_vars]
    at |= {axis: index_value(value, at)
           for axis, value in zip(axes, nest.realize.iter_values, strict=True)}
    return np.stack([np.broadcast_to(index_value(expression, at), grid.shape[1])
                     for expression in expressions], axis=1)


def _most(loop: Loop) -> int:
    """The number of a loop's iterations; where compute_at made it vary, the largest."""
    if isinstance(loop.extent, int):
        return loop.extent
    return int(tvm.sym.Analyzer().const_int_bound(loop.node.extent).max_value)


def moves(nest: Nest, loop: Loop,
          expressions: Sequence[Any] | None = None) -> list[tuple[int, ...]]:
    """How a block's axes move from one iteration of a loop to the next, each way once.

    With `expressions`: how these move, as the indices at which the block reads or writes.
    """
    if expressions is None:
        expressions = [axis.var for axis in nest.realize.block.iter_vars]
    steps = np.diff(places(nest, expressions, [loop]), axis=0)
    return sorted({tuple(map(int, step)) for step in steps})


def require_threads(nest: Nest, least: int) -> None:
    outer = nest.loops[0]
    if outer.kind != "parallel":
        raise CheckFailed("a parallel outermost loop", f"{outer}, around block {nest.block}",
                          "schedule.parallel: which loop does it get?")
    reductions = [is_reduction(axis) for axis in nest.realize.block.iter_vars]
    if any(step and reduces for move in moves(nest, outer)
           for step, reduces in zip(move, reductions, strict=True)):
        raise CheckFailed("threads that write different elements", f"the parallel loop {outer} "
                          f"moves a reduction axis of {nest.block}", "which loop is made parallel")
    if outer.extent < least:
        raise CheckFailed(f"at least {least} iterations to share", f"{outer}",
                          "the factors of the split, or fuse before parallel")


def require_lanes(nest: Nest, what: str) -> Loop:
    inner = nest.loops[-1]
    if inner.kind != "vectorized":
        found = [str(loop) for loop in nest.loops if loop.kind == "vectorized"]
        raise CheckFailed(f"a vectorised innermost loop around {what}",
                          f"innermost is {inner}" + (f"; vectorised: {found[0]}" if found else ""),
                          "schedule.vectorize, and the order of the loops")
    return inner


def require_decomposed(func: tvm.tirx.PrimFunc) -> None:
    for nest in nests(func):
        if nest.has_init:
            raise CheckFailed("a decomposed reduction", f"block {nest.block} still has its T.init",
                              "schedule.decompose_reduction, as the last step")


def _scheduled(apply: Callable, func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """Let an answer change a schedule of a PrimFunc, and return the PrimFunc it makes."""
    schedule = tvm.s_tir.Schedule(func, error_render_level="fast")
    apply(schedule)
    return schedule.mod["main"]


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


@exercise("4.1")
def exercise_4_1(inline_all: Callable) -> str:
    """inlining two steps."""
    for shape in [(16, 16), (5, 33)]:
        before = _three_steps(shape)
        after = _scheduled(inline_all, before)
        blocks = [nest.block for nest in nests(after)]
        if len(blocks) != 1:
            raise CheckFailed("one sblock", f"{len(blocks)}: {', '.join(blocks)}",
                              f"compute_inline for {' and '.join(blocks[:-1])}")
        _same_results(before, after)
    return "one sblock, no buffer between, the same results for two shapes"


@exercise("4.2")
def exercise_4_2(schedule_add: Callable) -> str:
    """threads and lanes of an addition."""
    for shape in [(64, 128), (16, 24)]:
        before = _addition(shape)
        after = _scheduled(schedule_add, before)
        nest = next(nest for nest in nests(after) if nest.block == "C")
        for other in nests(after):
            require_threads(other, 4)
        lanes = require_lanes(nest, "block C")
        if lanes.extent != 8:
            raise CheckFailed("8 lanes", f"{lanes}", "the factor of the split")
        if moves(nest, lanes) != [(0, 1)]:
            raise CheckFailed("lanes along a row, each one column on", "steps in (i, j) of "
                              f"{moves(nest, lanes)}", "which loop is split into lanes: i or j?")
        _same_results(before, after)
    return "a parallel outermost loop, 8 lanes along a row, the same results for two shapes"


@exercise("4.3")
def exercise_4_3(schedule_matmul: Callable) -> str:
    """a matrix product with lanes and a decomposed reduction."""
    for sizes in [(32, 32, 32), (16, 64, 24)]:
        before = _product(*sizes)
        after = _scheduled(schedule_matmul, before)
        require_decomposed(after)
        update = next(nest for nest in nests(after) if nest.reduces)
        for nest in nests(after):
            require_threads(nest, 2)
        lanes = require_lanes(update, "the update")
        if moves(update, lanes) != [(0, 1, 0)]:
            raise CheckFailed("lanes along j", f"steps in (i, j, k) of {moves(update, lanes)}",
                              "which loop is innermost and vectorised")
        _same_results(before, after)
    return "a parallel outermost loop, lanes along j, T.init apart, the same results for two shapes"


def require_only(mod: Any, original: tvm.IRModule, name: str,
                 called: str = "") -> tvm.tirx.PrimFunc:
    """Return function `name` of a module; raise CheckFailed where any other one has changed."""
    called = called or name
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed("an IRModule", type(mod).__name__, "the return value: schedule.mod")
    before = {variable.name_hint: func for variable, func in original.functions_items()}
    after = {variable.name_hint: func for variable, func in mod.functions_items()}
    if set(before) != set(after):
        raise CheckFailed(f"functions {sorted(before)}", f"{sorted(after)}", "what you return")
    for other in before:
        if other != name and not tvm_ffi.structural_equal(before[other], after[other]):
            raise CheckFailed(f"no change besides {called}", f"{other} has changed",
                              "func_name of the blocks that you schedule")
    return after[name]


def _require_conv2d(mod: Any, original: tvm.IRModule) -> list[Nest]:
    """Raise CheckFailed with the first step that the schedule of conv2d lacks."""
    return require_scheduled(require_only(mod, original, "conv2d"))


def require_scheduled(func: tvm.tirx.PrimFunc) -> list[Nest]:
    """Return the loop nests of a convolution, or raise CheckFailed with the step that it lacks.

    Any conv2d will do: by TOPI or by an own expression, with or without a bias block.
    """
    found = nests(func)
    reducing = next(i for i, nest in enumerate(found) if nest.reduces)
    update = found[reducing]
    for nest in found[:reducing]:
        if nest.block == "pad_temp":
            raise CheckFailed("no padding block", f"block {nest.block} still writes {nest.buffer}",
                              "step 2: compute_inline")
    require_threads(update, 2)
    for nest in found:
        require_threads(nest, 2)
    require_lanes(update, "the convolution")
    if not any(loop.kind == "unrolled" for loop in update.loops):
        raise CheckFailed("an unrolled loop around the lanes",
                          ", ".join(map(str, update.loops)), "step 5: unroll")
    require_decomposed(func)
    return found


@exercise("4.4")
def exercise_4_4(schedule_conv2d: Callable) -> str:
    """the conv2d inside the model, scheduled."""
    _, model = cnn()
    original = helpers.import_model(model, (4, 1, 28, 28))
    mod = schedule_conv2d(tvm.IRModule(dict(original.functions_items())))
    _require_conv2d(mod, original)
    verified = check_same(mod, model, helpers.test_loader(count=200))
    return f"padding inlined, parallel, unrolled, vectorised, decomposed. {verified}"


@exercise("4.5")
def exercise_4_5(schedule_conv2d_with_bias: Callable) -> str:
    """the conv2d with a bias block, scheduled."""
    weights, model = cnn()
    bias = weights["conv2d_bias"].reshape(1, 32, 1, 1)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(bb.emit_te(
                lambda x, w, b: topi.add(topi.nn.conv2d(x, w, 1, 0, 1), b), x,
                relax.const(weights["conv2d_weight"], "float32"), relax.const(bias, "float32"),
                primfunc_name_hint="conv2d"))
        bb.emit_func_output(gv)
    original = bb.get()
    mod = schedule_conv2d_with_bias(tvm.IRModule(dict(original.functions_items())))
    last = _require_conv2d(mod, original)[-1]
    require_lanes(last, f"block {last.block}")
    check_same(mod, nn.Sequential(model[0]), helpers.test_loader(count=40))
    return "convolution and bias block scheduled, values equal to PyTorch's on 40 images"
