"""Grading submissions as students hand them in: right, wrong, broken, and hostile ones."""

import csv
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import student
from nbformat.v4 import new_code_cell

pytest.importorskip("nbgrader", reason="nbgrader is missing: `make test-all` installs it")
import grade
import limited_kernel  # (grade puts its folder on the path)

ROOT = Path(__file__).resolve().parents[2]
STEM = "02_emit_te_ingestion"
MASTER = ROOT / "notebooks" / f"{STEM}.ipynb"
SOLVED = nbformat.read(MASTER, as_version=4)
POINTS = {"2.1": 1, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 3, "2.6": 3}
GAPS = limited_kernel.not_limited()

LINEAR_OUT_OF_BOUNDS = """
def linear(x, w, b):
    import ctypes
    ctypes.memset(ctypes.addressof(ctypes.create_string_buffer(8)) + 2**42, 1, 8)
"""


def _cell(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells
                if cell.metadata.get("nbgrader", {}).get("grade_id") == name)


def _answers(*solved: str, **own: str) -> nbformat.NotebookNode:
    """A student's notebook without the given cells (for speed): _2_2="..." is an answer."""
    notebook = student.student_version(MASTER)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [*code[:2], *(cell for cell in code if "nbgrader" in cell.metadata)]
    for name in solved:
        _cell(notebook, f"{name}-solution").source = _cell(SOLVED, f"{name}-solution").source
    for name, source in own.items():
        _cell(notebook, f"{name[1:].replace('_', '.')}-solution").source = source
    return notebook


def _wrong_linear() -> str:
    return _cell(SOLVED, "2.2-solution").source.replace("+ b[j]", "")


def _edited() -> nbformat.NotebookNode:
    notebook = _answers("2.3")
    _cell(notebook, "2.1").source = "print('Exercise 2.1 ✓')"
    notebook.cells.remove(_cell(notebook, "2.2"))
    twice = _cell(notebook, "2.3")
    notebook.cells.append(new_code_cell(twice.source, metadata=twice.metadata))
    _cell(notebook, "2.4").metadata.nbgrader.points = 100
    return notebook


def _hostile(outside: Path, port: int) -> nbformat.NotebookNode:
    notebook = _answers("2.1")
    notebook.cells[2:2] = [new_code_cell(source) for source in (
        f"open({str(outside / 'escaped')!r}, 'w').write('x')",
        f"import os; os.remove({str(outside / 'precious')!r})",
        f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
        "hog = bytearray(8 << 30)\nprint('the hog', 'has it')",
        "import os, signal; os.kill(os.getppid(), signal.SIGTERM)",
        "for i in range(500): print('x' * 10_000)",
        "open('mine', 'w').write('x'); print('I may', 'write here')",
        "print('SECRET', os.environ.get('SECRET_OF_THE_GRADER'))",
        "from IPython.display import HTML\nHTML('<script>evil()</script>')")]
    return notebook


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> tuple[dict[str, dict[str, str]], Path, Path]:
    """Grade all submissions once: the rows of grades.csv, build/, and a folder outside."""
    place, outside = tmp_path_factory.mktemp("submissions"), tmp_path_factory.mktemp("outside")
    (outside / "precious").touch()
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    cheat = _answers()
    cheat.cells.insert(2, new_code_cell("checks.exercise_2_2 = lambda answer: None"))
    stripped = _answers("2.1", "2.2")
    for cell in stripped.cells:
        cell.metadata = {}
    notebooks = {
        "right": SOLVED, "empty": student.student_version(MASTER),
        "partial": _answers("2.1", "2.3", _2_2=_wrong_linear()),
        "crash": _answers("2.1", "2.3", _2_2="import ctypes\nctypes.string_at(0)"),
        "contained": _answers("2.1", "2.3", _2_2=LINEAR_OUT_OF_BOUNDS),
        "hang": _answers("2.1", "2.3", _2_2="while True:\n    pass"),
        "edited": _edited(), "cheat": cheat,
        "hostile": _hostile(outside, server.getsockname()[1])}
    for name, notebook in notebooks.items():
        (place / name).mkdir()
        nbformat.write(notebook, place / name / f"{STEM}.ipynb")
    for name in ("broken", "no notebook", "Zoë [2] (late)"):
        (place / name).mkdir()
    (place / "broken" / f"{STEM}.ipynb").write_text('{"cells": [')
    (place / "broken" / "notes.txt").write_text("I could not open it")
    late = place / "Zoë [2] (late)" / "work"
    late.mkdir()
    nbformat.write(stripped, late / f"{STEM} (1).ipynb")
    (late / f"{STEM}.old1.ipynb").write_text("old")
    (late / f"{STEM}.ipynb").symlink_to(place / "right" / f"{STEM}.ipynb")
    (place / "hostile" / "helpers.py").write_text("print('my own helpers')")
    (place / "hostile" / "checks").mkdir()
    (place / "hostile" / "checks" / "__init__.py").write_text("print('my own checks')")
    (place / "mail.zip").touch()

    patch = pytest.MonkeyPatch()
    build = ROOT / "build" / "test_grading"  # below the course, as build/ is
    build.mkdir(parents=True, exist_ok=True)
    patch.setattr(grade, "BUILD", build)
    patch.setattr(grade, "PLACE", build / "grading")
    patch.setattr(sys, "argv", ["grade.py", str(place), "02", "--seconds", "45"])
    patch.setenv("SECRET_OF_THE_GRADER", "s3cret")
    try:
        grade.main()
        with pytest.raises(BlockingIOError):  # nobody called
            if "opening TCP connections" in GAPS:
                raise BlockingIOError
            server.accept()
    finally:
        patch.undo()
        server.close()
    with (build / "grades.csv").open(encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}, build, outside


@pytest.mark.parametrize(("name", "earned", "problem"), [
    ("right", POINTS, ""),
    ("empty", {}, ""),
    ("partial", {"2.1": 1, "2.3": 2}, ""),
    ("crash", {"2.1": 1, "2.3": 2}, "02: this cell ended the kernel (a crash, or too much memory)"
                                    ": import ctypes"),
    ("contained", {"2.1": 1, "2.3": 2}, ""),
    ("hang", {"2.1": 1, "2.3": 2}, "02: this cell ran for more than 45 seconds: while True:"),
    ("edited", {"2.3": 2}, "check 2.3 is there more than once: the last one counts; check 2.1 was "
                           "edited: put back; check 2.2 was missing: put back"),
    ("cheat", {}, "look at: checks.exercise_2_2 = lambda answer: None"),
    ("hostile", {"2.1": 1}, ""),
    ("broken", {}, "02: not a notebook (Notebook does not appear to be JSON"),
    ("no notebook", {}, "02 was not handed in"),
    ("Zoë [2] (late)", {"2.1": 1, "2.2": 2}, "02: 1 file(s) could be it, work/02_emit_te_ingestion"
                                             " (1).ipynb was taken"),
])
def test_each_gets_what_it_deserves(graded, name: str, earned: dict, problem: str) -> None:
    rows, _, _ = graded
    row = rows[name]
    came = {exercise: float(row[exercise]) for exercise in POINTS if float(row[exercise])}
    assert came == earned
    assert float(row["total"]) == sum(earned.values()) and row["of"] == "13"
    assert problem in row["problems"] if problem else row["problems"] == ""


def _page(build: Path, name: str, page: str = "index") -> str:
    return (build / "feedback" / name / f"{page}.html").read_text(encoding="utf-8")


def test_feedback_says_what_was_wrong(graded) -> None:
    _, build, _ = graded
    page = _page(build, "partial")
    assert "Exercise 2.2 ✗\n  expected: " in page and "\n  look at: " in page
    assert "<td>2.1<td>1 of 1<td><pre>Exercise 2.1 ✓" in page and "3 of 13" in page
    assert "Exercise 2.2 ✗" in _page(build, "partial", STEM)
    assert "it ended the process (SIGSEGV)" in _page(build, "contained")
    assert "the check did not say that it passed" in _page(build, "cheat")
    assert "was not handed in" in _page(build, "no notebook")


@pytest.mark.skipif(bool(GAPS), reason=f"this system does not limit: {', '.join(GAPS)}")
def test_a_hostile_submission_does_no_harm(graded) -> None:
    _, build, outside = graded
    assert sorted(path.name for path in outside.iterdir()) == ["precious"]
    page = _page(build, "hostile", STEM)
    for words in ("MemoryError", "Permission denied", "Operation not permitted", "SECRET None",
                  "I may write here"):
        assert words in page, words
    for words in ("the hog has it", "my own helpers", "my own checks", "s3cret", "<script>evil"):
        assert words not in page, words
    assert len(page) < 3_000_000, "5 MB were printed"
    assert not (build / "grading" / "run").exists()


def test_what_cannot_be_limited_is_said(monkeypatch) -> None:
    monkeypatch.setattr(limited_kernel, "landlock_abi", lambda: 0)
    assert "writing outside its folder" in limited_kernel.not_limited()
    monkeypatch.setattr(limited_kernel, "landlock_abi", lambda: 3)
    assert limited_kernel.not_limited()[-2:] == ["opening TCP connections",
                                                 "ending other processes of the same user"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["/nowhere"], "There is no folder /nowhere: make grade SUBMISSIONS="),
    (["{empty}"], "holds no folders: it needs one for each student"),
    (["{one}"], "No notebook of the course is in"),
    (["{one}", "77"], "There is no notebook 77: take two digits each"),
])
def test_errors_are_for_people(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one" / "student").mkdir(parents=True)
    words = [word.format(empty=tmp_path / "empty", one=tmp_path / "one") for word in arguments]
    result = subprocess.run([sys.executable, "tools/grade.py", *words], cwd=ROOT, text=True,
                            capture_output=True, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert message in result.stderr
