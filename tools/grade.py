"""Grade submissions: build/grades.csv, and pages in build/feedback/.

    python -m tools.grade folder          the notebooks that anybody handed in
    python -m tools.grade folder 02 03    these

`folder` holds a folder for each student, with the notebooks of their work/. Each notebook is
graded in a process of its own (tools/grading/), with limits of time, memory and disk, without a
network where the system can do that; nothing of it is left when it ends. What is wrong with one
submission is a line in the output and in grades.csv, and stops no other.
"""

import argparse
import csv
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import nh3  # noqa: F401
except ImportError:
    sys.exit("What grading needs is not installed. `make grade SUBMISSIONS=folder` installs it.")

from data import store
from tools.grading import confine, job, page, plan, stages
from tools.grading.submission import find, printable
from tools.handouts import chosen
from tools.student import student_version

ROOT = Path(__file__).resolve().parent.parent
MOST_NOTES = 5  # lines a student in `problems`


class Stop(BaseException):
    """Somebody wants the run to end: Ctrl-C, or SIGTERM."""


@dataclass
class Graded:
    """What became of one student: words and points for each exercise, pages, what was wrong."""

    points: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)  # HTML by the notebook's stem


class Grader:
    """Starts a job for each notebook, from a process that has everything imported once."""

    def __init__(self, scratch: Path, seconds: float, namespaces: bool) -> None:
        self.scratch, self.seconds, self.namespaces = scratch, seconds, namespaces
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tools.grading.server"])

    def grade(self, path: Path, master: Any, graded: Graded) -> None:
        """Grade a file against a student version, and add what came to `graded`."""
        stem = master.metadata["name"]
        checks = {check.number: check for check in plan.checks_of(master)}
        take, give = self.context.Pipe(duplex=False)
        process = self.context.Process(target=job.main, args=(
            give, path, master, self.scratch, self.seconds, self.namespaces))
        process.start()
        give.close()
        end, done = time.monotonic() + job.limit(len(checks), self.seconds), False
        try:
            while not done and time.monotonic() < end:
                if not take.poll(1):
                    continue
                message = json.loads(take.recv_bytes(stages.MOST_ANSWER))
                graded.notes += message.get("notes", [])
                if number := message.get("check"):
                    graded.points[number] = checks[number].points if message["passed"] else 0
                    graded.words[number] = message["said"]
                graded.pages |= {stem: message["page"]} if "page" in message else {}
                done = "done" in message
            if not done:
                graded.notes.append(f"{stem[:2]} could not be graded to its end: out of time")
        except (EOFError, OSError, ValueError, KeyError) as error:
            graded.notes.append(f"{stem[:2]} could not be graded to its end: its process ended "
                                f"({type(error).__name__})")
        finally:
            process.kill()
            process.join(10)
            take.close()
            self.clear()

    def clear(self) -> None:
        """End every process that a job left, and empty its folder."""
        stages.end_all(spared=_own_processes())
        stages.empty(self.scratch)

    def close(self) -> None:
        """End everything that was started."""
        self.clear()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _own_processes() -> set[int]:
    """Return the processes of multiprocessing itself: the one that forks, and its tracker."""
    from multiprocessing import forkserver, resource_tracker
    own = [getattr(forkserver._forkserver, "_forkserver_pid", None),
           getattr(resource_tracker._resource_tracker, "_pid", None)]
    return {pid for pid in own if pid}


def problems(notes: list[str]) -> str:
    """Return what is in the column `problems`: five notes at most, the rest counted."""
    more = len(notes) - MOST_NOTES
    return "; ".join([*notes[:MOST_NOTES], *([f"and {more} more"] if more > 0 else [])])


def cell(text: str) -> str:
    """Return a text for a table: a spreadsheet takes nothing in it for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _students(folder: Path) -> list[Path]:
    """Return the students' folders; say what else is there; exit where there are none."""
    if not folder.is_dir():
        sys.exit(f"There is no folder {folder}: make grade SUBMISSIONS=folder, with a folder in "
                 "it for each student.")
    students = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name[0] not in "._":
            students.append(path)
        elif path.name[0] not in "._":
            print(f"{printable(path.name)} is not a student's folder: left out. Unpack archives "
                  "first.")
    if not students:
        sys.exit(f"{folder} holds no folders: it needs one for each student.")
    return students


def _write_pages(place: Path, name: str, graded: Graded, worth: dict[str, float],
                 total: float) -> None:
    place.mkdir(parents=True, exist_ok=True)
    rows = [(number, f"{graded.points.get(number, 0):g} of {most:g}",
             graded.words.get(number, "not handed in")) for number, most in worth.items()]
    rows.append(("total", f"{total:g} of {sum(worth.values()):g}", ""))
    for stem, text in graded.pages.items():
        (place / f"{stem}.html").write_text(text, encoding="utf-8")
    (place / "index.html").write_text(page.index(name, rows, list(graded.pages), graded.notes),
                                      encoding="utf-8")


def _grade_all(grader: Grader, students: list[Path], versions: dict[str, Any], to: Path) -> None:
    worth = {check.number: check.points for version in versions.values()
             for check in plan.checks_of(version)}
    stems = [path.stem for path in chosen([])]
    shutil.rmtree(to / "feedback", ignore_errors=True)
    with (to / "grades.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["student", *worth, "total", "of", "problems"])
        for number, student in enumerate(students, start=1):
            graded, name = Graded(), printable(student.name)
            found = find(student, stems, versions)
            for stem, version in versions.items():
                graded.notes += found.notes.get(stem, [])
                if stem in found.taken:
                    grader.grade(found.taken[stem], version, graded)
            graded.notes = [printable(note) for note in dict.fromkeys(graded.notes)]
            total = sum(graded.points.values())
            try:
                _write_pages(to / "feedback" / student.name, name, graded, worth, total)
            except (OSError, UnicodeError) as error:
                graded.notes.append(f"no page of feedback ({error.__class__.__name__})")
            table.writerow([cell(name), *(f"{graded.points.get(key, 0):g}" for key in worth),
                            f"{total:g}", f"{sum(worth.values()):g}", problems(graded.notes)])
            file.flush()
            print(f"[{number}/{len(students)}] {name}: {total:g} of {sum(worth.values()):g}",
                  *graded.notes[:MOST_NOTES], sep="\n    ", flush=True)
            if len(graded.notes) > MOST_NOTES:
                print(f"    and {len(graded.notes) - MOST_NOTES} more", flush=True)


def main(arguments: list[str]) -> int:
    """Grade; return the exit status."""
    parser = argparse.ArgumentParser(description="Grade submissions: a folder for each student.")
    parser.add_argument("folder")
    parser.add_argument("notebooks", nargs="*", help="two digits each; else what was handed in")
    parser.add_argument("--seconds", type=int, default=60, help="for a cell, and for a check")
    parser.add_argument("--to", type=Path, default=ROOT / "build", help="where the results go, "
                        "below the course's folder")
    options = parser.parse_args(arguments)
    students = _students(Path(options.folder))
    masters = chosen(options.notebooks)
    if not options.notebooks:
        taken = {stem for student in students
                 for stem in find(student, [path.stem for path in masters]).taken}
        masters = [path for path in masters if path.stem in taken]
    if not masters:
        sys.exit(f"No notebook of the course is in {options.folder}: their names begin as in "
                 "work/, 02_...")
    os.environ["MLC_DATA"] = str(store.data_folder())  # a submission has no network
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    scratch = options.to.resolve() / "grading"  # notebooks look for the course above them
    scratch.mkdir(parents=True, exist_ok=True)
    confine.clean_environment()  # what the jobs' processes are started with
    confine.adopt_orphans()
    alone = (options.to / "grading.lock").open("w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"Another `make grade` is at work in {options.to}: wait for it, or end it.")
    namespaces = confine.namespaces_work(scratch)
    if gaps := confine.gaps(namespaces):
        print(f"This system does not keep submissions from: {'; '.join(gaps)}. Use a container, "
              "see instructor/README.md.")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        print("You are root: what root may read, a submission could try to. Grade as an ordinary "
              "user.")
    print(f"{len(students)} students, notebooks {', '.join(p.stem[:2] for p in masters)}",
          flush=True)
    versions = {}
    for path in masters:
        versions[path.stem] = student_version(path)
        versions[path.stem].metadata["name"] = path.stem

    def stop(*_: Any) -> None:
        raise Stop

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    grader = Grader(scratch, options.seconds, namespaces)
    try:
        _grade_all(grader, students, versions, options.to)
    except Stop:
        print(f"\nStopped. The students above have their rows in {options.to.name}/grades.csv; "
              "who was in hand has none.", flush=True)
        return 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the end is short, and it is not left half
        grader.close()
    place = os.path.relpath(options.to)
    print(f"Written: {place}/grades.csv, and for each student {place}/feedback/<name>/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
