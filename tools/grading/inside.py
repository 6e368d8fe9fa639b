"""What runs in a box: it reads a job from standard input and prints its results, line by line.

    python -m tools.grading.inside

This process runs nothing that a student wrote. Reading, each check, executing and rendering are
its children, which cannot look into it; if one leaves behind something that cannot be ended, this
box ends, and another does the rest.
"""

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import queue
import resource
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

READ, RENDER = 60, 40  # seconds for reading a file, and for making its page
PATIENCE = 10  # how many times its limit of CPU time a part may take on a busy machine
MOST_SAID, MOST_GIVEN = 10_000, 60_000_000  # characters of a check, bytes of a part
GIGABYTE = 1 << 30
# TVM and torch need 1.5 GB of addresses; beyond the first is room to report that it was too little
LIMITS = {"AS": (4 * GIGABYTE, 5 * GIGABYTE), "NPROC": (200, 200), "NOFILE": (1024, 1024),
          "FSIZE": (64 << 20, 64 << 20), "CPU": (3600, 3600), "CORE": (0, 0),
          "MSGQUEUE": (0, 0), "MEMLOCK": (0, 0)}
PDEATHSIG, DUMPABLE, SUBREAPER = 1, 4, 36  # prctl(2)


def _prctl(what: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def _limit() -> None:
    """Set limits that children cannot lift; no process may look into this one."""
    keeper = os.environ.get("KEEPER")
    for name, (soft, hard) in LIMITS.items():
        if keeper == "UNSAFE" and name == "NPROC":  # it would count all your processes
            continue
        with contextlib.suppress(ValueError, OSError, AttributeError):  # macOS lacks some
            most = resource.getrlimit(kind := getattr(resource, f"RLIMIT_{name}"))[1]
            resource.setrlimit(kind, (soft, hard) if most in (-1, resource.RLIM_INFINITY)
                               else (min(soft, most), min(hard, most)))
    os.nice(5)  # the process that watches outside comes first
    for what, value in ((PDEATHSIG, 9), (DUMPABLE, 0), (SUBREAPER, 1)):
        _prctl(what, value)
    if keeper and keeper != "UNSAFE":  # no bubblewrap sets the filter; "user" has a network, too
        from tools.grading.box import filtered
        filtered(socket_families=1 if keeper == "user" else 16).load()


def check(number: str, answer: str, sources: list[str], language: str) -> list[Any]:
    """Return whether an answer passes, and the verdict in "en" or "zh"; or None, and a fault.

    `sources` are the cells to run, the answer's among them; `answer` is the name that the check
    takes. A fault is an error before their first line runs. For a child.
    """
    from course.checks.run import check as running
    from course.checks.say.messages import reason
    from course.words import use
    from data.store import CourseError
    from tools.grading.shell import Shell
    try:
        use(language)
        sys.stdout = sys.stderr = printed = running.Bounded(4 * MOST_SAID)
        warnings.simplefilter("ignore")
        shell = Shell()
    except Exception as error:
        return [None, f"{type(error).__name__}: {error}"]
    try:
        shell.define(sources, answer, number)
        printed.kept = ""
        running.registered[number].check(shell.user_ns[answer])
    except BaseException as error:  # whatever is raised is the verdict
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, LIMITS["AS"][1:] * 2)
        with contextlib.suppress(BaseException):  # whatever it, or the answer, has broken
            words = str(error if isinstance(error, CourseError) else reason(error))
            return [False, words[:MOST_SAID]]
        return [False, type(error).__name__[:200]]
    return [number in running.right, printed.kept.strip()[:MOST_SAID]]  # a tool may be missing


class Again(Exception):
    """What a part left behind cannot be removed: another box does the rest."""


class Inside:
    """A job in its box."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.give = os.dup(1)
        threading.Thread(target=self._listen, args=[os.dup(0)], daemon=True).start()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)

    def _listen(self, asked: int) -> None:
        """Take the lines that come; with their end, as when grading is stopped, all ends here."""
        with os.fdopen(asked, "rb") as lines:
            for line in lines:
                self.asked.put(line)
            os._exit(0)

    def tell(self, *what: Any) -> None:
        """Give a line."""
        line = json.dumps(what).encode() + b"\n"
        while line:
            line = line[os.write(self.give, line):]

    def ask(self) -> Any:
        """Say that a step is over, and return what the process outside knows of it now."""
        self.tell("done")
        return json.loads(self.asked.get())

    def step(self, name: str, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns in a child; or None, and tell why there is nothing."""
        from course.checks.run.isolate import Child, Ended, Limits

        def closed() -> Any:
            _prctl(DUMPABLE, 1)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), LIMITS["CPU"][1]))
            return function(*arguments)

        limits = Limits(asleep=seconds, wall=PATIENCE * seconds, memory=1 << 50, processes=1 << 20,
                        given=MOST_GIVEN)  # the process outside counts these
        self.tell("at", name)
        try:
            return Child(closed, limits=limits).result()
        except Ended as ended:
            self.tell("stopped", ended.why, ended.code, ended.words)
            return None

    def _tidy(self) -> None:
        """Remove what a part left, once its result is sent, so that no other part finds it."""
        for path in Path.cwd().iterdir():
            with contextlib.suppress(OSError):
                path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
        for tries in range(2):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not (left := psutil.Process().children(recursive=True)):
                break
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=2 * (1 - tries))
        else:
            raise Again
        if any(Path.cwd().iterdir()):
            raise Again

    def main(self) -> None:
        """Do a job, or the rest of it."""
        import nbformat

        import course.checks.say.messages as messages
        import course.plots  # noqa: F401 (once, before processes are forked)
        from course.checks.run.check import registered
        from tools.grading import page, plan
        messages.reason(ValueError("read what it needs while there are files to be opened"))
        job = json.loads(self.asked.get())
        seconds, outputs = job["seconds"], job["outputs"]
        made = self.step("reading", READ, plan.of_file, base64.b64decode(job["file"]),
                         job["master"])
        if not made or "wrong" in made:
            self.tell("unread", made and made["wrong"])
            return
        checks, sources = plan.checks_of(nbformat.from_dict(job["master"])), made["sources"]
        keys = {one.number: hashlib.sha256(json.dumps(
            [one.number, one.answer, sources[one.number], made["language"]]).encode()).hexdigest()
            for one in checks}
        self.tell("plan", keys, made["notes"], made["answers"], made["language"])
        known = self.ask()
        for one in checks:
            if one.number not in known:
                registered[one.number].get_ready()
                if came := self.step(one.number, seconds, check, one.number, one.answer,
                                     sources[one.number], made["language"]):
                    self.tell("said", *came)
                known = self.ask()
                self._tidy()
        if job["page"]:
            if outputs is None:
                outputs = self._executed(made["cells"], seconds)
            body = self.step("rendering", RENDER, page.render, made["cells"], outputs, known)
            self.tell("page", body)

    def _executed(self, cells: list[dict[str, Any]], seconds: float) -> Any:
        """Run the notebook; return the outputs of each cell that ran."""
        from tools.grading.shell import execute
        # a cell may delete or replace it: this one is read
        with tempfile.NamedTemporaryFile("r", errors="replace", prefix=".", delete=False) as said:
            self.step("executing", seconds, execute, cells, seconds, said.name)
            for line in said:
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    self.tell("cell", *json.loads(line))
        outputs = self.ask()
        self._tidy()
        return outputs


if __name__ == "__main__":
    _limit()
    inside = Inside()
    with contextlib.suppress(Again):
        try:
            inside.main()
            inside.tell("at", "end")
        except (OSError, MemoryError) as error:  # this machine's, not the submission's
            inside.tell("fault", f"{type(error).__name__}: {error}")
        os._exit(0)
    inside.tell("at", "")
    os._exit(0)
