"""Running an answer and its check so that neither crashes, hangs or deceives the kernel."""

import contextlib
import functools
import io
import json
import linecache
import multiprocessing
import os
import secrets
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm

from checks.alarm import alarmed
from checks.saying import CheckFailed, reason

MOST_PRINTED = 5000  # characters: a loop that prints would fill the notebook
MOST_SENT = 1_000_000  # bytes: a verdict, and what was printed, are far below


def forks() -> bool:
    """Whether checks run in a forked child: fork is not safe beside macOS' frameworks."""
    return sys.platform == "linux"


def prepared(make: Callable) -> Callable:
    """Let a function without side effects compute its result once, before checks fork.

    What an answer does to the result in the child stays in the child. Where nothing forks, it is
    made anew for each call, so that no answer can spoil it for the next one.
    """
    cached = functools.cache(make)

    @functools.wraps(make)
    def get(*arguments: Any) -> Any:
        return cached(*arguments) if forks() else make(*arguments)
    return get


# ---- what an answer raised -----------------------------------------------------------------

_cells: set[str] = set()  # the cells in which the answers were defined that are being checked


def line_of_answer(error: BaseException) -> str:
    """Return the line that raised, as "look at" text: the answer's own one, if there is one."""
    frames = [frame for frame in reversed(traceback.extract_tb(error.__traceback__))
              if "ipykernel" in frame.filename]
    for frame in [frame for frame in frames if frame.filename in _cells] or frames:
        if line := linecache.getline(frame.filename, frame.lineno or 0).strip():
            return f"your line {frame.lineno}: {line}"
    return "your cell above, from its first line"


def _outcome(run: Callable[[], str]) -> tuple[bool, Any]:
    """Run a check: (True, what was verified) or (False, the parts of a CheckFailed)."""
    try:
        return True, run()
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
        return False, ("that your code runs", reason(error), line_of_answer(error))


# ---- in a child ----------------------------------------------------------------------------


def _child(run: Callable[[], str], pipe: int, secret: bytes) -> None:
    """Run in the forked child and write the verdict; never returns."""
    torch.set_num_threads(1)  # without this and the next line a forked child hangs
    tvm.get_global_func("runtime.config_threadpool")(1, 1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # TVM's C++ warnings
    printed = io.StringIO()
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        passed, parts = _outcome(run)
    said = json.dumps([passed, parts, printed.getvalue()[:MOST_PRINTED + 1]]).encode()
    message = secret + len(said).to_bytes(8, "big") + said
    while message:
        message = message[os.write(pipe, message):]
    os._exit(0)


def _received(pipe: int, secret: bytes, seconds: float) -> bytes:
    """Return what the child wrote behind the secret.

    Raises TimeoutError, EOFError where the child ended without a verdict, and ValueError where
    somebody else wrote: an answer that writes into every open file does not know the secret.
    """
    end, head, data = time.monotonic() + seconds, len(secret) + 8, b""
    poller = select.poll()  # select.select knows no file descriptor above 1,023
    poller.register(pipe, select.POLLIN)
    while poller.poll(max(0, 1000 * (end - time.monotonic()))):
        chunk = os.read(pipe, 1 << 16)
        data += chunk
        if data[:len(secret)] != secret[:len(data)] or len(data) > MOST_SENT:
            raise ValueError
        if len(data) >= head and len(data) == head + int.from_bytes(data[len(secret):head], "big"):
            return data[head:]
        if not chunk:
            raise EOFError
    raise TimeoutError


def _ending(code: int) -> tuple[str, str, str]:
    """Say how a child ended that gave no verdict: by a signal, or by a call that ends it."""
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    memory = -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
    return ("that your code runs to its end", f"it ended the process ({name})",
            "reads and writes outside a buffer: every index against its shape" if memory
            else "what your code calls: something in it ends the process")


_FOREIGN = ("that your code leaves files alone that it did not open", "no verdict of the check",
            "what your code writes or closes, by os.write, os.close or open with a number")


def isolated(run: Callable[[], str], seconds: float) -> tuple[bool, Any]:
    """Run a check so that it can neither crash nor hang the kernel; see _outcome.

    Linux: in a forked child with a time limit, whose verdict counts only with a secret that was
    drawn before the fork. Elsewhere in this process, where a timer ends loops in Python: fork is
    not safe beside macOS' frameworks, and there nothing ends compiled loops.
    """
    late = ("an answer in time", f"still running after {seconds:g} seconds",
            "your loops: does each end, and does each count what it should?")
    if not forks():
        try:
            return alarmed(lambda: _outcome(run), seconds)
        except TimeoutError:
            return False, late
    secret = secrets.token_bytes(8)
    receive, send = os.pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(run, send, secret),
                                                        daemon=True)
    with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; measured safe here
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    os.close(send)
    try:
        passed, parts, printed = json.loads(_received(receive, secret, seconds))
    except TimeoutError:
        return False, late
    except EOFError:
        child.join(seconds)
        return False, _FOREIGN if child.exitcode is None else _ending(child.exitcode)
    except ValueError:
        return False, _FOREIGN
    finally:
        child.kill()
        child.join()
        os.close(receive)
    if printed:
        print(printed[:MOST_PRINTED] + "\n... cut here\n" * (len(printed) > MOST_PRINTED), end="")
    return passed, parts


def exercise(number: str, seconds: float = 30, prepare: Sequence[Callable[[], Any]] = ()
             ) -> Callable[[Callable[..., str]], Callable[..., None]]:
    """Make a check of a function that returns what it verified or raises CheckFailed.

    `seconds` is the check's time limit. `prepare`: functions by `prepared` whose results the check
    uses. They are called before the fork, so that they run once in a kernel and not in each child.
    """
    def wrap(check: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(check)
        def run(*answers: Any) -> None:
            _cells.clear()
            _cells.update(code.co_filename for answer in answers
                          if (code := getattr(answer, "__code__", None)))
            for make in prepare if forks() else ():
                make()
            passed, parts = isolated(lambda: check(*answers), seconds)
            if not passed:
                expected, came, look_at = parts
                raise CheckFailed(expected, came, look_at,
                                  f"Exercise {number} {'✗' if came else 'is '}")
            print(f"Exercise {number} ✓ {parts}")
        run.__doc__ = f"Check exercise {number}: {check.__doc__}"
        return run
    return wrap
