"""The checks of notebook 06: a measurement, the roofline, a fast dense layer, tiles.

None measures a time.
"""

import bisect
import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from course.checks.exercises import schedules
from course.checks.exercises.models import fused_cnn, reference_200
from course.checks.run.answer import line_of_answer
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.forms import number
from course.checks.spec.spec import Spec, check
from course.tir.loops import Nest, nests
from course.tir.traffic import LINE, bytes_into_cache
from course.words import _

# ---- a measurement -------------------------------------------------------------------------

_SECOND = 1e6  # microseconds of the made-up clock that a measurement may take
_TRIES, _FORGIVEN = 5, 1
_COLD, _RARELY = 300, 3000  # calls


class _Late(Exception):
    """A measurement takes too long; raised out of a program that is called."""


@dataclass(frozen=True)
class _Machine:
    """A machine: what a call of a and of b takes, in µs, and what else happens on it.

    `cold`: the program whose first calls are slow. `rare`: that of which a rare call is. `step`: of
    the clock. `slower`: by how much all calls take longer from call `until` on. `phases`: by how
    much for some milliseconds. `noise`: of single calls. `after`: what the first call after the
    other program's takes more.
    """

    title: str
    costs: tuple[float, float]
    cold: str = ""
    rare: str = ""
    step: float = 0
    slower: float = 0
    until: int = 2000
    phases: float = 0
    noise: float = 0.02
    after: tuple[float, float] = (0, 0)

    @property
    def right(self) -> str | None:
        """The right verdict."""
        a, b = self.costs
        return None if a == b else "a" if a < b else "b"


_STEADY, _EQUAL = _("a steady machine"), _("two equal programs")
_WARM = _("up to {count} calls of a program are slow at first").format(count=_COLD)
_RARE = _("one call of b in {count} takes 600 times as long").format(count=f"{_RARELY:,}")
_STEPS, _HEAT = _("a clock in steps of 100 µs"), _("a machine that gets slower")
_NO_VERDICT = _("no verdict within a second of the clock")
_NEIGHBOUR, _NOISE = _("a machine with a neighbour"), _("a noisy machine")
_CACHES = _("the first call after one of the other program takes {a} µs more for a, {b} µs more "
            "for b; the others")
_MACHINES = [
    _Machine(_STEADY, (40, 44)), _Machine(_STEADY, (44, 40)),
    _Machine(_EQUAL, (40, 40), noise=0.05), _Machine(_WARM, (40, 44), cold="a"),
    _Machine(_WARM, (44, 40), cold="b"), _Machine(_RARE, (44, 40), rare="b"),
    _Machine(_STEPS, (40, 44), step=100), _Machine(_STEPS, (44, 40), step=100),
    _Machine(_STEPS, (40, 40), step=100),
    _Machine(_HEAT, (44, 40), slower=1), _Machine(_HEAT, (40, 44), slower=1),
    _Machine(_HEAT, (44, 40), slower=1, until=10_000),
    _Machine(_NEIGHBOUR, (40, 40), phases=0.5, noise=0.1), _Machine(_NOISE, (44, 40), noise=0.2),
    *(_Machine(_CACHES.format(a=after[0], b=after[1]), costs, after=after) for costs, after in (
        ((40, 44), (150, 100)), ((44, 40), (100, 150)), ((40, 40), (150, 100))))]


class _Try:
    """One measurement on a machine: its clock, and what was called. Rare calls vary by the seed."""

    def __init__(self, machine: _Machine, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.machine, self.time, self.last = machine, 0.0, ""
        self.rare = 430 * (1 + seed)
        self.calls = {"a": 0, "b": 0}
        self.turns = self.readings = 0
        self.noise = np.exp(machine.noise * draw.standard_normal(4096)).tolist()
        self.phases = (1 + machine.phases * draw.random(4096)).tolist()
        self.ends = np.cumsum(draw.uniform(2000, 8000, 4096)).tolist()

    def run(self, name: str) -> None:
        """Let the clock go on by a call of a program; raises _Late after a second."""
        machine, which = self.machine, "ab".index(name)
        self.calls[name] += 1
        every = sum(self.calls.values())
        cost = machine.costs[which] * self.noise[every % 4096]
        if name == machine.cold and self.calls[name] <= _COLD:
            cost *= 4
        if name == machine.rare and self.calls[name] % _RARELY == self.rare:
            cost *= 600
        if name != self.last:
            self.last = name
            self.turns += 1
            cost += machine.after[which]
        cost *= 1 + machine.slower * min(every / machine.until, 1)
        self.time += cost * self.phases[bisect.bisect(self.ends, self.time) % 4096]
        if self.time > _SECOND:
            raise _Late

    def now(self) -> float:
        """Return the time, and let it go on by a little, so that waiting for it ends."""
        self.readings += 1
        self.time += 0.05
        step = self.machine.step
        return self.time // step * step if step else self.time

    def verdict(self, faster: Callable) -> tuple[str, str]:
        """Return what a measurement says, and in which line it raised."""
        a, b = (lambda: self.run("a")), (lambda: self.run("b"))
        try:
            came = faster(a, b, self.now)
        except _Late:
            came = None
        except NotImplementedError:  # the stub's
            raise
        except Exception as error:  # whatever the reader's code raises
            return reason(error), line_of_answer(error)
        if self.time > _SECOND:  # an answer may catch _Late
            return _NO_VERDICT, ""
        if came is a or came is b:
            return _("the function {name} instead of its name").format(name="ab"[came is b]), ""
        return repr(str(came) if isinstance(came, str) else came)[:80], ""

    def counted(self, came: str) -> str:
        """Say what was called in this try, whose verdict is `came`."""
        said = _("the first try with {came}: calls of a: {a}, of b: {b}, readings of the clock: "
                 "{readings}").format(came=came, a=f"{self.calls['a']:,}",
                                      b=f"{self.calls['b']:,}", readings=f"{self.readings:,}")
        return _("; ").join([said, _("{turns} of the calls first or after one of the other program")
                             .format(turns=f"{self.turns:,}")]) if any(self.machine.after) else said


@exercise("6.1", "faster(a, b, now)", seconds=30)
def exercise_6_1(faster: Callable) -> str:
    """a measurement of one's own."""
    for machine in _MACHINES:
        tries = [_Try(machine, seed) for seed in range(_TRIES)]
        came = [one.verdict(faster) for one in tries]
        wrong = [number for number, (said, _line) in enumerate(came) if said != repr(machine.right)]
        if len(wrong) > _FORGIVEN:
            every = Counter(came[number][0] for number in wrong).most_common()
            said = every[0][0]
            first = next(number for number in wrong if came[number][0] == said)
            # counts explain a verdict, not another type, nor where enough was measured in peace
            measured = said == _NO_VERDICT or said in ("'a'", "'b'", "None") and not (
                machine.title in (_STEADY, _EQUAL)
                and tries[first].readings and min(tries[first].calls.values()) >= 1000)
            raise CheckFailed(
                _("{right}; {title}, {a} µs for a, {b} µs for b").format(
                    right=repr(machine.right), title=machine.title,
                    a=f"{machine.costs[0]:g}", b=f"{machine.costs[1]:g}"),
                _("{came} of {tries} tries").format(
                    came=_(", ").join(_("{came} in {count}").format(came=one, count=count)
                                      for one, count in every), tries=_TRIES),
                came[first][1] or (tries[first].counted(said) if measured else ""))
    return _("right on machines with slow first calls, rare long ones, a coarse clock, heat, "
             "neighbours\nand noise")


# ---- the roofline --------------------------------------------------------------------------


_NAMES = ("batch", "inputs", "outputs", "peak", "bandwidth")
_LAYERS = [(4, 5408, 100, 240.0, 104.0), (64, 5408, 100, 240.0, 104.0), (1, 100, 10, 50.0, 20.0),
           (30_000, 20_000, 400, 100.0, 40.0), (64, 5408, 100, 1500.0, 12.0),
           (1024, 8, 2, 30.0, 25.0)]
# one of the two limits is out of sight, or both are far below a microsecond
_FAR = [(2, 3, 4, 1.0, 1e3), (2, 3, 4, 1e3, 1.0), (1, 2, 3, 700.0, 900.0)]


def _times(batch: int, inputs: int, outputs: int, peak: float, bandwidth: float
           ) -> tuple[float, float]:
    """Return the microseconds that a layer's arithmetic takes at least, and its bytes."""
    moved = 4 * (inputs * (batch + outputs) + batch * outputs)
    return 2 * batch * inputs * outputs / peak * 1e-3, moved / bandwidth * 1e-3


_LEAST_TIME = Spec(
    number, lambda **layer: max(_times(**layer)),
    lambda: (dict(zip(_NAMES, layer, strict=True)) for layer in _FAR + _LAYERS), atol=0,
    fits=lambda given: min(given.values()) > 0 and any(
        (given["peak"], given["bandwidth"]) == layer[3:] for layer in _FAR + _LAYERS))


@exercise("6.2", "least_time(batch, inputs, outputs, peak, bandwidth)", seconds=10)
def exercise_6_2(least_time: Callable) -> str:
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


@exercise("6.3", "fast_dense(mod, name)", seconds=10, prepare=[fused_cnn, reference_200])
def exercise_6_3(fast_dense: Callable) -> str:
    """a dense layer with lanes of partial sums.

    Partial sums by rfactor: Suriana, Adams and Kamil, Parallel associative reductions in Halide,
    CGO 2017. How many of them is the exercise's own.
    """
    original, names = fused_cnn()
    mod = schedules.returned(fast_dense, original, names["dense"])
    with schedules.changed(mod, original, names["dense"], _("the dense layer")) as func:
        sums, lanes = _require_dense(func)
    verified = schedules.require_same_model(mod, original, names["dense"])
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
    lanes = schedules.require_lanes(partial, _("block {block}").format(block=block), 8, 16)
    for region in (weights, partial.realize.block.writes[0]):
        schedules.require_neighbours(partial, lanes, region)
    schedules.require_local(partial)
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
            _("8 to 40 results at a time, of all four images, inside the innermost loop over the "
              "inputs that is not unrolled"),
            _("{results} at a time, of {images} of {all} images, inside {loop}; {kept} kept in "
              "{buffer}").format(results=results, images=images, all=IMAGES, loop=loop,
                                 kept=kept, buffer=partial.buffer),
            schedules.told(nests(func)))
    return kept


# ---- tiles of a product --------------------------------------------------------------------


def _tile_bytes(n: int, m: int, depth: int, rows: int, columns: int) -> int:
    """Return the bytes that a product moves, tile by tile."""
    return 4 * (n * m + depth * (n * (m // columns) + m * (n // rows)))


_TILE_BYTES = Spec(
    functools.partial(number, kind=int), _tile_bytes,
    lambda: (dict(zip(("n", "m", "depth", "rows", "columns"), sizes, strict=True))
             for sizes in [(2, 2, 2, 1, 2), (64, 64, 64, 16, 16), (6, 4, 5, 3, 2), (8, 3, 1, 2, 1),
                           (4, 10, 7, 4, 5), (5000, 3003, 77, 20, 21), (1, 1, 9, 1, 1),
                           (98, 49, 3, 49, 49)]),  # 98 * (1 / 49) is below 2
    atol=0, fits=lambda sizes: min(sizes.values()) > 0
    and sizes["n"] % sizes["rows"] == sizes["m"] % sizes["columns"] == 0)


@exercise("6.4", "tile_bytes(n, m, depth, rows, columns)", seconds=10)
def exercise_6_4(tile_bytes: Callable) -> str:
    """what a tile of a product moves.

    Lam, Rothberg and Wolf, The cache performance and optimizations of blocked algorithms,
    ASPLOS 1991.
    """
    count = check(_TILE_BYTES, tile_bytes)
    return _("right for {count} products").format(count=count)


# products (n, m, depth), and the rows, columns and portion of depth of a tile
_TILES: dict[tuple[int, ...], tuple[int, ...]] = {
    (64, 64, 64): (16, 16, 8), (32, 64, 48): (8, 16, 8), (48, 64, 64): (4, 64, 2),
    (32, 128, 8): (8, 16, 8)}


@exercise("6.5", "in_tiles(schedule, rows, columns, portion)")
def exercise_6_5(in_tiles: Callable) -> str:
    """a product whose tiles fit a cache. Counted, as course.tir.traffic says, and not measured."""
    for (n, m, k), after in schedules.applied(in_tiles, schedules.product, *_TILES, more=_TILES):
        rows, columns, depth = _TILES[n, m, k]
        wide, deep = (-(-4 * side // LINE) for side in (columns, depth))  # a row of each in lines
        lines = rows * wide + 2 * (rows * deep + depth * wide)  # of which the next portion is one
        most = _tile_bytes(n, m, k, rows, columns)
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
    return _("no more bytes than exercise 6.4 says for {count} products, and the same results"
             ).format(count=len(_TILES))
