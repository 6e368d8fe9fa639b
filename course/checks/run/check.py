"""Exercises register their checks here, and each runs so that no answer harms the reader's kernel.

Linux: in a forked child (checks.run.isolate). Elsewhere in the kernel's own process, where a timer
ends loops in Python: fork is not safe beside macOS' frameworks, and there nothing ends compiled
loops.
"""

import contextlib
import functools
import gc
import inspect
import io
import json
import math
import mmap
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from IPython import get_ipython

from course.checks.run.answer import broken_cell, line_of_answer, note_answers, outcome
from course.checks.run.isolate import GIGABYTE, Child, Ended, Limits
from course.checks.run.timeout import alarmed
from course.checks.say.messages import CheckFailed, reason
from course.checks.say.show import Example
from course.words import _, language, listed, ngettext, packed, told, unpacked

MOST_PRINTED = 5000  # characters: a loop that prints would fill the notebook
PATIENCE = 20  # times its limit of CPU time that a check may take on a busy machine

Outcome = tuple[bool, Any]


def forks() -> bool:
    """Whether checks run in a forked child: fork is not safe beside macOS' frameworks."""
    return sys.platform == "linux"


# ---- exercises -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Exercise:
    """An exercise: its number, as 2.3, its check, and what is made ready before the check forks."""

    number: str
    check: Callable[..., None]
    prepare: tuple[Callable[[], Any], ...]

    @property
    def notebook(self) -> str:
        """The two digits of its notebook."""
        return f"{int(self.number.partition('.')[0]):02}"

    @property
    def function(self) -> str:
        """The name under which notebooks call its check."""
        return f"exercise_{self.number.replace('.', '_')}"

    def get_ready(self) -> None:
        """Make what the check needs, where checks fork."""
        for make in self.prepare if forks() else ():
            make()


def _in_the_lab() -> bool:
    """Whether this is a notebook's kernel that `make lab` started: its server names the session.

    A kernel that executes a notebook for grading or for a test has no such name.
    """
    return "MLC_LAB" in os.environ and "JPY_SESSION_NAME" in os.environ \
        and hasattr(get_ipython(), "kernel")


SHOWN = _in_the_lab()  # asked once, before a cell of an answer can change it


def _refuse(failed: CheckFailed) -> None:
    """Raise a verdict; in the lab, show it as JupyterLab shows what goes wrong.

    When a cell raises, JupyterLab takes the stars off all cells that wait, as if the run had ended;
    the kernel runs on.
    """
    if not SHOWN:
        raise failed
    print("\n".join(failed._render_traceback_()), file=sys.stderr)


registered: dict[str, Exercise] = {}  # all exercises, by their numbers


def exercise(number: str, seconds: float = 10, prepare: Sequence[Callable[[], Any]] = ()
             ) -> Callable[[Callable[..., str]], Callable[..., None]]:
    """Register a function that returns what it verified, or raises CheckFailed, as a check.

    `seconds` is the check's limit of CPU time. `prepare`: functions by `prepared` whose results the
    check uses. They are called before the fork, so that they run once in a kernel and not in each
    child.
    """
    def wrap(check: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(check)
        def run(*answers: Any) -> None:
            note_answers(*answers)
            if error := broken_cell(*answers):
                return _refuse(CheckFailed(
                    _("that the cell of your answer runs"), reason(error), line_of_answer(error),
                    _("Exercise {number} ✗").format(number=number)))
            registered[number].get_ready()
            passed, parts = isolated(lambda: check(*answers), seconds)
            if not passed:
                expected, came, look_at, *example = parts
                if not came:
                    expected = _("Exercise {number} is {what}").format(number=number, what=expected)
                return _refuse(CheckFailed(expected, came, look_at,
                                           _("Exercise {number} ✗").format(number=number),
                                           Example.again(*example) if example else None))
            right[number] = answers
            print(_("Exercise {number} ✓").format(number=number), told(parts, language()))
            return None
        run.__doc__ = f"Check exercise {number}: {check.__doc__}"
        registered[number] = Exercise(number, run, tuple(prepare))
        return run
    return wrap


right: dict[str, tuple] = {}  # the answers that checks have accepted in this process


def accepted(*numbers: str) -> bool:
    """Whether the caller's answers to these exercises are those that their checks accepted.

    Prints which are not. For cells that run an answer in the reader's own process: what crashes or
    never ends was refused by its check, and goes no further.
    """
    frame = inspect.currentframe()
    there = set(map(id, frame.f_back.f_globals.values())) if frame and frame.f_back else set()
    missing = [number for number in numbers if number not in right
               or not there.issuperset(map(id, right[number]))]
    if missing:
        print(ngettext("This cell needs exercise {numbers}: write it, and run its check; the "
                       "notebook goes on without it.",
                       "This cell needs exercises {numbers}: write them, and run their checks; the "
                       "notebook goes on without it.", len(missing)).format(
                           numbers=listed(missing)))
    return not missing


made_ready: dict[tuple, Any] = {}  # what `prepared` has made, by the function and its arguments


def prepared(make: Callable) -> Callable:
    """Let a function without side effects compute its result once, before checks fork.

    What an answer does to the result in the child stays in the child. Where nothing forks, it is
    made anew for each call, so that no answer can spoil it for the next one.
    """
    @functools.wraps(make)
    def get(*arguments: Any) -> Any:
        if not forks():
            return make(*arguments)
        if (make, arguments) not in made_ready:
            made_ready[make, arguments] = make(*arguments)
        return made_ready[make, arguments]
    return get


# ---- in the child --------------------------------------------------------------------------

_note = mmap.mmap(-1, 4000)  # shared with the child: what to look at if it comes to no end
_called = mmap.mmap(-1, 1000)  # and which kernel it is in


def _write(memory: mmap.mmap, text: str) -> None:
    memory[:] = json.dumps(packed(text)).encode().ljust(len(memory))


def _read(memory: mmap.mmap) -> str:
    return unpacked(json.loads(memory[:]))


def while_running(look_at: str) -> None:
    """Say what a reader should look at if the check comes to no end from here on."""
    _write(_note, look_at)


def while_calling(kernel: str) -> None:
    """Name what runs now, for the message if it ends the process; "" where it has ended."""
    _write(_called, kernel)


class Bounded(io.TextIOBase):
    """Keeps the first `most` characters that are printed, and drops the rest as it comes."""

    def __init__(self, most: int) -> None:
        self.most, self.kept = most, ""

    def write(self, text: str) -> int:
        """Take a text, and say that all of it was taken."""
        self.kept += text[:self.most - len(self.kept)]
        return len(text)

    def writable(self) -> bool:
        """Whether it can be written to: it can."""
        return True


def several_threads(run: Callable[[], Any]) -> None:
    """Run something that TVM executes with two threads or more, also in a forked child.

    There the pool of the parent's threads is dead, and waiting for it never ends; but each thread
    of Python that calls TVM gets a pool of its own.
    """
    def configured() -> None:
        if forks():
            tvm.get_global_func("runtime.config_threadpool")(1, max(2, min(4, os.cpu_count() or 1)))
        run()

    raised: list[BaseException] = []

    def caught() -> None:
        try:
            configured()
        except BaseException as error:  # to be raised where the caller stands
            raised.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _limit_computing(seconds: float) -> None:
    """Let this process end by SIGXCPU when it has computed for some seconds, and dump no core."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = math.ceil(seconds) if hard == resource.RLIM_INFINITY else min(math.ceil(seconds), hard)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _in_child(run: Callable[[], str], seconds: float) -> tuple[bool, Any, str]:
    """Run a check in the forked child: its outcome, and the beginning of what was printed."""
    gc.freeze()  # what the kernel has made is not to be looked through in each child
    _limit_computing(seconds)
    # or the next lines bind this process to one CPU, and all checks of a machine share the first
    os.environ["TVM_BIND_THREADS"] = "0"
    torch.set_num_threads(1)  # without this and the next line a forked child hangs
    tvm.get_global_func("runtime.config_threadpool")(1, 1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # TVM's C++ warnings
    printed = Bounded(MOST_PRINTED + 1)
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        passed, parts = outcome(run)
    return passed, packed(parts), printed.kept


# ---- and its verdict -----------------------------------------------------------------------

_LOOPS = _("your loops: does each end, and does each count what it should?")


def _without_verdict(ended: Ended, limits: Limits) -> tuple[str, str, str]:
    """Say what became of a check that gave no verdict: expected, came, look at."""
    seconds = limits.asleep
    match ended.why:
        case "asleep":
            return (_("an answer in time"),
                    _("still running after {seconds} seconds, in which it waits and computes "
                      "nothing").format(seconds=f"{seconds:g}"),
                    _("what your code waits for: a sleep, a lock, another thread"))
        case "wall":
            return (_("an answer in time"),
                    _("still running after {seconds} seconds").format(seconds=f"{limits.wall:g}"),
                    _("your loops: does each end? Or the machine is busy: then stop what else it "
                      "does, and run the check again"))
        case "memory" | "processes":
            return (_("an answer in the memory that there is"),
                    _("more than {memory} GB, or {processes} processes").format(
                        memory=f"{limits.memory / GIGABYTE:g}", processes=limits.processes),
                    _("what grows in your loops, and the shapes of the arrays that it makes"))
        case "strange":
            return (_("that your code leaves files alone that it did not open"),
                    _("no verdict of the check"),
                    _("what your code writes or closes, by os.write, os.close or open with a "
                      "number"))
    code = ended.code if ended.why == "code" else 1
    if code == -signal.SIGXCPU:
        return (_("an answer in time"),
                _("still running after {seconds} seconds of computing").format(
                    seconds=f"{seconds:g}"), _read(_note) or _LOOPS)
    name = signal.Signals(-code).name if code < 0 else _("exit code {code}").format(code=code)
    memory = -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
    kernel = _read(_called)
    return (_("that your code runs to its end"),
            (_("it ended the process ({name}), in {kernel}") if kernel
             else _("it ended the process ({name})")).format(name=name, kernel=kernel),
            _("reads and writes outside a buffer: every index against its shape")
            if memory else _("what your code calls: something in it ends the process"))


def isolated(run: Callable[[], str], seconds: float) -> Outcome:
    """Run a check so that it can neither crash nor hang the kernel; see checks.run.answer.outcome.

    `seconds` of CPU time: on a busy machine that takes longer. What it printed is printed.
    """
    if not forks():
        try:
            return alarmed(lambda: outcome(run), seconds)
        except TimeoutError:
            came = _("still running after {seconds} seconds").format(seconds=f"{seconds:g}")
            return False, (_("an answer in time"), came, _LOOPS)
    while_running("")
    while_calling("")
    limits = Limits(asleep=seconds, wall=PATIENCE * seconds)
    try:
        passed, parts, printed = Child(_in_child, run, seconds, limits=limits).result()
    except Ended as ended:
        return False, _without_verdict(ended, limits)
    if printed:
        print(printed[:MOST_PRINTED], end="")
        if len(printed) > MOST_PRINTED:
            print("\n" + _("... cut here"))
    return passed, unpacked(parts)
