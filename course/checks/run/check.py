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
import mmap
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import tvm
from IPython import get_ipython

from course import present
from course.checks.run.answer import DEEP, calls_of_answer, line_at, note_answers, outcome
from course.checks.run.cells import require_of_the_cell_above, stale
from course.checks.run.isolate import GIGABYTE, Child, Ended, Limits
from course.checks.run.signature import name_in, other_order, require_called_as
from course.checks.say.messages import CheckFailed, wrapped
from course.checks.say.show import Example
from course.progress import solved
from course.words import _, language, listed, packed, told, unpacked

MOST_PRINTED = 5000  # characters: a loop that prints would fill the notebook
PATIENCE = 20  # times its limit of CPU time that a check may take on a busy machine

Outcome = tuple[bool, Any]
Result = TypeVar("Result")


def forks() -> bool:
    """Whether checks run in a forked child: fork is not safe beside macOS' frameworks."""
    return sys.platform == "linux"


# ---- exercises -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Exercise:
    """An exercise: its number, as 2.3, its check, and what is made ready before the check forks.

    `form` is how its check calls the answer: "leaky_relu(x, slope)". `needs`: a kind of tool in
    course.present, without which it judges nothing.
    """

    number: str
    form: str
    check: Callable[..., None]
    prepare: tuple[Callable[[], Any], ...]
    needs: str = ""

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
    print("\n".join(map(wrapped, failed._render_traceback_())), file=sys.stderr)


def _accept(said: str) -> None:
    """Print a verdict; in the lab, in green, with what is solved of the notebook."""
    if not SHOWN:
        return print(said)
    print(f"\x1b[32m{wrapped(said)}\x1b[0m")
    if (notebook := Path(os.environ["JPY_SESSION_NAME"])).is_file():
        print(solved(notebook, right))
    return None


registered: dict[str, Exercise] = {}  # all exercises, by their numbers


def exercise(number: str, form: str, seconds: float = 10,
             prepare: Sequence[Callable[[], Any]] = (), needs: str = ""
             ) -> Callable[[Callable[..., str]], Callable[..., None]]:
    """Register a function that returns what it verified, or raises CheckFailed, as a check.

    `form`: the answer with its parameters as the notebook has them, "leaky_relu(x, slope)"; what
    cannot be called so is refused before. `seconds` is the check's limit of CPU time. `prepare`:
    functions by `prepared` whose results the check uses. They are called before the fork, so that
    they run once in a kernel and not in each child. `needs`: a kind of tool in course.present;
    without it the check says so, and judges nothing.
    """
    def wrap(check: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(check)
        def run(answer: Any) -> None:
            note_answers(answer)
            title = _("Exercise {number} ✗").format(number=number)
            try:
                require_of_the_cell_above(answer, name_in(form), _is_asked_for)
                require_called_as(answer, form)
            except CheckFailed as failed:
                return _refuse(CheckFailed(*failed.parts, title))
            if needs and not (tool := present.tool(needs)):
                return print(_("Exercise {number} is not judged on this machine. {missing}").format(
                    number=number, missing=tool.said))
            registered[number].get_ready()
            passed, parts = isolated(lambda: _judged(check, answer, form), seconds,
                                     lambda: _reaches(check))
            if not passed:
                expected, came, look_at, *example = parts
                if not came:
                    expected = _("Exercise {number} is {what}").format(number=number, what=expected)
                return _refuse(CheckFailed(expected, came or None, look_at, title,
                                           Example.again(*example) if example else None))
            right[number] = answer
            title = _("Exercise {number} ✓").format(number=number)
            return _accept(f"{title} {told(parts, language())}")
        run.__doc__ = f"Check exercise {number}: {check.__doc__}"
        registered[number] = Exercise(number, form, run, tuple(prepare), needs)
        return run
    return wrap


def _is_asked_for(name: str) -> bool:
    return any(name == name_in(one.form) for one in registered.values())


right: dict[str, Any] = {}  # the answers that checks have accepted in this process


def _judged(check: Callable[..., str], answer: Any, form: str) -> str:
    """Return what a check verified; where it fails, the order of parameters is told first."""
    try:
        return check(answer)
    except NotImplementedError:  # the stub's
        raise
    except Exception:
        if not (turned := other_order(answer, form)):
            raise
        raise CheckFailed(
            _("{form}, called with its parameters in this order").format(form=form),
            _("{name} takes {parameters}").format(name=name_in(form), parameters=turned)
            ) from None


class _Reached(BaseException):
    """A check has called its answer. No `except Exception` on the way takes it."""


def _reaches(check: Callable[..., str]) -> bool:
    """Whether a check comes as far as to call an answer."""
    reached = []

    def probe(*arguments: Any, **options: Any) -> None:
        reached.append(True)
        raise _Reached

    with contextlib.suppress(BaseException):
        check(probe)
    return bool(reached)


def accepted(*numbers: str) -> bool:
    """Whether the caller's answers to these exercises are those that their checks accepted.

    Prints which are not. For cells that run an answer in the reader's own process: what crashes or
    never ends was refused by its check, and goes no further.
    """
    frame = inspect.currentframe()
    there = set(map(id, frame.f_back.f_globals.values())) if frame and frame.f_back else set()
    missing = [number for number in numbers if number not in right
               or id(right[number]) not in there
               or stale(right[number], name_in(registered[number].form))]
    if missing:
        needs = _("This cell needs exercises {numbers}: write them, and run their checks; the "
                  "notebook goes on without it.") if len(missing) > 1 else _(
                      "This cell needs exercise {numbers}: write it, and run its check; the "
                      "notebook goes on without it.")
        print(needs.format(numbers=listed(missing)))
    return not missing


def prepared(make: Callable) -> Callable:
    """Let a function without side effects compute its result once, before checks fork.

    What an answer does to the result in the child stays in the child. Where nothing forks, it is
    made anew for each call, so that no answer can spoil it for the next one.
    """
    once = functools.cache(make)

    @functools.wraps(make)
    def get(*arguments: Any) -> Any:
        return once(*arguments) if forks() else make(*arguments)
    return get


# ---- in the child --------------------------------------------------------------------------

def _shared() -> tuple[mmap.mmap, mmap.mmap]:
    """Return memory for `while_running` and `while_calling`, that children forked later share."""
    boards = mmap.mmap(-1, 4000), mmap.mmap(-1, 1000)
    for board in boards:
        _write(board, "")
    return boards


def _write(memory: mmap.mmap, text: str) -> None:
    memory[:] = json.dumps(packed(text)).encode().ljust(len(memory))


def _read(memory: mmap.mmap) -> str:
    return unpacked(json.loads(memory[:]))


_note, _called = _shared()


def while_running(look_at: str) -> None:
    """Say what a reader should look at if the check comes to no end from here on."""
    _write(_note, look_at)


@contextlib.contextmanager
def while_inside(look_at: str) -> Iterator[None]:
    """Do as `while_running` for a `with`; afterwards what was said before holds again."""
    before = _note[:]
    _write(_note, look_at)
    try:
        yield
    finally:
        _note[:] = before


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


def several_threads(run: Callable[[], Result]) -> Result:
    """Return what `run` gives, whose kernels TVM runs with two threads or more.

    In a forked child the pool of the parent's threads is dead, and waiting for it never ends; but
    each thread of Python that calls TVM gets a pool of its own.
    """
    def configured() -> Result:
        if forks():
            tvm.get_global_func("runtime.config_threadpool")(1, max(2, min(4, os.cpu_count() or 1)))
        return run()

    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(configured).result()


def _in_child(run: Callable[[], str], reaches: Callable[[], bool]) -> Outcome:
    """Run a check in the forked child: its outcome."""
    gc.freeze()  # what the kernel has made is not to be looked through in each child
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    warnings.simplefilter("ignore")
    with open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False) as printed, \
            contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        passed, parts = outcome(run, reaches)
    return passed, packed(parts)


# ---- and its verdict -----------------------------------------------------------------------

def _without_verdict(ended: Ended, limits: Limits) -> tuple[str, str, str]:
    """Say what became of a check that gave no verdict: expected, came, look at."""
    seconds = limits.asleep
    match ended.why:
        case "computing":
            return (_("an answer in time"),
                    _("still running after {seconds} seconds of computing").format(
                        seconds=f"{seconds:g}"), _read(_note))
        case "asleep":
            return (_("an answer in time"),
                    _("still running after {seconds} seconds, in which it waited and computed "
                      "nothing").format(seconds=f"{seconds:g}"), "")
        case "wall":
            return (_("an answer in time"),
                    _("still running after {seconds} seconds").format(seconds=f"{limits.wall:g}"),
                    _("your loops: does each end? If the machine is busy with something else, stop "
                      "that, and run the check again"))
        case "heard":
            return (_("an answer that prints little"),
                    _("more than {size} MB").format(size=limits.heard // 2**20), "")
        case "memory" | "processes":
            return (_("an answer that fits in memory"),
                    _("more than {memory} GB, or {processes} processes").format(
                        memory=f"{limits.memory / GIGABYTE:g}", processes=limits.processes), "")
        case "strange":
            return (_("your code to leave alone the files that it did not open"),
                    _("no verdict from the check"), "")
    return _of_its_end(ended.code if ended.why == "code" else 1, calls_of_answer(ended.words))


def _of_its_end(code: int, own: Sequence[tuple[str, int]]) -> tuple[str, str, str]:
    """Say what became of a check whose process ended, in these calls of the answer's own."""
    name = signal.Signals(-code).name if code < 0 else _("exit code {code}").format(code=code)
    kernel = _read(_called)
    came = (_("the process ended ({name}), in {kernel}") if kernel
            else _("the process ended ({name})")).format(name=name, kernel=kernel)
    look_at: str = _("what your code calls: is there something that ends the process?")
    if len(own) >= DEEP:
        came = _("{came}, more than {count} calls deep").format(came=came, count=len(own))
        look_at = _("{line}: a function that calls itself has to end").format(
            line=line_at(*own[0]))
    elif own and (line := line_at(*own[0])):
        look_at = line
    elif code in (-signal.SIGSEGV, -signal.SIGBUS):
        look_at = _("the index of each read and write: is it inside the buffer's shape?")
    return _("your code to run to its end"), came, look_at


class _Late(BaseException):
    """Not an Exception, so that an answer's `except Exception` does not take it."""


def alarmed(call: Callable[[], Result], seconds: float) -> Result:
    """Return what `call` returns; raises TimeoutError if it takes longer, in seconds of wall time.

    For the reader's own process, where fork is not safe: macOS. A timer interrupts Python's own
    loops, and again where an answer catches that; a loop in compiled code runs on, for Python
    handles signals between its own instructions only. Only the main thread can have a timer: in
    another one, which no notebook's kernel uses, there is none.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    late = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal late
        late = True
        raise _Late

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        with contextlib.suppress(_Late):
            result = call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if late:  # also if what was raised came back as an error of TVM's
        raise TimeoutError
    return result


def isolated(run: Callable[[], str], seconds: float,
             reaches: Callable[[], bool] = lambda: True) -> Outcome:
    """Run a check so that it can neither crash nor hang the kernel; see checks.run.answer.outcome.

    `seconds` of CPU time: on a busy machine that takes longer. What it printed is printed.
    """
    if not forks():
        try:
            return alarmed(lambda: outcome(run, reaches), seconds)
        except TimeoutError:
            came = _("still running after {seconds} seconds").format(seconds=f"{seconds:g}")
            return False, (_("an answer in time"), came, "")
    global _note, _called
    _note, _called = _shared()  # kernels that are forked from one process would write into one
    limits = Limits(asleep=seconds, wall=PATIENCE * seconds, computing=seconds,
                    printed=4 * (MOST_PRINTED + 1))
    child = Child(_in_child, run, reaches, limits=limits)
    try:
        passed, parts = child.result()
        return passed, unpacked(parts)
    except Ended as ended:
        return False, _without_verdict(ended, limits)
    finally:
        if printed := child.printed.decode(errors="replace"):
            print(printed[:MOST_PRINTED], end="")
            if len(printed) > MOST_PRINTED:
                print("\n" + _("... cut here"))
