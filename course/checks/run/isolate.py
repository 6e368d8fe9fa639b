"""Run what may crash, hang or fill the memory in a forked child, and take what it gives.

Checks, `make mutants` and grading run foreign code by this. A child gives JSON behind a secret that
was drawn before the fork, for an answer may write into every open file.
"""

import contextlib
import faulthandler
import fcntl
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
import torch
import tvm

GIGABYTE = 2**30
_OPENED = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
LOOK = 0.2  # seconds between two looks at a child
PART = 1 << 20  # bytes that are read from a pipe at once, and wait in one


@dataclass(frozen=True)
class Limits:
    """What a child may take before it is ended; times are in seconds.

    `asleep`: in which it computes nothing; `wall`: in all; `memory`: bytes of it and all processes
    below it, what they share counted once; `given`: bytes of what it gives; `computing`: seconds of
    CPU time, looked at where `asleep` is. (From outside: what ends a process from inside it can
    ignore.) `heard`: bytes that it, and what it starts, write to descriptor 1; `printed`: how many
    of them are kept.
    """

    asleep: float = math.inf
    wall: float = math.inf
    computing: float = math.inf
    heard: int = GIGABYTE // 2
    printed: int = 20_000
    memory: int = 6 * GIGABYTE
    processes: int = 100
    given: int = 1_000_000


class Ended(Exception):
    """A child gave nothing. `why` is the limit that it passed, by its name in Limits, or:

    "code": it ended with `code`, negative for a signal, and `words` is what faulthandler wrote of
    the calls in which a signal found it, or ""; "raised": its function raised `words`; "strange":
    something else than its function wrote into the pipe, or closed it.
    """

    def __init__(self, why: str, code: int = 0, words: str = "") -> None:
        super().__init__(f"{why} {code or words}".strip())
        self.why, self.code, self.words = why, code, words


class Child:
    """A forked process that runs a function of which JSON comes; `result` waits for that.

    `select` takes it. The child has no file of this process, and a process group of its own that
    ends with it: writing into a kernel's sockets would end the kernel. What it writes to descriptor
    1 is in `printed`, the beginning of it.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, limits: Limits = Limits()
                 ) -> None:
        self.limits = limits
        self.secret = secrets.token_bytes(8)
        self.code: int | None = None
        self.take, give = os.pipe()
        self.hear, say = os.pipe()
        self.fell, falls = os.pipe()
        self.printed, self.heard = bytearray(), 0
        for end in (self.hear, self.fell):
            os.set_blocking(end, False)
        with contextlib.suppress(OSError, AttributeError):  # so that neither waits for the other
            fcntl.fcntl(say, fcntl.F_SETPIPE_SZ, PART)
        for stream in (sys.stdout, sys.stderr):  # or the child has what waits in them too
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; measured safe
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            _give(function, arguments, give, say, falls, self.secret)
        for end in (give, say, falls):
            os.close(end)

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
        """End the child and its group."""
        for ends, process in ((os.killpg, self.pid), (os.kill, self.pid)):
            if self.code is None or ends is os.killpg:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    ends(process, signal.SIGKILL)
        if self.code is None:
            self._wait(math.inf)
        self._listen()
        for end in (self.take, self.hear, self.fell):
            with contextlib.suppress(OSError):
                os.close(end)

    def _listen(self) -> bool:
        """Take what waits at descriptor 1's other end, and keep the beginning of all.

        Return whether something came, and no more is kept.
        """
        came = False
        with contextlib.suppress(OSError):  # nothing is there now
            for _turn in range(64):
                if not (part := os.read(self.hear, PART)):
                    break
                came = True
                self.heard += len(part)
                self.printed += part[:max(0, self.limits.printed - len(self.printed))]
        return came and len(self.printed) >= self.limits.printed

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
        start = awake = looked = time.monotonic()
        often = min(LOOK, self.limits.asleep / 4)
        head, data, used = len(self.secret) + 8, bytearray(), -1.0
        poller = select.poll()  # select.select knows no file descriptor above 1,023
        for end in (self.take, self.hear):
            poller.register(end, select.POLLIN)
        floods = False
        while True:
            if floods:  # nobody reads it: let much come before it is taken away
                time.sleep(0.002)
            gone = self._wait(0)  # asked first: what it gave before it ended is in the pipe then
            ends = dict(poller.poll(1000 * often))
            if ends.get(self.hear, 0) & select.POLLIN:
                floods = self._listen()
                if self.heard > self.limits.heard:
                    raise Ended("heard")
            elif self.hear in ends:
                poller.unregister(self.hear)  # nobody has its other end any more
            if self.take in ends:
                part = os.read(self.take, PART)
                data += part
                if data[:len(self.secret)] != self.secret[:len(data)] \
                        or len(data) > self.limits.given:
                    raise ValueError
                if len(data) >= head \
                        and len(data) == head + int.from_bytes(data[len(self.secret):head], "big"):
                    return bytes(data[head:])
                if not part:
                    raise self._gone(2)
            elif gone:  # what it started may still hold the pipe
                raise self._gone(0)
            if (now := time.monotonic()) < looked + often:
                continue
            looked = now
            if self.limits.asleep < math.inf:
                cpu, runs = _cpu_and_state(self.pid)
                if runs or cpu != used:
                    awake, used = now, cpu
                if now - awake > self.limits.asleep:
                    raise Ended("asleep")
                if self.limits.computing < cpu < math.inf:
                    raise Ended("computing")
            if now - start > self.limits.wall:
                raise Ended("wall")
            self._look()

    def _gone(self, seconds: float) -> Ended:
        """Say how the child ended, which closed the pipe without a word."""
        if not self._wait(seconds):
            return Ended("strange")
        with contextlib.suppress(OSError):
            return Ended("code", self.code or 0,
                         os.read(self.fell, PART).decode(errors="replace"))
        return Ended("code", self.code or 0)

    def _look(self) -> None:
        """Raise Ended where the child, with all below it, takes too much."""
        try:
            family = [psutil.Process(self.pid)]
            family += family[0].children(recursive=True)
        except psutil.Error:
            return
        for measure in (_mapped, _share):  # the second takes longer, and is never more
            if sum(map(measure, family)) <= self.limits.memory:
                break
        else:
            raise Ended("memory")
        if len(family) > self.limits.processes:
            raise Ended("processes")


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


def _give(function: Callable[..., Any], arguments: tuple, give: int, say: int, falls: int,
          secret: bytes) -> NoReturn:
    """Run the function in the child, and write what it gives into the pipe.

    The child's ends of the pipes are those of what it gives, of descriptor 1, of its last words.
    """
    code = 1
    try:
        _leave(give, say, falls)
        _compute_alone()
        try:
            came = [True, function(*arguments)]
            said = json.dumps(came).encode()
        except BaseException as error:  # told to the parent: there is nobody else to tell
            said = json.dumps([False, f"{type(error).__name__}: {error}"[:300]]).encode()
        message = secret + len(said).to_bytes(8, "big") + said
        while message:
            message = message[os.write(give, message):]
        code = 0
    finally:
        os._exit(code)


def _compute_alone() -> None:
    """Let torch and TVM compute in one thread: a child of two waits for ever for the parent's."""
    os.environ["TVM_BIND_THREADS"] = "0"  # or all children of a machine share the first CPU
    torch.set_num_threads(1)
    tvm.get_global_func("runtime.config_threadpool")(1, 1)


def _leave(give: int, say: int, falls: int) -> None:
    """Leave the parent's group and files.

    Each descriptor stays, and leads nowhere: an object of the parent's that ends here would
    close what has its number.
    """
    os.setpgid(0, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    opened = list(range(1024))
    with contextlib.suppress(OSError):  # where no /proc is
        opened = [int(number) for number in os.listdir(_OPENED)]
    os.dup2(say, 1)
    faulthandler.enable(falls, all_threads=False)
    for number in {0, 1, 2, *opened} - {give, nowhere, falls, 1}:
        with contextlib.suppress(OSError):
            os.dup2(nowhere, number, inheritable=number < 3)
