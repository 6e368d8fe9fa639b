"""Running an answer and its check so that neither crashes, hangs or deceives the kernel."""

import bdb
import builtins
import contextlib
import functools
import gc
import inspect
import io
import json
import linecache
import math
import mmap
import multiprocessing
import os
import resource
import secrets
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import tvm
import tvm_ffi

from checks.alarm import alarmed
from checks.language import say
from checks.saying import CheckFailed, place_in_script, reason

MOST_PRINTED = 5000  # characters: a loop that prints would fill the notebook
MOST_SENT = 1_000_000  # bytes: a verdict, and what was printed, are far below
PATIENCE = 20  # times its limit of CPU time that a check may take on a busy machine
OWN = (str(Path(__file__).parent) + os.sep, str(Path(__file__).parent.parent / "loops.py"))


def forks() -> bool:
    """Whether checks run in a forked child: fork is not safe beside macOS' frameworks."""
    return sys.platform == "linux"


made_ready: dict[tuple, Any] = {}  # what `prepared` has made, by the function and its arguments
needs: dict[str, tuple[Callable, ...]] = {}  # what each exercise's check takes of it


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


def prepare_for(number: str) -> None:
    """Make ready what an exercise's check needs, where checks fork."""
    for make in needs[number] if forks() else ():
        make()


# ---- what an answer raised -----------------------------------------------------------------

_cells: set[str] = set()  # the cells in which the answers were defined that are being checked


def _of_answer(frame: traceback.FrameSummary) -> bool:
    return "ipykernel" in frame.filename or frame.filename in _cells


def line_of_answer(error: BaseException) -> str:
    """Return the line that raised, as "look at" text: the answer's own one, if there is one."""
    frames = [frame for frame in reversed(traceback.extract_tb(error.__traceback__))
              if _of_answer(frame)]
    for frame in [frame for frame in frames if frame.filename in _cells] or frames:
        if line := linecache.getline(frame.filename, frame.lineno or 0).strip():
            return f"your line {frame.lineno}: {line}"
    return "your cell above, from its first line"


def _own_line(error: BaseException) -> str:
    """Name the line of a check that raised, where neither an answer nor TVM did; else ""."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(map(_of_answer, frames)):
        return ""
    tvms = [str(Path(module.__file__ or "").parent) + os.sep for module in (tvm, tvm_ffi)]
    for frame in reversed(frames):
        if frame.filename.startswith(OWN):
            name = Path(frame.filename).name
            return f"{name}, line {frame.lineno}" if name != "answers.py" else ""
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
            mock.patch.object(sys, "stdin", mock.Mock(spec_set=["read", "readline"], **{
                f"{name}.side_effect": _Waits("sys.stdin") for name in ("read", "readline")})):
        yield


def _outcome(run: Callable[[], str]) -> tuple[bool, Any]:
    """Run a check: (True, what was verified) or (False, the parts of a CheckFailed)."""
    try:
        # TVMScript's decorators look at the caller's lines, and on the way inspect looks for the
        # module of each frame among all modules, 0.2 seconds long; cells are in linecache without
        # one. Not around this function: grading looks afterwards whether inspect was changed
        with _nobody_there(), mock.patch.object(inspect, "getmodule", lambda *_, **__: None):
            return True, run()
    except _Waits as waits:
        return False, ("an answer that nobody has to talk to", f"{waits}, in your code",
                       f"{line_of_answer(waits)}; take it out, for a check runs alone")
    except CheckFailed as failed:
        return False, failed.parts
    except (SystemExit, KeyboardInterrupt) as error:
        return False, ("that your code runs to its end", type(error).__name__,
                       line_of_answer(error))
    except Exception as error:  # whatever the reader's code raises is to be shown in one line
        if isinstance(error, NotImplementedError) and not str(error):  # the stub's
            name = traceback.extract_tb(error.__traceback__)[-1].name
            return False, (f"not done yet: write the code at the TODO of {name}, then run both "
                           "cells.", "", "")
        if own := _own_line(error):
            return False, ("a result that this check can look at", reason(error),
                           f"the form of what you return or change, beside the text's words; "
                           f"that the check has no better ones is its own fault ({own})")
        return False, ("that your code runs", reason(error),
                       place_in_script(error) or line_of_answer(error))


# ---- in a child ----------------------------------------------------------------------------


_note = mmap.mmap(-1, 1000)  # shared with the child: what to look at if it comes to no end
_called = mmap.mmap(-1, 100)  # and which kernel it is in


def while_running(look_at: str) -> None:
    """Say what a reader should look at if the check comes to no end from here on."""
    _note[:] = look_at.encode()[:len(_note)].ljust(len(_note), b"\0")


def while_calling(kernel: str) -> None:
    """Name what runs now, for the message if it ends the process; "" where it has ended."""
    _called[:] = kernel.encode()[:len(_called)].ljust(len(_called), b"\0")


class _Bounded(io.TextIOBase):
    """Keeps the beginning of what is printed, and drops the rest as it comes."""

    def __init__(self) -> None:
        self.kept = ""

    def write(self, text: str) -> int:
        self.kept += text[:MOST_PRINTED + 1 - len(self.kept)]
        return len(text)

    def writable(self) -> bool:
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


def _child(run: Callable[[], str], pipe: int, secret: bytes, seconds: float) -> None:
    """Run in the forked child and write the verdict; never returns."""
    gc.freeze()  # what the kernel has made is not to be looked through in each child
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = math.ceil(seconds) if hard == resource.RLIM_INFINITY else min(math.ceil(seconds), hard)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    # or the next lines bind this process to one CPU, and all checks of a machine share the first
    os.environ["TVM_BIND_THREADS"] = "0"
    torch.set_num_threads(1)  # without this and the next line a forked child hangs
    tvm.get_global_func("runtime.config_threadpool")(1, 1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # TVM's C++ warnings
    printed = _Bounded()
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        passed, parts = _outcome(run)
    said = json.dumps([passed, parts, printed.kept]).encode()
    message = secret + len(said).to_bytes(8, "big") + said
    while message:
        message = message[os.write(pipe, message):]
    os._exit(0)


class _Hangs(Exception):
    """A child does nothing any more, or the machine gives it no time."""


def _cpu_and_state(child: int) -> tuple[float, bool]:
    """The seconds of CPU time that a process has used, and whether any thread of it can run."""
    ticks, runs = 0.0, False
    try:
        for task in os.listdir(f"/proc/{child}/task"):
            state = Path(f"/proc/{child}/task/{task}/stat").read_text().rpartition(")")[2].split()
            ticks += int(state[11]) + int(state[12])
            runs |= state[0] not in "SZX"
    except OSError:  # it, or a thread of it, has just ended
        return math.inf, True
    return ticks / os.sysconf("SC_CLK_TCK"), runs


def _received(pipe: int, secret: bytes, seconds: float, child: int) -> bytes:
    """Return what the child wrote behind the secret.

    Raises _Hangs where it has slept for `seconds`, or runs on and on without getting CPU time;
    EOFError where the child ended without a verdict; and ValueError where somebody else wrote: an
    answer that writes into every open file does not know the secret.
    """
    start = awake = time.monotonic()
    head, data, used = len(secret) + 8, b"", -1.0
    poller = select.poll()  # select.select knows no file descriptor above 1,023
    poller.register(pipe, select.POLLIN)
    while True:
        if poller.poll(min(250, 250 * seconds)):
            chunk = os.read(pipe, 1 << 16)
            data += chunk
            if data[:len(secret)] != secret[:len(data)] or len(data) > MOST_SENT:
                raise ValueError
            if len(data) >= head \
                    and len(data) == head + int.from_bytes(data[len(secret):head], "big"):
                return data[head:]
            if not chunk:
                raise EOFError
        now = time.monotonic()
        cpu, runs = _cpu_and_state(child)
        if runs or cpu != used:
            awake, used = now, cpu
        if now - awake > seconds:
            raise _Hangs(f"still running after {seconds:g} seconds, in which it waits and computes "
                         "nothing", "what your code waits for: a sleep, a lock, another thread")
        if now - start > PATIENCE * seconds:
            raise _Hangs(f"still running after {PATIENCE * seconds:g} seconds", "your loops: does "
                         "each end? Or the machine is busy: then stop what else it does, and run "
                         "the check again")


def _ending(code: int, seconds: float) -> tuple[str, str, str]:
    """Say how a child ended that gave no verdict: by a signal, or by a call that ends it."""
    if code == -signal.SIGXCPU:
        look_at = bytes(_note).rstrip(b"\0").decode(errors="replace")
        return ("an answer in time", f"still running after {seconds:g} seconds of computing",
                look_at or "your loops: does each end, and does each count what it should?")
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    memory = -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
    kernel = bytes(_called).rstrip(b"\0").decode(errors="replace")
    return ("that your code runs to its end", f"it ended the process ({name})"
            + f", in {kernel}" * bool(kernel),
            "reads and writes outside a buffer: every index against its shape" if memory
            else "what your code calls: something in it ends the process")


_FOREIGN = ("that your code leaves files alone that it did not open", "no verdict of the check",
            "what your code writes or closes, by os.write, os.close or open with a number")


def isolated(run: Callable[[], str], seconds: float) -> tuple[bool, Any]:
    """Run a check so that it can neither crash nor hang the kernel; see _outcome.

    Linux: in a forked child that may compute for `seconds` (of CPU time: on a busy machine that
    takes longer), whose verdict counts only with a secret that was drawn before the fork.
    Elsewhere in this process, where a timer ends loops in Python: fork is not safe beside macOS'
    frameworks, and there nothing ends compiled loops.
    """
    if not forks():
        try:
            return alarmed(lambda: _outcome(run), seconds)
        except TimeoutError:
            return False, ("an answer in time", f"still running after {seconds:g} seconds",
                           "your loops: does each end, and does each count what it should?")
    secret = secrets.token_bytes(8)
    receive, send = os.pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, daemon=True,
                                                        args=(run, send, secret, seconds))
    while_running("")
    while_calling("")
    with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; measured safe here
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    os.close(send)
    try:
        passed, parts, printed = json.loads(
            _received(receive, secret, seconds, child.pid or 0))
    except _Hangs as hangs:
        return False, ("an answer in time", *hangs.args)
    except EOFError:
        child.join(seconds)
        return False, _FOREIGN if child.exitcode is None else _ending(child.exitcode, seconds)
    except ValueError:
        return False, _FOREIGN
    finally:
        child.kill()
        child.join()
        os.close(receive)
    if printed:
        print(printed[:MOST_PRINTED] + "\n... cut here\n" * (len(printed) > MOST_PRINTED), end="")
    return passed, parts


def exercise(number: str, seconds: float = 10, prepare: Sequence[Callable[[], Any]] = ()
             ) -> Callable[[Callable[..., str]], Callable[..., None]]:
    """Make a check of a function that returns what it verified or raises CheckFailed.

    `seconds` is the check's limit of CPU time. `prepare`: functions by `prepared` whose results the
    check uses. They are called before the fork, so that they run once in a kernel and not in each
    child.
    """
    needs[number] = tuple(prepare)

    def wrap(check: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(check)
        def run(*answers: Any) -> None:
            _cells.clear()
            _cells.update(code.co_filename for answer in answers
                          if (code := getattr(answer, "__code__", None)))
            prepare_for(number)
            passed, parts = isolated(lambda: check(*answers), seconds)
            if not passed:
                expected, came, look_at = parts
                raise CheckFailed(expected, came, look_at, f"Exercise {number} ✗" if came
                                  else f"Exercise {number} is ")
            print(say(f"Exercise {number} ✓"), say(parts))
        run.__doc__ = f"Check exercise {number}: {check.__doc__}"
        return run
    return wrap
