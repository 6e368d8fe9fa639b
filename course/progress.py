"""Which exercises of a notebook are solved, by the verdicts that its cells show."""

import json
from collections.abc import Container
from pathlib import Path

from course.words import _, language, told


def solved(path: Path, also: Container[str] = ()) -> str:
    """Say in one line what is solved of a notebook as it was saved; `also`: solved since then."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    exercises = {cell["metadata"]["nbgrader"]["grade_id"].replace("-", "."):
                 any("✓" in "".join(output.get("text", "")) for output in cell["outputs"])
                 for cell in cells if cell["metadata"].get("nbgrader", {}).get("grade")}
    left = [number for number, done in exercises.items() if not done and number not in also]
    line = _("{name}: {done} of {all}; not yet: {left}") if left else _("{name}: {done} of {all}")
    return told(line.format(name=path.stem, done=len(exercises) - len(left), all=len(exercises),
                            left=", ".join(left)), language())
