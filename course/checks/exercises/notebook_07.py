"""The checks of notebook 07: what a tile loads, fusing, the layout, one region. None is timed."""

import itertools
from collections.abc import Callable

import numpy as np
import tvm
from tvm import te

from course.checks.compare.tolerance import fractions
from course.checks.exercises import schedules
from course.checks.exercises.models import fused_cnn, reference_200
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import array, number
from course.checks.spec.spec import Cases, Spec, check, not_finite
from course.kernels import relu
from course.tir.loops import Nest, nests
from course.words import _

# ---- what a tile loads ---------------------------------------------------------------------


def _traffic(rows: int, columns: int, channels: int) -> float:
    """Return loads and stores for each multiply-add.

    A window of 3 by 3 on one input channel, stride 1, no padding: all as in the CNN.
    """
    results = rows * columns * channels
    return ((rows + 2) * (columns + 2) + 9 * channels + results) / (9 * results)


_TILES = [(1, 1, 1), (1, 26, 1), (2, 26, 1), (1, 13, 4), (3, 5, 2), (26, 26, 32), (40, 31, 9)]

_TILE_TRAFFIC = Spec(
    number, _traffic,
    lambda: (dict(zip(("rows", "columns", "channels"), tile, strict=True))
             for tile in _TILES), atol=0, fits=lambda tile: min(tile.values()) > 0)


@exercise("7.1", "tile_traffic(rows, columns, channels)", seconds=10)
def exercise_7_1(tile_traffic: Callable) -> str:
    """the loads and stores of a tile of a convolution."""
    check(_TILE_TRAFFIC, tile_traffic)
    expected = list(itertools.starmap(_traffic, _TILES))
    return _("right for {count} tiles: from {most} loads and stores for each multiply-add down to "
             "{least}").format(count=len(_TILES), most=f"{max(expected):.2f}",
                               least=f"{min(expected):.2f}")


# ---- the convolution inside the pooling ----------------------------------------------------

_MOST_SUMS = 256  # half of what 32 registers of 16 lanes hold
_MOST_TRAFFIC = 2.25  # a window that is unrolled around one sum has 2.11, each step by itself 4


@exercise("7.2", "fast_conv_pool(mod, name)", seconds=10, prepare=[fused_cnn, reference_200])
def exercise_7_2(fast_conv_pool: Callable) -> str:
    """a convolution that is computed inside its pooling.

    Computing a producer where it is needed: Ragan-Kelley et al., Halide, PLDI 2013. What must hold
    is counted; which lanes there are, and whether any, is the answer's own choice.
    """
    original, names = fused_cnn()
    mod = schedules.returned(fast_conv_pool, original, names["conv_pool"])
    with schedules.changed(mod, original, names["conv_pool"], "conv_pool") as func:
        sums, traffic = _require_conv_pool(func)
    verified = schedules.require_same_model(mod, original, names["conv_pool"])
    return _("{sums} sums of the convolution at a time, {traffic} loads and stores for each "
             "multiply-add, parallel, decomposed.\n{verified}").format(
        sums=sums, traffic=f"{traffic:.2f}", verified=verified)


def _require_conv_pool(func: tvm.tirx.PrimFunc) -> tuple[int, float]:
    """Raise CheckFailed with what conv_pool lacks; return its sums at a time, and its traffic."""
    schedules.require_no_blocks(func, ["pad_temp", "T_add", "compute"])
    conv, every = schedules.adds_up(func), nests(func)
    output = func.params[-1].name
    stage, largest = conv, 0
    while stage.buffer != output:  # from the convolution over copies of it to the pooling
        schedules.require_complete(func, stage, _("the sums"))
        largest = max(largest, schedules.require_few_at_once(func, stage, _MOST_SUMS))
        stage = [nest for nest in every if nest is not stage and nest.buffer != stage.buffer
                 and schedules.touches(nest, schedules.written(stage))][-1]
        if stage.reduces and isinstance(getattr(stage.realize.block.body, "value", None),
                                        tvm.tirx.Max):
            break  # the pooling, not a sum of partial sums
    for nest in (conv, stage):
        for loop in nest.loops:
            if loop.kind == "vectorized":
                schedules.require_neighbours(nest, loop, nest.realize.block.writes[0])
    schedules.require_neighbours(stage, [loop for loop in stage.loops if loop.extent != 1][-1],
                                 stage.realize.block.writes[0],
                                 what=_("iterations of the innermost loop"))
    traffic = _require_little_traffic(conv)
    schedules.require_threads(2, *every)
    schedules.require_decomposed(func)
    return largest, traffic


def _require_little_traffic(conv: Nest) -> float:
    """Return a convolution's loads and stores for each multiply-add; CheckFailed where many.

    Counted is what stands inside the innermost loop that is left: unrolled loops and lanes.
    """
    left = [loop for loop in conv.loops
            if loop.kind not in ("unrolled", "vectorized") and loop.extent != 1]
    inside = conv.loops.index(left[-1]) + 1 if left else 0
    block, reducing = conv.realize.block, schedules.reducing_loops(conv)
    outside = [loop for loop in reducing if loop in conv.loops[:inside] and loop.extent != 1]
    adds = schedules.tile(conv, inside, [axis.var for axis in block.iter_vars])
    loads = sum(schedules.tile(conv, inside, schedules.indices(region)) for region in block.reads
                if not region.source.same_as(schedules.written(conv)))
    if not outside:
        sums: float = schedules.tile(conv, inside, schedules.stored(conv))
    elif schedules.written(conv).scope() == "local":
        sums = adds / 9  # a copy stores each once
    else:
        sums = 2 * schedules.tile(conv, inside, schedules.stored(conv))
    traffic = (loads + sums) / adds
    if traffic > _MOST_TRAFFIC:
        raise CheckFailed(
            _("no more than {most} loads and stores for each multiply-add").format(
                most=_MOST_TRAFFIC),
            _("{traffic}: inside {loop}, loads of image and weights: {loads}, loads and stores of "
              "sums: {sums}, multiply-adds: {adds}").format(
                traffic=f"{traffic:.2f}", loop=left[-1], loads=loads, sums=f"{sums:g}", adds=adds),
            schedules.told([conv]))
    return traffic


# ---- the layout ----------------------------------------------------------------------------


def _reordered(weights: np.ndarray, places: int, lanes: int) -> np.ndarray:
    """Return weights whose columns go by group, place and lane."""
    groups = weights.reshape(len(weights), -1, lanes, places)
    return np.moveaxis(groups, 2, 3).reshape(weights.shape)


def _layouts() -> Cases:
    for seed, (outputs, groups, lanes, places) in enumerate(
            [(1, 2, 2, 2), (1, 1, 2, 3), (3, 2, 4, 3), (2, 1, 3, 5), (5, 3, 1, 4), (4, 2, 16, 9),
             (1, 2, 1, 2)]):
        yield {"weights": fractions(outputs, groups * lanes * places, seed=seed),
               "places": places, "lanes": lanes}


_LAYOUT = Spec(
    array, _reordered, _layouts, {"weights": "o k"}, atol=0,
    beyond=lambda: not_finite({"weights": fractions(3, 8), "places": 2, "lanes": 2}),
    fits=lambda given: min(given["places"], given["lanes"]) > 0
    and given["weights"].shape[1] % (given["places"] * given["lanes"]) == 0)


@exercise("7.3", "follow_layout(weights, places, lanes)", seconds=10)
def exercise_7_3(follow_layout: Callable) -> str:
    """the weights of a dense layer whose inputs come channels last."""
    return _("right for {count} arrays of weights").format(count=check(_LAYOUT, follow_layout))


# ---- one region ----------------------------------------------------------------------------


def _in_parts(parts: int, batch: int, units: int, columns: int) -> tvm.tirx.PrimFunc:
    x = te.placeholder((parts, batch, units), name="x")
    w, v = (te.placeholder((parts, units, n), name=name) for name, n in (("w", columns), ("v", 2)))
    act = te.compute((parts, batch, units), lambda p, n, u: relu(x[p, n, u]), name="act")
    k, m, p = (te.reduce_axis((0, n), name=name)
               for name, n in (("k", units), ("m", units), ("p", parts)))
    wide = te.compute((parts, batch, columns),
                      lambda p, n, j: te.sum(act[p, n, k] * w[p, k, j], k), name="wide")
    rest = te.compute((parts, batch, 2),
                      lambda p, n, j: te.sum(act[p, n, m] * v[p, m, j], m), name="rest")
    total = te.compute((batch, columns + 2), lambda n, j: te.sum(tvm.tirx.if_then_else(
        j < columns, wide[p, n, j], rest[p, n, j - columns]), p), name="total")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, w, v, total]))
    for name in ("act", "wide", "rest"):
        schedule.parallel(schedule.get_loops(schedule.get_sblock(name))[0])
    return schedule.mod["main"]


@exercise("7.4", "one_region(schedule)", seconds=10)
def exercise_7_4(one_region: Callable) -> str:
    """three blocks in one parallel region."""
    for sizes, after in schedules.applied(one_region, _in_parts, (2, 4, 8, 6), (3, 2, 5, 4),
                                          (4, 1, 6, 3)):
        with schedules.sized(after):
            _require_one_region(after, sizes)
    return _("one parallel loop, no more than a part of act at a time for each thread, the same "
             "results for three shapes")


def _require_one_region(func: tvm.tirx.PrimFunc, sizes: tuple[int, ...]) -> None:
    """Raise CheckFailed unless one parallel loop, over the parts, holds what there is of a part."""
    parts, batch, units, _columns = sizes
    every = nests(func)
    regions = list(dict.fromkeys(loop for nest in every for loop in nest.loops
                                 if loop.kind == "parallel"))
    if len(regions) != 1:
        raise CheckFailed(_("one parallel loop in the program"), str(len(regions)),
                          schedules.told(every))
    of = {name: [nest for nest in every if nest.block.split("_")[0] == name]  # and what copies it
          for name in ("act", "wide", "rest")}
    if regions[0].extent != parts:
        raise CheckFailed(_("one parallel loop, over the {parts} parts").format(parts=parts),
                          f"{regions[0]}", schedules.told(every))
    schedules.require_threads(1, *(nest for some in of.values() for nest in some))
    schedules.require_few_kept(func, list(map(schedules.written, of["act"])), batch * units)
