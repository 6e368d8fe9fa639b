"""Wrong behaviours of schedules: what each of a schedule's methods may do else, and the result."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import tvm
from tvm import s_tir

from behaviours.common import Wrapped, after, at, before, first_kept, result
from behaviours.programs import FUNC, replaced, wrong_func

_Schedule = s_tir.Schedule
_split, _draw = _Schedule.split, _Schedule.sample_perfect_tile


def _exact(schedule: Any, loop: Any, factors: Any, **more: Any) -> Any:
    """Split as if the loop were as long as it is in the first shape: what is left over is lost."""
    extent = int(schedule.get(loop).extent)
    known = [factor for factor in factors if factor is not None]
    if len(known) == 1 and not hasattr(known[0], "name"):
        factors = [extent // int(known[0]) if factor is None else factor for factor in factors]
    return _split(schedule, loop, factors, **more, disable_predication=True)


def _again() -> Callable:
    """Return a draw that gives what another loop as long drew before, where there was one."""
    drawn: dict[tuple[int, int], Any] = {}

    def draw(schedule: Any, loop: Any, *given: Any, **more: Any) -> Any:
        extent = int(schedule.get(loop).extent)
        own = _draw(schedule, loop, *given, **more)
        return drawn.setdefault((id(schedule), extent), own)
    return draw


_NOTHING = ("parallel", "vectorize", "unroll", "compute_inline", "decompose_reduction")
METHODS: dict[str, tuple[str, Callable]] = {
    **{f"{name}: left out": (name, lambda *_, **__: None) for name in _NOTHING},
    "split: without predicates": ("split", lambda s, loop, factors, **more: _split(
        s, loop, factors, **more, disable_predication=True)),
    "split: what is left over is lost": ("split", _exact),
    "split: the factors exchanged": ("split", lambda s, loop, factors, **more: _split(
        s, loop, list(factors)[::-1], **more)),
    "split: the pieces exchanged": ("split", lambda s, loop, factors, **more: _split(
        s, loop, factors, **more)[::-1])}
_DRAWS: dict[str, tuple[str, Callable]] = {
    "draw: always the same": ("sample_perfect_tile", lambda s, loop, n, **more: _draw(
        s, loop, n, **more, decision=[int(s.get(loop).extent) // 2, 2])),
    "draw: a number": ("sample_perfect_tile", lambda *given, **more: list(map(
        int, map(given[0].get, _draw(*given, **more))))),
    "draw: that of the other loop as long": ("sample_perfect_tile", _again()),
    "draw: exchanged": ("sample_perfect_tile", lambda *given, **more: _draw(
        *given, **more)[::-1]),
    "draw: no factor above 16": ("sample_perfect_tile", lambda s, loop, n, **_: _draw(
        s, loop, n, max_innermost_factor=16)),
    "draw: no limit": ("sample_perfect_tile", lambda s, loop, n, **_: _draw(
        s, loop, n, max_innermost_factor=int(s.get(loop).extent))),
    "draw: twice": ("sample_perfect_tile", lambda *given, **more: [
        _draw(*given, **more), _draw(*given, **more)][1])}

_at, _reverse_at = _Schedule.compute_at, _Schedule.reverse_compute_at
_write, _rfactor = _Schedule.cache_write, _Schedule.rfactor


def _outside(schedule: Any, block: Any) -> Any:
    """Return a new loop of one iteration around the loops of a block."""
    return schedule.split(schedule.get_loops(block)[0], factors=[1, None])[0]


_MOVES: dict[str, dict[str, tuple[str, Callable]]] = {
    "4.5": {
        "compute_at: left out": ("compute_at", lambda *_: None),
        "compute_at: outside of all loops": ("compute_at", lambda s, block, loop: _at(
            s, block, _outside(s, s.get_sblock("pooled"))))},
    "4.6": {
        "reverse_compute_at: left out": ("reverse_compute_at", lambda *_: None),
        "reverse_compute_at: under the reduction": ("reverse_compute_at", lambda s, block, loop:
            _reverse_at(s, block, s.get_loops(s.get_sblock("C"))[1])),
        "reverse_compute_at: outside of all loops": (
            "reverse_compute_at", lambda s, block, loop: _reverse_at(
                s, block, _outside(s, s.get_sblock("C")))),
        "cache_write: the scope global": ("cache_write", lambda s, block, place, scope: _write(
            s, block, place, "global")),
        "cache_write: twice": ("cache_write", lambda s, block, place, scope: _write(
            s, _write(s, block, place, scope), place, scope))},
    "4.7": {
        "rfactor: the other axis": ("rfactor", lambda s, loop, axis: _rfactor(s, loop, 1 - axis)),
        "rfactor: of the whole sum": ("rfactor", lambda s, loop, axis: _rfactor(
            s, s.fuse(*s.get_loops(s.get_sblock("total"))[1:]), axis)),
        "rfactor: twice": ("rfactor", lambda s, loop, axis: _rfactor(s, s.split(loop, [2, None])[
            1], axis))}}


def with_method(name: str, method: Callable) -> Callable[[Callable], Callable]:
    def wrap(answer: Callable) -> Callable:
        def wrong(*given: Any) -> Any:
            with mock.patch.object(_Schedule, name, method):
                return answer(*given)
        return wrong
    return wrap


def _kernel(number: str, *given: Any) -> str:
    """Return the name of the PrimFunc that an answer schedules."""
    return {"6.3": lambda: given[1], "7.2": lambda: given[1]}.get(
        number, lambda: "conv2d")()


def _changed(number: str, what: str, mod: tvm.IRModule, *given: Any) -> tvm.IRModule:
    return replaced(mod, _kernel(number, *given), wrong_func(what))


def of_schedules(number: str) -> Wrapped:
    """Return behaviours of a function that schedules."""
    used = {"4.1": ("compute_inline",), "4.2": ("parallel", "vectorize", "split"),
            "4.3": ("parallel", "vectorize", "decompose_reduction", "split"),
            "4.5": ("compute_at",), "4.6": ("reverse_compute_at", "cache_write"),
            "4.7": ("split", "vectorize", "rfactor")}
    for title, (name, method) in {**METHODS, **_MOVES.get(number, {}),
                                  **(_DRAWS if number == "8.1" else {})}.items():
        # any tile is right there, but one of half an image takes ten seconds to compile
        if name in used.get(number, (name,)) and not (
                "exchanged" in title and number in ("4.4", "7.2")):
            yield title, with_method(name, method)
    if number in used:
        yield "a copy scheduled", before(at(0, lambda schedule: schedule.copy()))
    elif number == "8.1":
        yield "one seed for all", before(at(1, lambda seed: 42))
        yield "one of two seeds", before(at(1, lambda seed: 42 + seed // 100 % 2))
        yield "a copy of what it made", result(lambda schedule: s_tir.Schedule(schedule.mod))
    else:
        yield "the module that it was given", after(lambda mod, given, *_: given)
        yield "the module of the first call", first_kept(0)
        for what in FUNC:
            yield what, after(partial(_changed, number, what))
