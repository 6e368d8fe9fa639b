"""A job, which is one notebook of one student; its result; and the stored results.

What was graded once is not graded again after a crash or a correction; only another version of the
course, its packages or its data has its own results.
"""

import functools
import hashlib
import json
import platform
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import nbformat

from course.words import ROOT, Sentence, packed, unpacked
from data import store
from tools.grading import plan

# what runs when a notebook is graded; the notebook itself comes with its job
FILES = ("*.py", "course/**/*.py", "course/words/*.po", "data/*.py",
         "tools/__init__.py", "tools/student.py", "tools/grading/*.py", "requirements.txt",
         "instructor/requirements.txt")


@dataclass(frozen=True)
class Job:
    """Everything that a result depends on, besides the versions of the course and its packages."""

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
    """The result of a job: points and words by exercise, notes, the page of feedback as HTML.

    `answers`: by exercise what was written, and its `plan.likeness`. `whole`: it ran to its end.
    If not, the machine may be to blame: then it is not a grade, is not kept, and is worth a retry.
    """

    points: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    notes: list[Sentence] = field(default_factory=list)
    answers: dict[str, list[str]] = field(default_factory=dict)
    page: str = ""
    language: str = "en"
    whole: bool = False


class Kept:
    """The results in a folder, a file each; what a power cut left of one cannot be read."""

    def __init__(self, folder: Path, versions: dict[str, str]) -> None:
        self.folder, self.versions = folder, json.dumps(versions, sort_keys=True)
        folder.mkdir(parents=True, exist_ok=True)

    def key(self, job: Job) -> str:
        """Return the name of a job's result, made from the job and `versions`."""
        asked = asdict(job) | {"data": hashlib.sha256(job.data).hexdigest()}
        return hashlib.sha256(json.dumps([asked, self.versions]).encode()).hexdigest()

    def find(self, key: str) -> Result | None:
        """Return the result stored under a key, if there is one that can be read."""
        try:
            return Result(**unpacked(json.loads((self.folder / f"{key}.json").read_bytes())))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, key: str, result: Result) -> None:
        """Store a result if it is whole; if not, the machine was, or may have been, at fault."""
        if result.whole:
            (self.folder / f"{key}.json").write_text(json.dumps(packed(asdict(result))))


@functools.cache
def course_versions() -> dict[str, str]:
    """Return the versions of the course, its data, Python, and each pinned package, by name.

    Files count by their content. A local version label, as in torch 2.13.0+cpu, does not count.
    Raises store.CourseError if the data are not what they should be.
    """
    def digest(files: Iterable[Path]) -> str:
        whole = hashlib.sha256()
        for path in files:
            data = path.read_bytes()
            whole.update(f"{path.name} {len(data)}\n".encode() + data)
        return whole.hexdigest()[:12]

    data = store.data_folder()
    ours = (path for pattern in FILES for path in sorted(ROOT.glob(pattern)) if path.is_file())
    used = [*sorted(data.glob("FashionMNIST/raw/t10k*")), *sorted(data.glob("models/*"))]
    found = {"the course": digest(ours), "the data": digest(used),
             "Python": ".".join(platform.python_version_tuple()[:2])}
    for file in ("requirements.txt", "instructor/requirements.txt"):
        for name in re.findall(r"^([\w-]+)(?:\[.*\])?==", (ROOT / file).read_text(), re.MULTILINE):
            try:
                found[name] = metadata.version(name).partition("+")[0]
            except metadata.PackageNotFoundError:
                found[name] = "not installed"
    return found


def differs(wanted: dict[str, str]) -> str:
    """Say how this machine's versions differ from the wanted ones, or ""."""
    here = course_versions()
    return ", ".join(f"{name} is {here.get(name, 'unknown')} there and {version} here"
                     for name, version in wanted.items() if here.get(name) != version)
