"""Parts of a job, each in a child process with a limit of time, memory and processes.

A part works on what a student wrote, so it may crash, never end, eat the machine, or start
processes that outlive it. Here it costs itself: `run` returns what it gave, or says why nothing
came, and nothing of it is left.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import psutil

from tools.grading import confine

MEMORY = 6 * confine.GIGABYTE  # of all processes of a part together
PROCESSES = 100
MOST_ANSWER = 64_000_000  # bytes that a part may give back
LOOK = 0.2  # seconds between two looks at a part


class Stopped(Exception):
    """A part gave nothing; the text says why, in words for a student."""


def descendants() -> list[psutil.Process]:
    """Return all processes below this one."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process().children(recursive=True)
    return []


def end_all(spared: Collection[int] = (), seconds: float = 10) -> None:
    """End every process below this one but those `spared`, also such as are just being started."""
    if os.getpid() == 1:  # in a namespace of its own: everybody but this process, at once
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    end = time.monotonic() + seconds
    while (left := [process for process in descendants() if process.pid not in spared]) \
            and time.monotonic() < end:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped starts no other
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        psutil.wait_procs(left, timeout=0.05)


def _too_much(first: int) -> str:
    """Say what a part takes too much of, or ""."""
    try:
        part = psutil.Process(first)
        family = [part, *part.children(recursive=True)]
    except psutil.Error:
        return ""
    orphans = [process for process in descendants() if process not in family]
    resident = 0
    for process in (family := family + orphans):
        with contextlib.suppress(psutil.Error):
            resident += process.memory_info().rss - process.memory_info().shared \
                if sys.platform == "linux" else process.memory_info().rss
    if resident > MEMORY:
        return f"took more than {MEMORY // confine.GIGABYTE} GB of memory with all its processes"
    if len(family) > PROCESSES:
        return f"started more than {PROCESSES} processes"
    return ""


def folder_size(folder: Path, most: int) -> int:
    """Return the bytes below a folder; stops counting above `most` bytes or FILES files."""
    total = count = 0
    for place, _, files in os.walk(folder, onerror=None):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            count += 1
            if total > most or count > confine.FILES:
                return max(total, most + 1)
    return total


def empty(folder: Path) -> None:
    """Take out all that is in a folder, also where a submission took the rights to it."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(place, name), 0o700)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _child(function: Callable[..., Any], arguments: tuple, give: int) -> None:
    """Run a part in the forked child and give its result back as JSON; never returns."""
    code = 1
    try:
        os.setsid()  # what is typed into the grader's terminal is none of its business
        confine.end_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        kept = os.dup2(give, 3, inheritable=False)
        os.closerange(4, 65536)  # nothing of the grader's stays open
        data = json.dumps(function(*arguments)).encode()
        with open(kept, "wb") as pipe:
            pipe.write(struct.pack("Q", len(data)) + data)
        code = 0
    except BaseException as error:  # told to the parent: there is nobody else to tell
        with contextlib.suppress(BaseException):
            data = json.dumps({"failed": f"{type(error).__name__}: {error}"[:300]}).encode()
            os.write(3, struct.pack("Q", len(data)) + data)
    finally:
        os._exit(code)


def run(seconds: float, scratch: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what function(*arguments) returns in a child process, as JSON has it; raises Stopped.

    `scratch` is the folder that its processes can write to: its size is limited too.
    """
    take, give = os.pipe()
    first = os.fork()
    if not first:
        _child(function, arguments, give)
    os.close(give)
    came, end, why = bytearray(), time.monotonic() + seconds, ""
    try:
        while not why:
            ready, _, _ = select.select([take], [], [], LOOK)
            if ready:
                part = os.read(take, 1 << 20)
                came += part
                whole = len(came) >= 8 and len(came) - 8 >= struct.unpack("Q", came[:8])[0]
                if not part or whole or len(came) > MOST_ANSWER:
                    break
            if time.monotonic() > end:
                why = f"ran for more than {seconds:g} seconds"
            elif not ready:
                why = _too_much(first)
                if not why and folder_size(scratch, confine.DISK) > confine.DISK:
                    why = f"wrote more than {confine.DISK >> 20} MB to its folder"
    finally:
        os.close(take)
        with contextlib.suppress(ProcessLookupError):
            if why:
                os.kill(first, signal.SIGKILL)
        status = 0
        with contextlib.suppress(ChildProcessError):
            status = _status(first)
        end_all()
        empty(scratch)  # no part finds, or imports, what another left
    if why:
        raise Stopped(why)
    try:
        length = struct.unpack("Q", came[:8])[0]
        result = json.loads(bytes(came[8:8 + length]))
    except (struct.error, ValueError, RecursionError):
        code = os.waitstatus_to_exitcode(status)
        ended = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
        raise Stopped(f"ended its process ({ended})") from None
    if isinstance(result, dict) and "failed" in result:
        raise Stopped(result["failed"])
    return result


def _status(child: int) -> int:
    """Return the status of a child that has ended or is about to; kill it if it lingers."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
