"""Run what may crash, hang or fill the memory in a forked child, and take what it gives.

Checks, `make mutants` and grading run foreign code by this. A child gives JSON behind a secret that
was drawn before the fork, for an answer may write into every open file.
"""

import contextlib
import json
import math
import os
import secrets
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil

GIGABYTE = 2**30
LOOK = 0.2  # seconds between two looks at a child


@dataclass(frozen=True)
class Limits:
    """What a child may take before it is ended; times are in seconds.

    `asleep`: in which it computes nothing; `wall`: in all; `memory`: bytes of it and all processes
    below it, what they share counted once; `given`: bytes of what it gives. (Of CPU time a process
    can only be limited from inside: see checks.run.check.)
    """

    asleep: float = math.inf
    wall: float = math.inf
    memory: int = 6 * GIGABYTE
    processes: int = 100
    given: int = 1_000_000


class Ended(Exception):
    """A child gave nothing. `why` is the limit that it passed, by its name in Limits, or:

    "code": it ended with `code`, negative for a signal; "raised": its function raised `words`;
    "strange": something else than its function wrote into the pipe, or closed it.
    """

    def __init__(self, why: str, code: int = 0, words: str = "") -> None:
        super().__init__(f"{why} {code or words}".strip())
        self.why, self.code, self.words = why, code, words


class Child:
    """A forked process that runs a function of which JSON comes; `result` waits for that.

    `select` takes it. Where the child is `alone`, it has a session of its
    own and no file of this process, and all processes below this one count as its own: they end
    with it, however they were started. `look` is called now and then, and returns a reason to end
    it, or "".
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, limits: Limits = Limits(),
                 alone: bool = False, look: Callable[[], str] = str) -> None:
        self.limits, self.alone, self.look = limits, alone, look
        self.secret = secrets.token_bytes(8)
        self.code: int | None = None
        self.take, give = os.pipe()
        for stream in (sys.stdout, sys.stderr):  # or the child has what waits in them too
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; measured safe
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            _give(function, arguments, give, self.secret, alone)
        os.close(give)

    def fileno(self) -> int:
        """Return the end of the pipe at which something can be read when the child gives it."""
        return self.take

    def result(self) -> Any:
        """Return what the function returned; raises Ended. Nothing of the child is left then."""
        try:
            done, value = json.loads(self._received())
        except ValueError:
            raise Ended("strange") from None
        finally:
            self.end()
        if not done:
            raise Ended("raised", words=value)
        return value

    def end(self) -> None:
        """End the child, and where it was `alone` whatever it started."""
        with contextlib.suppress(OSError):
            os.close(self.take)
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait(math.inf)
        if self.alone:
            end_below()

    def _wait(self, seconds: float) -> bool:
        """Whether the child ended within some seconds; its exit code is known then."""
        end = time.monotonic() + seconds
        while self.code is None:
            try:
                pid, status = os.waitpid(self.pid, 0 if seconds == math.inf else os.WNOHANG)
            except ChildProcessError:
                self.code = 0
                break
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                return False
            else:
                time.sleep(0.01)
        return True

    def _received(self) -> bytes:
        """Return what came behind the secret; raises Ended, or ValueError where another wrote."""
        start = awake = time.monotonic()
        head, data, used = len(self.secret) + 8, bytearray(), -1.0
        poller = select.poll()  # select.select knows no file descriptor above 1,023
        poller.register(self.take, select.POLLIN)
        while True:
            ready = poller.poll(1000 * min(LOOK, self.limits.asleep / 4))
            if ready:
                part = os.read(self.take, 1 << 20)
                data += part
                if data[:len(self.secret)] != self.secret[:len(data)] \
                        or len(data) > self.limits.given:
                    raise ValueError
                if len(data) >= head \
                        and len(data) == head + int.from_bytes(data[len(self.secret):head], "big"):
                    return bytes(data[head:])
                if not part:
                    raise self._gone(2)
            elif self._wait(0):  # what it started may still hold the pipe
                raise self._gone(0)
            now = time.monotonic()
            if self.limits.asleep < math.inf:
                cpu, runs = _cpu_and_state(self.pid)
                if runs or cpu != used:
                    awake, used = now, cpu
                if now - awake > self.limits.asleep:
                    raise Ended("asleep")
            if now - start > self.limits.wall:
                raise Ended("wall")
            if not ready:
                self._look()

    def _gone(self, seconds: float) -> Ended:
        """Say how the child ended, which closed the pipe without a word."""
        return Ended("code", self.code or 0) if self._wait(seconds) else Ended("strange")

    def _look(self) -> None:
        """Raise Ended where the child, with all below it, takes too much."""
        try:
            family = [psutil.Process(self.pid)]
            family += (psutil.Process() if self.alone else family[0]).children(recursive=True)
        except psutil.Error:
            return
        family = list({process.pid: process for process in family}.values())
        for measure in (_mapped, _share):  # the second takes longer, and is never more
            if sum(map(measure, family)) <= self.limits.memory:
                break
        else:
            raise Ended("memory")
        if len(family) > self.limits.processes:
            raise Ended("processes")
        if words := self.look():
            raise Ended("look", words=words)


def _mapped(process: psutil.Process) -> int:
    """The bytes of a process that are in memory, those that others have too among them."""
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss
    return 0


def _share(process: psutil.Process) -> int:
    """The bytes of a process; of what n processes share, an n-th (Linux: proportional set size)."""
    try:
        memory = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    except psutil.Error:  # it may not be looked into
        return _mapped(process)
    return getattr(memory, "pss", memory.uss)


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


def _give(function: Callable[..., Any], arguments: tuple, pipe: int, secret: bytes, alone: bool
          ) -> NoReturn:
    """Run the function in the child, and write what it gives into the pipe."""
    code = 1
    try:
        if alone:
            pipe = _be_alone(pipe)
        try:
            came = [True, function(*arguments)]
            said = json.dumps(came).encode()
        except BaseException as error:  # told to the parent: there is nobody else to tell
            said = json.dumps([False, f"{type(error).__name__}: {error}"[:300]]).encode()
        message = secret + len(said).to_bytes(8, "big") + said
        while message:
            message = message[os.write(pipe, message):]
        code = 0
    finally:
        os._exit(code)


def _be_alone(pipe: int) -> int:
    """Leave the parent's session, terminal and files; return where the pipe is now."""
    os.setsid()  # what is typed into the parent's terminal is none of its business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    kept = os.dup2(pipe, 3, inheritable=False)
    os.closerange(4, 65536)
    return kept


def end_below(seconds: float = 10) -> None:
    """End every process below this one, also such as are just being started."""
    if os.getpid() == 1:  # in a namespace of its own: everybody but this process, at once
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    end = time.monotonic() + seconds
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < end:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped starts no other
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        psutil.wait_procs(left, timeout=0.05)
