"""Wrong behaviours of a measurement, and of what reads a tuner's records."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import tvm

from behaviours.common import Wrapped, at, before, instead, result


def _always(value: Any, *_: Any) -> Any:
    return value


def _said(verdicts: dict[str | None, Any]) -> Callable[[Callable], Callable]:
    return result(lambda came: verdicts.get(came, came))


def _twice(run: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        run()
        run()
    return both


def _stopped(now: Callable[[], float]) -> Callable[[], float]:
    first = now()
    return lambda: first + 1e-3 * (now() - first)


def _once(a: Callable, b: Callable, now: Callable) -> str:
    start = now()
    a()
    middle = now()
    b()
    return "a" if middle - start < now() - middle else "b"


def of_measurements(_: str) -> Wrapped:
    """Return behaviours of a function that says which of two programs is faster."""
    yield "the other one", _said({"a": "b", "b": "a"})
    for verdict in ("a", "b", None):
        yield f"always {verdict}", instead(partial(_always, verdict))
    yield "a where it is None", _said({None: "a"})
    yield "None where it is b", _said({"b": None})
    yield "the words of no", _said({None: "None"})
    yield "the programs exchanged", before(lambda given: [given[1], given[0], given[2]])
    yield "a measured with itself", before(lambda given: [given[0], given[0], given[2]])
    yield "a called twice", before(at(0, _twice))
    yield "each once", instead(_once)
    yield "a clock of its own", before(at(2, lambda _: iter(range(10**9)).__next__))


def _drawn(key: str, change: Callable[[Any], Any]) -> Callable[[Callable], Callable]:
    return result(lambda came: (came[0] | {key: change(came[0][key])}, came[1]))


def _first_kept(place: int) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that one of the two things is that of the first call."""
    def wrap(answer: Callable) -> Callable:
        kept: list[Any] = []

        def wrong(*given: Any) -> tuple:
            came = list(answer(*given))
            kept.append(came[place])
            came[place] = kept[0]
            return tuple(came)
        return wrong
    return wrap


def _other(change: Callable[[list], Any]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that the program is made of another record."""
    def wrap(answer: Callable) -> Callable:
        def wrong(record: list, func: tvm.tirx.PrimFunc) -> tuple:
            other = copy.deepcopy(record)
            change(other)
            return answer(record, func)[0], answer(other, func)[1]
        return wrong
    return wrap


def _without_last(record: list) -> None:
    number = len(record[0]) - 1
    record[0].pop()
    record[1] = [decision for decision in record[1] if decision[0] < number]


def of_replays(_: str) -> Wrapped:
    """Return behaviours of what reads a record and replays it."""
    yield "its tiles: reversed", _drawn("tiles", lambda tiles: tiles[::-1])
    yield "its tiles: each reversed", _drawn("tiles", lambda tiles: [one[::-1] for one in tiles])
    yield "its tiles: the first left out", _drawn("tiles", lambda tiles: tiles[1:])
    yield "its tiles: the innermost factors", _drawn("tiles", lambda tiles: [
        one[-1] for one in tiles])
    for number in (None, 0, 16, 64):
        yield f"its steps: always {number}", _drawn("unrolled", partial(_always, number))
    yield "its steps: 0 where there are none", _drawn("unrolled", lambda number: number or 0)
    yield "what was drawn: that of the first call", _first_kept(0)
    yield "the program: that of the first call", _first_kept(1)
    yield "the program: as it was", _other(lambda record: record.__setitem__(slice(None), [[], []]))
    yield "the program: without the last step", _other(_without_last)
    yield "the two exchanged", result(lambda came: came[::-1])
    yield "the program as text", result(lambda came: (came[0], came[1].script()))
