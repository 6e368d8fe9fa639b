"""The checks of notebook 06: the roofline, fast kernels, a tuner. None of them measures a time."""

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from checks.answers import exercise, line_of_answer
from checks.comparing import RTOL
from checks.equivalence import check_same
from checks.models import cnn, fused_cnn, imported_cnn, reference_200
from checks.saying import CheckFailed, reason
from checks.schedules import (
    adds_up,
    base_name,
    indices,
    kept_in,
    moves,
    or_as_it_was,
    reducing_loops,
    refuse_blocks,
    require_complete,
    require_decomposed,
    require_lanes,
    require_lanes_along_x,
    require_local,
    require_only,
    require_threads,
    require_unrolled_window,
    returned,
    stored,
    summing,
    tile,
    touches,
    written,
)
from loops import Nest, nests

# ---- the roofline --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layer:
    """A dense layer and a machine, of 10**9 operations and 10**9 bytes in a second."""

    batch: int
    inputs: int
    outputs: int
    peak: float
    bandwidth: float

    def time(self, per_term: float = 2, size: float = 4, images: float = 1, weights: float = 1,
             results: float = 1, bias: int = 0, giga: float = 1e9, micro: float = 1e6,
             combine: Callable[[float, float], float] = max) -> float:
        """Return the least time in microseconds; the arguments are for mistakes in it."""
        b, i, o = self.batch, self.inputs, self.outputs
        moved = size * (images * b * i + weights * o * i + results * b * o + bias * o)
        operations = per_term * b * i * o + bias * b * o
        return combine(operations / (self.peak * giga), moved / (self.bandwidth * giga)) * micro


_LAYERS = [_Layer(4, 5408, 100, 240.0, 104.0), _Layer(64, 5408, 100, 240.0, 104.0),
           _Layer(1, 100, 10, 50.0, 20.0), _Layer(300, 200, 400, 100.0, 40.0),
           _Layer(64, 5408, 100, 1500.0, 12.0), _Layer(1024, 8, 2, 30.0, 25.0)]

_TIMES: dict[str, Callable[[_Layer], float]] = {
    "the operations: the factor 2 is missing, for each input is multiplied and added":
        lambda layer: layer.time(per_term=1),
    "the operations: one addition for each input too, not one less":
        lambda layer: layer.time(per_term=2 - 1 / layer.inputs),
    "the bytes: these are numbers, and a float32 has 4 bytes": lambda layer: layer.time(size=1),
    "the bytes: a float32 has 4 of them, not 8": lambda layer: layer.time(size=8),
    "the bytes: a float32 has 4 of them, not 32": lambda layer: layer.time(size=32),
    "the last step: the two times are added, but they run side by side":
        lambda layer: layer.time(combine=lambda a, b: a + b),
    "the last step: this is the smaller of the two times":
        lambda layer: layer.time(combine=min),
    "the last step: this is the mean of the two times":
        lambda layer: layer.time(combine=lambda a, b: (a + b) / 2),
    "the unit: these are seconds": lambda layer: layer.time(micro=1),
    "the unit: these are milliseconds": lambda layer: layer.time(micro=1e3),
    "the unit: these are nanoseconds": lambda layer: layer.time(micro=1e9),
    "the unit: peak and bandwidth are taken as single operations and bytes in a second":
        lambda layer: layer.time(giga=1),
    "the unit: this is too large by a million (a GFLOP/s is 1,000 operations in a microsecond)":
        lambda layer: layer.time(micro=1e12),
    "the unit: arithmetic is in microseconds, transport in nanoseconds":
        lambda layer: layer.time(combine=lambda a, b: max(a, 1e3 * b)),
    "the unit: transport is in microseconds, arithmetic in nanoseconds":
        lambda layer: layer.time(combine=lambda a, b: max(1e3 * a, b)),
    "the unit: a giga is 10**9 here, not 2**30": lambda layer: layer.time(giga=2**30),
    "the unit: a GB is 10**9 bytes here, not 2**30":
        lambda layer: layer.time(combine=lambda a, b: max(a, b * 1e9 / 2**30)),
    "the bytes: the weights are counted once for each image, but they move once":
        lambda layer: layer.time(weights=layer.batch),
    "the bytes: the images are left out": lambda layer: layer.time(images=0),
    "the bytes: the results are left out": lambda layer: layer.time(results=0),
    "the bytes: the weights are left out": lambda layer: layer.time(weights=0),
    "the bytes: images and results are left out": lambda layer: layer.time(images=0, results=0),
    "the bytes: weights and results are left out": lambda layer: layer.time(weights=0, results=0),
    "the bytes: the results are counted twice": lambda layer: layer.time(results=2),
    "the bytes: the images are counted once for each output, but they move once":
        lambda layer: layer.time(images=layer.outputs),
    "the bias: it is left out of the count": lambda layer: layer.time(bias=1),
    "arithmetic alone: what of the bytes?":
        lambda layer: layer.time(combine=lambda arithmetic, transport: arithmetic),
    "the bytes alone: what of the arithmetic?":
        lambda layer: layer.time(combine=lambda arithmetic, transport: transport),
    "peak and bandwidth: they are exchanged": lambda layer: _Layer(
        layer.batch, layer.inputs, layer.outputs, layer.bandwidth, layer.peak).time(),
    "the division: // drops what is behind the point": lambda layer: layer.time(
        micro=1, giga=1, combine=lambda a, b: max(a // 1, b // 1)) / 1e3,
    "the last step: this is the greater of operations and bytes, before either is a time":
        lambda layer: _greater(layer),
}


def _greater(layer: _Layer) -> float:
    """The time of whichever is more, operations or bytes: as if the machine's ratio were 1."""
    b, i, o = layer.batch, layer.inputs, layer.outputs
    arithmetic = 2 * b * i * o >= 4 * (b * i + o * i + b * o)
    return layer.time(combine=lambda left, right: left if arithmetic else right)


@exercise("6.1", seconds=10)
def exercise_6_1(least_time: Callable) -> str:
    """the roofline of a dense layer.

    Williams, Waterman and Patterson, Roofline: an insightful visual performance model for
    multicore architectures, Commun. ACM 52(4), 2009. The bias is left out, as the exercise says.
    """
    came: list[float] = []
    for layer in _LAYERS:
        time = least_time(layer.batch, layer.inputs, layer.outputs, layer.peak, layer.bandwidth)
        if getattr(time, "ndim", None) == 0 and hasattr(time, "item"):
            time = time.item()  # NumPy's and PyTorch's numbers without an axis are numbers
        if not isinstance(time, numbers.Real):
            raise CheckFailed("a number", f"{type(time).__name__}", "the return statement: one "
                              "number, in microseconds")
        came.append(float(time))
    expected = [layer.time() for layer in _LAYERS]
    for layer, time, right in zip(_LAYERS, came, expected, strict=True):
        if np.isclose(time, right, RTOL, 0):
            continue
        cause = next((text for text, wrong in _TIMES.items()
                      if np.allclose(came, [wrong(each) for each in _LAYERS], RTOL, 0)),
                     "operations, bytes and units, one after the other")
        raise CheckFailed(f"{right:.5g} µs for batch {layer.batch}, {layer.inputs:,} inputs, "
                          f"{layer.outputs} outputs, {layer.peak:g} GFLOP/s, "
                          f"{layer.bandwidth:g} GB/s", f"{time:.5g}", cause)
    bound_by_memory = sum(layer.time() > layer.time(size=0) for layer in _LAYERS)
    return (f"right for {len(_LAYERS)} layers: memory is the limit of {bound_by_memory}, "
            f"arithmetic of {len(_LAYERS) - bound_by_memory}")


# ---- the convolution -----------------------------------------------------------------------


@exercise("6.2", seconds=10, prepare=[imported_cnn, reference_200])
def exercise_6_2(fast_conv2d: Callable) -> str:
    """a convolution with a tile of sums in registers.

    Why a tile: Goto and van de Geijn, Anatomy of high-performance matrix multiplication, ACM
    TOMS 34(3), 2008. That 64 sums are the most is the exercise's own.
    """
    original = imported_cnn()
    mod = returned(fast_conv2d, original)
    func = require_only(mod, original, "conv2d")
    with or_as_it_was(mod, original, "conv2d"):
        refuse_blocks(func, ["pad_temp"])
    conv = adds_up(func)
    require_threads(conv, 2)
    require_lanes_along_x(conv, "the convolution")
    require_unrolled_window(conv)
    require_local(conv, "the convolution")
    require_complete(func, conv, "the sums")
    outer, cause = kept_in(func, conv)
    sums = tile(conv, outer, stored(conv))
    if sums > 64:
        raise CheckFailed("no more than 64 sums at a time", f"{sums:,} in {conv.buffer}",
                          cause)
    for nest in nests(func):
        require_threads(nest, 2)
    require_decomposed(func)
    verified = check_same(mod, cnn()[1], reference_200())
    return (f"padding inlined, parallel, lanes along x, the window unrolled, {sums} sums at a "
            f"time, decomposed.\n{verified}")


# ---- the dense layer -----------------------------------------------------------------------


IMAGES, OUTPUTS, INPUTS = 4, 100, 5408  # of the dense layer


@exercise("6.3", seconds=10, prepare=[fused_cnn, reference_200])
def exercise_6_3(fast_dense: Callable) -> str:
    """a dense layer with lanes of partial sums.

    Partial sums by rfactor: Suriana, Adams and Kamil, Parallel associative reductions in Halide,
    CGO 2017. How many of them is the exercise's own.
    """
    original, names = fused_cnn()
    mod = returned(fast_dense, original, names["dense"])
    func = require_only(mod, original, names["dense"], "the dense layer")
    with or_as_it_was(mod, original, names["dense"]):
        sums, lanes = _require_dense(func)
    verified = check_same(mod, cnn()[1], reference_200())
    return (f"the weights as they are stored, {lanes} lanes of partial sums, {sums} results at a "
            f"time, parallel, decomposed.\n{verified}")


def _require_dense(func: tvm.tirx.PrimFunc) -> tuple[int, int]:
    """Raise CheckFailed with what a dense layer lacks; return results at a time, and lanes."""
    refuse_blocks(func, ["T_transpose"])
    partial = adds_up(func)
    block = base_name(partial)
    if len(summing(func)) < 2:
        raise CheckFailed("a block for the partial sums and one that adds them up",
                          f"one block, {block}, adds everything up",
                          "rfactor, for a loop that k is split into")
    reads = {tuple(map(int, region.source.shape)): indices(region)
             for region in partial.realize.block.reads}
    images, weights = reads.get((IMAGES, INPUTS)), reads.get((OUTPUTS, INPUTS))
    if images is None or weights is None:
        raise CheckFailed(f"weights {(OUTPUTS, INPUTS)} and images {(IMAGES, INPUTS)}, as they are "
                          "stored", f"{block} reads buffers of shapes {sorted(reads)}",
                          "no other layout is needed")
    lanes = _require_partial_lanes(partial, weights)
    require_local(partial, "the dense layer")
    require_complete(func, partial, "the partial sums")
    results = [images[0], weights[0]]
    outer, cause = kept_in(func, partial)
    kept = tile(partial, outer, results)
    if kept > 40:
        raise CheckFailed("8 to 40 results at a time", f"{kept} of them, in {partial.buffer}",
                          cause)
    serial = [loop for loop in reducing_loops(partial) if loop.kind != "unrolled"]
    inside = partial.loops.index((serial or reducing_loops(partial))[-1]) + 1
    if (served := tile(partial, inside, images[:1])) < IMAGES:
        raise CheckFailed("all four images inside the loop over the inputs",
                          f"{served} inside {partial.loops[inside - 1]}",
                          "reorder: the loop over the images goes inside, so that each weight that "
                          "was loaded serves all four")
    if (least := min(kept, tile(partial, inside, results))) < 8:
        raise CheckFailed("8 to 40 results at a time", f"{least} of them",
                          "split the loop over the outputs, and put the inner one inside the loop "
                          "over the inputs too")
    require_threads(partial, 10)
    if partial.has_init:
        raise CheckFailed("a decomposed reduction", f"block {block} still has its T.init",
                          f"schedule.decompose_reduction for {block}, as the last step")
    return kept, lanes


def _require_partial_lanes(partial: Nest, weights: Sequence[Any]) -> int:
    """Return how many lanes there are, neighbours among the weights and the partial sums."""
    lanes = require_lanes(partial, f"block {base_name(partial)}")
    steps = moves(partial, lanes, weights)
    expected = "lanes that are neighbours among the weights"
    match steps:
        case [(0, 1)]:
            pass
        case [(0, distance)] if distance > 1:
            raise CheckFailed(expected, f"{lanes}, each {distance} weights from the next",
                              "rfactor: it gets the inner one of the loops that k is split into")
        case [(1, 0)]:
            raise CheckFailed(expected, f"{lanes}, each of another output",
                              "which loop is innermost and vectorised: the one that was rfactored")
        case [(0, 0)]:
            raise CheckFailed(expected, f"{lanes}, all of the same weight",
                              "which loop is innermost and vectorised: the one that was rfactored")
        case _:
            raise CheckFailed(expected, f"{lanes}: steps in (output, input) of {steps}",
                              "which loop is innermost and vectorised: the one that was rfactored")
    steps = moves(partial, lanes, stored(partial))
    if steps != [(*[0] * (len(steps[0]) - 1), 1)]:
        raise CheckFailed("lanes that are neighbours among the partial sums", f"steps of {steps} "
                          f"in {partial.buffer}{_shape(written(partial))}",
                          "rfactor's second argument: with 2 the partial sums are the last axis")
    if lanes.extent not in (8, 16):
        raise CheckFailed("8 or 16 lanes", f"{lanes}", "the factor by which k is split")
    return int(lanes.extent)


def _shape(buffer: Any) -> list[int]:
    return [int(extent) for extent in buffer.shape]


# ---- the model -----------------------------------------------------------------------------


@exercise("6.4", seconds=10, prepare=[fused_cnn, reference_200])
def exercise_6_4(fast_model: Callable) -> str:
    """the model with both kernels."""
    original, names = fused_cnn()
    mod = returned(fast_model, original, dict(names))
    funcs = {variable.name_hint: func for variable, func in mod.functions_items()}
    for what in ("conv_pool", "dense"):
        if names[what] not in funcs:
            raise CheckFailed(f'a function names["{what}"]', f"functions {sorted(funcs)}",
                              "what you return")
        if tvm_ffi.structural_equal(funcs[names[what]], original[names[what]]):
            raise CheckFailed(f"{what}, scheduled", f"{what} is as it was", {
                "dense": 'begin with fast_dense(mod, names["dense"]), and schedule what it returns',
                "conv_pool": "the return value: the mod of which schedule?"}[what])
    sums = _require_conv_pool(funcs[names["conv_pool"]])
    dense = adds_up(funcs[names["dense"]])
    require_threads(dense, 2)
    lanes = require_lanes(dense, f"block {base_name(dense)} of dense")
    weights = [read for read in dense.realize.block.reads
               if np.prod([int(extent) for extent in read.source.shape]) == OUTPUTS * INPUTS]
    steps = moves(dense, lanes, indices(weights[0])) if weights else [(1,)]
    if not all(map(any, steps)):
        many = "all of the same weight" if not any(map(any, steps)) else "several of one weight"
        raise CheckFailed("lanes of partial sums or of outputs in dense",
                          f"{lanes}, {many}: a lane for each image",
                          "which loop of dense is innermost and vectorised")
    verified = check_same(mod, cnn()[1], reference_200())
    return (f"{sums} sums of the convolution at a time, lanes along x, decomposed; dense with "
            f"threads and lanes.\n{verified}")


def _require_conv_pool(func: tvm.tirx.PrimFunc) -> int:
    """Raise CheckFailed with what conv_pool lacks; return how many sums exist at a time."""
    refuse_blocks(func, ["pad_temp", "T_add", "compute"])
    conv, every = adds_up(func), nests(func)
    output = func.params[-1].name
    stage, largest = conv, 0
    while stage.buffer != output:  # from the convolution over copies of it to the pooling
        require_complete(func, stage, "the sums")
        outer, cause = kept_in(func, stage)
        exist = tile(stage, outer, stored(stage))
        if exist > 2 * 26:
            raise CheckFailed("no more than two rows of the convolution at a time, 52 numbers",
                              f"{exist:,} in {stage.buffer}",
                              cause)
        largest = max(largest, exist)
        following = [nest for nest in every if nest is not stage and nest.buffer != stage.buffer
                     and touches(nest, written(stage))]
        stage = following[-1]
        if stage.reduces:
            break
    pool = stage
    require_lanes_along_x(conv, "the convolution")
    require_lanes_along_x(pool, "the pooling")
    require_unrolled_window(conv)
    for nest in every:
        require_threads(nest, 2)
    require_decomposed(func)
    return largest


# ---- a tuner -------------------------------------------------------------------------------


@dataclass
class _Fake:
    """A candidate with the times that it will take; `right` may be what is_correct raises."""

    name: str
    times: Sequence[float]
    right: bool | Exception = True


@dataclass
class _Log:
    """What a tuner calls, in its order."""

    checked: list[str] = field(default_factory=list)
    timed: list[str] = field(default_factory=list)
    late: str = ""  # the first candidate that was checked after something had been timed
    strange: Any = None  # what was handed over and is no candidate

    def is_correct(self, fake: _Fake) -> bool:
        if not isinstance(fake, _Fake):
            self.strange = fake
            raise TypeError(f"is_correct takes a candidate, not {fake!r}")
        if self.timed and not self.late:
            self.late = fake.name
        self.checked.append(fake.name)
        if isinstance(fake.right, Exception):
            raise fake.right
        return fake.right

    def time_of(self, fake: _Fake) -> float:
        if not isinstance(fake, _Fake):
            self.strange = fake
            raise TypeError(f"time_of takes a candidate, not {fake!r}")
        self.timed.append(fake.name)
        return float(fake.times[(self.timed.count(fake.name) - 1) % len(fake.times)])


def _middle(times: Sequence[float], upper: int) -> float:
    return sorted(times)[(len(times) - 1 + upper) // 2]


_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "the lower of the two middle times": lambda times: _middle(times, 0),
    "the upper of the two middle times": lambda times: _middle(times, 1),
    "the least single time": min, "the least of the longest times": max,
    "the least mean": lambda times: float(np.mean(times)),
    "the least first time": lambda times: times[0], "the least last time": lambda times: times[-1],
    "the least time in the middle round": lambda times: times[len(times) // 2],
    "the greatest median": lambda times: -float(np.median(times)),
    "the greatest mean": lambda times: -float(np.mean(times))}

# Together, the winners of the cases show which statistic was taken.
_CASES: list[tuple[str, int | None, list[_Fake]]] = [
    ("five rounds", None, [
        _Fake("steady", [30, 30, 15, 30, 60]), _Fake("wrong", [0.5] * 5, False),
        _Fake("spiky", [50, 10, 200, 10, 10]), _Fake("lucky", [40, 1, 30, 40, 90]),
        _Fake("broken", [0.2] * 5, RuntimeError("this candidate cannot run")),
        _Fake("even", [45, 45, 44, 45, 46]), _Fake("quick start", [5, 70, 71, 72, 73]),
        _Fake("late", [80, 81, 82, 83, 4]), _Fake("slow", [90] * 5)]),
    ("repeats=3", 3, [
        _Fake("broken", [0.1], ValueError("wrong shape")), _Fake("a", [1, 30, 31, 0.5, 0.5]),
        _Fake("b", [20, 3, 4, 60, 60]), _Fake("wrong", [0.1], False), _Fake("c", [6, 7, 6.5]),
        _Fake("d", [40, 41, 2]), _Fake("e", [50, 2.5, 52])]),
    ("repeats=4", 4, [
        _Fake("a", [1, 2, 9, 9]), _Fake("b", [4, 4, 6, 6]), _Fake("c", [6, 3, 5.5, 5])]),
    ("repeats=1", 1, [_Fake("second", [2, 1]), _Fake("first", [1, 3])]),
    ("a single correct one", 4, [
        _Fake("wrong", [1] * 4, False), _Fake("slow", [4e9, 5e9, 6e9, 7e9])]),
    ("none correct", None, [
        _Fake("wrong", [1], False), _Fake("broken", [1], KeyError("weights"))]),
    ("no candidates", None, [])]


def _run_tuner(tune: Callable, title: str, repeats: int | None, fakes: Sequence[_Fake]) -> Any:
    """Return what a tuner gives for a case; raise CheckFailed where it calls what it should not."""
    log, right = _Log(), [fake for fake in fakes if fake.right is True]
    rounds = repeats or 5
    given = {} if repeats is None else {"repeats": repeats}
    candidates = {fake.name: fake for fake in fakes}
    handed = dict(candidates)
    try:
        came = tune(handed, log.is_correct, log.time_of, **given)
    except Exception as error:  # whatever the tuner lets through
        if log.strange is not None:
            _refuse_strange(log.strange, candidates)
        raised = [fake.name for fake in fakes if error is fake.right]
        if raised:
            raise CheckFailed("that a candidate for which is_correct raises is left out",
                              f"{reason(error)}, from {raised[0]!r}",
                              "try around is_correct, and except Exception") from None
        if not right and isinstance(error, ValueError | IndexError | TypeError):
            raise CheckFailed(f"None; {title}", reason(error), "the last step, where nothing was "
                              f"measured; {line_of_answer(error)}") from None
        raise
    if log.strange is not None:
        _refuse_strange(log.strange, candidates)
    _check_calls(log, [fake.name for fake in fakes], [fake.name for fake in right], rounds, title)
    if list(handed.items()) != list(candidates.items()):
        raise CheckFailed(f"that `candidates` stays as it was; {title}",
                          f"a dict of {sorted(handed)}", "del, pop or an assignment: take a dict "
                          "of your own for what is correct")
    return came


def _refuse_strange(strange: Any, candidates: dict[str, _Fake]) -> None:
    """Raise CheckFailed with what is_correct or time_of got in place of a candidate."""
    is_name = isinstance(strange, str) and strange in candidates
    raise CheckFailed("that is_correct and time_of get a candidate",
                      f"the name {strange!r}" if is_name else f"{type(strange).__name__}",
                      "candidates.items(): names and candidates" if is_name else
                      "what is handed to is_correct and to time_of")


def _best(case: tuple[str, int | None, list[_Fake]],
          statistic: Callable[[Sequence[float]], Any] = np.median) -> str | None:
    """The name of a case's correct candidate with the least statistic of its times."""
    _, repeats, fakes = case
    values = {fake.name: float(statistic(fake.times[:repeats or 5])) for fake in fakes
              if fake.right is True}
    return min(values, key=lambda name: values[name], default=None)


def _check_calls(log: _Log, names: list[str], right: list[str], rounds: int, title: str) -> None:
    for name in names:
        count = log.checked.count(name)
        if count != 1 and not log.late:
            look_at = "is_correct, for every candidate"
            if count > 1:
                look_at = "keep what is_correct said, for it runs the candidate"
            elif log.checked and log.checked == names[:len(log.checked)]:
                look_at = f"{log.checked[-1]!r} was the last that was checked: continue, not break"
            raise CheckFailed(f"that each candidate is checked once; {title}",
                              f"{name!r}: {count} times", look_at)
    if log.late:
        raise CheckFailed(f"that all are checked before anything is timed; {title}",
                          f"{log.late!r} is checked after a time_of",
                          "two loops: one that checks, then one that measures")
    if bad := [name for name in log.timed if name not in right]:
        raise CheckFailed(f"that only correct candidates are timed; {title}",
                          f"{bad[0]!r} is timed",
                          "what is kept where is_correct says False, and where it raises")
    expected = right * rounds
    if log.timed == expected:
        return
    counts = {name: log.timed.count(name) for name in right}
    for name, count in counts.items():
        if count != rounds:
            cause = {0: "the loop that measures", rounds + 1: "one time_of too many: no call to "
                     "warm up, and each round calls it once"}.get(
                count, "repeats: how many rounds are there?")
            raise CheckFailed(f"{rounds} calls of time_of for each; {title}",
                              f"{count} for {name!r}", cause)
    came = ", ".join(log.timed[:len(right) + 1])
    raise CheckFailed(f"rounds: {', '.join(expected[:len(right) + 1])}, ...; {title}",
                      f"{came}, ...", "the loop over the rounds goes outside, the loop over the "
                      "candidates inside" if log.timed == [n for n in right for _ in range(rounds)]
                      else "in each round the order of the dict")


def _check_winners(came: list[Any]) -> None:
    """Raise CheckFailed with the first case for which a tuner returned the wrong thing."""
    for case, winner in zip(_CASES, came, strict=True):
        best, title = _best(case), case[0]
        if not (winner is None and best is None or isinstance(winner, str) and winner == best):
            says, look_at = _why(winner, best, came)
            raise CheckFailed(f"{best!r}, the least median; {title}" if best else f"None; {title}",
                              says, look_at)


def _why(winner: Any, best: str | None, came: list[Any]) -> tuple[str, str]:
    """Say what a tuner returned, and where to look."""
    if best is None:
        return repr(winner), "the last step, where no candidate was correct"
    if winner is None:
        return "None", "the return statement, and what the search for the least begins with"
    if isinstance(winner, _Fake):
        return f"the candidate {winner.name!r}", "what is returned: its name is wanted"
    if isinstance(winner, numbers.Real):
        return f"{winner:g}", "what is returned: the name is wanted, not its time"
    if not isinstance(winner, str):
        return type(winner).__name__, "what is returned: the name alone"
    return repr(winner), next(
        (f"the median: this one has {text}" for text, statistic in _STATISTICS.items()
         if came == [_best(case, statistic) for case in _CASES]),
        "which times are compared, and which name belongs to them")


@exercise("6.5", seconds=10)
def exercise_6_5(tune: Callable) -> str:
    """a tuner that checks first and compares medians."""
    _check_winners([_run_tuner(tune, *case) for case in _CASES])
    return ("the least median of the correct ones, in rounds of 5, 3, 4 and 1; a wrong one and one "
            "that raises\nare left out; None where none is correct")
