"""Grade one notebook of one student: a process that the grader starts, and that ends with it.

What it finds it sends as it comes, as JSON, so that whatever happens later costs nothing of it.
"""

import json
import os
import secrets
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat

from tools.grading import confine, plan, stages, submission

READ, RENDER = 60, 40  # seconds for reading a file, and for making its page


def limit(exercises: int, seconds: float) -> float:
    """Return the seconds after which a job can only be stuck: the sum of its parts' limits."""
    return READ + exercises * (seconds + 15) + 6 * seconds + 2 * RENDER + 60


def _prepare(path: Path, master: dict[str, Any]) -> dict[str, Any]:
    try:
        notebook = submission.parsed(submission.read(path))
        cells = submission.cells(notebook)
    except ValueError as error:
        return {"wrong": str(error)}
    return {"language": submission.language(notebook),
            **plan.make(cells, nbformat.from_dict(master))}


def _grade(send: Any, path: Path, master: dict[str, Any], scratch: Path, seconds: float) -> None:
    from tools.grading import checking, page  # torch and TVM, which the grader itself never needs
    stem = master["metadata"]["name"]
    number = stem[:2]
    try:
        made = stages.run(READ, scratch, _prepare, path, master)
    except stages.Stopped as stopped:
        made = {"wrong": f"reading it {stopped}"}
    if "wrong" in made:
        send(notes=[f"{number}: {made['wrong']}"])
        return
    send(notes=made["notes"])
    said: dict[str, tuple[bool, str]] = {}
    for check in plan.checks_of(nbformat.from_dict(master)):
        secret, name = secrets.token_hex(16), check.number
        try:
            came = stages.run(seconds, scratch, checking.run, name, check.answer,
                              made["sources"][name], scratch, secret, made["language"])
            if not isinstance(came, dict) or came.get("secret") != secret:
                raise stages.Stopped("gave a verdict that is not the check's")
            said[name] = came["passed"] is True, submission.clean(came.get("said"))
        except stages.Stopped as stopped:
            said[name] = False, f"Exercise {name} ✗\n  the answer {stopped}"
            send(notes=[f"{number}: the answer to {name} {stopped}"])
        send(check=name, passed=said[name][0], said=said[name][1])
    outputs: dict[str, Any] = {"outputs": {}, "notes": []}
    try:
        outputs = stages.run(6 * seconds, scratch, page.execute, made["cells"], scratch, seconds,
                             5 * seconds)
    except stages.Stopped as stopped:
        outputs["notes"] = [f"the notebook {stopped}; its page has no outputs"]
    send(notes=[f"{number}: {note}" for note in outputs["notes"]])
    for plain in (False, True):
        try:
            send(page=stages.run(RENDER, scratch, page.render, stem, made["cells"],
                                 outputs["outputs"], said, plain))
            return
        except stages.Stopped as stopped:
            why = stopped
    send(notes=[f"{number}: no page of feedback: making it {why}"])


def main(pipe: Connection, path: Path, master: dict[str, Any], scratch: Path, seconds: float,
         namespaces: bool) -> None:
    """Grade the file at `path` against a student version; see the module's first lines.

    Messages: {"notes": [...]}, {"check", "passed", "said"}, {"page": HTML}, and at the end
    {"done": true}. `namespaces`: they work here.
    """
    os.setsid()
    # of what it inherits it keeps the pipe: with multiprocessing's own open, the process that
    # forked it would not notice that the grader is gone
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, 65536)

    def stop(*_: Any) -> None:
        stages.end_all()
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    confine.adopt_orphans()
    confine.end_with_parent(signal.SIGTERM)
    confine.clean_environment()

    def send(**message: Any) -> None:
        pipe.send_bytes(json.dumps(message).encode())

    if namespaces:
        confine.enter_namespaces(scratch)
    try:
        _grade(send, path, master, scratch, seconds)
        send(done=True)
    except (MemoryError, RecursionError, OSError, ValueError) as error:
        send(notes=[f"could not be graded ({type(error).__name__}: {str(error)[:100]})"])
    stages.end_all()
    os._exit(0)
