"""Grade jobs on several machines, by the workers of a Dask cluster.

Dask sends a job to a worker, and to another one if that is gone. Each worker thread has a Grader,
the same that grades without Dask, which starts a sandbox for each job. Only workers that have our
versions are asked.
"""

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, Security
from distributed.comm import parse_address

from course.words import ROOT, _, packed, unpacked
from data.store import CourseError
from tools.grading.box import Lost, in_words
from tools.grading.grader import Grader
from tools.grading.job import Job, Result, differs

SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GB",  # a notebook may have 50 MB
    "distributed.comm.timeouts.connect": "10s"}
KEYS = {"tls_ca_file": "ca.pem", "tls_client_cert": "cert.pem", "tls_client_key": "key.pem"}
ATTEMPTS = 3  # to grade a job whose workers end, and as many at the end, with no other at work
LOST = 30  # seconds without a scheduler after which the run ends
PATIENCE = 30  # seconds without a worker after which that is said


# ---- on a worker ------------------------------------------------------------------------------

@functools.cache
def _grader(thread: int) -> Grader:
    return Grader(ROOT / "build" / "grading")


def greet(versions: dict[str, str], solved: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a worker does not do right, and in words who keeps submissions in there.

    Its versions, or the course's own solutions that it grades before others.
    """
    try:
        if wrong := differs(versions):
            return {"wrong": wrong}
        _grader(threading.get_ident()).proved([Job(**asked) for asked in solved])
        return {"wrong": "", "keeper": str(in_words())}
    except (CourseError, Lost) as error:
        return {"wrong": " ".join(str(error).split())}


def grade(asked: dict[str, Any]) -> dict[str, Any]:
    """Grade a job on a worker; both as plain dicts, which need no class of ours to be read."""
    return packed(asdict(_grader(threading.get_ident()).grade(Job(**asked))))


# ---- here -------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(address: str, tls: Path | None) -> Iterator[Client]:
    """Connect with a cluster that somebody runs; raises Lost where that does not work.

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


@dataclass(frozen=True)
class _Held:
    """A job that workers have, which of them may take it, and how often theirs have ended."""

    place: Any
    job: Job
    workers: list[str]
    future: Future
    failed: int
    alone: bool



class Fleet:
    """Gives jobs to the workers of a client, as many as they have threads, and takes results."""

    def __init__(self, client: Client, versions: dict[str, str], solved: list[Job],
                 say: Callable[[str], None]) -> None:
        self.client, self.say = client, say
        self.greeting = versions, [asdict(job) for job in solved]
        self.greeted: dict[str, Future | None] = {}  # by address; None: not one of ours
        self.ours: dict[str, int] = {}  # threads by address
        self.hand: dict[str, _Held] = {}
        self.suspects: list[tuple[Any, Job]] = []  # whose workers ended, each time
        self.done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self.seen = self.since = time.monotonic()  # there was a scheduler; there was a worker
        self.waited = False

    def _submit(self, place: Any, job: Job, failed: int = 0, alone: bool = False) -> None:
        future = self.client.submit(grade, asdict(job), workers=list(self.ours), pure=False,
                                    retries=0)
        self.hand[future.key] = _Held(place, job, list(self.ours), future, failed, alone)
        future.add_done_callback(self.done.put)

    def _again(self, held: _Held) -> Iterator[tuple[Any, Result]]:
        """Give a job to others; after ATTEMPTS to one at the end, alone; and then give it up."""
        if held.failed + 1 < ATTEMPTS:
            self._submit(held.place, held.job, held.failed + 1, held.alone)
        elif held.alone:
            yield held.place, Result(notes=[
                _("{number}: could not be graded: one worker after another ended with it").format(
                    number=held.job.stem[:2])])
        else:
            self.suspects.append((held.place, held.job))

    def _meet(self) -> None:
        """Greet workers that are new, and forget those that are gone."""
        threads = None
        with contextlib.suppress(OSError):
            threads = self.client.nthreads() if self.client.status == "running" else None
        if threads is None:
            if time.monotonic() - self.seen > LOST:
                raise Lost(_("The scheduler is gone."))
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
            came = {"wrong": _("it cannot run this course ({error}); start it in the course's "
                               "folder, with its .venv").format(
                                   error=f"{type(error).__name__}: {str(error)[:100]}")}
        if came["wrong"]:
            self.say(_("Worker {address} is not asked: {why}.").format(address=address,
                                                                      why=came["wrong"]))
            self.greeted[address] = None
            return
        self.say(f"{address}: {came['keeper']}")
        self.ours[address] = threads

    def _patience(self) -> None:
        """Say once that nobody is there who could work; raise Lost where nobody will be."""
        if self.ours or any(future and not future.done() for future in self.greeted.values()):
            self.since = time.monotonic()
        elif self.greeted and not any(self.greeted.values()):
            raise Lost(_("None of the workers can be asked."))
        elif time.monotonic() - self.since > PATIENCE and not self.waited:
            self.waited = True
            self.say(_("No worker is there: waiting for one. Ctrl-C ends this."))

    def results(self, jobs: Iterable[tuple[Any, Job]]) -> Iterator[tuple[Any, Result]]:
        """Yield (place, result) for each (place, job), as they come; raises Lost.

        A worker that ends takes the jobs with it that wait behind the one which ended it. So what
        came to nothing ATTEMPTS times is tried again at the end, with no other job at work; only
        what comes to nothing then, too, is not graded, this time.
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
                future = self.done.get(timeout=0.2 if not self.ours else 1)
                if not (taken := self.hand.pop(future.key, None)):  # it was given to others
                    continue
                try:
                    result = Result(**unpacked(future.result(timeout=30)))
                except Exception:  # KilledWorker, cancelled, or a machine that vanished just then
                    yield from self._again(taken)
                else:
                    yield taken.place, result
