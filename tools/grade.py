"""Grade submissions with nbgrader's autograder: build/grades.csv, and pages in build/feedback/.

    python tools/grade.py folder          the notebooks that anybody handed in
    python tools/grade.py folder 02 03    these

`folder` holds a folder for each student, with the notebooks of their work/. Of a submission only
the text of the cells is taken; it runs in instructor/limited_kernel.py, in an empty folder below
build/, where the course's own helpers, checks and plots are found first. What is wrong with one
submission is a line in the output and in grades.csv, and stops no other.
"""

import argparse
import copy
import csv
import html
import json
import os
import re
import shutil
import sys
import time
import warnings
from pathlib import Path

import nbformat
from handouts import chosen
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from student import student_version

try:
    from nbgrader.api import Gradebook
    from nbgrader.apps import NbGraderAPI
    from nbgrader.preprocessors import CheckCellMetadata, Execute, LimitOutput, SaveAutoGrades
    from sqlalchemy.exc import SAWarning
    from traitlets.config import Config
except ImportError:
    sys.exit("nbgrader is not installed. `make grade SUBMISSIONS=folder` installs it.")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "instructor")]
BUILD = ROOT / "build"
PLACE = BUILD / "grading"  # nbgrader's course folder, made anew each time: it skips what it knows
KERNEL = "limited"
NOT_RUN = "not run, since too many cells before crashed or took too long"
REPLAYS = 3  # times that a notebook is run again without a cell that crashed or hung
MOST_OUTPUT, MOST_FILE = 1_000_000, 50_000_000  # bytes of a cell's output, of a notebook
# own lines that may be an attempt to pass without an answer: for a person to look at
SUSPECT = re.compile(r"\bchecks\b(?!\.(exercise_\d_\d|check_equivalence)\()|CheckFailed|_exit\b|"
                     r"sys\.modules|builtins|get_ipython|_render_traceback_")


# ---- what is in a submission ----------------------------------------------------------------


def find(folder: Path, stem: str) -> tuple[Path | None, list[str]]:
    """Return a student's copy of a notebook, or None, and what is to be said about it."""
    files = [path for path in sorted(folder.rglob("*.ipynb"), key=lambda p: (len(p.parts), p))
             if path.name.startswith(stem[:3]) and ".ipynb_checkpoints" not in path.parts
             and not path.is_symlink() and not re.search(r"\.old\d+", path.name)]
    exact = [path for path in files if path.name == f"{stem}.ipynb"]
    if not files:
        return None, [f"{stem[:2]} was not handed in"]
    taken = (exact or files)[0]
    where = taken.relative_to(folder)
    if not exact or len(exact) > 1:
        return taken, [f"{stem[:2]}: {len(files)} file(s) could be it, {where} was taken"]
    return taken, []


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook of a student; raises ValueError with one line that says what is wrong."""
    if path.stat().st_size > MOST_FILE:
        raise ValueError(f"larger than {MOST_FILE // 1_000_000} MB")
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        for cell in notebook.cells:
            cell.source = "".join(cell.source)
            cell.name = dict(dict(cell.metadata).get("nbgrader") or {}).get("grade_id")
        return notebook
    except Exception as error:  # a damaged file raises nearly anything
        text = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise ValueError(f"not a notebook ({text})") from None


def repaired(submission: nbformat.NotebookNode, master: nbformat.NotebookNode
             ) -> tuple[nbformat.NotebookNode, list[str]]:
    """Return a notebook of a submission's sources with the master's checks, and what was wrong.

    Check cells are known by their grade_id, or where an editor dropped that, by their line.
    """
    known = {cell.metadata.nbgrader.grade_id: cell for cell in master.cells
             if "nbgrader" in cell.metadata}
    checks = {name: cell for name, cell in known.items() if cell.metadata.nbgrader.grade}
    by_line = {cell.source: name for name, cell in checks.items()}
    given = {line.strip() for cell in master.cells for line in cell.source.splitlines()}
    timed = {cell.source for cell in master.cells if "timing" in cell.metadata.get("tags", [])}
    cells, place, notes = [], {}, []
    for cell in reversed(submission.cells):  # of a cell that is there twice the last one counts
        if cell.source in timed:  # no check needs its times, and notebook 06 measures for minutes
            continue
        name = cell.name if cell.name in known else by_line.get(cell.source.strip())
        if name in known and name not in place:
            data = copy.deepcopy(known[name].metadata.nbgrader)
            made = place[name] = new_code_cell(cell.source, metadata={"nbgrader": data})
            if name in checks and made.source != known[name].source:
                notes.append(f"check {name} was edited: put back")
                made.source = known[name].source
        elif name in checks:
            notes.append(f"check {name} is there more than once: the last one counts")
            continue
        else:
            made = (new_code_cell if cell.cell_type == "code" else new_markdown_cell)(cell.source)
        cells.insert(0, made)
        if made.cell_type == "code" and name not in checks:
            notes += [f"look at: {line.strip()[:80]}" for line in made.source.splitlines()
                      if line.strip() not in given and SUSPECT.search(line)]
    for name, cell in checks.items():
        if name not in place:
            notes.append(f"check {name} was missing: put back")
            made = new_code_cell(cell.source, metadata=copy.deepcopy(cell.metadata))
            answer = place.get(f"{name}-solution")
            cells.insert(cells.index(answer) + 1 if answer else len(cells), made)
    return new_notebook(cells=cells, metadata=copy.deepcopy(master.metadata)), notes


# ---- running one -----------------------------------------------------------------------------


class Limited(Execute):
    """nbgrader's execution, with limits that hold: for a cell, for its output, for the notebook.

    A cell that ends the kernel or never ends costs itself, and no other: the notebook is run
    again without it. nbgrader gives full points to a check cell that says nothing; here a
    check has to say that it passed.
    """

    seconds, total = 60, 600

    def preprocess(self, nb, resources):
        scratch = PLACE / "run"
        sources = [cell.source for cell in nb.cells]
        end = time.monotonic() + self.total
        for attempt in range(REPLAYS + 1):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            resources["metadata"]["path"] = str(scratch)
            self.at, self.left, self.end = 0, MOST_OUTPUT, end
            try:
                super().preprocess(nb, resources)
                break
            except (DeadKernelError, CellTimeoutError) as error:
                hung = isinstance(error, CellTimeoutError)
                why = (f"this cell ran for more than {self.seconds} seconds" if hung
                       else "this cell ended the kernel (a crash, or too much memory)")
                nb.cells[self.at].source = f"raise RuntimeError({why!r})"
                if attempt == REPLAYS or time.monotonic() > end:
                    for cell in nb.cells[self.at:]:
                        if cell.cell_type == "code":
                            fail(cell, NOT_RUN)
        for cell, source in zip(nb.cells, sources, strict=True):
            cell.source = source
            if cell.metadata.get("nbgrader", {}).get("grade"):
                settle(cell)
        shutil.rmtree(scratch, ignore_errors=True)
        return nb, resources

    def preprocess_cell(self, cell, resources, index):
        self.at, self.left = index, MOST_OUTPUT
        if time.monotonic() > self.end:
            raise CellTimeoutError.error_from_timeout_and_cell("out of time", self.total, cell)
        return super().preprocess_cell(cell, resources, index)

    def output(self, outs, msg, display_id, cell_index):
        self.left -= len(str(msg["content"]))
        return super().output(outs, msg, display_id, cell_index) if self.left > 0 else None


def fail(cell: nbformat.NotebookNode, why: str) -> None:
    """Give a cell an error as its output."""
    cell.outputs = [new_output("error", ename="NotPassed", evalue=why, traceback=[why])]


def number(check: nbformat.NotebookNode) -> str:
    """Return the exercise of a check cell that nbgrader executed: 2.1."""
    return check.metadata.nbgrader.grade_id.replace("_", ".")


def settle(check: nbformat.NotebookNode) -> None:
    """Leave in a check cell's outputs what nbgrader is to count: an error, or the check's tick."""
    check.outputs = [output for output in check.outputs if output.get("name") != "stderr"]
    printed = "".join(output.get("text", "") for output in check.outputs)
    if not any(output.output_type == "error" for output in check.outputs) \
            and f"Exercise {number(check)} ✓" not in printed:
        fail(check, "the check did not say that it passed")


def said(check: nbformat.NotebookNode) -> str:
    """Return what a check said: its tick, its three lines, or the last line of an error."""
    for output in check.outputs:
        if output.output_type == "error":
            lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in output.traceback]
            return "\n".join(lines) if output.ename in ("CheckFailed", "NotPassed") \
                else f"{output.ename}: {output.evalue}"
    return "".join(output.get("text", "") for output in check.outputs).strip()


# ---- nbgrader ---------------------------------------------------------------------------------


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook for nbgrader, which takes no dots in a grade_id: 2_1 for 2.1."""
    for cell in notebook.cells:
        if data := cell.metadata.get("nbgrader"):
            data.grade_id = data.grade_id.replace(".", "_")
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


def course(masters: list[Path], seconds: int) -> NbGraderAPI:
    """Make nbgrader's course folder with an assignment for each notebook, and the kernel."""
    shutil.rmtree(PLACE, ignore_errors=True)
    kernel = PLACE / "jupyter" / "kernels" / KERNEL
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({
        "argv": [sys.executable, str(ROOT / "instructor" / "limited_kernel.py"), "-f",
                 "{connection_file}", "--log-level=ERROR"],
        "display_name": "limited", "language": "python"}))
    os.environ["JUPYTER_PATH"] = str(PLACE / "jupyter")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # alembic
    warnings.simplefilter("ignore", SAWarning)  # nbgrader's own way with its gradebook
    c = Config()
    c.CourseDirectory.course_id, c.CourseDirectory.root = "mlc", str(PLACE)
    c.Autograde.autograde_preprocessors = [Limited, LimitOutput, SaveAutoGrades, CheckCellMetadata]
    c.Limited.timeout, c.Limited.kernel_name = seconds, KERNEL
    c.Limited.interrupt_on_timeout, c.Limited.shell_timeout_interval = False, 1
    c.HTMLExporter.sanitize_html = True  # what a student displays is no program for your browser
    Limited.seconds, Limited.total = seconds, 10 * seconds
    api = NbGraderAPI(config=c)
    for master in masters:
        write(nbformat.read(master, as_version=4), PLACE / "source" / master.stem / master.name)
        result = api.generate_assignment(master.stem)
        if not result["success"]:
            sys.exit(f"nbgrader cannot take {master.name}:\n{result['log']}")
    return api


def reason(result: dict) -> str:
    """Return in one line why nbgrader failed."""
    return " ".join((result.get("error") or result.get("log") or "no reason").split())[-150:]


def grade(api: NbGraderAPI, master: Path, student: str, notebook: nbformat.NotebookNode
          ) -> tuple[dict[str, float], dict[str, str], list[str]]:
    """Run and grade one notebook: points and words for each exercise, and what went wrong."""
    stem = master.stem
    write(notebook, PLACE / "submitted" / student / stem / f"{stem}.ipynb")
    result = api.autograde(stem, student)
    if not result["success"]:
        return {}, {}, [f"{stem[:2]} could not be graded: {reason(result)}"]
    with Gradebook(f"sqlite:///{PLACE / 'gradebook.db'}", "mlc") as book:
        points = {cell.name.replace("_", "."): cell.score for cell in
                  book.find_submission_notebook(stem, stem, student).grades}
    done = nbformat.read(PLACE / "autograded" / student / stem / f"{stem}.ipynb", as_version=4)
    words = {number(cell): said(cell) for cell in done.cells
             if cell.metadata.get("nbgrader", {}).get("grade")}
    notes = [f"{stem[:2]}: {output.evalue}: {(cell.source.splitlines() or [''])[0][:60]}"
             for cell in done.cells if cell.cell_type == "code" for output in cell.outputs
             if output.output_type == "error" and output.evalue.startswith("this cell ")]
    if any(text == NOT_RUN for text in words.values()):
        notes.append(f"{stem[:2]}: some checks were {NOT_RUN}")
    result = api.generate_feedback(stem, student)
    if not result["success"]:
        notes.append(f"{stem[:2]}: no page of feedback ({reason(result)})")
    return points, words, notes


def page(name: str, rows: list[tuple[str, str, str]], stems: list[str], notes: list[str]) -> str:
    """Return a student's page: points, what each check said, links to the graded notebooks."""
    cells = "\n".join(f"<tr><td>{exercise}<td>{points}<td><pre>{html.escape(words)}</pre>"
                      for exercise, points, words in rows)
    links = "".join(f'<li><a href="{stem}.html">{stem}, as it was graded</a>' for stem in stems)
    lines = "".join(f"<li>{html.escape(note)}" for note in notes)
    return ("<!doctype html><meta charset=utf-8>"
            f"<title>{html.escape(name)}</title><style>body{{font-family:sans-serif;max-width:70em;"
            "margin:2em auto}td{vertical-align:top;padding:.3em 1em;border-top:1px solid #ccc}pre{"
            "margin:0;white-space:pre-wrap}</style>"
            f"<h1>{html.escape(name)}</h1><ul>{lines}{links}</ul><table>{cells}</table>\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Grade submissions: a folder for each student.")
    parser.add_argument("folder")
    parser.add_argument("notebooks", nargs="*", help="two digits each; else what was handed in")
    parser.add_argument("--seconds", type=int, default=60, help="for a cell; ten times for all")
    options = parser.parse_args()
    folder = Path(options.folder).expanduser()
    if not folder.is_dir():
        sys.exit(f"There is no folder {folder}: make grade SUBMISSIONS=/path/to/submissions")
    students = sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] not in "._")
    if not students:
        sys.exit(f"{folder} holds no folders: it needs one for each student, with the notebooks "
                 "of their work/ in it.")
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name[0] not in "._":
            print(f"{path.name} is not a student's folder: left out. Unpack archives first.")
    masters = [path for path in chosen(options.notebooks) if options.notebooks
               or any(find(student, path.stem)[0] for student in students)]
    if not masters:
        sys.exit(f"No notebook of the course is in {folder}: their names begin as in work/, 02_...")

    import limited_kernel

    from data import store
    os.environ["MLC_DATA"] = str(store.data_folder())  # a submission has no network
    if gaps := limited_kernel.not_limited():
        print(f"This system does not keep submissions from {', '.join(gaps)}: use a container, "
              "see instructor/README.md.")
    print(f"{len(students)} students, notebooks {', '.join(p.stem[:2] for p in masters)}",
          flush=True)
    api = course(masters, options.seconds)
    versions = {path: student_version(path) for path in masters}
    worth = {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points
             for notebook in versions.values() for cell in notebook.cells
             if cell.metadata.get("nbgrader", {}).get("grade")}
    shutil.rmtree(BUILD / "feedback", ignore_errors=True)
    with (BUILD / "grades.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["student", *worth, "total", "of", "problems"])
        for number, student in enumerate(students, start=1):
            points, words, notes, pages = {}, {}, [], BUILD / "feedback" / student.name
            pages.mkdir(parents=True)
            stems = []
            for master in masters:
                path, found = find(student, master.stem)
                notes += found
                try:
                    notebook, wrong = repaired(read(path), versions[master]) if path else (0, [])
                except (ValueError, OSError) as error:
                    notes.append(f"{master.stem[:2]}: {error}")
                    continue
                notes += wrong
                if notebook:
                    some, text, found = grade(api, master, f"s{number:04}", notebook)
                    points, words, notes = points | some, words | text, notes + found
                    made = PLACE / "feedback" / f"s{number:04}" / master.stem
                    if (made / f"{master.stem}.html").is_file():
                        shutil.copy(made / f"{master.stem}.html", pages)
                        stems.append(master.stem)
            total = sum(points.values())
            table.writerow([student.name, *(f"{points.get(name, 0):g}" for name in worth),
                            f"{total:g}", sum(worth.values()), "; ".join(notes)])
            file.flush()
            rows = [(name, f"{points.get(name, 0):g} of {most}", words.get(name, "not handed in"))
                    for name, most in worth.items()]
            rows.append(("total", f"{total:g} of {sum(worth.values())}", ""))
            (pages / "index.html").write_text(page(student.name, rows, stems, notes),
                                              encoding="utf-8")
            print(f"[{number}/{len(students)}] {student.name}: {total:g} of {sum(worth.values())}",
                  *notes, sep="\n    ", flush=True)
    print("Written: build/grades.csv, and for each student build/feedback/<name>/index.html")


if __name__ == "__main__":
    main()
