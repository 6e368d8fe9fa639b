"""Grade submissions: build/grades.csv, and pages in build/feedback/.

    python -m tools.grade place          the notebooks that were handed in
    python -m tools.grade place 02 03    these

`place` is a folder, or an archive of one, with a folder, an archive or files for each student. A
job, one notebook of one student, is graded in its own sandbox (tools/grading/); its result is kept.
"""

import argparse
import contextlib
import csv
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import textwrap
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

try:
    import nh3  # noqa: F401
    from tqdm import tqdm
except ImportError:
    sys.exit("What grading needs is not installed. `make grade SUBMISSIONS=folder` installs it.")

from course.words import ROOT, Sentence, _
from data import store
from tools import lang
from tools.grading import box, inputs, page, plan
from tools.grading.box import Lost
from tools.grading.grader import Grader
from tools.grading.inputs import Found
from tools.grading.job import Job, Kept, Result, course_versions
from tools.grading.submission import printable, read
from tools.student import student_version

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
MOST_NOTES = 5  # lines per student in `problems`
# where a spreadsheet sees a formula, even if it splits the text again, as at a semicolon
FORMULA = re.compile(r"(^|[;,|\t])(\s*[=+\-@])")


@dataclass
class Student:
    """One student: a name as it can be printed, the notebooks found, and results by notebook."""

    name: str
    found: Found
    results: dict[str, Result] = field(default_factory=dict)


@dataclass
class Report:
    """The table, the pages and the progress of a run, into which the results of jobs go."""

    students: list[Student]
    worth: dict[str, float]  # points by exercise
    stems: dict[str, str]  # the notebook by exercise
    published: set[str]  # the `plan.likeness` of the solutions
    to: Path
    bar: Any  # tqdm's
    rows: dict[int, list[str]] = field(default_factory=dict)
    spoilt: int = 0  # students of whom something could not be graded

    def say(self, *lines: str) -> None:
        """Print lines above the bar."""
        with self.bar.external_write_mode(file=sys.stdout):
            print(*map(printable, lines), sep="\n    ", flush=True)

    def take(self, number: int, stem: str, result: Result) -> None:
        """Take a result; with the last one of a student, write the row and the pages."""
        self.students[number].results[stem] = result
        self.finish(number)
        self.bar.update()

    def finish(self, number: int) -> None:
        """Write the row and the pages of a student, once all notebooks have their results."""
        student = self.students[number]
        results = student.results
        if results.keys() != student.found.taken.keys():
            return
        notes = list(dict.fromkeys(  # each problem once
            note for stem, found in student.found.notes.items()
            for note in [*found, *(results[stem].notes if stem in results else [])]))
        points = ChainMap(*(result.points for result in results.values()))
        spoilt = {stem for stem, result in results.items() if not result.whole}
        self.spoilt += bool(spoilt)
        earned = ["" if self.stems[key] in spoilt else f"{points.get(key, 0):g}"
                  for key in self.worth]  # what was not graded has no grade
        total = ("" if spoilt else f"{sum(points.values()):g}"), f"{sum(self.worth.values()):g}"
        try:
            self._write_pages(student, earned, total, notes)
        except (OSError, UnicodeError) as error:
            notes.append(_("no page of feedback ({error})").format(error=type(error).__name__))
        if (more := len(notes) - MOST_NOTES) > 0:
            notes[MOST_NOTES:] = [_("and {count} more").format(count=more)]
        said = [printable(note) for note in notes]
        name, problems = (FORMULA.sub(r"\1'\2", text) for text in (student.name, "; ".join(said)))
        self.rows[number] = [name, *earned, *total, problems]
        self._write_table()
        self.say(f"[{len(self.rows)}/{len(self.students)}] {student.name}: " + _of(*total), *said)
        if notes:
            look = sum(row[-1] != "" for row in self.rows.values())
            self.bar.set_postfix_str(_("look at {count}, last {name}").format(
                count=look, name=textwrap.shorten(student.name, 20)), refresh=False)

    def _write_pages(self, student: Student, earned: list[str], total: tuple[str, str],
                     notes: list[Sentence]) -> None:
        place = self.to / "feedback" / student.name.replace("/", "_")
        place.mkdir(parents=True, exist_ok=True)
        results = student.results.values()
        words = ChainMap(*(result.words for result in results))
        answers = ChainMap(*(result.answers for result in results))
        language = next((result.language for result in results), os.environ.get("MLC_LANG") or "en")
        rows: list[tuple[str, str, str, str]] = [
            (key, _of(points, f"{most:g}"),
             words.get(key, _("not handed in") if points else ""), answers.get(key, [""])[0])
            for (key, most), points in zip(self.worth.items(), earned, strict=True)]
        rows.append((_("total"), _of(*total), "", ""))
        pages = {stem: result.page for stem, result in student.results.items() if result.page}
        pages["index"] = page.index(student.name, rows, list(pages), notes, language)
        for stem, text in pages.items():
            (place / f"{stem}.html").write_text(text, encoding="utf-8")

    def _write_table(self) -> None:
        """Write the rows so far, in the students' order; the file is always complete.

        Two columns count a student's answers that equal the published ones, or, if they do not,
        another student's; names and comments do not matter.
        """
        written = {number: [kind for result in self.students[number].results.values()
                            for _text, kind in result.answers.values()] for number in self.rows}
        every = Counter(kind for kinds in written.values() for kind in set(kinds) - self.published)
        unfinished = self.to / "grades.csv.part"
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["student", *self.worth, "total", "of", "as published", "as another's",
                            "problems"])
            for number, (*row, problems) in sorted(self.rows.items()):
                kinds = written[number]
                table.writerow([*row, sum(kind in self.published for kind in kinds),
                                sum(every[kind] > 1 for kind in kinds), problems])
        unfinished.replace(self.to / "grades.csv")


def _of(points: str, most: str) -> Sentence:
    return _("{points} of {most}").format(points=points, most=most) if points else _("not graded")


def _not_kept(report: Report, kept: Kept, job_of: Callable[[int, str], Job]
              ) -> dict[str, list[tuple[int, str]]]:
    """Take what was graded before; return where the other files are, by their results' keys."""
    missing: dict[str, list[tuple[int, str]]] = {}
    before = 0
    for number, student in enumerate(report.students):
        for stem in student.found.taken:
            try:
                key = kept.key(job_of(number, stem))
            except ValueError as error:
                note = _("{number}: {text}").format(number=stem[:2], text=error.args[0])
                report.take(number, stem, Result(notes=[note], whole=True))
                continue
            if result := kept.find(key):
                before += 1
                report.take(number, stem, result)
            else:
                missing.setdefault(key, []).append((number, stem))
        if not student.found.taken:
            report.finish(number)
    if before:
        report.say(_("{count} of {all} notebooks were graded before; FRESH=1 starts over.").format(
            count=before, all=before + sum(map(len, missing.values()))))
    return missing


def _grade_all(report: Report, solved: list[Job], kept: Kept, options: argparse.Namespace) -> None:
    """Grade what is not graded yet, equal files once, and write everything.

    Raises Lost if the course's own solutions, `solved`, do not pass.
    """
    masters = {job.stem: job.master for job in solved}

    def job_of(number: int, stem: str) -> Job:
        return Job(stem, read(report.students[number].found.taken[stem]), masters[stem],
                   options.seconds)

    missing = _not_kept(report, kept, job_of)
    report.bar.initial = report.bar.n  # for the time that is left
    todo = ((key, job_of(*places[0])) for key, places in missing.items())
    with contextlib.ExitStack() as ending:
        came: Iterable[tuple[str, Result]] = ()
        if options.cluster:
            from tools.grading import fleet  # importing Dask takes a second
            client = ending.enter_context(fleet.running(options.cluster, options.tls))
            came = fleet.Fleet(client, course_versions(), solved, report.say).results(todo)
        elif missing:
            solved = [job for job in solved if not kept.find(kept.key(job))]
            grader = Grader()
            grader.proved(solved)
            came = ThreadPool(options.jobs).imap_unordered(
                lambda key: (key, grader.grade(job_of(*missing[key][0]))), missing)
        for key, result in came:
            kept.keep(key, result)
            for place in missing[key]:
                report.take(*place, result)
    for job in solved:  # they passed, or nothing came
        kept.keep(kept.key(job), Result(whole=bool(missing)))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Grade submissions: a folder for each student.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("notebooks", nargs="*", help="two digits each; else what was handed in")
    parser.add_argument("--seconds", type=int, default=60, help="for a cell, and for an answer")
    parser.add_argument("--to", type=lambda text: Path(text).resolve(), default=ROOT / "build",
                        help="where the results go, below the course's folder")
    parser.add_argument("--jobs", type=int, default=CORES, help="at once; else one a core")
    parser.add_argument("--cluster", help="the address of a Dask scheduler, tcp://host:8786")
    parser.add_argument("--tls", type=Path, help="a folder with ca.pem, cert.pem and key.pem")
    parser.add_argument("--fresh", action="store_true", help="grade again what was graded")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _alone(to: Path) -> Iterator[Path]:
    """Yield a folder for what a run unpacks; exit if another run is at work in `to`."""
    to.mkdir(parents=True, exist_ok=True)
    with (to / "grading.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(_("Another `make grade` is at work in {place}: wait for it, or end it."
                       ).format(place=to))
        shutil.rmtree(to / "grading", ignore_errors=True)  # of one that was killed
        (to / "grading").mkdir()
        try:
            yield to / "grading"
        finally:
            shutil.rmtree(to / "grading", ignore_errors=True)


def _on_stop(act: Any) -> None:
    """Choose what Ctrl-C and SIGTERM do."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, act)


def _class(options: argparse.Namespace, scratch: Path) -> tuple[list[Student], list[Job]]:
    """Return the students, with what they handed in, and the solved notebooks as jobs."""
    every = {path.stem: path for path in lang.masters("en")}
    known = inputs.known()
    files = inputs.students(inputs.unpacked(options.folder, scratch), known)
    handed_in = {name: inputs.find(places, known, scratch) for name, places in files.items()}
    wanted = [path.stem for path in lang.chosen(lang.masters("en"), options.notebooks)
              if options.notebooks or any(path.stem in one.taken for one in handed_in.values())]
    if not wanted:
        sys.exit(_("No notebook of the course is in {place}: their names begin as in work/, 02_..."
                   ).format(place=options.folder))
    return ([Student(name, found.of(wanted)) for name, found in handed_in.items()],
            [Job(stem, every[stem].read_bytes(), json.dumps(student_version(every[stem])),
                 options.seconds, page=False) for stem in wanted])


def _say_how_far(report: Report, stopped: str) -> None:
    """Print why the grading has stopped, and where what is graded stands."""
    said = [stopped]
    if report.rows:
        said.append(_("{table} has the rows of the students above. What was graded is kept: the "
                      "same command does the rest.").format(table=f"{report.to.name}/grades.csv"))
    print("\n" + " ".join(said), flush=True)


def main(arguments: list[str]) -> int:
    """Grade; return the exit status."""
    options = _options(arguments)
    os.environ["MLC_DATA"] = str(store.data_folder())  # a submission has no network
    with _alone(options.to) as scratch, contextlib.suppress(BrokenPipeError):
        every, solved = _class(options, scratch)
        if not options.cluster:
            try:
                print(box.in_words())
            except Lost as why:
                sys.exit(str(why))
        print(_("{count} students, notebooks {notebooks}").format(
            count=len(every), notebooks=", ".join(job.stem[:2] for job in solved)), flush=True)
        shutil.rmtree(options.to / "feedback", ignore_errors=True)
        if options.fresh:
            shutil.rmtree(options.to / "graded", ignore_errors=True)
        checks = [(job.stem, check) for job in solved for check in job.checks()]
        published = {kind for job in solved for _text, kind in plan.of_file(
            job.data, json.loads(job.master))["answers"].values()}
        count = sum(len(student.found.taken) for student in every)
        bar = tqdm(total=count, unit=_("notebook"), disable=None, dynamic_ncols=True)
        report = Report(every, {check.number: check.points for _stem, check in checks},
                        {check.number: stem for stem, check in checks}, published, options.to, bar)
        try:
            _on_stop(signal.default_int_handler)
            with bar:
                _grade_all(report, solved, Kept(options.to / "graded", course_versions()), options)
        except (KeyboardInterrupt, Lost) as why:
            _on_stop(signal.SIG_IGN)
            _say_how_far(report, str(why) if isinstance(why, Lost) else _("Stopped."))
            return 1 if isinstance(why, Lost) else 130
    place = os.path.relpath(options.to)
    print(_("Written: {place}/grades.csv, and for each student {place}/feedback/<name>/index.html"
            ).format(place=place))
    if report.spoilt:
        print(_("Not graded: {count} students, with no points in the table. Its last column says "
                "why; the same command tries again.").format(count=report.spoilt))
    return int(report.spoilt > 0)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # threads that wait for sandboxes end with this process; so do the sandboxes
