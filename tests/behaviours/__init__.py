"""Wrong behaviours, each around a right answer: what no change of one line of a solution makes.

    wrong("2.3", conv2d, "its result: rounded to float16")

`make mutants` tries them beside the mechanical changes. Each is a class of mistakes that a check
may overlook, whatever the exercise: numbers rounded or cut off, a row taken for another, what was
kept from the first call, a constant exchanged, two arguments that are wrong only together. For each
kind of exercise a function yields titles, each with what wraps the answer.
"""

import functools
from collections.abc import Callable

from behaviours import (
    arrays,
    gpus,
    graphs,
    importing,
    loops,
    measuring,
    programs,
    schedules,
    shipping,
)
from behaviours.common import Wrapped

KINDS: dict[Callable[[str], Wrapped], tuple[str, ...]] = {
    loops.of_loops: ("0.1",), arrays.of_purity: ("0.4",), arrays.of_arrays: ("1.1", "1.2"),
    arrays.of_numbers: ("1.3", "6.2", "7.1", "10.2"), arrays.of_registered: ("3.1", "3.4", "3.5"),
    arrays.of_tuner: ("8.2",), measuring.of_measurements: ("6.1",),
    measuring.of_replays: ("8.3",), programs.of_te: ("2.1", "2.2", "2.3", "2.4", "5.2"),
    programs.of_primfuncs: ("0.2", "0.3"),
    programs.of_modules: ("0.5", "2.5", "2.6", "2.7", "3.3", "3.6", "5.5"),
    importing.of_rule: ("5.3",), importing.of_rules: ("5.4",),
    importing.of_mends: ("5.1",),
    schedules.of_schedules: ("4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "6.3", "7.2",
                             "8.1"),
    graphs.of_rewrites: ("9.1", "9.3", "9.6"), graphs.of_verdicts: ("9.2",),
    graphs.of_orders: ("9.4",), graphs.of_plans: ("9.5",), graphs.of_counts: ("3.2",),
    gpus.of_schedules: ("10.1", "10.3", "10.5", "10.6"), gpus.of_barriers: ("10.4",),
    shipping.of_exports: ("11.1",), shipping.of_rules: ("11.2",), shipping.of_caches: ("11.3",),
    shipping.of_bytes: ("11.4",), shipping.of_serial: ("11.5",),
    shipping.of_folders: ("11.8",)}


@functools.cache
def _all(number: str) -> dict[str, Callable[[Callable], Callable]]:
    return {title: wrap for kind, numbers in KINDS.items() if number in numbers
            for title, wrap in kind(number)}


def titles(number: str) -> list[str]:
    """Return the wrong behaviours of an exercise's kind."""
    return list(_all(number))


def wrong(number: str, answer: Callable, title: str) -> Callable:
    """Return a right answer to an exercise with a wrong behaviour, by its title."""
    return functools.wraps(answer)(_all(number)[title](answer))
