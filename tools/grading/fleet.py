"""Grade jobs on several machines, with the workers of a Dask cluster.

Dask sends a job to a worker, and to another one if that is gone. Each worker has a Grader, like a
run without Dask. Only workers with our versions get jobs.
"""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, Security, wait
from distributed.comm import parse_address

from course.words import _, packed, unpacked
from data.store import CourseError
from tools.grading.box import Lost, in_words
from tools.grading.grader import Grader
from tools.grading.job import Job, Result, differs

SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GB",  # a notebook may have 50 MB
    "distributed.comm.timeouts.connect": "10s"}
KEYS = {"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
LOST = 30  # seconds without a scheduler after which the run ends
PATIENCE = 30  # seconds without a worker before a line says so


@functools.cache
def _grader() -> Grader:
    return Grader()


def greet(versions: dict[str, str], solved: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is wrong with a worker, and in words what isolates submissions there.

    Wrong may be its versions, or its grades of the course's solutions, which it gets first.
    """
    try:
        if wrong := differs(versions):
            return {"wrong": wrong}
        _grader().proved([Job(**asked) for asked in solved])
        return {"wrong": "", "keeper": str(in_words())}
    except (CourseError, Lost) as error:
        return {"wrong": " ".join(str(error).split())}


def grade(asked: dict[str, Any]) -> dict[str, Any]:
    """Grade a job on a worker; job and result are plain dicts, readable without our classes."""
    return packed(asdict(_grader().grade(Job(**asked))))


@contextlib.contextmanager
def running(address: str, tls: Path | None) -> Iterator[Client]:
    """Connect to a running cluster; raises Lost if that does not work.

    `tls` is a folder with ca.pem, cert.pem and key.pem.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    keys = {name: str(tls / file) for name, file in KEYS.items()} if tls else {}
    if missing := [path for path in keys.values() if not Path(path).is_file()]:
        raise Lost(_("There is no {file}: TLS= is a folder with ca.pem, cert.pem and key.pem, see "
                     "instructor/README.md.").format(file=missing[0]))
    security = Security(require_encryption=True, **keys) if tls else None
    with dask.config.set(SETTINGS), contextlib.ExitStack() as ending:
        try:
            parse_address(address, strict=True)
            client = Client(address, security=security, timeout=10)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            why = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
            raise Lost(_("No Dask scheduler answers at {address} ({why}). CLUSTER= takes its "
                         "address, as tcp://host:8786; with TLS tls://host:8786, and TLS=folder."
                         ).format(address=address, why=why)) from None
        ending.callback(client.close, timeout=5)
        yield client


class Fleet:
    """Gives jobs to the workers of a client, as many as they have threads, and takes results."""

    def __init__(self, client: Client, versions: dict[str, str], solved: list[Job],
                 say: Callable[[str], None]) -> None:
        self.client, self.say = client, say
        self.greeting = versions, [asdict(job) for job in solved]
        # by address: what it will answer, then its threads, 0 if it is not one of ours
        self.workers: dict[str, Future | int] = {}
        self.seen = self.since = time.monotonic()  # when a scheduler was last seen, and a worker
        self.waited = False

    def _meet(self) -> bool:
        """Greet new workers, forget those that are gone; return whether there is a scheduler.

        Raises Lost if there will be none, or no worker.
        """
        now, threads = time.monotonic(), None
        with contextlib.suppress(OSError):
            threads = self.client.nthreads() if self.client.status == "running" else None
        if threads is None:
            if now - self.seen > LOST:
                raise Lost(_("The scheduler is gone."))
            return False
        self.seen = now
        self.workers = {address: self.workers[address] if address in self.workers else
                        self.client.submit(greet, *self.greeting, workers=[address], pure=False)
                        for address in threads}
        for address, known in self.workers.items():
            if isinstance(known, Future) and known.done():
                self.workers[address] = threads[address] if self._welcome(address, known) else 0
        if any(self.workers.values()):
            self.since = now
        elif self.workers:
            raise Lost(_("No worker can be used."))
        elif now - self.since > PATIENCE and not self.waited:
            self.waited = True
            self.say(_("There is no worker yet: waiting for one. Ctrl-C ends this."))
        return True

    def _welcome(self, address: str, answer: Future) -> bool:
        """Return whether a worker that has answered gets jobs; say so, or why it does not."""
        try:
            came = answer.result(timeout=5)
        except Exception as error:  # whatever another machine's Python raises
            came = {"wrong": _("it cannot run this course ({error}); start it in the course's "
                               "folder, with its .venv").format(
                                   error=f"{type(error).__name__}: {str(error)[:100]}")}
        if wrong := came["wrong"]:
            self.say(_("Worker {address} is not asked: {why}.").format(address=address, why=wrong))
        else:
            self.say(f"{address}: {came['keeper']}")
        return not wrong

    def _run(self, jobs: Iterable[tuple[Any, Job]]
             ) -> Iterator[tuple[Any, Job, Result | None]]:
        """Yield (place, job, result), None where the workers that had it have ended."""
        left = iter(jobs)
        hand: dict[Future, tuple[Any, Job, set[str]]] = {}
        coming = next(left, None)
        while coming or hand:
            there = self._meet()
            ours = {address: known for address, known in self.workers.items()
                    if isinstance(known, int) and known}
            while there and coming and len(hand) < sum(ours.values()):
                future = self.client.submit(grade, asdict(coming[1]), workers=list(ours),
                                            pure=False)
                hand[future] = *coming, set(ours)
                coming = next(left, None)
            if hand:
                with contextlib.suppress(TimeoutError, CancelledError):
                    wait(list(hand), timeout=1, return_when="FIRST_COMPLETED")
            else:
                time.sleep(0.2)
            for future, (place, job, had) in list(hand.items()):
                gone = ours and had.isdisjoint(ours)  # Dask would wait forever
                if future.done() or gone:
                    result = None
                    with contextlib.suppress(Exception):  # KilledWorker; a machine that vanished
                        if future.done():
                            result = Result(**unpacked(future.result(timeout=30)))
                        future.cancel()
                    del hand[future]
                    yield place, job, result

    def results(self, jobs: Iterable[tuple[Any, Job]]) -> Iterator[tuple[Any, Result]]:
        """Yield (place, result) for each (place, job), as they come; raises Lost.

        When a worker ends, the jobs that wait behind the one that ended it are lost too. So lost
        jobs are tried again at the end, one by one; a job that is lost again is not graded.
        """
        failed = []
        for place, job, result in self._run(jobs):
            if result:
                yield place, result
            else:
                failed.append((place, job))
        for one in failed:
            for place, job, result in self._run([one]):
                yield place, result or Result(notes=[_(
                    "{number}: could not be graded: one worker after another ended with it"
                    ).format(number=job.stem[:2])])
