"""Grade one submission for a service: Gradescope's zip, and points as JSON.

    python -m tools.autograder zip 02                 build/autograder/mlc_02_autograder.zip
    python -m tools.autograder json 02 place          points and messages, on standard output
    python -m tools.autograder gradescope 02 place    the same as Gradescope's results.json

`place` is a notebook, or a folder with one in it. The zip is an autograder for Gradescope
(https://gradescope-autograders.readthedocs.io/en/latest/specs/); it holds no solution.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    import psutil  # noqa: F401
except ImportError:
    sys.exit("What grading needs is not installed: `make autograder NB=02` installs it.")

from course.words import ROOT, _, told
from tools import handouts, lang
from tools.grading import plan
from tools.grading.box import Lost
from tools.grading.grader import Grader
from tools.grading.inputs import Found, find, known
from tools.grading.job import FILES, Job, Result
from tools.grading.submission import printable, read
from tools.student import student_version

SCRIPTS = ROOT / "instructor" / "gradescope"  # setup.sh and run_autograder


def grade(number: str, place: Path) -> dict[str, Any]:
    """Return points and messages for a notebook, as plain values; `place` as in the first lines."""
    (path,) = lang.chosen(lang.masters("en"), [number])
    master, stem = student_version(path), path.stem
    result, missing = Result(whole=True), _("not handed in")
    with tempfile.TemporaryDirectory() as scratch:
        found = find([place], known(), Path(scratch)).of([stem]) if place.is_dir() \
            else Found({stem: place}, {stem: []})
        notes = found.notes[stem]
        if stem in found.taken:
            missing = _("not graded")
            try:
                data = read(found.taken[stem])
                result = Grader().grade(Job(stem, data, json.dumps(master), page=False))
            except (ValueError, Lost) as error:
                notes = [*notes, _("{number}: {text}").format(number=number, text=error.args[0])]
                result = Result(whole=isinstance(error, ValueError))
    tongue = result.language if result.points else os.environ.get("MLC_LANG") or "en"
    exercises = [{"exercise": check.number, "points": result.points.get(check.number, 0),
                  "of": check.points,
                  "message": told(result.words.get(check.number, missing), tongue)}
                 for check in plan.checks_of(master)]
    return {"notebook": stem, "points": sum(row["points"] for row in exercises),
            "of": sum(row["of"] for row in exercises), "exercises": exercises,
            "notes": [printable(told(note, tongue))
                      for note in dict.fromkeys([*notes, *result.notes])],
            "whole": result.whole, "language": tongue}


def gradescope(graded: dict[str, Any]) -> dict[str, Any]:
    """Return the result of `grade` in the schema of Gradescope's results.json."""
    tongue = graded["language"]
    tests = [{"number": row["exercise"],
              "name": told(_("Exercise {number}").format(number=row["exercise"]), tongue),
              "score": row["points"], "max_score": row["of"],
              "status": "passed" if row["points"] else "failed", "output": row["message"],
              "output_format": "text", "visibility": "visible"} for row in graded["exercises"]]
    notes = graded["notes"] + ([] if graded["whole"] else [
        told(_("Grading did not finish. Submit again; if that does not help, tell your "
               "instructors."), tongue)])
    return {"score": graded["points"], "output": "\n".join(notes), "output_format": "text",
            "stdout_visibility": "hidden", "tests": tests}


def more() -> dict[str, bytes]:
    """Return the files of the course that grading needs and a handout lacks."""
    return {path.relative_to(ROOT).as_posix(): path.read_bytes()
            for pattern in (*FILES, "tools/*.py") for path in ROOT.glob(pattern)}


def contents(number: str) -> dict[str, tuple[bytes, int]]:
    """Return the files of the zip by their names, with their modes."""
    (path,) = lang.chosen(lang.masters("en"), [number])
    files = {name: data for name, data in handouts.contents([path]).items()
             if not name.startswith("html/")}
    files |= more()
    if found := handouts.leaks(files):
        sys.exit("\n".join(["Not written, solutions would leak:", *found]))
    return {**{path.name: (path.read_bytes().replace(b"NUMBER", number.encode()), 0o755)
               for path in sorted(SCRIPTS.iterdir())},
            **{f"course/{name}": (data, 0o644) for name, data in sorted(files.items())}}


def write(number: str) -> Path:
    """Write the zip and return its path."""
    target = ROOT / "build" / "autograder" / f"mlc_{number}_autograder.zip"
    handouts.pack(target, contents(number))
    return target


def main(words: list[str]) -> None:
    match words:
        case ["zip", *numbers] if numbers:
            for number in numbers:
                target = write(number)
                print(_("{file}: {size} MB, for Gradescope: Configure Autograder, Zip file upload"
                        ).format(file=target.relative_to(ROOT),
                                 size=f"{target.stat().st_size / 1e6:.1f}"))
        case ["json" | "gradescope" as form, number, place]:
            if not Path(place).exists():
                sys.exit(_("There is no {place}: a notebook, or a folder with one in it.").format(
                    place=place))
            graded = grade(number, Path(place))
            print(json.dumps(gradescope(graded) if form == "gradescope" else graded, indent=1))
        case _:
            sys.exit(_("Which notebook? make autograder NB=02 writes Gradescope's zip; python -m "
                       "tools.autograder json 02 place grades one submission."))


if __name__ == "__main__":
    main(sys.argv[1:])
