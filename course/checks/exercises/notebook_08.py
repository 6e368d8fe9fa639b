"""The checks of notebook 08: a stochastic schedule, a tuner. None of them measures a time."""

import bisect
import copy
import itertools
import json
import math
import numbers
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms

import helpers
from course.checks.exercises import schedules
from course.checks.exercises.models import imported_cnn
from course.checks.run.answer import line_of_answer
from course.checks.run.check import exercise, prepared, while_running
from course.checks.say.messages import CheckFailed, reason
from course.tir.loops import Nest, nests
from course.words import _

# ---- a stochastic schedule -----------------------------------------------------------------

# Far apart: for small seeds TVM's generator draws nearly the same first numbers.
_SEEDS = (400_000_000, 800_000_000, 1_200_000_000, 1_621_709_874, 669_652_944, 74_845_287)
_MORE_SEEDS = range(50_000_000, 1_500_000_000, 100_000_000)  # for the structure alone
_MOST = 128  # numbers of a tile, and fewer where the convolution is smaller
_MANY_SEEDS = range(1_000_003, 2_000_000_000, 4_999_999)
_CHANNELS_ROWS_COLUMNS, _ROOM = (4, 2, 34), 68  # few tiles, some of 68 numbers among them
_SMALL, _FEW = (2, 1, 10, 16, 8), 24  # no extent of its output has a factor 3, as the window has


def _convolution(n: int, c: int, height: int, width: int, f: int) -> tvm.tirx.PrimFunc:
    """Return TOPI's conv2d of n images of c channels with f kernels of 3 by 3."""
    x, w = te.placeholder((n, c, height, width), name="x"), te.placeholder((f, c, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 0, 1)])


@exercise("8.1", "random_conv2d(func, seed, most)", seconds=20, prepare=[imported_cnn])
def exercise_8_1(random_conv2d: Callable) -> str:
    """a schedule with tiles drawn by chance, within a limit."""
    func, small = imported_cnn()["conv2d"], _convolution(*_SMALL)
    while_running(_("sample_perfect_tile never ends if max_innermost_factor is below 1; then your "
                    "loops: does each end?"))
    drawn = [_schedule(random_conv2d(func, seed, _MOST)) for seed in _SEEDS]
    programs = [schedule.mod["main"] for schedule in drawn]
    for schedule in drawn:
        _require_drawn(schedule, func)
    for seed, program in zip(_SEEDS, programs, strict=True):
        again = _schedule(random_conv2d(func, seed, _MOST)).mod["main"]
        if not tvm_ffi.structural_equal(program, again):
            raise CheckFailed(_("the same program for the same seed"),
                              _("two different ones for seed {seed}").format(seed=f"{seed:,}"))
    different = sum(not any(tvm_ffi.structural_equal(program, other) for other in programs[:i])
                    for i, program in enumerate(programs))
    if different < 3:
        draws = {str([schedule.trace.decisions[inst] for inst in _samples(schedule)])
                 for schedule in drawn}
        raise CheckFailed(_("different programs for {count} seeds").format(count=len(_SEEDS)),
                          f"{different}",
                          _("tvm.s_tir.Schedule(func, seed=seed): the seed that is given")
                          if len(draws) == 1 else "")
    _require_free(drawn)
    drawn += [_schedule(random_conv2d(func, seed, _MOST)) for seed in _MORE_SEEDS]
    smaller = [_schedule(random_conv2d(small, seed, _FEW)) for seed in (*_SEEDS, *_MORE_SEEDS)]
    for schedules_of, most, of in ((drawn, _MOST, func), (smaller, _FEW, small)):
        for schedule in schedules_of:
            _require_drawn(schedule, of)
            _require_room(schedule, most)
            _require_structure(schedule, most)
    _require_every_tile(random_conv2d)
    for before, program in [*((func, one) for one in programs[:3]),
                            (small, smaller[0].mod["main"])]:
        schedules.require_same_results(before, program)
    return _("{different} different programs from {count} seeds, the same one for the same seed;\n"
             "each parallel, with a vector along x, the window unrolled, decomposed, tiles within "
             "the limit,\nand the results as before, also for another shape").format(
                 different=different, count=len(_SEEDS))


def _schedule(came: Any) -> tvm.s_tir.Schedule:
    """Return what an answer gave; raise CheckFailed unless it is a Schedule that compiles soon."""
    if not isinstance(came, tvm.s_tir.Schedule):
        raise CheckFailed(_("a Schedule, which knows its trace"), type(came).__name__)
    schedules.warn_of_copies(came.mod["main"])
    return came


def _samples(schedule: tvm.s_tir.Schedule) -> list[Any]:
    return [inst for inst in schedule.trace.insts if inst.kind.name == "SamplePerfectTile"]


def _require_drawn(schedule: tvm.s_tir.Schedule, func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed where f, y or x of a convolution is not cut by a draw of its own."""
    samples = _samples(schedule)
    drawn = [[int(factor) for factor in schedule.trace.decisions[inst]] for inst in samples]
    cut = sorted(int(np.prod(factors)) for factors in drawn)
    _n, channels, rows, columns = map(int, func.params[-1].shape)
    if [extent for extent in cut if extent > 1] != sorted([channels, rows, columns]):
        raise CheckFailed(_("three draws: of the loops over {channels} channels, {rows} rows and "
                            "{columns} columns").format(channels=channels, rows=rows,
                                                        columns=columns),
                          _("draws for loops of {cut}").format(cut=cut or _("none")))
    for inst, factors in zip(samples, drawn, strict=True):
        extent, outputs = math.prod(factors), inst.outputs
        if not any(split.inputs[0].same_as(inst.inputs[0]) and len(split.inputs) == len(outputs) + 1
                   and all(factor is None or factor.same_as(output) for factor, output
                           in zip(split.inputs[1:], outputs, strict=True))
                   for split in schedule.trace.insts if split.kind.name == "Split"):
            raise CheckFailed(_("each loop to be split by what was drawn for it"),
                              _("the draw for the loop over {extent} does not split it").format(
                                  extent=extent))


def _require_room(schedule: tvm.s_tir.Schedule, most: int) -> None:
    """Raise CheckFailed where a tile is too large."""
    said = [int(schedule.trace.decisions[inst][-1]) for inst in _samples(schedule)]
    if (inner := math.prod(said)) > most:
        raise CheckFailed(_("tiles of at most {most} numbers").format(most=most),
                          f"{' x '.join(map(str, said))} = {inner:,}")


def _require_every_tile(random_conv2d: Callable) -> None:
    """Raise CheckFailed where a tile that fits comes with none of many seeds.

    There are 20, and each has a probability of at least 1/24: to miss one takes an answer.
    """
    channels, rows, columns = _CHANNELS_ROWS_COLUMNS
    func = _convolution(2, 1, rows + 2, columns + 2, channels)
    came, limits = set(), dict.fromkeys(_CHANNELS_ROWS_COLUMNS, 0)
    for seed in _MANY_SEEDS:
        schedule = _schedule(random_conv2d(func, seed, _ROOM))
        _require_drawn(schedule, func)
        _require_room(schedule, _ROOM)
        drawn = {}
        for inst in _samples(schedule):
            factors = [int(factor) for factor in schedule.trace.decisions[inst]]
            drawn[extent := math.prod(factors)] = factors[-1]
            limits[extent] = max(limits[extent], int(inst.attrs[1]))
        came.add(tuple(drawn[extent] for extent in _CHANNELS_ROWS_COLUMNS))
    fit = [tile for tile in itertools.product(*(
        [factor for factor in range(1, extent + 1) if extent % factor == 0]
        for extent in _CHANNELS_ROWS_COLUMNS)) if math.prod(tile) <= _ROOM]
    if missing := [tile for tile in fit if tile not in came]:
        above = [limits[extent] for extent, factor in
                 zip(_CHANNELS_ROWS_COLUMNS, missing[0], strict=True) if factor > limits[extent]]
        raise CheckFailed(
            _("every tile of at most {most} numbers to be possible, for {channels} channels, "
              "{rows} rows and {columns} columns").format(
                most=_ROOM, channels=channels, rows=rows, columns=columns),
            _("{tile} is never drawn with {seeds} seeds; {count} of the {all} that fit are").format(
                tile=" x ".join(map(str, missing[0])), seeds=len(_MANY_SEEDS),
                count=len(fit) - len(missing), all=len(fit)),
            _("max_innermost_factor of sample_perfect_tile: it was never above {limit}, and is 16 "
              "unless you say otherwise").format(limit=above[0]) if above else "")


def _require_free(drawn: Sequence[tvm.s_tir.Schedule]) -> None:
    """Raise CheckFailed where a draw gives the same factors for all seeds."""
    of_seeds = [[[int(factor) for factor in schedule.trace.decisions[inst]]
                 for inst in _samples(schedule)] for schedule in drawn]
    for factors in zip(*of_seeds, strict=True):
        if all(one == factors[0] for one in factors):
            raise CheckFailed(_("other factors for other seeds"),
                              _("always {factors} for the loop over {extent}").format(
                                  factors=factors[0], extent=int(np.prod(factors[0]))))


def _inside(schedule: tvm.s_tir.Schedule, conv: Nest) -> tuple[int, int]:
    """Return how many iterations stand inside the reduction, and the inner factors' product."""
    reducing = schedules.reducing_loops(conv)
    last = max(place for place, loop in enumerate(conv.loops) if loop in reducing)
    inner = [int(schedule.trace.decisions[inst][-1]) for inst in _samples(schedule)]
    return math.prod(int(loop.extent) for loop in conv.loops[last + 1:]), math.prod(inner)


def _require_structure(schedule: tvm.s_tir.Schedule, most: int) -> None:
    """Raise CheckFailed with what a drawn program lacks; its vector may have one lane."""
    program = schedule.mod["main"]
    schedules.require_no_blocks(program, ["pad_temp"])
    conv = schedules.adds_up(program)
    schedules.require_threads(2, *nests(program))
    if not conv.loops or conv.loops[-1].kind != "vectorized" or conv.loops[-1].extent != 1:
        schedules.require_lanes_along_x(conv, _("the convolution"))
    schedules.require_unrolled_window(conv)
    window = [place for place, loop in enumerate(conv.loops)
              if loop.kind == "unrolled" and loop.extent == 3]  # no factor of 32 or 26 is 3
    came, wanted = _inside(schedule, conv)
    if came < wanted or window and window[-1] - window[0] > len(window) - 1:
        raise CheckFailed(_("{count} iterations inside the window: the inner pieces").format(
                              count=wanted), f"{came}")
    if came > most:
        raise CheckFailed(_("tiles of at most {most} numbers").format(most=most), f"{came:,}")
    schedules.require_decomposed(program)


# ---- a tuner -------------------------------------------------------------------------------


@dataclass
class _Fake:
    """A candidate, and the times of its calls; `right`: what is_correct returns or raises."""

    name: str
    times: Sequence[float]
    right: bool | Exception = True


@dataclass
class _Log:
    """Notes what a tuner calls, in order."""

    calls: list[str] = field(default_factory=list)  # is_correct: a, time_of: a
    strange: Any = None  # what was handed over and is no candidate

    def _note(self, called: str, fake: Any) -> int:
        """Return how often a function has been called with a candidate before."""
        if not isinstance(fake, _Fake):
            self.strange = fake
            raise TypeError(repr(fake))
        self.calls.append(f"{called}: {fake.name}")
        return self.calls.count(self.calls[-1]) - 1

    def is_correct(self, fake: _Fake) -> bool:
        self._note("is_correct", fake)
        if isinstance(fake.right, Exception):
            raise fake.right
        return fake.right

    def time_of(self, fake: _Fake) -> float:
        return float(fake.times[self._note("time_of", fake) % len(fake.times)])


# For each other statistic than the median there is a case with another winner.
_Case = tuple[int | None, list[_Fake]]  # the repeats, if they are given
_CASES: list[_Case] = [
    (2, [_Fake("a", [9, 5]), _Fake("wrong", [1, 1], False),
         _Fake("broken", [1, 1], RuntimeError("no memory")), _Fake("b", [6, 6])]),
    (None,
     [_Fake("steady", [30, 30, 15, 30, 60]), _Fake("wrong", [0.5] * 5, False),
      _Fake("spiky", [50, 10, 200, 10, 10]), _Fake("lucky", [40, 1, 30, 40, 90]),
      _Fake("broken", [0.2] * 5, RuntimeError("no memory")),
      _Fake("even", [45, 45, 44, 45, 46]), _Fake("hasty", [5, 70, 71, 72, 73]),
      _Fake("late", [80, 81, 82, 83, 4]), _Fake("slow", [90] * 5)]),
    (3, [_Fake("broken", [0.1], ValueError("shape")), _Fake("a", [1, 30, 31, 0.5, 0.5]),
         _Fake("b", [20, 3, 4, 60, 60]), _Fake("wrong", [0.1], False), _Fake("c", [6, 7, 6.5]),
         _Fake("d", [40, 41, 2]), _Fake("e", [50, 2.5, 52])]),
    (4, [_Fake("a", [1, 2, 9, 9]), _Fake("b", [4, 4, 6, 6]), _Fake("c", [6, 3, 5.5, 5])]),
    (None, [_Fake("even", [10, 10, 10, 9, 11]), _Fake("dip", [12, 2, 3, 12, 13])]),
    (3, [_Fake("first", [300.02, 300.5, 299]), _Fake("second", [300.01, 299.5, 301])]),
    (1, [_Fake("second", [2, 1]), _Fake("first", [1, 3])]),
    (4, [_Fake("wrong", [1] * 4, False), _Fake("slow", [4e9, 5e9, 6e9, 7e9])]),
    (None, [_Fake("wrong", [1], False), _Fake("broken", [1], KeyError("weights"))]), (None, [])]


def _call(repeats: int | None, fakes: Sequence[_Fake]) -> str:
    """Return a case as it is called: "tune({'a', 'b'}, ..., repeats=4)"."""
    names = [repr(fake.name) for fake in fakes]
    return f"tune({{{', '.join(names[:3] + ['...'] * (len(names) > 3))}}}, ..." \
        + (f", repeats={repeats})" if repeats else ")")


def _run_tuner(tune: Callable, repeats: int | None, fakes: Sequence[_Fake]) -> Any:
    """Return what a tuner gives for a case; raise CheckFailed where it calls what it should not."""
    log, right = _Log(), [fake for fake in fakes if fake.right is True]
    rounds, title = repeats or 5, _call(repeats, fakes)
    given = {} if repeats is None else {"repeats": repeats}
    candidates = {fake.name: fake for fake in fakes}
    handed, raised = dict(candidates), None
    try:
        came = tune(handed, log.is_correct, log.time_of, **given)
    except Exception as error:  # whatever the tuner lets through
        raised = error
    if log.strange is not None:
        is_name = isinstance(log.strange, str) and log.strange in candidates
        raise CheckFailed(_("is_correct and time_of to get a candidate"),
                          _("the name {strange}").format(strange=repr(log.strange))
                          if is_name else type(log.strange).__name__)
    if raised is not None:
        if names := [fake.name for fake in fakes if raised is fake.right]:
            raise CheckFailed(_("a candidate for which is_correct raises to be left out"),
                              _("{reason}, from {name}").format(reason=reason(raised),
                                                                name=repr(names[0])))
        if not right and isinstance(raised, ValueError | IndexError | TypeError):
            raise CheckFailed(_("; ").join(["None", title]), reason(raised),
                              line_of_answer(raised))
        raise raised
    _require_calls(log.calls, [fake.name for fake in fakes], [fake.name for fake in right] * rounds,
                   title)
    if list(handed.items()) != list(candidates.items()):
        raise CheckFailed(_("`candidates` to stay as it was; {title}").format(title=title),
                          _("a dict of {handed}").format(handed=sorted(handed)))
    return came


def _best(repeats: int | None, fakes: Sequence[_Fake]) -> _Fake | None:
    """Return the correct candidate whose times have the least median, or None."""
    return min((fake for fake in fakes if fake.right is True), default=None,
               key=lambda fake: statistics.median(fake.times[:repeats or 5]))


def _require_calls(calls: list[str], checked: list[str], timed: list[str], title: str) -> None:
    """Raise CheckFailed where other calls came than these in turn; is_correct in any order."""
    wanted = sorted((f"is_correct: {name}" for name in checked),
                    key=lambda call: calls.index(call) if call in calls else len(calls))
    wanted += [f"time_of: {name}" for name in timed]
    if calls != wanted:
        place = next(place for place, (one, other) in enumerate(
            itertools.zip_longest(calls, wanted)) if one != other)
        first = max(0, place - _CALLS // 2) if place >= _CALLS else 0
        raise CheckFailed(_("; ").join([_called(wanted, first), title]), _called(calls, first))


_CALLS = 14  # that are shown


def _called(calls: list[str], first: int) -> str:
    """Return some calls from the first on: is_correct: a, b; time_of: a, b, a, b."""
    some = (call.split(": ") for call in calls[first:first + _CALLS])
    return "..., " * (first > 0) + "; ".join(
        f"{name}: {', '.join(candidate for _name, candidate in every)}"
        for name, every in itertools.groupby(some, key=lambda call: call[0])) \
        + ", ..." * (len(calls) > first + _CALLS)


def _require_winner(repeats: int | None, fakes: Sequence[_Fake], winner: Any) -> None:
    """Raise CheckFailed where a tuner returned the wrong thing for a case."""
    def of(fake: _Fake) -> str:
        times = fake.times[:repeats or 5]
        return _("{name}, {median} the median of {times}").format(
            name=repr(fake.name), median=f"{statistics.median(times):g}",
            times=", ".join(f"{time:g}" for time in times))
    best = _best(repeats, fakes)
    if winner is None and best is None or best and isinstance(winner, str) \
            and winner == best.name:
        return
    came = type(winner).__name__
    if isinstance(winner, _Fake):
        came = _("the candidate {name}, and not its name").format(name=repr(winner.name))
    elif isinstance(winner, numbers.Real):
        came = f"{winner:g}"
    elif winner is None or isinstance(winner, str):
        came = next((of(fake) for fake in fakes if fake.name == winner and fake.right is True),
                    repr(winner))
    raise CheckFailed(_("; ").join([of(best) if best else "None", _call(repeats, fakes)]), came)


@exercise("8.2", "tune(candidates, is_correct, time_of, repeats=5)", seconds=10)
def exercise_8_2(tune: Callable) -> str:
    """a tuner that checks first and compares medians."""
    came = [_run_tuner(tune, *case) for case in _CASES]
    for case, winner in zip(_CASES, came, strict=True):
        _require_winner(*case, winner)
    return _("the least median of the correct ones, in rounds of 5, 3, 4 and 1; a wrong one and "
             "one that raises\nare left out; None if none is correct")


# ---- a measurement -------------------------------------------------------------------------

_SECOND = 1e6  # microseconds of the made-up clock that a measurement may take
_TRIES, _FORGIVEN = 5, 1
_COLD, _SLOWER, _RARELY = 300, 2000, 3000  # calls


class _Late(Exception):
    """A measurement takes too long; raised out of a program that is called."""


@dataclass(frozen=True)
class _Machine:
    """A machine: what a call of a and of b takes, in µs, and what else happens on it.

    `cold`: the program whose first calls are slow. `rare`: that of which a rare call is. `step`: of
    the clock. `slower`: by how much all calls take longer in the end. `phases`: by how much for
    some milliseconds. `noise`: of single calls. `after`: what the first call after the other
    program's takes more.
    """

    title: str
    costs: tuple[float, float]
    cold: str = ""
    rare: str = ""
    step: float = 0
    slower: float = 0
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
_RARE = _("one call in {count} takes 600 times as long").format(count=f"{_RARELY:,}")
_STEPS, _HEAT = _("a clock in steps of 100 µs"), _("a machine that gets slower")
_NEIGHBOUR, _NOISE = _("a machine with a neighbour"), _("a noisy machine")
_CACHES = _("the first call after one of the other program takes longer: {a} µs for a, "
            "{b} µs for b")
_MACHINES = [
    _Machine(_STEADY, (40, 44)), _Machine(_STEADY, (44, 40)),
    _Machine(_EQUAL, (40, 40), noise=0.05), _Machine(_WARM, (40, 44), cold="a"),
    _Machine(_WARM, (44, 40), cold="b"), _Machine(_RARE, (44, 40), rare="b"),
    _Machine(_STEPS, (40, 44), step=100), _Machine(_STEPS, (44, 40), step=100),
    _Machine(_HEAT, (44, 40), slower=1), _Machine(_HEAT, (40, 44), slower=1),
    _Machine(_NEIGHBOUR, (40, 40), phases=0.5, noise=0.1), _Machine(_NOISE, (44, 40), noise=0.2),
    *(_Machine(_CACHES.format(a=after[0], b=after[1]), costs, after=after) for costs, after in (
        ((40, 44), (150, 100)), ((44, 40), (100, 150)), ((40, 40), (150, 100))))]


class _Try:
    """One measurement on a machine: its clock, and what was called."""

    def __init__(self, machine: _Machine, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.machine, self.time, self.last = machine, 0.0, ""
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
        if name == machine.rare and self.calls[name] % _RARELY == _RARELY // 2:
            cost *= 600
        if name != self.last:
            self.last = name
            self.turns += 1
            cost += machine.after[which]
        cost *= 1 + machine.slower * min(every, _SLOWER) / _SLOWER
        self.time += cost * self.phases[bisect.bisect(self.ends, self.time) % 4096]
        if self.time > _SECOND:
            raise _Late

    def now(self) -> float:
        """Return the time, and let it go on by a little, so that waiting for it ends."""
        self.readings += 1
        self.time += 0.05
        step = self.machine.step
        return self.time // step * step if step else self.time

    def verdict(self, faster: Callable) -> Any:
        """Return what a measurement says, or _Late."""
        try:
            came = faster(lambda: self.run("a"), lambda: self.run("b"), self.now)
        except _Late:
            return _Late
        if came is not None and not (isinstance(came, str) and came in ("a", "b")):
            raise CheckFailed(_('"a", "b" or None'), repr(came))
        return came

    def counted(self) -> str:
        """Say what was called."""
        return _("the calls: {a} of a, {b} of b, {turns} of them first or after one of the other "
                 "program; the clock was read {readings} times").format(
                     a=f"{self.calls['a']:,}", b=f"{self.calls['b']:,}",
                     turns=f"{self.turns:,}", readings=f"{self.readings:,}")


@exercise("8.3", "faster(a, b, now)", seconds=30)
def exercise_8_3(faster: Callable) -> str:
    """a measurement of one's own."""
    for machine in _MACHINES:
        tries = [_Try(machine, seed) for seed in range(_TRIES)]
        came = [one.verdict(faster) for one in tries]
        wrong = [number for number, verdict in enumerate(came) if verdict != machine.right]
        if len(wrong) <= _FORGIVEN:
            continue
        first = wrong[0]
        costs = _("{a} µs for a, {b} µs for b").format(a=f"{machine.costs[0]:g}",
                                                      b=f"{machine.costs[1]:g}")
        if came[first] is _Late:
            raise CheckFailed(_("a verdict within a second of the clock; {title}").format(
                                  title=machine.title),
                              _("{count} calls, and none").format(
                                  count=f"{sum(tries[first].calls.values()):,}"))
        raise CheckFailed(_("{right}; {title}, {costs}").format(
                              right=repr(machine.right), title=machine.title, costs=costs),
                          _("{came} in {count} of {tries} tries").format(
                              came=_(", ").join(dict.fromkeys(
                                  repr(came[number]) for number in wrong)),
                              count=len(wrong), tries=_TRIES), tries[first].counted())
    return _("right on machines with slow first calls, rare long ones, a coarse clock, heat, "
             "neighbours\nand noise; None if two programs take the same time")


# ---- a record ------------------------------------------------------------------------------


def _doubled() -> tvm.tirx.PrimFunc:
    x = te.placeholder((12,), name="x")
    return te.create_prim_func([x, te.compute((12,), lambda i: x[i] * 2.0, name="B")])


@prepared
def _records() -> list[tuple[str, list, tvm.tirx.PrimFunc]]:
    """Return a title, a trace in JSON and its PrimFunc: one is short, others are the course's.

    Two have other decisions than those.
    """
    lines, workloads = ([json.loads(line) for line in (
        helpers.ROOT / "data" / "tuned" / f"database_{name}.json"
        ).read_text(encoding="utf-8").splitlines()] for name in ("tuning_record", "workload"))
    short = [[["GetSBlock", [], ["B", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1"]],
              ["SamplePerfectTile", ["l1"], [2, 12], ["v2", "v3"]],
              ["Split", ["l1", "v2", "v3"], [1, 0], ["l4", "l5"]]], [[2, [2, 6]]]]
    found = [(short, _doubled()), *(
        (record, ms.database.Workload.from_json(workloads[number]).mod["main"])
        for number, (record, *_rest) in lines)]
    record, func = found[1]
    for place, tile in ((0, [1, 4, 1, 1]), (2, [1, 13, 1, 2])):
        other = copy.deepcopy(record)
        other[1][place][1] = tile
        other[1][-1][1] -= place // 2  # other steps to unroll, too
        found.append((other, func))
    return [(f"record {number}", *one) for number, one in enumerate(found)]


def _made_by(record: list, func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    made = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, made)
    return made.mod["main"]


def _require_program(came: Any, record: list, func: tvm.tirx.PrimFunc, title: str) -> None:
    """Raise CheckFailed unless a PrimFunc is what a record makes of another one."""
    if not isinstance(came, tvm.tirx.PrimFunc):
        raise CheckFailed(_("a PrimFunc; {title}").format(title=title), type(came).__name__)
    if tvm_ffi.structural_equal(came, _made_by(record, func)):
        return
    kinds = [instruction[0] for instruction in record[0]]
    end = kinds.index("EnterPostproc") if "EnterPostproc" in kinds else len(kinds)
    look_at = ""
    if tvm_ffi.structural_equal(came, func):
        # cause: schedule-copies
        look_at = _("this is func itself: a Schedule works on a copy of it")
    elif tvm_ffi.structural_equal(came, _made_by([record[0][:end], [
            decision for decision in record[1] if decision[0] < end]], func)):
        look_at = _("the steps after EnterPostproc: they are missing")
    loops = "; ".join(", ".join(str(loop) for loop in nest.loops) for nest in nests(came)[:1])
    raise CheckFailed(_("the program that the record makes; {title}").format(title=title),
                      _("a different one, which begins with the loops {loops}").format(loops=loops),
                      look_at)


@exercise("8.4", "replayed(record, func)", prepare=[_records])
def exercise_8_4(replayed: Callable) -> str:
    """reading a record and replaying it."""
    for title, record, func in _records():
        instructions, decisions = copy.deepcopy(record)
        came = replayed([instructions, decisions], func)
        if not isinstance(came, tuple) or len(came) != 2 or not isinstance(came[0], Mapping):
            raise CheckFailed(_("a dictionary, and a PrimFunc"), type(came).__name__)
        drawn, program = came
        if not {"tiles", "unrolled"} <= drawn.keys():
            raise CheckFailed(_('the keys "tiles" and "unrolled"'), f"{[*drawn]}")
        of_kind = [(record[0][number], decision) for number, decision in record[1]]
        tiles = [decision for (kind, *_rest), decision in of_kind if kind == "SamplePerfectTile"]
        places = [(attributes[0], decision) for (kind, _takes, attributes, _gives), decision
                  in of_kind if kind == "SampleCategorical"]
        number = places[0][0][places[0][1]] if places else None
        given = drawn["tiles"]
        if not isinstance(given, list | tuple) or [list(one) if isinstance(one, list | tuple)
                                                   else one for one in given] != tiles:
            raise CheckFailed(_("the tiles {tiles}; {title}").format(tiles=tiles, title=title),
                              repr(given)[:300])
        if drawn["unrolled"] != number:
            place = places and drawn["unrolled"] == places[0][1]
            raise CheckFailed(_("{number} steps to unroll; {title}").format(number=number,
                                                                            title=title),
                              repr(drawn["unrolled"]),
                              _("this is the place in the list; the number is in the instruction's "
                                "attributes") if place else "")
        _require_program(program, record, func, title)
    return _("{count} records read and replayed: their tiles, their steps to unroll, and the "
             "same programs as\nTVM's replay").format(count=len(_records()))
