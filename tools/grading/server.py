"""The process that grades jobs, and how others have it: a Grader, here and on a cluster's worker.

    python -m tools.grading.server folder 5    with a socket as the file of this number

A server has everything imported once, and never sees a job: a child of it takes each. Each part of
a job, which works on what a student wrote, is a child of that one, and closed in
(checks.run.isolate, tools.grading.confine): a part may crash, never end, eat the machine, or start
processes that outlive it, and costs itself. `folder` is made, emptied after each part, and removed.
A server ends, and all below it, with who started it.
"""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

from data import store
from tools.grading import confine, plan, submission
from tools.grading.job import Job, Result

if TYPE_CHECKING:  # with torch and TVM, which no Grader needs
    from course.checks.run.isolate import Ended, Limits

ATTEMPTS = 3  # a job that ends its server, or its worker, so often is given up
READ, RENDER = 60, 40  # seconds for reading a file, and for making its page
MOST_GIVEN = 64_000_000  # bytes that a part may give back

# ---- how others have it ----------------------------------------------------------------------

_numbers = itertools.count()


class Died(Exception):
    """The process that grades was ended, by whatever: the job may be tried again."""


class Lost(Exception):
    """Nothing can be graded, or no longer; the text says why."""


class Fault(Exception):
    """Something failed before a line of an answer ran: nobody's points are to suffer."""


def given_up(job: Job) -> Result:
    """Return the result of a job that ended whatever graded it, ATTEMPTS times."""
    return Result(notes=[f"{job.stem[:2]} could not be graded: the process that grades it was "
                         "ended each time (by the system, for want of memory?)"])


def _environment() -> dict[str, str]:
    """Return what a server is started with: nothing that a submission could tell, one thread.

    With several graders on a machine more threads would wait for one another, and spin.
    """
    names = [*confine.KEPT, *["XDG_RUNTIME_DIR"] * bool(confine.counted_by_kernel())]
    environment = {name: os.environ[name] for name in names if name in os.environ}
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
    """A server process in a folder of its own, which is started when it is needed, and anew.

    That folder is below `folder`, which is below the course's: notebooks look for it above them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: subprocess.Popen | None = None
        # the same source has the same verdict, and in a class many exercises are untouched
        self.verdicts: dict[str, tuple[bool, str]] = {}

    def start(self) -> list[str]:
        """Start the server if none is there; return what its system does not keep out."""
        if self.server and self.server.poll() is None:
            return self.gaps
        self.close()
        host = socket.gethostname().partition(".")[0]
        _remove_left(self.folder, host)
        scratch = self.folder / f"{host}-{next(_numbers)}.{os.getpid()}"
        ours, theirs = socket.socketpair()
        with theirs:
            self.server = subprocess.Popen(
                [*confine.counted_by_kernel(), sys.executable, "-m", "tools.grading.server",
                 str(scratch), str(theirs.fileno())],
                cwd=confine.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], start_new_session=True, env=_environment())
        self.link = Connection(ours.detach())
        self.gaps: list[str] = self._answer()
        return self.gaps

    def _answer(self, *parts: bytes) -> Any:
        """Send something to the server; return what it says, or raise Died."""
        try:
            for part in parts:
                self.link.send_bytes(part)
            return json.loads(self.link.recv_bytes())
        except (EOFError, OSError):
            self.close()
            raise Died from None

    def attempt(self, job: Job) -> Result:
        """Return the result of a job; raises Died if the server ended."""
        self.start()
        asked = asdict(job)
        data = asked.pop("data")
        exercises = [check.number for check in job.checks()]
        came = self._answer(*[json.dumps(part).encode() for part in (exercises, asked)], data)
        if "keys" in came:
            came = self._answer(json.dumps({key: self.verdicts[key] for key in came["keys"]
                                            if key in self.verdicts}).encode())
        self.verdicts |= came["verdicts"]
        return Result(**came["result"])

    def proved(self, solved: Iterable[Job]) -> str:
        """Return "" if the course's own solutions pass here, or what is wrong."""
        for job in solved:
            result = self.grade(job)
            failed = [words for number, words in result.words.items() if not result.points[number]]
            if failed or not result.whole:
                return "the course's own solution is not accepted here: " + \
                    "; ".join([*result.notes, *failed])
        return ""

    def grade(self, job: Job) -> Result:
        """Return the result of a job; one that ended its server ATTEMPTS times is given up."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(Died):
                return self.attempt(job)
        return given_up(job)

    def close(self) -> None:
        """End the server, if there is one, and everything below it."""
        if not self.server:
            return
        self.server.send_signal(signal.SIGTERM)
        try:
            self.server.wait(15)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.link.close()
        self.server = None


# ---- grading ---------------------------------------------------------------------------------


class Server:
    """Grades a job in a folder of its own, `scratch`; `gone` says whether nobody is there for it.

    `namespaces`: they work here. `known`, given the keys of the answers, returns the verdicts that
    were found before; `verdicts` are those which were found now.
    """

    def __init__(self, scratch: Path, namespaces: bool, gone: Callable[[], bool],
                 known: Callable[[list[str]], dict[str, tuple[bool, str]]]) -> None:
        self.scratch, self.namespaces, self.gone, self.known = scratch, namespaces, gone, known
        self.verdicts: dict[str, tuple[bool, str]] = {}

    def grade(self, job: Job) -> Result:
        """Return the result of a job; what was found before something went wrong is in it."""
        result = Result()
        try:
            self._grade(job, result)
            result.whole = not self.gone()
        except (Fault, MemoryError, RecursionError, OSError, ValueError) as error:
            result.notes.append(f"{job.stem[:2]} could not be graded ({type(error).__name__}: "
                                f"{str(error)[:200]})")
        return result

    def _grade(self, job: Job, result: Result) -> None:
        number = job.stem[:2]
        made, why = self._part(READ, plan.of_file, job.data, json.loads(job.master))
        if wrong := f"reading it {why}" if why else made.get("wrong"):
            result.notes.append(f"{number}: {wrong}")
            return
        checks = job.checks()
        asked = [(check.number, check.answer, made["sources"][check.number], made["language"])
                 for check in checks]
        keys = [hashlib.sha256(json.dumps(one).encode()).hexdigest() for one in asked]
        known = self.known(keys)
        result.notes += made["notes"]
        result.answers = made["answers"]
        said: dict[str, tuple[bool, str]] = {}
        for check, one, key in zip(checks, asked, keys, strict=True):
            if key in known:
                passed, text = known[key]
            else:
                passed, text, why = self._verdict(job.seconds, *one)
                if why:
                    result.notes.append(f"{number}: the answer to {check.number} {why}")
                else:
                    self.verdicts[key] = passed, text
            said[check.number] = passed, text
            result.points[check.number] = check.points if passed else 0
            result.words[check.number] = text
        if job.page:
            self._write_page(job, result, made["cells"], said)

    def _verdict(self, seconds: float, *asked: Any) -> tuple[bool, str, str]:
        """Return whether an answer passed its check, what was said, and why it came to no end."""
        from tools.grading import checking
        came, why = self._part(seconds, checking.run, *asked, self.scratch, raises=True)
        passed, text = came or (False, f"Exercise {asked[0]} ✗\n  the answer {why}")
        return passed is True, submission.clean(text), why

    def _write_page(self, job: Job, result: Result, cells: list[dict[str, Any]],
                    said: dict[str, tuple[bool, str]]) -> None:
        from tools.grading import page
        number, seconds = job.stem[:2], job.seconds
        ran, why = self._part(6 * seconds, page.execute, cells, self.scratch, seconds, 5 * seconds)
        notes = [f"the notebook {why}; its page has no outputs"] if why else ran["notes"]
        result.notes += [f"{number}: {note}" for note in notes]
        outputs = {} if why else ran["outputs"]
        for plain in (False, True):
            text, why = self._part(RENDER, page.render, job.stem, cells, outputs, said, plain)
            if not why:
                result.page = text
                return
        result.notes.append(f"{number}: no page of feedback: making it {why}")

    def _part(self, seconds: float, function: Callable[..., Any], *arguments: Any,
              raises: bool = False) -> tuple[Any, str]:
        """Return what function(*arguments) returns in a closed child, or why it gave nothing.

        The reason is in words for a student, and "" where there is a result. Where it `raises`
        that is raised, as Fault: then an answer cannot have done it.
        """
        from course.checks.run.isolate import Child, Ended, Limits
        limits = Limits(wall=seconds, given=MOST_GIVEN)
        try:
            return Child(self._closed_in, function, *arguments, limits=limits, alone=True,
                         look=self._look).result(), ""
        except Ended as ended:
            if raises and ended.why == "raised":
                raise Fault(ended.words) from None
            return None, _words(ended, limits)
        finally:
            confine.empty(self.scratch)  # no part finds, or imports, what another left

    def _closed_in(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a part in the child, as a process that sees no other where namespaces work."""
        confine.end_with_parent(signal.SIGKILL)
        confine.be_ended_first()
        if self.namespaces:
            confine.enter_namespaces(self.scratch)
        else:
            confine.go_below()
        return function(*arguments)

    def _look(self) -> str:
        if self.gone():
            return "was graded by nobody any more"
        if confine.folder_size(self.scratch) > confine.DISK:
            return f"wrote more than {confine.DISK >> 20} MB to its folder"
        return ""


def _words(ended: "Ended", limits: "Limits") -> str:
    """Say in words for a student why a part gave nothing."""
    names = {-number: number.name for number in signal.Signals}
    return {"wall": f"ran for more than {limits.wall:g} seconds",
            "memory": f"took more than {limits.memory // confine.GIGABYTE} GB of memory with all "
                      "its processes",
            "processes": f"started more than {limits.processes} processes",
            "strange": "gave a verdict that is not the check's",
            "code": f"ended its process ({names.get(ended.code, f'exit code {ended.code}')}"
                    + ": too much memory?" * (ended.code == -signal.SIGKILL) + ")",
            }.get(ended.why, ended.words)


# ---- the process -----------------------------------------------------------------------------


def _one(link: Connection, scratch: Path, namespaces: bool) -> None:
    """Take one job and give its result: in a child, of which the next job has nothing."""
    def known(keys: list[str]) -> dict[str, tuple[bool, str]]:
        link.send_bytes(json.dumps({"keys": keys}).encode())
        return json.loads(link.recv_bytes())

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    confine.adopt_orphans()
    confine.end_with_parent(signal.SIGKILL)
    asked = json.loads(link.recv_bytes())
    # nobody sends anything while a job is graded: then somebody has closed the link
    server = Server(scratch, namespaces, link.poll, known)
    result = server.grade(Job(**asked, data=link.recv_bytes()))
    link.send_bytes(json.dumps({"result": asdict(result), "verdicts": server.verdicts}).encode())


def main(scratch: Path, link: Connection) -> None:
    """Let children take jobs and give results until nobody is there any more."""
    end_below: Callable[[], object] = list  # nobody is below before the imports

    def stop(*_: Any) -> NoReturn:
        end_below()
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    confine.adopt_orphans()
    confine.end_with_parent(signal.SIGTERM)
    scratch.mkdir(parents=True, exist_ok=True)
    namespaces = confine.namespaces_work(scratch)
    with contextlib.suppress(EOFError, OSError):
        link.send_bytes(json.dumps(confine.gaps(namespaces)).encode())
        # what jobs need, once for all; a part cannot list this folder, so not import from it
        import helpers  # noqa: F401
        from course import devices, plots  # noqa: F401
        from course.checks.run import isolate
        from course.checks.run.check import registered
        from tools.grading import checking, page  # noqa: F401
        end_below = isolate.end_below
        while True:
            for number in json.loads(link.recv_bytes()):
                registered[number].get_ready()
            if not (child := os.fork()):
                with contextlib.suppress(EOFError, OSError):
                    _one(link, scratch, namespaces)
                    os._exit(0)
                os._exit(1)
            if os.waitpid(child, 0)[1]:
                break  # who asked sees it, and starts another server
    stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Connection(int(sys.argv[2])))
