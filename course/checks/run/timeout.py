"""A time limit for checks that run in the reader's own process, where fork is not safe: macOS."""

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from course.words import _

Result = TypeVar("Result")


class _Late(BaseException):
    """Not an Exception, so that an answer's `except Exception` does not take it."""


def alarmed(call: Callable[[], Result], seconds: float) -> Result:
    """Return what `call` returns; raises TimeoutError if it takes longer, in seconds of wall time.

    A timer interrupts Python's own loops, and again where an answer catches that; a loop in
    compiled code runs on, for Python handles signals between its own instructions only. Only the
    main thread can have a timer: in another one, which no notebook's kernel uses, there is none.
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
        raise TimeoutError(_("still running after {seconds} seconds").format(
                               seconds=f"{seconds:g}"))
    return result
