"""Grade jobs on several cores or machines, by Dask: workers of our own, or those of a cluster.

Dask sends a job to a worker, and to another one if that is gone. Each worker thread has a Grader,
the same that grades without Dask. Only workers that have our versions are asked.
"""

import contextlib
import logging
import queue
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, Security
from distributed.comm import parse_address

from data.store import CourseError
from tools.grading import course
from tools.grading.confine import ROOT
from tools.grading.job import Job, Result
from tools.grading.server import ATTEMPTS, Died, Grader, given_up

SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GB",  # a notebook may have 50 MB
    "distributed.scheduler.allowed-failures": ATTEMPTS - 1,  # of workers, with one job
    # Ctrl-C is for us, not for the workers
    "distributed.worker.preload": ["import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"],
    "distributed.comm.timeouts.connect": "10s"}
LOST = 30  # seconds without a scheduler after which the run ends
PATIENCE = 30  # seconds without a worker after which that is said
REPLACED = 5  # times that workers of this machine are started anew, before it is given up


class Lost(Exception):
    """The cluster cannot be used, or no longer; the text says why."""


# ---- on a worker ------------------------------------------------------------------------------

_mine = threading.local()


def _grader(folder: str) -> Grader:
    """Return this thread's Grader for a folder below the course's."""
    if getattr(_mine, "folder", None) != folder or _mine.grader.server.poll() is not None:
        with contextlib.suppress(AttributeError):
            _mine.grader.close()
        _mine.grader, _mine.folder = Grader(ROOT / folder), folder
    return _mine.grader


def greet(versions: dict[str, str], folder: str) -> dict[str, Any]:
    """Return in what a worker's versions differ, and what its system does not keep out."""
    try:
        wrong = course.differs(versions)
    except CourseError as error:
        wrong = str(error).splitlines()[0]
    return {"wrong": wrong, "gaps": [] if wrong else _grader(folder).gaps}


def grade(asked: dict[str, Any], folder: str) -> dict[str, Any]:
    """Grade a job on a worker; both as plain dicts, which need no class of ours to be read."""
    return asdict(_grader(folder).grade(Job(**asked)))


# ---- here -------------------------------------------------------------------------------------


@contextlib.contextmanager
def local(workers: int) -> Iterator[Client]:
    """Start so many workers on this machine, which nobody else can talk to, and end them."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set(SETTINGS):
        security = Security.temporary()
        typed = signal.signal(signal.SIGINT, signal.SIG_IGN)  # before they are there to ignore it
        cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
            protocol="tls://", security=security, dashboard_address=None, memory_limit=0,
            silence_logs=logging.CRITICAL)
        signal.signal(signal.SIGINT, typed)
        client = Client(cluster, security=security)
        try:
            yield client
        finally:
            _close(client)
            with contextlib.suppress(Exception):  # what is left ends with this process
                cluster.close(timeout=5)


@contextlib.contextmanager
def running(address: str, tls: Path | None) -> Iterator[Client]:
    """Connect with a cluster that somebody runs; raises Lost where that does not work.

    `tls` is a folder with ca.pem, cert.pem and key.pem.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = None
    if tls:
        for name in ("ca.pem", "cert.pem", "key.pem"):
            if not (tls / name).is_file():
                raise Lost(f"There is no {tls / name}: TLS= is a folder with ca.pem, cert.pem and "
                           "key.pem, see instructor/README.md.")
        security = Security(require_encryption=True, tls_ca_file=str(tls / "ca.pem"),
                            tls_client_cert=str(tls / "cert.pem"),
                            tls_client_key=str(tls / "key.pem"))
    with dask.config.set(SETTINGS):
        try:
            parse_address(address, strict=True)
            client = Client(address, security=security, timeout=10)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            why = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
            raise Lost(f"No Dask scheduler answers at {address} ({why}). CLUSTER= takes its "
                       "address, as tcp://host:8786; with TLS tls://host:8786, and "
                       "TLS=folder.") from None
        try:
            yield client
        finally:
            _close(client)


def _close(client: Client) -> None:
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.close(timeout=5)


def _fetched(future: Future) -> dict[str, Any]:
    """Return what came of a job that is done with; raises what it raised, or TimeoutError."""
    try:
        return future.result(timeout=3)
    except TimeoutError:
        if not future.done():  # lost with its worker; Dask means to do it again, but may not
            raise
    return future.result(timeout=30)


@dataclass
class _InHand:
    """A job that some worker has, or will have."""

    place: Any
    job: Job
    attempts: int
    future: Future
    workers: list[str]
    alone: bool  # no worker has another one meanwhile


class Fleet:
    """Gives jobs to the workers of a client, as many as they have threads, and takes results."""

    def __init__(self, client: Client, versions: dict[str, str], folder: str,
                 say: Callable[[str], None]) -> None:
        self.client, self.versions, self.folder, self.say = client, versions, folder, say
        self.greeted: dict[str, Future | None] = {}  # by address; None: not one of ours
        self.ours: dict[str, int] = {}  # threads by address
        self.hand: dict[str, _InHand] = {}
        self.done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self.suspects: list[tuple[Any, Job]] = []  # to be tried alone, at the end
        self.number, self.seen, self.told = 0, time.monotonic(), False
        self.replaced = 0

    def _submit(self, place: Any, job: Job, attempts: int = 0, alone: bool = False) -> None:
        self.number += 1
        workers = list(self.ours)
        future = self.client.submit(
            grade, asdict(job), self.folder, workers=workers, pure=False, retries=0,
            key=f"mlc-{id(self)}-{self.number}")
        self.hand[future.key] = _InHand(place, job, attempts, future, workers, alone)
        future.add_done_callback(self.done.put)

    def _meet(self) -> None:
        """Greet workers that are new, and forget those that are gone."""
        try:
            threads = self.client.nthreads() if self.client.status == "running" else None
        except OSError:
            threads = None
        if threads is None:
            if time.monotonic() - self.seen > LOST:
                raise Lost("The scheduler is gone.")
            return
        self.seen = time.monotonic()
        for address in [known for known in self.greeted if known not in threads]:
            del self.greeted[address]
            self.ours.pop(address, None)
        for address in threads.keys() - self.greeted.keys():
            self.greeted[address] = self.client.submit(
                greet, self.versions, self.folder, workers=[address], pure=False)
        for address, future in self.greeted.items():
            if future and future.done() and address not in self.ours:
                self._welcome(address, future, threads[address])

    def _welcome(self, address: str, future: Future, threads: int) -> None:
        try:
            came = future.result(timeout=5)
        except Exception as error:  # whatever another machine's Python comes up with
            came = {"wrong": f"it cannot run this course ({type(error).__name__}: "
                             f"{str(error)[:100]}); start it in the course's folder, with its "
                             ".venv"}
        if came["wrong"]:
            self.say(f"Worker {address} is not asked: {came['wrong']}.")
            self.greeted[address] = None
            return
        if came["gaps"]:
            self.say(f"Worker {address}: its system does not keep submissions from: "
                     f"{'; '.join(came['gaps'])}.")
        self.ours[address] = threads

    def _patience(self) -> None:
        """Say once that there is nobody who could work; raise Lost if only strangers are there."""
        if self.ours:
            self.told, self.replaced = False, 0
            self.waiting = time.monotonic()
            return
        if self.greeted and all(future is None for future in self.greeted.values()):
            raise Lost("None of the cluster's workers can be asked.")
        if time.monotonic() - self.waiting > PATIENCE:
            if not self.told:
                self.say("No worker is there: waiting for one. Ctrl-C ends this.")
            self.told, self.waiting = True, time.monotonic()
            if isinstance(cluster := getattr(self.client, "cluster", None), LocalCluster):
                self._replace(cluster)

    def _replace(self, cluster: LocalCluster) -> None:
        """Start a worker on this machine; raises Lost where that came to nothing REPLACED times.

        A worker that a job ends while it starts is not started again: Dask takes it for one that
        cannot start.
        """
        if self.replaced == REPLACED:
            raise Lost("Workers on this machine end as soon as they start: out of memory?")
        self.replaced += 1
        cluster.scale(len(cluster.worker_spec) + 1)

    def _again(self, held: _InHand) -> Result | None:
        """Give a job to others; after ATTEMPTS at the end, alone; and then give it up."""
        if held.attempts + 1 < ATTEMPTS:
            self._submit(held.place, held.job, held.attempts + 1, held.alone)
            return None
        return self._accused(held)

    def _accused(self, held: _InHand) -> Result | None:
        """Try a job alone that failed in company; give it up if it was alone."""
        if held.alone:
            return given_up(held.job)
        self.suspects.append((held.place, held.job))
        return None

    def results(self, jobs: Iterable[tuple[Any, Job]]) -> Iterator[tuple[Any, Result]]:
        """Yield (place, result) for each (place, job), as they come; raises Lost.

        A worker that ends takes the jobs with it that wait behind the one which ended it, and
        results that nobody has fetched yet. So what came to nothing ATTEMPTS times is tried again
        at the end, with no other job at work; only what comes to nothing then, too, is given up.
        """
        left, more = iter(jobs), True
        self.waiting = time.monotonic()
        while more or self.hand or self.suspects:
            self._meet()
            self._patience()
            while more and len(self.hand) < sum(self.ours.values()):
                place, job = next(left, (None, None))
                if job is None:
                    more = False
                else:
                    self._submit(place, job)
            if self.ours and self.suspects and not more and not self.hand:
                self._submit(*self.suspects.pop(0), alone=True)
            for key, held in list(self.hand.items()):
                # all that could take it are gone, and others have come: Dask would wait for ever
                if self.ours and not set(held.workers) & set(self.ours) and not held.future.done():
                    del self.hand[key]
                    held.future.cancel()
                    if result := self._again(held):
                        yield held.place, result
            with contextlib.suppress(queue.Empty):
                future = self.done.get(timeout=0.2 if not self.ours else 1)
                if came := self._take(future):
                    yield came

    def _take(self, future: Future) -> tuple[Any, Result] | None:
        """Return what came of a job that is done with, or try it again."""
        held = self.hand.pop(future.key, None)
        if not held:
            return None
        result: Result | None
        try:
            result = Result(**_fetched(future))
        except KilledWorker:
            result = self._accused(held)
        except Died:
            result = self._again(held)
        except Exception:  # cancelled, or a machine that vanished just then
            result = self._again(held)
        return (held.place, result) if result else None
