"""Grading what students hand in: right, wrong, edited, broken, oddly named, and cheats."""

import importlib
import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("distributed", reason="Dask is missing: `make test-all` installs it")
import subprocess
import sys

import submissions
from nbformat.v4 import new_code_cell, new_markdown_cell
from submissions import (
    LINUX,
    MASTER,
    OF,
    POINTS,
    ROOT,
    SOLVED,
    STEM,
    answers,
    cell,
    raw,
    wrong_linear,
)
from test_pages import mutated
from tqdm import tqdm

from tools import grade, student
from tools.grading import checking, confine
from tools.grading.job import Job, Result
from tools.grading.server import Grader, Server
from tools.grading.submission import Found

MUTANTS = range(1000, 1006)  # test_pages.py reads 500 others


def _write(place: Path) -> None:
    """Write a folder of submissions, one student for each kind of trouble."""
    small, large, brackets = answers("2.1"), answers("2.1"), answers("2.1")
    large.cells.append(new_markdown_cell("all work and no play " * 1_800_000))
    brackets.cells.append(new_markdown_cell("[" * 60_000))
    stripped = answers("2.1", "2.2")
    for bare in stripped.cells:
        bare.metadata = {}
    patches = submissions.PATCHES
    submissions.write(place, {
        "right": SOLVED, "empty": student.student_version(MASTER),
        "partial": answers("2.1", "2.3", _2_2=wrong_linear()), "helped": submissions.helped(),
        "edited": submissions.edited(),
        "cheat 1": answers(own="checks.exercise_2_2 = lambda answer: None"),
        "cheat 2": answers(own=patches, _2_2=wrong_linear()),
        "forged": answers(_2_2=patches + wrong_linear()),
        "cheat 3": answers(own=submissions.REFERENCE, _2_5=submissions.without_softmax()),
        "cheat 4": answers(own=submissions.TRANSFORMER),
        "cheat 5": answers(_2_2=submissions.BLIND),
        "cheat 6": answers(_2_2=submissions.MASTERS_SOLUTION),
        "cheat 7": answers(_2_2="def linear(x, w, b):\n    print('Exercise 2.2 ✓ all')\n"
                                "    raise SystemExit"),
        "cheat 8": answers(own=submissions.TOLERANT, _2_2=wrong_linear()),
        "copied": answers("2.1", "2.2"), "scratch": scratch(),
        "no Python": answers("2.1", own=cell(SOLVED, "2.2-solution").source,
                             _2_2="def linear(x, w, b):\n    return (x\n"),
        "broken": b'{"cells": [', "list": b"[]", "no cells": b'{"nbformat": 4}',
        "no type": raw(small, **{'"cell_type": "code",': b""}),
        "list for a name": raw(small, **{'"grade_id": "2-2"': b'"grade_id": ["2-2"]'}),
        "surrogate": raw(small, **{"raise NotImplementedError": b"x = '\\ud800'"}),
        "deep": b'{"cells": ' + b"[" * 100_000, "large": large, "brackets": brackets,
        "new\nline\x1b[31m": small, "=1+1": small,
        **{f"mutant {seed}": mutated(seed) for seed in MUTANTS}})
    for name in ("no notebook", "Zoë [2] (late)", "fifo", "unknown name", "prefix"):
        (place / name).mkdir()
    os.mkfifo(place / "fifo" / f"{STEM}.ipynb")
    (place / "broken" / "notes.txt").write_text("I could not open it")
    late = place / "Zoë [2] (late)" / "work"
    late.mkdir()
    nbformat.write(stripped, late / f"{STEM} (1).ipynb")
    (late / f"{STEM}.old1.ipynb").write_text("old")
    (late / f"{STEM}.ipynb").symlink_to(place / "right" / f"{STEM}.ipynb")
    nbformat.write(small, place / "unknown name" / "my homework.ipynb")
    (place / "prefix" / f"anna_4711_{STEM.upper()}-2.IPYNB").write_bytes(raw(small))
    latin = os.fsencode(place) + b"/M\xfcller"
    os.mkdir(latin)
    with open(latin + b"/" + STEM.encode() + b" B\xe4r.ipynb", "wb") as file:
        file.write(raw(small))
    (place / "mail.zip").touch()
    (place / "_late").mkdir()


def scratch() -> nbformat.NotebookNode:
    """Right answers with a shell's command, helpers that a call fills, and cells that fail."""
    notebook = answers("2.1")
    solution = cell(SOLVED, "2.2-solution").source.replace("def linear(", "def _line(")
    own = ["TABLE = {}\ndef fill(table, key, value):\n    table[key] = value", solution,
           "fill(TABLE, 'linear', _line)\nparts = []", "list.append(parts, 1)", "1 / 0"]
    notebook.cells[2:2] = list(map(new_code_cell, own))
    cell(notebook, "2.2-solution").source = (
        "!ls /usr > listed\nnames = !ls\nassert list(names) == ['listed']\n"
        "def linear(x, w, b):\n    return TABLE['linear'](x, w, b) if parts else None\n1 / 0")
    return notebook


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> submissions.Run:
    """Grade all submissions once."""
    place = tmp_path_factory.mktemp("submissions")
    build = ROOT / "build" / "test_grading"  # below the course, as build/ is
    _write(place)
    return submissions.run(submissions.command(place, build, 90, "--fresh"), build,
                           tmp_path_factory.mktemp("out") / "out")


ONLY_2_1 = {"2.1": 1}
CASES = [
    ("right", POINTS, ""),
    ("empty", {}, ""),
    ("partial", {"2.1": 1, "2.3": 2}, ""),
    ("helped", {"2.1": 1, "2.2": 2, "2.3": 2}, ""),
    ("edited", {"2.3": 2}, "check 2.3 is there more than once: the last one counts; check 2.1 was "
                           "edited: put back; check 2.2 was missing: put back"),
    *[(f"cheat {number}", {}, None) for number in range(1, 9)],
    ("forged", {"2.2": 2}, ""), ("no Python", {"2.1": 1}, ""),
    ("copied", {"2.1": 1, "2.2": 2}, ""),
    ("scratch", {"2.1": 1, "2.2": 2}, ""),
    ("broken", {}, "02: not a notebook (Expecting value"),
    ("list", {}, "02: not a notebook (no cells)"),
    ("no cells", {}, "02: not a notebook (no cells)"),
    ("no type", ONLY_2_1, ""),
    ("list for a name", ONLY_2_1, ""),
    ("surrogate", ONLY_2_1, ""),
    ("deep", {}, "02: not a notebook ("),
    ("large", ONLY_2_1, ""),
    ("brackets", ONLY_2_1, ""),
    ("no notebook", {}, "02 was not handed in"),
    ("fifo", {}, "is not an ordinary file"),
    ("unknown name", {}, "02 was not found by its name; there is my homework.ipynb"),
    ("prefix", ONLY_2_1, f"02: 1 file(s) could be it, anna_4711_{STEM.upper()}-2.IPYNB was taken"),
    ("new\N{REPLACEMENT CHARACTER}line\N{REPLACEMENT CHARACTER}[31m", ONLY_2_1, ""),
    ("'=1+1", ONLY_2_1, ""),
    ("M\\udcfcller", ONLY_2_1, "02_emit_te_ingestion B\\udce4r.ipynb was taken"),
    ("Zoë [2] (late)", {"2.1": 1, "2.2": 2}, "02: 1 file(s) could be it, work/02_emit_te_ingestion"
                                             " (1).ipynb was taken"),
]


@LINUX
@pytest.mark.parametrize(("name", "earned", "problem"), CASES, ids=[ascii(c[0]) for c in CASES])
def test_each_gets_what_it_deserves(graded, name: str, earned: dict, problem: str | None) -> None:
    graded.check(name, earned, problem)


@LINUX
def test_the_same_source_is_checked_once() -> None:
    """The time in an answer's message tells when it was checked."""
    timed = "def linear(x, w, b):\n    import time\n    raise ValueError(time.time_ns())"
    folder = ROOT / "build" / "test_grading_once"
    folder.mkdir(parents=True, exist_ok=True)
    grader, words = Grader(folder), []
    try:
        for own, answer in [("", timed), ("a = 1", timed), ("", timed + "\n# another")]:
            data = nbformat.writes(answers("2.1", own=own, _2_2=answer)).encode()
            master = json.dumps(student.student_version(MASTER))
            result = grader.grade(Job(STEM, data, master, page=False))
            assert result.whole and result.points["2.1"] == 1 and result.points["2.2"] == 0
            words.append((result.words["2.1"], result.words["2.2"]))
    finally:
        grader.close()
    assert len({first for first, _ in words}) == 1
    assert words[0] == words[1], "what the answer does not need is no part of it"
    assert words[1][1] != words[2][1]


SEARCHES = """
def linear(x, w, b):
    import re
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for start, end in re.findall(r"^(\\w+)-(\\w+) rw", maps.read(), re.MULTILINE):
            memory.seek(int(start, 16))
            try:
                part = memory.read(int(end, 16) - int(start, 16))
            except (OSError, OverflowError):
                continue
            if re.search(rb"the answer o[f] " + WHOM, part):
                raise ValueError("it has" + " seen it")
    raise ValueError("it has seen nothing")
"""


@LINUX
def test_nothing_of_one_student_is_in_the_process_of_the_next() -> None:
    """An answer searches its memory for the words of another; for its own it finds them."""
    folder = ROOT / "build" / "test_grading_next"
    folder.mkdir(parents=True, exist_ok=True)
    grader, words = Grader(folder), []
    try:
        for answer in ("def linear(x, w, b):\n    raise ValueError('the answer of ' 'Anna 4711')",
                       f"WHOM = b'Anna 47[1]1'\n{SEARCHES}",
                       f"WHOM = b'Ben 8[1]5'  # the answer of Ben 815\n{SEARCHES}"):
            data = nbformat.writes(answers(_2_2=answer)).encode()
            master = json.dumps(student.student_version(MASTER))
            words.append(grader.grade(Job(STEM, data, master, page=False)).words["2.2"])
    finally:
        grader.close()
    assert "the answer of Anna 4711" in words[0]
    assert "it has seen nothing" in words[1] and "it has seen it" in words[2], words


def test_all_are_graded_and_nothing_is_printed_raw(graded) -> None:
    assert graded.status == 0
    assert set(graded.rows) == {case[0] for case in CASES} | {f"mutant {i}" for i in MUTANTS}
    assert not any("could not be graded" in row["problems"] for row in graded.rows.values())
    assert b"\x1b" not in graded.printed and b"Traceback" not in graded.printed
    assert b"mail.zip is not a student's folder: left out. Unpack archives" in graded.printed
    assert b"_late is not a student's folder: left out. Rename it if" in graded.printed
    assert b"graded before" not in graded.printed
    gaps = b"This system does not keep submissions from"
    assert (gaps in graded.printed) == bool(confine.gaps(confine.namespaces_work(graded.build)))


def test_feedback_says_what_was_wrong(graded) -> None:
    page = graded.page("partial")
    assert re.search(r"Exercise 2\.2 ✗(\n  input [xwb]: .*){3}\n  expected: .*\n  got: .*"
                     r"\n  look at:  the bias of the linear layer is left out", page)
    assert "1 of 1</td><td><pre>Exercise 2.1 ✓" in page and f"3 of {OF}" in page
    assert "Exercise 2.2 ✗" in graded.page("partial", STEM)
    assert "was not handed in" in graded.page("no notebook")
    assert "PermissionError: [Errno 13] Permission denied" in graded.page("cheat 6")
    assert "SystemExit" in graded.page("cheat 7")
    assert "SyntaxError" in graded.page("no Python")
    assert "your line 2: return (x" in graded.page("no Python")
    assert "Exercise 2.1 ✓" in graded.page("large", STEM)
    assert "Exercise 2.1 ✓" in graded.page("brackets", STEM)


def test_what_cannot_be_excluded_can_be_read(graded) -> None:
    """An answer that forges its verdict stands beside it; answers that are alike are counted."""
    assert "np.isclose = lambda a, *others" in graded.page("forged")
    alike = {name: (int(row["as published"]), int(row["as another's"]))
             for name, row in graded.rows.items()}
    assert alike["right"] == (7, 0) and alike["empty"] == (0, 0)
    assert alike["copied"] == (2, 0) and alike["partial"] == (2, 1), "2.2 is wrong, as cheat 2's"
    assert alike["cheat 7"] == (0, 0)


def test_a_page_is_for_people_and_phones(graded) -> None:
    for page in (graded.page("right"), graded.page("right", STEM)):
        assert page.startswith('<!doctype html>\n<html lang="en">')
        assert '<meta name="viewport"' in page and "Content-Security-Policy" in page
        assert page.index("Content-Security-Policy") < page.index("<style>")
    assert '<th scope="col">exercise</th>' in graded.page("right")
    assert 'alt="' in graded.page("right", STEM), "pictures keep their alt texts"


# ---- faults of the grader ------------------------------------------------------------------------


def test_nothing_is_graded_where_the_courses_own_solution_fails(tmp_path) -> None:
    """In a copy of the course whose solution of 2.2 lacks its bias; nobody gets 0 points for it."""
    course = tmp_path / "course"
    shutil.copytree(ROOT, course, ignore=lambda folder, names: [
        name for name in names if name in ("build", "work", ".venv", ".git", "tests", "paired_md",
                                           "FashionMNIST", "__pycache__")])
    broken = course / "notebooks" / MASTER.name
    broken.write_text(broken.read_text().replace(" + b[j]", ""), encoding="utf-8")
    submissions.write(tmp_path / "class", {"one": answers("2.1"), "two": answers("2.3")})
    for jobs in ("1", "2"):
        words = submissions.command(tmp_path / "class", course / "build", 60, "--jobs", jobs)
        done = subprocess.run(words, cwd=course, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and "Traceback" not in said
        assert "the course's own solution is not accepted here: Exercise 2.2 ✗" in said, said
        assert not (course / "build" / "grades.csv").exists() and "grades.csv" not in said
        assert not list((course / "build" / "graded").glob("*.json"))


def test_what_was_spoilt_has_no_points(tmp_path, monkeypatch) -> None:
    """An error in a check before the answer's first line; the row, the page and the exit status."""
    master = student.student_version(MASTER)
    job = Job(STEM, nbformat.writes(answers("2.1", "2.2")).encode(), json.dumps(master), page=False)

    def fails(number: str, *asked: object) -> tuple[bool, str]:
        if number == "2.2":
            raise PermissionError("/opt/packages/torch")
        return True, f"Exercise {number} ✓"

    monkeypatch.setattr(checking, "run", fails)
    (tmp_path / "grading" / "here").mkdir(parents=True)
    server = Server(tmp_path / "grading" / "here", False, lambda: False, lambda keys: {})
    result = server.grade(job)
    assert not result.whole and result.points == {"2.1": 1}
    assert "02 could not be graded (Fault: PermissionError: /opt/packages/torch)" in result.notes
    found = Found({STEM: tmp_path}, {STEM: []})
    report = grade.Report([grade.Student(tmp_path / name, name, found) for name in "ab"], POINTS,
                          dict.fromkeys(POINTS, STEM), set(), tmp_path, tqdm(disable=True))
    report.take(0, STEM, result)
    report.take(1, STEM, Result({"2.1": 1}, whole=True))
    rows = submissions.rows(tmp_path)
    assert [rows["a"][key] for key in ("2.1", "2.2", "total")] == ["", "", ""]
    assert report.spoilt == 1
    assert [rows["b"][key] for key in ("2.1", "2.2", "total")] == ["1", "0", "1"]
    assert "not graded" in (tmp_path / "feedback" / "a" / "index.html").read_text()


def test_packages_behind_links_can_be_read(tmp_path, monkeypatch) -> None:
    (tmp_path / "elsewhere" / "package").mkdir(parents=True)
    (tmp_path / "elsewhere" / "package" / "__init__.py").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "site" / "package").parent.mkdir()
    (tmp_path / "site" / "package").symlink_to(tmp_path / "elsewhere" / "package")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "linked"), str(ROOT), str(ROOT.parent)])
    assert str(tmp_path / "elsewhere") in confine._libraries()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    module = importlib.import_module("package")
    monkeypatch.setitem(sys.modules, "package", module)
    assert str(tmp_path / "elsewhere" / "package") in confine._libraries()
    assert not {str(place) for place in (ROOT, *ROOT.parents)} & confine._libraries()


def test_what_systemd_gives_stands_before_the_command(tmp_path, monkeypatch) -> None:
    """A stand-in for systemd-run that says what limit it was asked for; and one that fails."""
    program = tmp_path / "systemd-run"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for text, works in [(f"echo {confine.SCOPE}", True), ("echo max", False), ("exit 1", False)]:
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        confine.counted_by_kernel.cache_clear()
        before = confine.counted_by_kernel()
        assert (before[:3] == ("systemd-run", "--user", "--scope")) == works
        assert (f"--property=MemoryMax={confine.SCOPE}" in before) == works
    confine.counted_by_kernel.cache_clear()


# ---- what the system allows ---------------------------------------------------------------------


def test_what_cannot_be_limited_is_said(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(confine, "pyseccomp", confine)
    monkeypatch.setattr(confine, "landlock_abi", lambda: 7)
    assert confine.gaps(namespaces=True) == confine.gaps(namespaces=False) == []
    monkeypatch.setattr(confine, "landlock_abi", lambda: 3)
    assert confine.gaps(namespaces=True) == []
    assert confine.gaps(namespaces=False) == ["ending other processes of the same user"]
    monkeypatch.setattr(confine, "pyseccomp", None)
    assert confine.gaps(namespaces=False)[:2] == ["opening TCP connections",
                                                  "listening on the network, and UDP"]
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    assert confine.gaps(namespaces=True) == ["reading your files and the solutions",
                                             "talking to local sockets, such as Docker's",
                                             "taking memory that no process has mapped"]


def test_what_a_link_leads_to_stays(tmp_path) -> None:
    """A submission's folder is emptied: links, and folders without rights, too."""
    (tmp_path / "outside").mkdir(mode=0o755)
    (tmp_path / "outside" / "file").touch()
    folder = tmp_path / "folder"
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").touch()
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0)
    confine.empty(folder)
    assert list(folder.iterdir()) == []
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "outside" / "file").exists()


@pytest.mark.parametrize(("arguments", "message"), [
    (["/nowhere"], "There is no folder /nowhere: make grade SUBMISSIONS="),
    (["{empty}"], "holds no folders: it needs one for each student"),
    (["{one}"], "No notebook of the course is in"),
    (["{one}", "77"], "There is no notebook 77: take the two digits"),
])
def test_errors_are_for_people(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one" / "student").mkdir(parents=True)
    words = [word.format(empty=tmp_path / "empty", one=tmp_path / "one") for word in arguments]
    result = subprocess.run([sys.executable, "-m", "tools.grade", *words], cwd=ROOT, text=True,
                            capture_output=True, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert message in result.stderr
