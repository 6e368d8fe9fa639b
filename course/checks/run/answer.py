"""What became of an answer: a verdict, or what it raised, in words that quote its own line."""

import bdb
import builtins
import contextlib
import dis
import inspect
import itertools
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import tvm
import tvm_ffi

from course.checks.say.messages import CheckFailed, place_in_script, reason
from course.checks.say.show import Example
from course.words import _

COURSE = Path(__file__).resolve().parents[2]
OWN = tuple(str(COURSE / room) + os.sep for room in ("checks", "tir"))


# the cells in which the answers were defined that are being checked, by their files
checked = SimpleNamespace(names=frozenset())


def note_answers(*answers: Any) -> None:
    """Note where the answers were defined that are checked next."""
    checked.names = frozenset(code.co_filename for answer in answers
                              if (code := getattr(answer, "__code__", None)))


def _of_answer(frame: traceback.FrameSummary) -> bool:
    return "ipykernel" in frame.filename or frame.filename in checked.names


def line_at(file: str, line: int) -> str:
    """Return a line of an answer as "look at" text, or "" where it is not known."""
    source = linecache.getline(file, line).strip()
    return _("your line {line}: {source}").format(line=line, source=source) if source else ""


DEEP = 50  # calls of the answer's own functions: faulthandler tells of the last hundred


def calls_of_answer(trace: str) -> list[tuple[str, int]]:
    """Return files and lines of the answer's calls in what faulthandler wrote, the last first."""
    found: list[tuple[str, int]] = []
    for file, line in re.findall(r'File "(.+)", line (\d+) in ', trace):
        if file == __file__:  # below is who ran the check
            break
        found.append((file, int(line)))
    own = [place for place in found if place[0] in checked.names]
    return own or [place for place in found if "ipykernel" in place[0]]


def line_of_answer(error: BaseException) -> str:
    """Return the line that raised, as "look at" text: the answer's own; "" if none is known."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.text and not any(map(_of_answer, frames)):
        return _("your line {line}: {source}").format(line=error.lineno, source=error.text.strip())
    return _innermost(frames)


def place_of(error: BaseException) -> str:
    """Return what `line_of_answer` does; in TVMScript the place that the parser names.

    Unless the script called a function of the answer's, which raised.
    """
    called = itertools.dropwhile(lambda frame: frame.filename != "<ast>",
                                 traceback.extract_tb(error.__traceback__))
    return _innermost([*called]) or place_in_script(error) or line_of_answer(error)


def line_that_runs() -> str:
    """Return the answer's line that runs now, as "look at" text; "" if none does."""
    return _innermost(traceback.extract_stack())


def _innermost(frames: Sequence[traceback.FrameSummary]) -> str:
    own = [frame for frame in reversed(frames) if _of_answer(frame)]
    for frame in [frame for frame in own if frame.filename in checked.names] or own:
        if line := line_at(frame.filename, frame.lineno or 0):
            return line
    return ""


def _given(error: BaseException) -> dict[str, Any]:
    """Return with which numbers an answer was called that raised, by their parameters' names.

    Only what it can't have changed: numbers, under names that it binds to nothing else.
    """
    for frame, _place in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename in checked.names:
            bound = {step.argval for step in dis.get_instructions(code)
                     if step.opname.startswith(("STORE_", "DELETE_"))}
            return {name: frame.f_locals[name] for name in code.co_varnames[:code.co_argcount]
                    if name not in bound and _plain(frame.f_locals.get(name))}
    return {}


def _plain(value: Any) -> bool:
    """Whether a value is a number, or a tuple of such."""
    return all(map(_plain, value)) if isinstance(value, tuple) else isinstance(value, int | float)


def _own_line(error: BaseException) -> str:
    """Name the line of a check that raised, where neither an answer nor TVM did; else ""."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(map(_of_answer, frames)):
        return ""
    tvms = [str(Path(module.__file__ or "").parent) + os.sep for module in (tvm, tvm_ffi)]
    for frame in reversed(frames):
        if frame.filename.startswith(OWN):
            path = Path(frame.filename)
            return "" if path.parent.name == "run" else _("{name}, line {line}").format(
                name=path.name, line=frame.lineno)
        if any(frame.filename.startswith(folder) for folder in tvms):
            return ""
    return ""


class _Waits(BaseException):
    """An answer waits for somebody at the keyboard. No answer's `except Exception` stops it."""


@contextlib.contextmanager
def _nobody_there() -> Iterator[None]:
    """Let input(), breakpoint() and a debugger end an answer at once, as nobody can type there."""
    def waits(name: str) -> Callable[..., None]:
        def refuse(*arguments: Any, **options: Any) -> None:
            raise _Waits(name)
        return refuse

    with mock.patch.object(builtins, "input", waits("input()")), \
            mock.patch.object(bdb.Bdb, "set_trace", waits("a debugger")), \
            mock.patch.object(sys, "breakpointhook", waits("breakpoint()")), \
            mock.patch.object(sys, "stdin", mock.Mock(spec_set=["read", "readline", "close"], **{
                f"{name}.side_effect": _Waits("sys.stdin") for name in ("read", "readline")})):
        yield


def module_of(item: Any, file: str | None = None) -> ModuleType | None:
    """Return the module of a function, a class or a frame, as inspect.getmodule does.

    TVMScript's decorators ask for that of each frame of the caller's, and inspect looks for it
    among all modules, 0.2 seconds long. TVM quotes the lines of a cell only where it gets one.
    """
    name = item.f_globals.get("__name__") if inspect.isframe(item) \
        else getattr(item, "__module__", None)
    return sys.modules.get(name or "")


def outcome(run: Callable[[], str], reaches: Callable[[], bool] = lambda: True
            ) -> tuple[bool, Any]:
    """Run a check: (True, what was verified) or (False, the parts of a CheckFailed).

    `reaches`: whether the check calls an answer before it stops. Where it does not, it stops so
    with each answer, the reference solution too: a fault of the course.
    """
    try:
        # not around this function: grading looks afterwards whether inspect was changed
        with _nobody_there(), mock.patch.object(inspect, "getmodule", module_of):
            return True, run()
    except _Waits as waits:
        return (False,
                (_("an answer that does not wait for input"),
                 _("{waits}, in your code").format(waits=waits),
                 _("{line_of_answer}; take it out: a check runs unattended").format(
                     line_of_answer=line_of_answer(waits))))
    except CheckFailed as failed:
        return False, failed.whole
    except (SystemExit, KeyboardInterrupt) as error:
        return False, (_("your code to run to its end"), type(error).__name__,
                       line_of_answer(error))
    except Exception as error:  # whatever the reader's code raises is to be shown in one line
        if isinstance(error, NotImplementedError) and not str(error):  # the stub's
            name = traceback.extract_tb(error.__traceback__)[-1].name
            return False, (_("not done yet: write the code at the TODO of {name}, then run both "
                             "cells.").format(name=name), "", "")
        if own := _own_line(error):
            if reaches():
                return False, (_("a result that this check can use"), reason(error), own)
            return False, (_("a check that runs to its end"), reason(error),
                           _("nothing in your cell: the check stopped before it called your "
                             "function. That is a fault of the course ({place}): please report "
                             "it, with these lines").format(place=own))
        # form: does-not-run
        expected = _("your code to run")
        given = _given(error)
        example = Example.of(given, expected, reason(error)) if given else None
        return False, CheckFailed(expected, reason(error), place_of(error), example=example).whole
