"""A job, which is one notebook of one student; its result; and results that are kept.

What was graded once is not graded again, after a crash or a correction.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nbformat

from tools.grading import plan


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


class Kept:
    """The results in a folder, a file each; half of one, as after a power cut, is no JSON.

    A result is kept under a key made of its job, which holds the file that was handed in and the
    student version, and of the versions of the course, its packages and data.
    """

    def __init__(self, folder: Path, versions: dict[str, str]) -> None:
        self.folder, self.versions = folder, json.dumps(versions, sort_keys=True)
        folder.mkdir(parents=True, exist_ok=True)

    def key(self, job: Job) -> str:
        """Return the name of a job's result."""
        asked = asdict(job)
        asked["data"] = hashlib.sha256(job.data).hexdigest()
        text = json.dumps([asked, self.versions], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def find(self, key: str) -> Result | None:
        """Return the result that is kept under a key, if there is one that can be read."""
        try:
            return Result(**json.loads((self.folder / f"{key}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, key: str, result: Result) -> None:
        """Keep a result, if it is whole: another was the machine's fault, or may have been."""
        if result.whole:
            (self.folder / f"{key}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
