"""Grade jobs, one after the other, in a server process: the same here and on a cluster's worker."""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from data import store
from tools.grading.confine import KEPT, ROOT
from tools.grading.job import Job, Result

_numbers = itertools.count()
ATTEMPTS = 3  # a job that ends its server, or its worker, so often is given up


class Died(Exception):
    """The process that grades was ended, by whatever: the job may be tried again."""


def given_up(job: Job) -> Result:
    """Return the result of a job that ended whatever graded it, ATTEMPTS times."""
    return Result(notes=[f"{job.stem[:2]} could not be graded: the process that grades it was "
                         "ended each time (by the system, for want of memory?)"])


def _environment() -> dict[str, str]:
    """Return what a server is started with: nothing that a submission could tell, one thread.

    With several graders on a machine more threads would wait for one another, and spin.
    """
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    beside = str(Path(sys.executable).parent)  # what cells call by its name, as jupyter
    path = os.pathsep.join([beside, environment.get("PATH", os.defpath)])
    return environment | {"MLC_DATA": str(store.data_folder()), "PATH": path,
                          "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}


def _remove_left(folder: Path, host: str) -> None:
    """Remove the folders of graders of this machine that are gone, as after a power cut."""
    for path in folder.glob(f"{host}-*"):
        pid = path.suffix[1:]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


class Grader:
    """A server process and its folder, below `folder`, which is below the course's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # notebooks look for the course above them
        host = socket.gethostname().partition(".")[0]
        _remove_left(folder, host)
        scratch = folder / f"{host}-{next(_numbers)}.{os.getpid()}"
        ours, theirs = socket.socketpair()
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tools.grading.server", str(scratch)],
            cwd=ROOT, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
            env=_environment())
        theirs.close()
        self.link = Connection(ours.detach())
        try:
            self.gaps: list[str] = json.loads(self.link.recv_bytes())
        except (EOFError, OSError):
            raise Died from None

    def grade(self, job: Job) -> Result:
        """Return the result of a job; raises Died if the server ended."""
        asked = asdict(job)
        data = asked.pop("data")
        try:
            self.link.send_bytes(json.dumps(asked).encode())
            self.link.send_bytes(data)
            return Result(**json.loads(self.link.recv_bytes()))
        except (EOFError, OSError):
            raise Died from None

    def close(self) -> None:
        """End the server and everything below it."""
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(15)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.link.close()


def attempt(job: Job, start: Callable[[], Grader]) -> Result:
    """Grade one job with a Grader that is started for it, again if that dies; then it is ended."""
    for _ in range(ATTEMPTS):
        grader = None
        try:
            grader = start()
            return grader.grade(job)
        except Died:
            continue
        finally:
            if grader:
                grader.close()
    return given_up(job)
