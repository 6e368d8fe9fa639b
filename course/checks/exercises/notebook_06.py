"""The checks of notebook 06: the roofline, a fast dense layer, tiles. None measures a time."""

from collections.abc import Callable
from typing import Any

import tvm

from course.checks.exercises import schedules
from course.checks.exercises.models import cnn, fused_cnn, reference_200
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import number
from course.checks.spec.spec import Spec, check
from course.tir.loops import Nest, nests
from course.tir.traffic import LINE, bytes_into_cache
from course.words import _

# ---- the roofline --------------------------------------------------------------------------


_NAMES = ("batch", "inputs", "outputs", "peak", "bandwidth")
_LAYERS = [(4, 5408, 100, 240.0, 104.0), (64, 5408, 100, 240.0, 104.0), (1, 100, 10, 50.0, 20.0),
           (300, 200, 400, 100.0, 40.0), (64, 5408, 100, 1500.0, 12.0), (1024, 8, 2, 30.0, 25.0)]
# one of the two limits is out of sight, or both are far below a microsecond
_FAR = [(2, 3, 4, 1.0, 1e3), (2, 3, 4, 1e3, 1.0), (1, 2, 3, 700.0, 900.0)]


def _times(batch: int, inputs: int, outputs: int, peak: float, bandwidth: float
           ) -> tuple[float, float]:
    """Return the microseconds that a layer's arithmetic takes at least, and its bytes."""
    moved = 4 * (inputs * (batch + outputs) + batch * outputs)
    return 2 * batch * inputs * outputs / peak * 1e-3, moved / bandwidth * 1e-3


_LEAST_TIME = Spec(
    number, lambda **layer: max(_times(**layer)),
    lambda: (("", dict(zip(_NAMES, layer, strict=True))) for layer in _FAR + _LAYERS), atol=0,
    fits=lambda given: min(given.values()) > 0 and any(
        (given["peak"], given["bandwidth"]) == layer[3:] for layer in _FAR + _LAYERS))


@exercise("6.1", "least_time(batch, inputs, outputs, peak, bandwidth)", seconds=10)
def exercise_6_1(least_time: Callable) -> str:
    """the roofline of a dense layer.

    Williams, Waterman and Patterson, Roofline: an insightful visual performance model for
    multicore architectures, Commun. ACM 52(4), 2009. The bias is left out, as the exercise says.
    """
    check(_LEAST_TIME, least_time)
    bound_by_memory = sum(moving > computing for computing, moving in
                          (_times(*layer) for layer in _LAYERS))
    return _("right for {count} layers: memory is the limit of {memory}, arithmetic of "
             "{arithmetic}").format(count=len(_LAYERS), memory=bound_by_memory,
                                    arithmetic=len(_LAYERS) - bound_by_memory)


# ---- the dense layer -----------------------------------------------------------------------

IMAGES, OUTPUTS, INPUTS = 4, 100, 5408  # of the dense layer


@exercise("6.2", "fast_dense(mod, name)", seconds=10, prepare=[fused_cnn, reference_200])
def exercise_6_2(fast_dense: Callable) -> str:
    """a dense layer with lanes of partial sums.

    Partial sums by rfactor: Suriana, Adams and Kamil, Parallel associative reductions in Halide,
    CGO 2017. How many of them is the exercise's own.
    """
    original, names = fused_cnn()
    mod = schedules.returned(fast_dense, original, names["dense"])
    with schedules.changed(mod, original, names["dense"], _("the dense layer")) as func:
        sums, lanes = _require_dense(func)
    verified = schedules.require_same_model(mod, original, [names["dense"]], cnn()[1],
                                            reference_200())
    return _("the weights as they are stored, {lanes} lanes of partial sums, {sums} results at a "
             "time, parallel, decomposed.\n{verified}").format(lanes=lanes, sums=sums,
                                                               verified=verified)


def _require_dense(func: tvm.tirx.PrimFunc) -> tuple[int, int]:
    """Raise CheckFailed with what a dense layer lacks; return results at a time, and lanes."""
    schedules.require_no_blocks(func, ["T_transpose"])
    partial = schedules.adds_up(func)
    block = schedules.base_name(partial)
    if len(schedules.summing(func)) < 2:
        raise CheckFailed(_("a block for the partial sums and one that adds them up"),
                          _("one block, {block}, adds everything up").format(block=block))
    reads = {tuple(map(int, region.source.shape)): region
             for region in partial.realize.block.reads}
    images, weights = reads.get((IMAGES, INPUTS)), reads.get((OUTPUTS, INPUTS))
    if images is None or weights is None:
        raise CheckFailed(_("weights {weights} and images {images}, as they are stored").format(
                              weights=(OUTPUTS, INPUTS), images=(IMAGES, INPUTS)),
                          _("{block} reads buffers of shapes {reads}").format(block=block,
                                                                              reads=sorted(reads)))
    around = _("block {block}").format(block=block)
    lanes = schedules.require_lanes(partial, around)
    for region in (weights, partial.realize.block.writes[0]):
        schedules.require_neighbours(partial, lanes, region)
    schedules.require_lanes(partial, around, 8, 16)
    schedules.require_local(partial, _("the dense layer"))
    schedules.require_complete(func, partial, _("the partial sums"))
    kept = _require_results(func, partial, schedules.indices(images)[0],
                            schedules.indices(weights)[0])
    schedules.require_threads(10, partial)
    schedules.require_decomposed(func, partial)
    return kept, int(lanes.extent)


def _require_results(func: tvm.tirx.PrimFunc, partial: Nest, image: Any, output: Any) -> int:
    """Return to how many results the sums belong that exist at a time: 8 to 40, or CheckFailed.

    `image` and `output` are the indices of the result to which an iteration adds.
    """
    kept = schedules.tile(partial, schedules.kept_in(func, partial), [image, output])
    reducing = schedules.reducing_loops(partial)
    loop = ([each for each in reducing if each.kind != "unrolled"] or reducing)[-1]
    inside = partial.loops.index(loop) + 1
    images, results = (schedules.tile(partial, inside, some) for some in ([image], [image, output]))
    if kept > 40 or images < IMAGES or min(kept, results) < 8:
        raise CheckFailed(
            _("8 to 40 results at a time, of all four images, inside the loop over the inputs"),
            _("{results} results of {images} images inside {loop}, {kept} kept in {buffer}").format(
                results=results, images=images, loop=loop, kept=kept, buffer=partial.buffer),
            schedules.told(nests(func)))
    return kept


# ---- tiles of a product --------------------------------------------------------------------


def _tile_bytes(n: int, m: int, depth: int, rows: int, columns: int) -> float:
    """Return the bytes that a product moves, tile by tile."""
    return 4 * n * m * (depth * (1 / rows + 1 / columns) + 1)


_TILE_BYTES = Spec(
    number, _tile_bytes,
    lambda: (("", dict(zip(("n", "m", "depth", "rows", "columns"), sizes, strict=True)))
             for sizes in [(2, 2, 2, 1, 2), (64, 64, 64, 16, 16), (6, 4, 5, 3, 2), (8, 3, 1, 2, 1),
                           (4, 10, 7, 4, 5), (512, 1024, 256, 32, 64), (1, 1, 9, 1, 1)]),
    atol=0, fits=lambda sizes: min(sizes.values()) > 0
    and sizes["n"] % sizes["rows"] == sizes["m"] % sizes["columns"] == 0)


@exercise("6.3", "tile_bytes(n, m, depth, rows, columns)", seconds=10)
def exercise_6_3(tile_bytes: Callable) -> str:
    """what a tile of a product moves.

    Lam, Rothberg and Wolf, The cache performance and optimizations of blocked algorithms,
    ASPLOS 1991.
    """
    count = check(_TILE_BYTES, tile_bytes)
    return _("right for {count} products").format(count=count)


# products (n, m, depth), and the rows, columns and portion of depth of a tile
_TILES: dict[tuple[int, ...], tuple[int, ...]] = {
    (64, 64, 64): (16, 16, 8), (32, 64, 48): (8, 16, 8), (48, 64, 64): (4, 64, 2)}


@exercise("6.4", "in_tiles(schedule, rows, columns, portion)")
def exercise_6_4(in_tiles: Callable) -> str:
    """a product whose tiles fit a cache. Counted, as course.tir.traffic says, and not measured."""
    for (n, m, k), after in schedules.applied(in_tiles, schedules.product, *_TILES, more=_TILES):
        rows, columns, depth = _TILES[n, m, k]
        wide, deep = (-(-4 * side // LINE) for side in (columns, depth))  # a row of each in lines
        lines = rows * wide + 2 * (rows * deep + depth * wide)  # of which the next portion is one
        most = round(_tile_bytes(n, m, k, rows, columns))
        most_local = rows * columns + 2 * depth * (rows + columns)
        for nest in nests(after):  # what is local is not counted below
            if schedules.written(nest).scope() == "local":
                schedules.require_few_at_once(after, nest, most_local)
        came = bytes_into_cache(after, lines * LINE)
        if (total := sum(came.values())) > most:
            raise CheckFailed(
                _("at most {most} bytes for matrices {sizes}, with tiles of {rows} x {columns}, "
                  "portions of {depth}, and a cache of {lines} lines").format(
                      most=f"{most:,}", sizes=f"{(n, k)} x {(k, m)}", rows=rows,
                      columns=columns, depth=depth, lines=lines),
                _("{total}, of which {each}").format(total=f"{total:,}", each=", ".join(
                    f"{name} {moved:,}" for name, moved in came.items())),
                schedules.told(nests(after)))
    return _("no more bytes than exercise 6.3 says for three products, and the same results")
