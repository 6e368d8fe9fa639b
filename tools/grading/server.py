"""The process that grades: it has everything imported once, and forks a process for each job.

    python -m tools.grading.server folder      with a socket as its standard input

`tools.grading.grader` starts it. First it says what this system does not keep submissions from;
then it takes one job after the other, and gives its Result. It ends, and all below it, with the
process that started it. `folder` is made, emptied after each job, and removed.
"""

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from tools.grading import confine, job, stages


def grade(todo: job.Job, link: Connection, scratch: Path, namespaces: bool,
          verdicts: dict[str, tuple[bool, str]]) -> job.Result:
    """Grade a job in a process of its own; of it only what checks said is left, in `verdicts`.

    Raises EOFError: end here.
    """
    number, exercises = todo.stem[:2], len(todo.checks())
    result, end = job.Result(), time.monotonic() + job.limit(exercises, todo.seconds)
    scratch.mkdir(parents=True, exist_ok=True)
    take_end, give_end = os.pipe()
    take, give = Connection(take_end, writable=False), Connection(give_end, readable=False)
    process = os.fork()
    if not process:
        job.main(give, todo, scratch, namespaces, verdicts)
    give.close()
    try:
        while not result.whole and time.monotonic() < end:
            ready = wait([take, link], 1)
            if link in ready:  # nobody sends anything now: the grader is gone
                raise EOFError
            if take not in ready:
                continue
            try:
                message = json.loads(take.recv_bytes(stages.MOST_ANSWER))
            except (EOFError, OSError, ValueError) as error:
                result.notes.append(f"{number} could not be graded to its end: its process ended "
                                    f"({type(error).__name__})")
                return result
            result.notes += message.get("notes", [])
            if name := message.get("check"):
                result.points[name], result.words[name] = message["points"], message["said"]
                if message["key"]:
                    verdicts[message["key"]] = message["passed"], message["said"]
            result.page = message.get("page", result.page)
            result.whole = "done" in message
        if not result.whole:
            result.notes.append(f"{number} could not be graded to its end: out of time")
        return result
    finally:
        os.kill(process, signal.SIGKILL)
        take.close()
        stages.end_all()
        stages.empty(scratch)


def main(scratch: Path) -> None:
    """Take jobs and give results until nobody is there any more."""
    def stop(*_: Any) -> NoReturn:
        stages.end_all()
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    confine.adopt_orphans()
    confine.end_with_parent(signal.SIGTERM)
    link = Connection(os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    os.close(nowhere)
    scratch.mkdir(parents=True, exist_ok=True)
    namespaces = confine.namespaces_work(scratch)
    try:
        link.send_bytes(json.dumps(confine.gaps(namespaces)).encode())
        import plots  # noqa: F401 (as the next lines: what jobs need, once for all)
        from checks.run.check import registered
        from tools.grading import checking, integrity, page  # noqa: F401
        loaded, verdicts = 0, dict[str, tuple[bool, str]]()
        while True:
            asked = json.loads(link.recv_bytes())
            todo = job.Job(**asked, data=link.recv_bytes())
            for check in todo.checks():
                registered[check.number].get_ready()
            if loaded != len(sys.modules):
                loaded = len(sys.modules)
                integrity.functions.cache_clear()
                integrity.functions()
            result = grade(todo, link, scratch, namespaces, verdicts)
            link.send_bytes(json.dumps(asdict(result)).encode())
    except (EOFError, OSError):
        stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
