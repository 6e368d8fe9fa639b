"""Results that are kept: what was graded once is not graded again, after a crash or a correction.

A result is kept under a key made of its job, which holds the file that was handed in and the
student version, and of the versions of the course, its packages and data.
"""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from tools.grading.job import Job, Result


class Kept:
    """The results in a folder, a file each, which is whole or not there."""

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
        if not result.whole:
            return
        unfinished = self.folder / f"{key}.part"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(asdict(result), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.folder / f"{key}.json")
