"""Grade submissions: build/grades.csv, and pages in build/feedback/.

    python -m tools.grade folder          the notebooks that anybody handed in
    python -m tools.grade folder 02 03    these

`folder` holds a folder for each student, with the notebooks of their work/. One job is one
notebook of one student (tools/grading/): graded in a process of its own, with limits of time,
memory and disk, without a network where the system can do that. Jobs run on all cores, or on a
Dask cluster; their results are kept, so that the same command goes on after a crash. What is wrong
with one submission is a line in the output and in grades.csv, and stops no other.
"""

import argparse
import contextlib
import csv
import fcntl
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import dask.system
    import nh3  # noqa: F401
    from tqdm import tqdm
except ImportError:
    sys.exit("What grading needs is not installed. `make grade SUBMISSIONS=folder` installs it.")

import nbformat

from data import store
from tools.grading import confine, course, page, plan
from tools.grading.job import Job, Kept, Result
from tools.grading.server import Grader, Graders
from tools.grading.submission import find, printable, read
from tools.handouts import chosen
from tools.student import student_version

ROOT = Path(__file__).resolve().parent.parent
MOST_NOTES = 5  # lines a student in `problems`


class Stop(BaseException):
    """Somebody wants the run to end: Ctrl-C, or SIGTERM."""


@dataclass
class Student:
    """One student: the folder, the notebooks found in it, notes by notebook, and results."""

    folder: Path
    taken: dict[str, Path]
    notes: dict[str, list[str]]
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return printable(self.folder.name)

    def done(self) -> bool:
        return self.results.keys() == self.taken.keys()

    def problems(self) -> list[str]:
        """Return what was wrong with the notebooks, each thing once, in their order."""
        every = [note for stem, notes in self.notes.items() for note in
                 [*notes, *(self.results[stem].notes if stem in self.results else [])]]
        return [printable(note) for note in dict.fromkeys(every)]


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


@dataclass
class Report:
    """The table, the pages and the progress of a run: what the results of jobs go into."""

    students: list[Student]
    worth: dict[str, float]  # points by exercise
    to: Path
    bar: Any  # tqdm's
    rows: dict[int, list[str]] = field(default_factory=dict)
    look: int = 0  # students with problems

    def say(self, *lines: str) -> None:
        """Print lines above the bar."""
        with self.bar.external_write_mode(file=sys.stdout):
            print(*lines, sep="\n    ", flush=True)

    def take(self, number: int, stem: str, result: Result) -> None:
        """Take a result; with the last one of a student, write the row and the pages."""
        self.students[number].results[stem] = result
        self.finish(number)

    def finish(self, number: int) -> None:
        """Write the row and the pages of a student, once all notebooks have their results."""
        student = self.students[number]
        if not student.done():
            return
        points = {key: value for result in student.results.values()
                  for key, value in result.points.items()}
        notes, total = student.problems(), sum(points.values())
        try:
            self._write_pages(student, points, notes, total)
        except (OSError, UnicodeError) as error:
            notes.append(f"no page of feedback ({error.__class__.__name__})")
        self.rows[number] = [
            cell(student.name), *(f"{points.get(key, 0):g}" for key in self.worth), f"{total:g}",
            f"{sum(self.worth.values()):g}", problems(notes)]
        self._write_table()
        more = len(notes) - MOST_NOTES
        self.say(f"[{len(self.rows)}/{len(self.students)}] {student.name}: {total:g} of "
                 f"{sum(self.worth.values()):g}", *notes[:MOST_NOTES],
                 *([f"and {more} more"] if more > 0 else []))
        if notes:
            self.look += 1
            self.bar.set_postfix_str(f"look at {self.look}, last "
                                     f"{textwrap.shorten(student.name, 20)}", refresh=False)

    def _write_pages(self, student: Student, points: dict[str, float], notes: list[str],
                     total: float) -> None:
        place = self.to / "feedback" / student.folder.name
        place.mkdir(parents=True, exist_ok=True)
        words = {key: text for result in student.results.values()
                 for key, text in result.words.items()}
        pages = {stem: result.page for stem, result in student.results.items() if result.page}
        rows = [(number, f"{points.get(number, 0):g} of {most:g}",
                 words.get(number, "not handed in")) for number, most in self.worth.items()]
        rows.append(("total", f"{total:g} of {sum(self.worth.values()):g}", ""))
        for stem, text in pages.items():
            (place / f"{stem}.html").write_text(text, encoding="utf-8")
        (place / "index.html").write_text(page.index(student.name, rows, list(pages), notes),
                                          encoding="utf-8")

    def _write_table(self) -> None:
        """Write the rows that there are, in the students' order; the file is always a whole one."""
        unfinished = self.to / "grades.csv.part"
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["student", *self.worth, "total", "of", "problems"])
            table.writerows(row for _, row in sorted(self.rows.items()))
        unfinished.replace(self.to / "grades.csv")


def _serial(todo: Iterator[tuple[Any, Job]], folder: Path) -> Iterator[tuple[Any, Result]]:
    """Grade one after the other, without Dask."""
    with contextlib.closing(Graders(lambda: Grader(folder))) as graders:
        for place, job in todo:
            yield place, graders.grade(job)


def _results(todo: Iterator[tuple[Any, Job]], count: int, options: Any, folder: Path,
             say: Any) -> Iterator[tuple[Any, Result]]:
    """Yield the results of all that is to do, from where the options say."""
    workers = min(options.jobs or dask.system.CPU_COUNT, count)
    if not count:
        return
    if workers == 1 and not options.cluster:
        yield from _serial(todo, folder)
        return
    from tools.grading import fleet  # Dask's parts take a second
    connected = fleet.running(options.cluster, options.tls) if options.cluster \
        else fleet.local(workers)
    below = str(folder.relative_to(ROOT)) if not options.cluster else "build/grading"
    with connected as client:
        yield from fleet.Fleet(client, course.versions(), below, say).results(todo)


def _grade_all(report: Report, versions: dict[str, nbformat.NotebookNode], kept: Kept,
               options: argparse.Namespace, folder: Path) -> None:
    """Grade what is not graded yet, and write all of it."""
    masters = {stem: json.dumps(version) for stem, version in versions.items()}

    def take(place: tuple[int, str], result: Result) -> None:
        report.take(*place, result)
        report.bar.update()

    def jobs(places: Iterable[tuple[int, str]]) -> Iterator[tuple[tuple[int, str], Job]]:
        for number, stem in places:
            try:
                data = read(report.students[number].taken[stem])
            except ValueError as error:
                take((number, stem), Result(notes=[f"{stem[:2]}: {error}"]))
                continue
            yield (number, stem), Job(stem, data, masters[stem], options.seconds)

    missing: list[tuple[int, str]] = []
    for number, student in enumerate(report.students):
        for place, job in jobs((number, stem) for stem in student.taken):
            if result := kept.find(kept.key(job)):
                take(place, result)
            else:
                missing.append(place)
        if not student.taken:
            report.finish(number)
    count = sum(len(student.taken) for student in report.students)
    if before := count - len(missing):
        report.say(f"{before} of {count} notebooks were graded before; FRESH=1 starts over.")
    report.bar.initial = before  # for the time that is left
    keys: dict[tuple[int, str], str] = {}

    def todo_now() -> Iterator[tuple[tuple[int, str], Job]]:
        for place, job in jobs(missing):
            keys[place] = kept.key(job)
            yield place, job

    for place, result in _results(todo_now(), len(missing), options, folder, report.say):
        kept.keep(keys.pop(place), result)
        take(place, result)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Grade submissions: a folder for each student.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("notebooks", nargs="*", help="two digits each; else what was handed in")
    parser.add_argument("--seconds", type=int, default=60, help="for a cell, and for a check")
    parser.add_argument("--to", type=Path, default=ROOT / "build", help="where the results go, "
                        "below the course's folder")
    parser.add_argument("--jobs", type=int, help="at once; 1 is without Dask; else one a core")
    parser.add_argument("--cluster", help="the address of a Dask scheduler, tcp://host:8786")
    parser.add_argument("--tls", type=Path, help="a folder with ca.pem, cert.pem and key.pem")
    parser.add_argument("--fresh", action="store_true", help="grade again what was graded")
    options = parser.parse_args(arguments)
    options.to = options.to.resolve()
    if options.jobs is not None and options.jobs < 1:
        parser.error("JOBS is a number from 1: how many notebooks at once")
    return options


def _asked(options: argparse.Namespace, folders: list[Path]) -> dict[str, nbformat.NotebookNode]:
    """Return the student versions of the notebooks to grade, by their stems; exit without any."""
    masters = {path.stem: path for path in chosen(options.notebooks)}
    handed_in = masters.keys() if options.notebooks else {
        stem for folder in folders for stem in find(folder, list(masters)).taken}
    versions = {stem: student_version(path) for stem, path in masters.items() if stem in handed_in}
    if not versions:
        sys.exit(f"No notebook of the course is in {options.folder}: their names begin as in "
                 "work/, 02_...")
    for stem, version in versions.items():
        version.metadata["name"] = stem
    return versions


def _student(folder: Path, stems: list[str], every: list[str]) -> Student:
    found = find(folder, every, stems)
    return Student(folder, {stem: found.taken[stem] for stem in stems if stem in found.taken},
                   {stem: found.notes.get(stem, []) for stem in stems})


@contextlib.contextmanager
def _alone(to: Path) -> Iterator[Path]:
    """Yield the folder in which jobs are graded; exit where another run is at work in `to`."""
    to.mkdir(parents=True, exist_ok=True)
    with (to / "grading.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"Another `make grade` is at work in {to}: wait for it, or end it.")
        scratch = to / "grading"  # notebooks look for the course above them
        scratch.mkdir(exist_ok=True)
        try:
            yield scratch
        finally:
            with contextlib.suppress(OSError):  # somebody's workers are at work there
                scratch.rmdir()


def _warn(options: argparse.Namespace, scratch: Path) -> None:
    """Print what this system does not keep submissions from."""
    if not options.cluster and (gaps := confine.gaps(confine.namespaces_work(scratch))):
        print(f"This system does not keep submissions from: {'; '.join(gaps)}. Use a container, "
              "see instructor/README.md.")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        print("You are root: what root may read, a submission could try to. Grade as an ordinary "
              "user.")


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Raise Stop inside for Ctrl-C and SIGTERM; they do nothing afterwards."""
    def stop(*_: Any) -> None:
        raise Stop

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _graded(students: list[Student], versions: dict[str, nbformat.NotebookNode], kept: Kept,
            options: argparse.Namespace, scratch: Path) -> tuple[int, str]:
    """Grade and write everything; return the exit status, and why it ended before its time."""
    worth = {check.number: check.points for version in versions.values()
             for check in plan.checks_of(version)}
    with tqdm(total=sum(len(student.taken) for student in students), unit="notebook",
              disable=None, dynamic_ncols=True) as bar:
        try:
            with _stoppable():
                _grade_all(Report(students, worth, options.to, bar), versions, kept, options,
                           scratch)
        except Stop:
            return 130, "Stopped."
        except Exception as error:
            if type(error).__name__ != "Lost":  # it comes with Dask
                raise
            return 1, str(error)
    return 0, ""


def main(arguments: list[str]) -> int:
    """Grade; return the exit status."""
    options = _options(arguments)
    folders = _students(options.folder)
    versions = _asked(options, folders)
    os.environ["MLC_DATA"] = str(store.data_folder())  # a submission has no network
    with _alone(options.to) as scratch:
        _warn(options, scratch)
        print(f"{len(folders)} students, notebooks {', '.join(stem[:2] for stem in versions)}",
              flush=True)
        every = [path.stem for path in chosen([])]
        students = [_student(folder, list(versions), every) for folder in folders]
        shutil.rmtree(options.to / "feedback", ignore_errors=True)
        if options.fresh:
            shutil.rmtree(options.to / "graded", ignore_errors=True)
        kept = Kept(options.to / "graded", course.versions())
        status, why = _graded(students, versions, kept, options, scratch)
    if why:
        print(f"\n{why} {options.to.name}/grades.csv has the rows of the students above. What was "
              "graded is kept: the same command does the rest.", flush=True)
        return status
    place = os.path.relpath(options.to)
    print(f"Written: {place}/grades.csv, and for each student {place}/feedback/<name>/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
