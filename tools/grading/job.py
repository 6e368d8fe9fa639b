"""Grade one notebook of one student: a function from a Job to a Result, and the process it runs in.

What it finds it sends as it comes, as JSON, so that whatever happens later costs nothing of it.
"""

import hashlib
import json
import os
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat

from tools.grading import confine, plan, stages, submission

READ, RENDER = 60, 40  # seconds for reading a file, and for making its page


@dataclass(frozen=True)
class Job:
    """All that a result depends on, besides the versions of the course and its packages."""

    stem: str  # the notebook's, as 02_emit_te_ingestion
    data: bytes  # the file that was handed in
    master: str  # the student version, as JSON
    seconds: float = 60  # for a cell, and for a check
    page: bool = True  # whether a page of feedback is wanted

    def checks(self) -> list[plan.Check]:
        """Return the notebook's checks, in order."""
        return plan.checks_of(nbformat.from_dict(json.loads(self.master)))


@dataclass
class Result:
    """What came of a job: points and words by exercise, notes, the page of feedback as HTML.

    `whole`: it ran to its end. Else the machine may be to blame, and it is worth another try.
    """

    points: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    page: str = ""
    whole: bool = False


def limit(exercises: int, seconds: float) -> float:
    """Return the seconds after which a job can only be stuck: the sum of its parts' limits."""
    return READ + exercises * (seconds + 15) + 6 * seconds + 2 * RENDER + 60


def _prepare(data: bytes, master: dict[str, Any]) -> dict[str, Any]:
    try:
        notebook = submission.parsed(data)
        cells = submission.cells(notebook)
    except ValueError as error:
        return {"wrong": str(error)}
    return {"language": submission.language(notebook),
            **plan.make(cells, nbformat.from_dict(master))}


def _checked(seconds: float, scratch: Path, number: str, answer: str, sources: list[str],
             language: str) -> tuple[bool, str]:
    """Return whether an answer passed its check, and what was said; raises stages.Stopped."""
    from tools.grading import checking  # torch and TVM, which the grader itself never needs
    secret = secrets.token_hex(16)
    came = stages.run(seconds, scratch, checking.run, number, answer, sources, scratch, secret,
                      language)
    if not isinstance(came, dict) or came.get("secret") != secret:
        raise stages.Stopped("gave a verdict that is not the check's")
    return came["passed"] is True, submission.clean(came.get("said"))


def _grade(send: Any, job: Job, scratch: Path, verdicts: Mapping[str, tuple[bool, str]]) -> None:
    from tools.grading import page  # as `checking` above
    number, seconds, master = job.stem[:2], job.seconds, json.loads(job.master)
    try:
        made = stages.run(READ, scratch, _prepare, job.data, master)
    except stages.Stopped as stopped:
        made = {"wrong": f"reading it {stopped}"}
    if "wrong" in made:
        send(notes=[f"{number}: {made['wrong']}"])
        return
    send(notes=made["notes"])
    said: dict[str, tuple[bool, str]] = {}
    for check in job.checks():
        name, language = check.number, made["language"]
        todo = name, check.answer, made["sources"][name]
        key = hashlib.sha256(json.dumps([*todo, language]).encode()).hexdigest()
        try:
            said[name] = verdicts.get(key) or _checked(seconds, scratch, *todo, language)
        except stages.Stopped as stopped:
            key = ""
            said[name] = False, f"Exercise {name} ✗\n  the answer {stopped}"
            send(notes=[f"{number}: the answer to {name} {stopped}"])
        passed, text = said[name]
        send(check=name, points=check.points if passed else 0, said=text, passed=passed, key=key)
    if not job.page:
        return
    outputs: dict[str, Any] = {"outputs": {}, "notes": []}
    try:
        outputs = stages.run(6 * seconds, scratch, page.execute, made["cells"], scratch, seconds,
                             5 * seconds)
    except stages.Stopped as stopped:
        outputs["notes"] = [f"the notebook {stopped}; its page has no outputs"]
    send(notes=[f"{number}: {note}" for note in outputs["notes"]])
    for plain in (False, True):
        try:
            send(page=stages.run(RENDER, scratch, page.render, job.stem, made["cells"],
                                 outputs["outputs"], said, plain))
            return
        except stages.Stopped as stopped:
            why = stopped
    send(notes=[f"{number}: no page of feedback: making it {why}"])


def main(pipe: Connection, job: Job, scratch: Path, namespaces: bool,
         verdicts: Mapping[str, tuple[bool, str]]) -> None:
    """Grade a job in this process, which a server has just forked; never returns.

    Messages: {"notes": [...]}, {"check", "points", "said", "passed", "key"}, {"page": HTML}, and at
    the end {"done": true}. `namespaces`: they work here. `scratch` is an empty folder, its own.
    `verdicts`: (passed, said) of checks by their key, of the jobs before. The same source has the
    same verdict, and in a class many exercises are untouched. No key: no check gave this verdict.
    """
    os.setsid()
    # of what it inherits it keeps the pipe: a server that is gone must be noticed
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, 65536)

    def stop(*_: Any) -> None:
        stages.end_all()
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    confine.adopt_orphans()
    confine.end_with_parent(signal.SIGTERM)

    def send(**message: Any) -> None:
        pipe.send_bytes(json.dumps(message).encode())

    try:
        if namespaces:
            confine.enter_namespaces(scratch)
        _grade(send, job, scratch, verdicts)
        send(done=True)
    except (MemoryError, RecursionError, OSError, ValueError) as error:
        send(notes=[f"could not be graded ({type(error).__name__}: {str(error)[:100]})"])
    stages.end_all()
    os._exit(0)
