"""Grade jobs on several cores or machines, by Dask: workers of our own, or those of a cluster.

Dask sends a job to a worker, and to another one if that is gone. Each worker thread has a Grader,
the same that grades without Dask. Only workers that have our versions are asked.
"""

import contextlib
import functools
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
from tools.grading.confine import ROOT
from tools.grading.job import Job, Result, differs
from tools.grading.server import ATTEMPTS, Grader, Lost, given_up

SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GB",  # a notebook may have 50 MB
    "distributed.scheduler.allowed-failures": ATTEMPTS - 1,  # of workers, with one job
    # Ctrl-C is for us, not for the workers
    "distributed.worker.preload": ["import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"],
    "distributed.comm.timeouts.connect": "10s"}
KEYS = {"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
LOST = 30  # seconds without a scheduler after which the run ends
PATIENCE = 30  # seconds without a worker after which that is said
REPLACED = 5  # times that workers of this machine are started anew, before it is given up


# ---- on a worker ------------------------------------------------------------------------------

@functools.cache
def _grader(folder: str, thread: int) -> Grader:
    """Return a thread's Grader for a folder below the course's."""
    return Grader(ROOT / folder)


def greet(versions: dict[str, str], solved: list[dict[str, Any]], folder: str) -> dict[str, Any]:
    """Return what a worker does not do right, and what its system does not keep out.

    Its versions, or the course's own solutions that it grades before others.
    """
    try:
        if wrong := differs(versions):
            return {"wrong": wrong}
        grader = _grader(folder, threading.get_ident())
        gaps = grader.start()
        return {"wrong": grader.proved(Job(**asked) for asked in solved), "gaps": gaps}
    except CourseError as error:
        return {"wrong": str(error).splitlines()[0]}


def grade(asked: dict[str, Any], folder: str) -> dict[str, Any]:
    """Grade a job on a worker; both as plain dicts, which need no class of ours to be read."""
    return asdict(_grader(folder, threading.get_ident()).attempt(Job(**asked)))


# ---- here -------------------------------------------------------------------------------------


@contextlib.contextmanager
def local(workers: int, scratch: Path) -> Iterator[Client]:
    """Start so many workers on this machine, which nobody else can talk to, and end them."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set(SETTINGS), contextlib.ExitStack() as ending:
        typed = signal.signal(signal.SIGINT, signal.SIG_IGN)  # before they are there to ignore it
        cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
            protocol="tls://", security=True, dashboard_address=None, memory_limit=0,
            silence_logs=logging.CRITICAL, local_directory=str(scratch / "dask"))
        ending.callback(_close, cluster)
        signal.signal(signal.SIGINT, typed)
        client = Client(cluster)
        ending.callback(_close, client)
        yield client


@contextlib.contextmanager
def running(address: str, tls: Path | None) -> Iterator[Client]:
    """Connect with a cluster that somebody runs; raises Lost where that does not work.

    `tls` is a folder with ca.pem, cert.pem and key.pem.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    keys = {name: str(tls / file) for name, file in KEYS.items()} if tls else {}
    if missing := [path for path in keys.values() if not Path(path).is_file()]:
        raise Lost(f"There is no {missing[0]}: TLS= is a folder with ca.pem, cert.pem and key.pem, "
                   "see instructor/README.md.")
    security = Security(require_encryption=True, **keys) if tls else None
    with dask.config.set(SETTINGS), contextlib.ExitStack() as ending:
        try:
            parse_address(address, strict=True)
            client = Client(address, security=security, timeout=10)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            why = str(error).splitlines()[0][:150] if str(error) else type(error).__name__
            raise Lost(f"No Dask scheduler answers at {address} ({why}). CLUSTER= takes its "
                       "address, as tcp://host:8786; with TLS tls://host:8786, and "
                       "TLS=folder.") from None
        ending.callback(_close, client)
        yield client


def _close(what: Client | LocalCluster) -> None:
    """Close a connection, or end workers; what is left of these ends with this process."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        what.close(timeout=5)


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
    alone: bool  # no worker has another one meanwhile
    workers: list[str]
    future: Future


class Fleet:
    """Gives jobs to the workers of a client, as many as they have threads, and takes results."""

    def __init__(self, client: Client, versions: dict[str, str], solved: list[Job], folder: str,
                 say: Callable[[str], None]) -> None:
        self.client, self.folder, self.say = client, folder, say
        self.greeting = versions, [asdict(job) for job in solved], folder
        self.greeted: dict[str, Future | None] = {}  # by address; None: not one of ours
        self.ours: dict[str, int] = {}  # threads by address
        self.hand: dict[str, _InHand] = {}
        self.done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self.suspects: list[tuple[Any, Job]] = []  # to be tried alone, at the end
        self.seen = self.since = time.monotonic()  # there was a scheduler; there was a worker
        self.waited = 0  # times PATIENCE without a worker

    def _submit(self, place: Any, job: Job, attempts: int = 0, alone: bool = False) -> None:
        workers = list(self.ours)
        future = self.client.submit(grade, asdict(job), self.folder, workers=workers, pure=False,
                                    retries=0)
        self.hand[future.key] = _InHand(place, job, attempts, alone, workers, future)
        future.add_done_callback(self.done.put)

    def _meet(self) -> None:
        """Greet workers that are new, and forget those that are gone."""
        threads = None
        with contextlib.suppress(OSError):
            threads = self.client.nthreads() if self.client.status == "running" else None
        if threads is None:
            if time.monotonic() - self.seen > LOST:
                raise Lost("The scheduler is gone.")
            return
        self.seen = time.monotonic()
        for address in self.greeted.keys() - threads.keys():
            del self.greeted[address]
            self.ours.pop(address, None)
        for address in threads.keys() - self.greeted.keys():
            self.greeted[address] = self.client.submit(
                greet, *self.greeting, workers=[address], pure=False)
        for address, future in self.greeted.items():
            if future and future.done() and address not in self.ours:
                self._welcome(address, future, threads[address])

    def _welcome(self, address: str, future: Future, threads: int) -> None:
        """Take in a worker that has answered, or say why it is not asked."""
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
        """Say once that nobody is there who could work; raise Lost where nobody will be.

        A worker of this machine that a job ends while it starts is not started again: Dask takes
        it for one that cannot start. So another one is started, REPLACED times.
        """
        if self.ours:
            self.waited, self.since = 0, time.monotonic()
        elif self.greeted and not any(self.greeted.values()):
            raise Lost("None of the workers can be asked.")
        elif any(future and not future.done() for future in self.greeted.values()):
            self.since = time.monotonic()  # the course's own solutions are being graded
        elif time.monotonic() - self.since > PATIENCE:
            self.waited, self.since = self.waited + 1, time.monotonic()
            if self.waited == 1:
                self.say("No worker is there: waiting for one. Ctrl-C ends this.")
            if isinstance(cluster := getattr(self.client, "cluster", None), LocalCluster):
                if self.waited > REPLACED:
                    raise Lost("Workers on this machine end as soon as they start: out of memory?")
                cluster.scale(len(cluster.worker_spec) + 1)

    def _again(self, held: _InHand, failed: int = 1) -> Iterator[tuple[Any, Result]]:
        """Give a job to others; after ATTEMPTS to one at the end, alone; and then give it up."""
        if held.attempts + failed < ATTEMPTS:
            self._submit(held.place, held.job, held.attempts + failed, held.alone)
        elif held.alone:
            yield held.place, given_up(held.job)
        else:
            self.suspects.append((held.place, held.job))

    def _take(self, future: Future) -> Iterator[tuple[Any, Result]]:
        """Yield what came of a job that is done with, or try it again."""
        if not (held := self.hand.pop(future.key, None)):  # given to others
            return
        try:
            result = Result(**_fetched(future))
        except KilledWorker:  # ATTEMPTS workers ended with it
            yield from self._again(held, ATTEMPTS)
        except Exception:  # Died, cancelled, or a machine that vanished just then
            yield from self._again(held)
        else:
            yield held.place, result

    def results(self, jobs: Iterable[tuple[Any, Job]]) -> Iterator[tuple[Any, Result]]:
        """Yield (place, result) for each (place, job), as they come; raises Lost.

        A worker that ends takes the jobs with it that wait behind the one which ended it, and
        results that nobody has fetched yet. So what came to nothing ATTEMPTS times is tried again
        at the end, with no other job at work; only what comes to nothing then, too, is given up.
        """
        left = iter(jobs)
        coming = next(left, None)
        while coming or self.hand or self.suspects:
            self._meet()
            self._patience()
            while coming and len(self.hand) < sum(self.ours.values()):
                self._submit(*coming)
                coming = next(left, None)
            if self.ours and self.suspects and not coming and not self.hand:
                self._submit(*self.suspects.pop(0), alone=True)
            for key, held in list(self.hand.items()):
                # all that could take it are gone, and others have come: Dask would wait for ever
                if self.ours and self.ours.keys().isdisjoint(held.workers) \
                        and not held.future.done():
                    del self.hand[key]
                    held.future.cancel()
                    yield from self._again(held)
            with contextlib.suppress(queue.Empty):
                yield from self._take(self.done.get(timeout=0.2 if not self.ours else 1))
