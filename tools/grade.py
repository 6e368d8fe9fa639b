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
from collections import ChainMap, Counter
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

from data import store
from tools import lang
from tools.grading import confine, page, plan
from tools.grading.job import Job, Kept, Result, course_versions
from tools.grading.server import Grader, Lost
from tools.grading.submission import Found, find, printable, read
from tools.student import student_version

ROOT = Path(__file__).resolve().parent.parent
MOST_NOTES = 5  # lines a student in `problems`


@dataclass
class Student:
    """One student: the folder, its name, the notebooks found in it, and results by notebook."""

    folder: Path
    name: str  # as it can be printed
    found: Found
    results: dict[str, Result] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Return what was wrong with the notebooks, each thing once, in their order."""
        every = [note for stem, notes in self.found.notes.items()
                 for note in [*notes, *self.results.get(stem, Result()).notes]]
        return [printable(note) for note in dict.fromkeys(every)]


def few(notes: list[str]) -> list[str]:
    """Return the first five notes, and how many more there are."""
    more = len(notes) - MOST_NOTES
    return notes[:MOST_NOTES] + [f"and {more} more"] * (more > 0)


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
        hidden = path.name[0] in "._"  # macOS and Windows leave such behind
        if path.is_dir() and not path.is_symlink() and not hidden:
            students.append(path)
        else:
            print(f"{printable(path.name)} is not a student's folder: left out. " + (
                "Rename it if it is one." if hidden else "Unpack archives first."))
    if not students:
        sys.exit(f"{folder} holds no folders: it needs one for each student.")
    return students


@dataclass
class Report:
    """The table, the pages and the progress of a run: what the results of jobs go into."""

    students: list[Student]
    worth: dict[str, float]  # points by exercise
    stems: dict[str, str]  # the notebook by exercise
    published: set[str]  # what the solutions' `plan.likeness` is
    to: Path
    bar: Any  # tqdm's
    rows: dict[int, list[str]] = field(default_factory=dict)
    spoilt: int = 0  # students of whom something could not be graded

    def say(self, *lines: str) -> None:
        """Print lines above the bar."""
        with self.bar.external_write_mode(file=sys.stdout):
            print(*lines, sep="\n    ", flush=True)

    def take(self, number: int, stem: str, result: Result) -> None:
        """Take a result; with the last one of a student, write the row and the pages."""
        self.students[number].results[stem] = result
        self.finish(number)
        self.bar.update()

    def finish(self, number: int) -> None:
        """Write the row and the pages of a student, once all notebooks have their results."""
        student = self.students[number]
        if student.results.keys() != student.found.taken.keys():
            return
        points = ChainMap(*(result.points for result in student.results.values()))
        notes = student.problems()
        spoilt = {stem for stem, result in student.results.items() if not result.whole}
        self.spoilt += bool(spoilt)
        earned = ["" if self.stems[key] in spoilt else f"{points.get(key, 0):g}"
                  for key in self.worth]  # no grade is a grade that nobody gave
        total = ("" if spoilt else f"{sum(points.values()):g}"), f"{sum(self.worth.values()):g}"
        try:
            self._write_pages(student, earned, total, notes)
        except (OSError, UnicodeError) as error:
            notes.append(f"no page of feedback ({error.__class__.__name__})")
        self.rows[number] = [cell(student.name), *earned, *total, "; ".join(few(notes))]
        self._write_table()
        self.say(f"[{len(self.rows)}/{len(self.students)}] {student.name}: "
                 + (" of ".join(total) if total[0] else "not graded"), *few(notes))
        if notes:
            look = sum(row[-1] != "" for row in self.rows.values())
            self.bar.set_postfix_str(f"look at {look}, last {textwrap.shorten(student.name, 20)}",
                                     refresh=False)

    def _write_pages(self, student: Student, earned: list[str], total: tuple[str, str],
                     notes: list[str]) -> None:
        place = self.to / "feedback" / student.folder.name
        place.mkdir(parents=True, exist_ok=True)
        words = ChainMap(*(result.words for result in student.results.values()))
        answers = ChainMap(*(result.answers for result in student.results.values()))
        pages = {stem: result.page for stem, result in student.results.items() if result.page}
        rows = [(key, f"{points} of {most:g}" if points else "not graded",
                 words.get(key, "not handed in" if points else ""), answers.get(key, [""])[0])
                for (key, most), points in zip(self.worth.items(), earned, strict=True)]
        rows.append(("total", " of ".join(total) if total[0] else "not graded", "", ""))
        for stem, text in pages.items():
            (place / f"{stem}.html").write_text(text, encoding="utf-8")
        (place / "index.html").write_text(page.index(student.name, rows, list(pages), notes),
                                          encoding="utf-8")

    def _alike(self) -> dict[int, list[int]]:
        """Return how many answers of each student are as published, and how many as another's.

        Up to names and comments; of these only such as are not as published.
        """
        written = {number: [kind for result in self.students[number].results.values()
                            for _, kind in result.answers.values()] for number in self.rows}
        every = Counter(kind for kinds in written.values() for kind in set(kinds))
        return {number: [sum(kind in self.published for kind in kinds),
                         sum(every[kind] > 1 and kind not in self.published for kind in kinds)]
                for number, kinds in written.items()}

    def _write_table(self) -> None:
        """Write the rows that there are, in the students' order; the file is always a whole one."""
        alike = self._alike()
        unfinished = self.to / "grades.csv.part"
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["student", *self.worth, "total", "of", "as published", "as another's",
                            "problems"])
            table.writerows([*row[:-1], *alike[number], row[-1]]
                            for number, row in sorted(self.rows.items()))
        unfinished.replace(self.to / "grades.csv")


def _results(todo: Iterator[tuple[Any, Job]], count: int, solved: list[Job], options: Any,
             folder: Path, say: Any) -> Iterator[tuple[Any, Result]]:
    """Yield the results of all that is to do, from where the options say.

    Raises Lost where the course's own solutions, `solved`, do not pass there.
    """
    workers = min(options.jobs or dask.system.CPU_COUNT, count)
    if not count or workers == 1 and not options.cluster:
        with contextlib.closing(Grader(folder)) as grader:
            if wrong := grader.proved(solved if count else []):
                raise Lost(f"Nothing was graded: {wrong}\n")
            yield from ((place, grader.grade(job)) for place, job in todo)
        return
    from tools.grading import fleet  # Dask's parts take a second
    connected = fleet.running(options.cluster, options.tls) if options.cluster \
        else fleet.local(workers, folder)
    below = str(folder.relative_to(ROOT)) if not options.cluster else "build/grading"
    with connected as client:
        yield from fleet.Fleet(client, course_versions(), solved, below, say).results(todo)


def _grade_all(report: Report, solved: list[Job], kept: Kept, options: argparse.Namespace,
               folder: Path) -> None:
    """Grade what is not graded yet, and write all of it."""
    masters = {job.stem: job.master for job in solved}

    def jobs(places: Iterable[tuple[int, str]]) -> Iterator[tuple[tuple[int, str, str], Job]]:
        """Yield the jobs at some places, with these and what their results are kept under."""
        for number, stem in places:
            try:
                data = read(report.students[number].found.taken[stem])
            except ValueError as error:
                report.take(number, stem, Result(notes=[f"{stem[:2]}: {error}"], whole=True))
                continue
            job = Job(stem, data, masters[stem], options.seconds)
            yield (number, stem, kept.key(job)), job

    missing: list[tuple[int, str]] = []
    before = 0
    for number, student in enumerate(report.students):
        for (_, stem, key), _job in jobs((number, stem) for stem in student.found.taken):
            if result := kept.find(key):
                before += 1
                report.take(number, stem, result)
            else:
                missing.append((number, stem))
        if not student.found.taken:
            report.finish(number)
    if before:
        report.say(f"{before} of {before + len(missing)} notebooks were graded before; FRESH=1 "
                   "starts over.")
    report.bar.initial = report.bar.n  # for the time that is left
    if not options.cluster:
        solved = [job for job in solved if not kept.find(kept.key(job))]
    for (number, stem, key), result in _results(jobs(missing), len(missing), solved, options,
                                                folder, report.say):
        kept.keep(key, result)
        report.take(number, stem, result)
    for job in solved:  # they passed, or nothing came
        kept.keep(kept.key(job), Result(whole=bool(missing)))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Grade submissions: a folder for each student.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("notebooks", nargs="*", help="two digits each; else what was handed in")
    parser.add_argument("--seconds", type=int, default=60, help="for a cell, and for a check")
    parser.add_argument("--to", type=lambda text: Path(text).resolve(), default=ROOT / "build",
                        help="where the results go, below the course's folder")
    parser.add_argument("--jobs", type=int, help="at once; 1 is without Dask; else one a core")
    parser.add_argument("--cluster", help="the address of a Dask scheduler, tcp://host:8786")
    parser.add_argument("--tls", type=Path, help="a folder with ca.pem, cert.pem and key.pem")
    parser.add_argument("--fresh", action="store_true", help="grade again what was graded")
    return parser.parse_args(arguments)


def _asked(options: argparse.Namespace, folders: list[Path]) -> list[Job]:
    """Return the solved notebooks of those to grade, as jobs; exit without any."""
    masters = {path.stem: path for path in lang.chosen(lang.masters("en"), options.notebooks)}
    handed_in = masters.keys() if options.notebooks else {
        stem for folder in folders for stem in find(folder, list(masters)).taken}
    if not handed_in:
        sys.exit(f"No notebook of the course is in {options.folder}: their names begin as in "
                 "work/, 02_...")
    return [Job(stem, path.read_bytes(), json.dumps(student_version(path)), options.seconds,
                page=False) for stem, path in masters.items() if stem in handed_in]


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
            shutil.rmtree(scratch / "dask", ignore_errors=True)
            with contextlib.suppress(OSError):  # somebody's workers are at work there
                scratch.rmdir()


def _clear(options: argparse.Namespace) -> None:
    """Remove the pages of an earlier run, and its results where they are not to be kept."""
    shutil.rmtree(options.to / "feedback", ignore_errors=True)
    (options.to / "feedback").mkdir()  # there before a part of a job hides it
    if options.fresh:
        shutil.rmtree(options.to / "graded", ignore_errors=True)


def _warn(options: argparse.Namespace, scratch: Path) -> None:
    """Print who counts memory, and what this system does not keep submissions from."""
    if not options.cluster:
        print("Memory is counted by the kernel (systemd-run)." if confine.counted_by_kernel() else
              "Memory is counted by looking, five times a second: systemd-run gives no limit here.")
    if not options.cluster and (gaps := confine.gaps(confine.namespaces_work(scratch))):
        print(f"This system does not keep submissions from: {'; '.join(gaps)}. Use a container, "
              "see instructor/README.md.")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        print("You are root: what root may read, a submission could try to. Grade as an ordinary "
              "user.")


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Raise KeyboardInterrupt inside for Ctrl-C and SIGTERM; they do nothing afterwards."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def main(arguments: list[str]) -> int:
    """Grade; return the exit status."""
    options = _options(arguments)
    folders = _students(options.folder)
    solved = _asked(options, folders)
    os.environ["MLC_DATA"] = str(store.data_folder())  # a submission has no network
    with _alone(options.to) as scratch:
        _warn(options, scratch)
        print(f"{len(folders)} students, notebooks {', '.join(job.stem[:2] for job in solved)}",
              flush=True)
        every = [path.stem for path in lang.masters("en")]
        students = [Student(folder, printable(folder.name),
                            find(folder, every, [job.stem for job in solved]))
                    for folder in folders]
        _clear(options)
        checks = [(job.stem, check) for job in solved for check in job.checks()]
        published = {kind for job in solved for _, kind in plan.of_file(
            job.data, json.loads(job.master))["answers"].values()}
        count = sum(len(student.found.taken) for student in students)
        report = None
        try:
            with tqdm(total=count, unit="notebook", disable=None, dynamic_ncols=True) as bar, \
                    _stoppable():
                report = Report(students, {check.number: check.points for _, check in checks},
                                {check.number: stem for stem, check in checks}, published,
                                options.to, bar)
                _grade_all(report, solved, Kept(options.to / "graded", course_versions()),
                           options, scratch)
        except (KeyboardInterrupt, Lost) as why:
            rest = f"{options.to.name}/grades.csv has the rows of the students above. What was " \
                   "graded is kept: the same command does the rest." if report and report.rows \
                else "The same command goes on from here."
            print(f"\n{str(why).strip() or 'Stopped.'} {rest}", flush=True)
            return 1 if isinstance(why, Lost) else 130
    place = os.path.relpath(options.to)
    print(f"Written: {place}/grades.csv, and for each student {place}/feedback/<name>/index.html")
    if report.spoilt:
        print(f"Not graded: {report.spoilt} students, with no points in the table. Its last column "
              "says why; the same command tries again.")
    return int(report.spoilt > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
