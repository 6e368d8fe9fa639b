"""The checks of notebook 08: a stochastic schedule, a tuner. None of them measures a time."""

import contextlib
import copy
import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import meta_schedule as ms

import helpers
from course.checks.exercises import schedules
from course.checks.exercises.models import imported_cnn
from course.checks.run.answer import line_of_answer
from course.checks.run.check import exercise, prepared, while_running
from course.checks.say.messages import CheckFailed, reason, require_type
from course.checks.say.show import Example
from course.checks.spec.forms import naming
from course.tir.loops import nests
from course.words import Sentence, _

# ---- a stochastic schedule -----------------------------------------------------------------

# Far apart: for small seeds TVM's generator draws nearly the same first numbers.
_SEEDS = (400_000_000, 800_000_000, 1_200_000_000, 1_621_709_874, 669_652_944, 74_845_287,
          *range(50_000_000, 1_500_000_000, 100_000_000))
_MOST = 128  # numbers of a tile
_MANY_SEEDS = range(1_000_003, 2_000_000_000, 4_999_999)
# Few tiles fit, some of them exactly: a limit that is less than the room left shows. And no extent
# has a factor 3, as the window has.
_CHANNELS_ROWS_COLUMNS, _ROOM = (4, 2, 74), 74


def _convolution(n: int, channels: int, rows: int, columns: int) -> tvm.tirx.PrimFunc:
    """Return TOPI's conv2d of n images of one channel, by its output and a window of 3 by 3."""
    x = te.placeholder((n, 1, rows + 2, columns + 2), name="x")
    w = te.placeholder((channels, 1, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.conv2d(x, w, 1, 0, 1)])


@exercise("8.1", "random_conv2d(func, seed, most)", seconds=20, prepare=[imported_cnn])
def exercise_8_1(random_conv2d: Callable) -> str:
    """a schedule with tiles drawn by chance, within a limit."""
    func, small = imported_cnn()["conv2d"], _convolution(2, *_CHANNELS_ROWS_COLUMNS)
    drawn = [_drawn(random_conv2d, func, seed, _MOST) for seed in _SEEDS]
    _require_the_same(random_conv2d, func, drawn, _("the same program for the same seed"))
    with _another_salt(random_conv2d):
        _require_the_same(random_conv2d, func, drawn,
                          _("the same program in another process, where hash of a text differs"))
    many = [_drawn(random_conv2d, small, seed, _ROOM) for seed in _MANY_SEEDS]
    _require_every_tile(many)
    for seed, most in itertools.product(_SEEDS, (_ROOM - 1, 1)):  # less than the largest tile
        _drawn(random_conv2d, small, seed, most)
    for seeds, schedules_of, most in ((_SEEDS, drawn, _MOST), (_MANY_SEEDS, many, _ROOM)):
        for seed, schedule in zip(seeds[:len(drawn)], schedules_of, strict=False):
            with naming(_seeded(seed), runs=False):
                _require_structure(schedule, most)
    compared = [*((func, one) for one in drawn[:3]), (small, many[0])]
    for before, schedule in compared:
        schedules.require_same_results(before, schedule.mod["main"])
    return _("each tile that fits from {count} seeds, the same program where a seed comes again;\n"
             "{looked_at} programs parallel, with a vector along x, the window unrolled, "
             "decomposed;\nthe results of {run} of them as before, for two shapes").format(
        count=len(many), looked_at=2 * len(drawn), run=len(compared))


def _require_the_same(random_conv2d: Callable, func: tvm.tirx.PrimFunc,
                      drawn: Sequence[tvm.s_tir.Schedule], expected: Sentence) -> None:
    """Raise CheckFailed unless an answer draws the first seeds' schedules once more."""
    for seed, schedule in zip(_SEEDS[:6], drawn, strict=False):
        again = _drawn(random_conv2d, func, seed, _MOST)
        if not tvm_ffi.structural_equal(schedule.mod["main"], again.mod["main"]):
            raise CheckFailed(expected, _("two different ones for seed {seed}").format(
                seed=f"{seed:,}"))


def _another_salt(answer: Callable) -> Any:
    """Let an answer's hash of texts give what it may give in another process, inside `with`.

    A function of this name that an answer has of its own stays.
    """
    def salted(value: Any) -> bool:
        return any(map(salted, value)) if isinstance(value, tuple) else isinstance(
            value, str | bytes)
    known = getattr(answer, "__globals__", {})
    return mock.patch.dict(known, {} if "hash" in known else {
        "hash": lambda value: hash(("salt", value)) if salted(value) else hash(value)})


def _drawn(random_conv2d: Callable, func: tvm.tirx.PrimFunc, seed: int, most: int
           ) -> tvm.s_tir.Schedule:
    """Return an answer's schedule of a convolution; raises CheckFailed if its draws are wrong."""
    while_running(_("sample_perfect_tile never ends if max_innermost_factor is 0; then your "
                    "loops: does each end?"))
    schedule = random_conv2d(func, seed, most)
    require_type(schedule, tvm.s_tir.Schedule, _("a Schedule, which knows its trace"))
    schedules.warn_of_copies(schedule.mod["main"])
    with naming(_seeded(seed), runs=False):
        _require_draws(schedule, func, most)
    return schedule


def _seeded(seed: int) -> Sentence:
    return _("seed {seed}").format(seed=f"{seed:,}")


def _require_draws(schedule: tvm.s_tir.Schedule, func: tvm.tirx.PrimFunc, most: int) -> None:
    """Raise CheckFailed unless a draw of its own cuts each of f, y and x, and the tile has room."""
    drawn = _draws(schedule)
    cut = sorted(map(math.prod, drawn))
    _n, channels, rows, columns = map(int, func.params[-1].shape)
    if [extent for extent in cut if extent > 1] != sorted([channels, rows, columns]):
        if unused := _draws(schedule, used=False):
            raise CheckFailed(_("each loop to be split by what was drawn for it"),
                              _("no split takes the factors of the draw ({factors}) themselves"
                                ).format(factors=" x ".join(map(str, unused[0]))))
        raise CheckFailed(_("three draws by sample_perfect_tile: of the loops over {channels} "
                            "channels, {rows} rows and {columns} columns").format(
                                channels=channels, rows=rows, columns=columns),
                          _("draws for loops of {cut}").format(cut=cut) if cut
                          else _("no sample_perfect_tile in the trace"))
    _require_room([factors[-1] for factors in drawn], most)


def _draws(schedule: tvm.s_tir.Schedule, used: bool = True) -> list[list[int]]:
    """Return the factors of each sample_perfect_tile that a split takes, or that none takes."""
    def taken(outputs: Sequence[Any]) -> bool:
        return any(len(factors) == len(outputs) and all(
            factor is None or factor.same_as(output)
            for factor, output in zip(factors, outputs, strict=True)) for factors in splits)
    steps = schedule.trace.insts
    splits = [inst.inputs[1:] for inst in steps if inst.kind.name == "Split"]
    return [[*map(int, schedule.trace.decisions[inst])] for inst in steps
            if inst.kind.name == "SamplePerfectTile" and taken(inst.outputs) == used]


def _require_room(pieces: Sequence[int], most: int) -> None:
    """Raise CheckFailed where a tile of these pieces is too large."""
    if (count := math.prod(pieces)) > most:
        raise CheckFailed(_("numbers of a tile: at most {most}").format(most=most),
                          f"{' x '.join(map(str, pieces))} = {count:,}")


def _require_every_tile(drawn: Sequence[tvm.s_tir.Schedule]) -> None:
    """Raise CheckFailed where a tile that fits comes with none of many seeds.

    There are 16, and each has a probability of at least 1/24: to miss one takes an answer.
    """
    came = {tuple(inner[extent] for extent in _CHANNELS_ROWS_COLUMNS) for inner in (
        {math.prod(factors): factors[-1] for factors in _draws(one)} for one in drawn)}
    fit = [tile for tile in itertools.product(*(
        [factor for factor in range(1, extent + 1) if extent % factor == 0]
        for extent in _CHANNELS_ROWS_COLUMNS)) if math.prod(tile) <= _ROOM]
    if missing := [tile for tile in fit if tile not in came]:
        channels, rows, columns = _CHANNELS_ROWS_COLUMNS
        raise CheckFailed(
            _("every tile of at most {most} numbers to be possible, for {channels} channels, "
              "{rows} rows and {columns} columns").format(
                most=_ROOM, channels=channels, rows=rows, columns=columns),
            _("{tile} is never drawn with {seeds} seeds; {count} of the {all} that fit are").format(
                tile=" x ".join(map(str, missing[0])), seeds=len(drawn),
                count=len(fit) - len(missing), all=len(fit)))


def _require_structure(schedule: tvm.s_tir.Schedule, most: int) -> None:
    """Raise CheckFailed with what a drawn program lacks; its vector may have one lane."""
    program = schedule.mod["main"]
    schedules.require_no_blocks(program, ["pad_temp"])
    conv = schedules.adds_up(program)
    schedules.require_threads(2, *nests(program))
    if not conv.loops or conv.loops[-1].extent != 1:
        schedules.require_lanes_along_x(conv, _("the convolution"))
    elif conv.loops[-1].kind != "vectorized":
        raise CheckFailed(_("a vectorised innermost loop around the convolution, also of one lane"),
                          f"{conv.loops[-1]}", schedules.told([conv]))
    schedules.require_unrolled_window(conv)
    last = max(map(conv.loops.index, schedules.reducing_loops(conv)))
    inside = [int(loop.extent) for loop in conv.loops[last + 1:]]
    wanted = math.prod(factors[-1] for factors in _draws(schedule))
    if (came := math.prod(inside)) < wanted:
        raise CheckFailed(_("{count} iterations inside the window: the inner pieces").format(
                              count=wanted), f"{came}")
    _require_room(inside, most)
    schedules.require_decomposed(program)


# ---- a tuner -------------------------------------------------------------------------------


@dataclass
class Candidate:
    """A candidate, and the times of its calls; `right`: whether it is, else is_correct raises."""

    name: str
    times: Sequence[float]
    right: bool | type[Exception] = True

    def __repr__(self) -> str:
        return f"<Candidate {self.name}>"

    def __bool__(self) -> bool:  # as 0 or an empty list, which may be candidates too
        return False


class Broken(Exception):
    """What is_correct raises: no answer knows its name."""


@dataclass
class _Log:
    """Notes what a tuner calls, in order."""

    calls: list[str] = field(default_factory=list)  # is_correct: a, time_of: a
    strange: Any = None  # what was handed over and is no candidate

    def _note(self, called: str, candidate: Any) -> int:
        """Return how often a function has been called with a candidate before."""
        if not isinstance(candidate, Candidate):
            self.strange = candidate
            raise TypeError(repr(candidate))
        self.calls.append(f"{called}: {candidate.name}")
        return self.calls.count(self.calls[-1]) - 1

    def is_correct(self, candidate: Candidate) -> bool:
        self._note("is_correct", candidate)
        if isinstance(candidate.right, type):
            raise candidate.right(f"is_correct({candidate})")
        return candidate.right

    def time_of(self, candidate: Candidate) -> float:
        return float(candidate.times[self._note("time_of", candidate) % len(candidate.times)])


# For each other statistic than the median there is a case with another winner.
_Case = tuple[int | None, list[Candidate]]  # the repeats, if they are given
_CASES: list[_Case] = [
    (2, [Candidate("a", [9, 5]), Candidate("wrong", [1, 1], False),
         Candidate("broken", [1, 1], RuntimeError), Candidate("b", [6, 6])]),
    (None,
     [Candidate("steady", [30, 30, 15, 30, 60]), Candidate("wrong", [0.5] * 5, False),
      Candidate("spiky", [50, 10, 200, 10, 10]), Candidate("lucky", [40, 1, 30, 40, 90]),
      Candidate("broken", [0.2] * 5, RuntimeError),
      Candidate("even", [45, 45, 44, 45, 46]), Candidate("hasty", [5, 70, 71, 72, 73]),
      Candidate("late", [80, 81, 82, 83, 4]), Candidate("slow", [90] * 5)]),
    (3, [Candidate("broken", [0.1], ValueError), Candidate("a", [1, 30, 31, 0.5, 0.5]),
         Candidate("b", [20, 3, 4, 60, 60]), Candidate("wrong", [0.1], False),
         Candidate("c", [6, 7, 6.5]), Candidate("d", [40, 41, 2]), Candidate("e", [50, 2.5, 52])]),
    (4, [Candidate("a", [1, 2, 9, 9]), Candidate("b", [4, 4, 6, 6]),
         Candidate("c", [6, 3, 5.5, 5])]),
    (None, [Candidate("even", [10, 10, 10, 9, 11]), Candidate("dip", [12, 2, 3, 12, 13])]),
    (3, [Candidate("first", [300.02, 300.5, 299]), Candidate("second", [300.01, 299.5, 301])]),
    (1, [Candidate("second", [2, 1]), Candidate("first", [1, 3])]),
    (4, [Candidate("wrong", [1] * 4, False), Candidate("slow", [4e9, 5e9, 6e9, 7e9])]),
    (None, [Candidate("wrong", [1], False), Candidate("broken", [1], Broken)]), (None, [])]


def _call(repeats: int | None, fakes: Sequence[Candidate]) -> str:
    """Return a case as it is called: "tune({'a': ..., 'b': ...}, ..., repeats=4)"."""
    names = [f"{fake.name!r}: ..." for fake in fakes]
    return f"tune({{{', '.join(names[:3] + ['...'] * (len(names) > 3))}}}, ..." \
        + (f", repeats={repeats})" if repeats else ")")


def _wanted(repeats: int | None, fakes: Sequence[Candidate]) -> str:
    """Say what a tuner should give for a case."""
    best = _best(repeats, fakes)
    return _("; ").join([_median(best, repeats) if best is not None else "None",
                          _call(repeats, fakes)])


def _best(repeats: int | None, fakes: Sequence[Candidate]) -> Candidate | None:
    """Return the correct candidate whose times have the least median, or None."""
    return min((fake for fake in fakes if fake.right is True), default=None,
               key=lambda fake: statistics.median(fake.times[:repeats or 5]))


def _median(fake: Candidate, repeats: int | None) -> str:
    times = fake.times[:repeats or 5]
    return _("{name}, {median} the median of {times}").format(
        name=repr(fake.name), median=f"{statistics.median(times):g}",
        times=", ".join(f"{time:g}" for time in times))


def _require_tuned(tune: Callable, repeats: int | None, fakes: Sequence[Candidate]) -> None:
    """Raise CheckFailed where a tuner calls what it should not, or returns the wrong thing."""
    log, right = _Log(), [fake.name for fake in fakes if fake.right is True]
    given = {} if repeats is None else {"repeats": repeats}
    candidates = {fake.name: fake for fake in fakes}
    handed, raised = dict(candidates), None
    try:
        came = tune(handed, log.is_correct, log.time_of, **given)
    except NotImplementedError:  # the stub's
        raise
    except Exception as error:  # whatever the tuner lets through
        raised = error
    if log.strange is not None:
        raise CheckFailed(_("is_correct and time_of to get a candidate"), repr(log.strange)[:80])
    if raised is not None:
        raise CheckFailed(_wanted(repeats, fakes), reason(raised), line_of_answer(raised))
    _require_calls(log.calls, [*candidates], right * (repeats or 5), _call(repeats, fakes))
    if list(handed.items()) != list(candidates.items()):
        raise CheckFailed(_("`candidates` to stay as it was; {title}").format(
            title=_call(repeats, fakes)), f"{handed}")
    best = _best(repeats, fakes)
    if not isinstance(came, str | None) or came != (best.name if best is not None else None):
        known = [fake for fake in fakes if isinstance(came, str) and fake.name == came
                 and fake.right is True]
        raise CheckFailed(_wanted(repeats, fakes),
                          _median(known[0], repeats) if known else repr(came)[:80])


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


@exercise("8.2", "tune(candidates, is_correct, time_of, repeats=5)", seconds=10)
def exercise_8_2(tune: Callable) -> str:
    """a tuner that checks first and compares medians."""
    first, *others = _CASES
    _require_tuned(tune, *first)
    with naming(_("a second call")):
        _require_tuned(tune, 2, [Candidate("a", [8, 7]), Candidate("b", [6.5, 9.5])])
    for case in others:
        _require_tuned(tune, *case)
    return _("the least median of the correct ones, in 1 to 5 rounds; a wrong one and one that "
             "raises are left\nout; None if none is correct")


# ---- a record ------------------------------------------------------------------------------


def _short() -> tuple[list, tvm.tirx.PrimFunc]:
    """Return a record with decisions of other instructions too, and its PrimFunc."""
    x = te.placeholder((12,), name="x")
    doubled = te.compute((12,), lambda i: x[i] * 2.0, name="B")
    func = te.create_prim_func([x, te.compute((12,), lambda i: doubled[i] + 1.0, name="C")])
    return [[["GetSBlock", [], ["B", "main"], ["b0"]], ["GetSBlock", [], ["C", "main"], ["b1"]],
             ["SampleComputeLocation", ["b0"], [], ["l2"]],
             ["ComputeAt", ["b0", "l2"], [1, -1], []], ["GetLoops", ["b1"], [], ["l3"]],
             ["SamplePerfectTile", ["l3"], [2, 12], ["v4", "v5"]],
             ["Split", ["l3", "v4", "v5"], [1, 0], ["l6", "l7"]],
             ["SamplePartitionedTile", ["l7"], [2, 1, 2], ["v8", "v9"]]],
            [[2, 0], [5, [2, 6]], [7, [3, 2]]]], func.with_attr("global_symbol", "short")


@prepared
def _records() -> list[tuple[str, list, tvm.tirx.PrimFunc]]:
    """Return what names a record, the record and its PrimFunc: one is short, others the course's.

    Two have other decisions than those.
    """
    file = "database_tuning_record.json"
    lines, workloads = ([json.loads(line) for line in (helpers.ROOT / "data" / "tuned" / name
                         ).read_text(encoding="utf-8").splitlines()]
                        for name in (file, "database_workload.json"))
    short, doubled = _short()
    found = [(json.dumps(short), short, doubled), *(
        (f"{file}:{line}", record, ms.database.Workload.from_json(workloads[number]).mod["main"])
        for line, (number, (record, *_rest)) in enumerate(lines, 1))]
    drawing = copy.deepcopy(short)
    drawing[0].append(["SampleCategorical", [], [[3, 5], [0.5, 0.5]], ["v10"]])
    drawing[1].append([8, 1])
    found.append((json.dumps(drawing), drawing, doubled))
    name, record, func = found[1]
    for place, tile in ((0, [1, 4, 1, 1]), (2, [1, 13, 1, 2])):
        other = copy.deepcopy(record)
        other[1][place][1] = tile
        other[1][-1][1] -= place // 2  # other steps to unroll, too
        found.append((f"{name}, {json.dumps(other[1])}", other, func))
    return found


@exercise("8.3", "replayed(record, func)", prepare=[_records])
def exercise_8_3(replayed: Callable) -> str:
    """reading a record and replaying it."""
    for name, record, func in _records():
        given = copy.deepcopy(record)
        try:
            came = replayed(given, func)
        except NotImplementedError:  # the stub's
            raise
        except Exception as error:  # whatever the answer raises
            raise _refused(name, _("your code to run"), reason(error),
                           line_of_answer(error)) from None
        if not isinstance(came, tuple) or len(came) != 2 or not isinstance(came[0], Mapping) \
                or not isinstance(came[1], tvm.tirx.PrimFunc):
            raise CheckFailed(_("a dictionary, and a PrimFunc"), ", ".join(
                type(one).__name__ for one in (came if isinstance(came, tuple) else (came,))))
        if given != record:
            changed, now = next(
                ((f"record[{part}][{place}]", now) for part in (1, 0) if len(given) > part
                 for place, (now, was) in enumerate(itertools.zip_longest(
                     given[part], record[part])) if now != was),
                ("record", f"[{', '.join(type(part).__name__ for part in given)}]"))
            raise _refused(name, _("{name} to stay as it was").format(name=changed),
                           _("none") if now is None else f"{now}"[:200])
        drawn, wanted = came[0], _decisions(record)
        said = json.dumps({key: drawn[key] for key in {**wanted, **drawn} if key in drawn},
                          default=_plain, skipkeys=True)
        if said != json.dumps(wanted):
            raise _refused(name, f"{wanted}", f"{drawn}"[:400])
        _require_replay(name, record, func, came[1])
    return _("{count} records read and replayed: their tiles, their steps to unroll, and the "
             "same programs as\nTVM's replay").format(count=len(_records()))


def _refused(name: str, expected: str, came: str, look_at: str = "", what: str = "") -> CheckFailed:
    return CheckFailed(expected, came, look_at, example=Example.of(
        {"record": name}, expected, came, result=what))


def _decisions(record: Any) -> dict[str, Any]:
    """Return the tiles that a record drew, and how many steps it unrolls."""
    of_kind = [(record[0][number], decision) for number, decision in record[1]]
    return {"tiles": [decision for (kind, *_rest), decision in of_kind
                      if kind == "SamplePerfectTile"],
            "unrolled": next((attributes[0][decision] for (kind, _takes, attributes, _gives),
                              decision in of_kind if kind == "SampleCategorical"), None)}


def _require_replay(name: str, record: Any, func: tvm.tirx.PrimFunc, program: tvm.tirx.PrimFunc
                    ) -> None:
    """Raise CheckFailed unless a program is what TVM makes of a record, all its steps."""
    made, short = (tvm.s_tir.Schedule(func) for _made in range(2))
    tvm.s_tir.Trace.apply_json_to_schedule(record, made)
    if tvm_ffi.structural_equal(program, right := made.mod["main"]):
        return
    made.trace.apply_to_schedule(short, remove_postproc=True)
    if tvm_ffi.structural_equal(program, short.mod["main"]):
        raise _refused(name, _("all steps of the record"),
                       _("the program without those after EnterPostproc"))
    expected, got, what = _first_difference(right, program)
    raise _refused(name, expected, got, what=what)


def _plain(value: Any) -> Any:
    """Return a number or a sequence of TVM's, NumPy's or PyTorch's as JSON has it."""
    for kind in (int, list):
        with contextlib.suppress(TypeError, ValueError):
            return kind(value)
    return repr(value)


def _first_difference(right: tvm.tirx.PrimFunc, came: tvm.tirx.PrimFunc) -> tuple[str, str, str]:
    """Return the first line of TVMScript in which programs differ, of both, and what it is.

    A loop, if one does: its extent or its kind, as names do not count.
    """
    every = [[line.strip() for line in helpers.script(one).splitlines()] for one in (right, came)]
    loops = [[line for line in lines if line.startswith("for ")] for lines in every]
    for expected, got in itertools.zip_longest(*loops, fillvalue=_("no loop")):
        if expected.partition(" in ")[2] != got.partition(" in ")[2]:
            return expected, got, _("the first loop that differs")
    return next((expected, got, _("the first line of TVMScript that differs")) for expected, got in
                itertools.zip_longest(*every, fillvalue=_("no line")) if expected != got)
