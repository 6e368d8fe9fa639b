"""Grading what students hand in: right, wrong, edited, broken, oddly named, and cheats."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
import submissions
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from submissions import BOX, MASTER, OF, POINTS, ROOT, SOLVED, STEM, answers, cell, raw
from tqdm import tqdm

from tools import grade, student
from tools.grading import box
from tools.grading.grader import Grader, Sitting
from tools.grading.inputs import Found
from tools.grading.job import Job, Kept, Result


def _write(place: Path) -> None:
    """Write a folder of submissions, one student for each kind of trouble."""
    small, large, brackets = answers("2.1"), answers("2.1"), answers("2.1")
    large.cells.append(new_markdown_cell("all work and no play " * 1_800_000))
    brackets.cells.append(new_markdown_cell("[" * 60_000))
    wrong = submissions.wrong_linear()
    pictures, below, chinese = answers("2.1"), answers("2.1", "2.2"), answers("2.1")
    chinese.metadata["lang"] = "zh"
    for _ in range(3):
        pictures.cells[0].outputs.append(
            new_output("display_data", {"image/png": "A" * 20_000_000}))
    below.cells += [cell(answers(), f"{name}-solution").copy() for name in ("2.1", "2.2")]
    stripped = answers("2.1", "2.2")
    for bare in stripped.cells:
        bare.metadata = {}
    submissions.write(place, {
        "right": SOLVED, "empty": student.student_version(MASTER),
        "partial": answers("2.1", "2.3", _2_2=wrong),
        "helped": submissions.helped(), "edited": submissions.edited(),
        "patched": answers(own=submissions.PATCHES + submissions.PATCHES_MORE, _2_2=wrong,
                           _2_5=submissions.without_softmax()),
        "forged": answers(_2_2=submissions.PATCHES + wrong),
        "blind": answers(_2_2=submissions.BLIND),
        "reader": answers(_2_2=submissions.MASTERS_SOLUTION),
        "printer": answers(_2_2="def linear(x, w, b):\n    print('Exercise 2.2 ✓ all')\n"
                                "    raise SystemExit"),
        "copied": answers("2.1", "2.2"), "scratch": scratch(),
        "no Python": answers("2.1", own=cell(SOLVED, "2.2-solution").source,
                             _2_2="def linear(x, w, b):\n    return (x\n"),
        "broken": b'{"cells": [', "list": b"[]", "no cells": b'{"nbformat": 4}',
        "no type": raw(small, **{'"cell_type": "code",': b""}),
        "list for a name": raw(small, **{'"grade_id": "2-2"': b'"grade_id": ["2-2"]'}),
        "surrogate": raw(small, **{"raise NotImplementedError": b"x = '\\ud800'"}),
        "deep": b'{"cells": ' + b"[" * 100_000, "large": large, "brackets": brackets,
        "new\nline\x1b[31m": small, "=1+1": small, "a;=1+1": small, "b\x01": small, "b\x02": small,
        "pictures": pictures, "stub below": below, "中文": chinese,
        "turned": answers(_2_2="def linear(x, w, b):\n"
                               "    raise ValueError('\u202ea\x1b[31m\x07')")})
    for name in ("no notebook", "Zoë [2] (late)", "fifo", "another", "homework", "prefix"):
        (place / name).mkdir()
    os.mkfifo(place / "fifo" / f"{STEM}.ipynb")
    (place / "broken" / "notes.txt").write_text("I could not open it")
    late = place / "Zoë [2] (late)" / "work"
    late.mkdir()
    nbformat.write(stripped, late / f"{STEM} (1).ipynb")
    (late / f"{STEM}.old1.ipynb").write_text("old")
    (late / f"{STEM}.ipynb").symlink_to(place / "right" / f"{STEM}.ipynb")
    nbformat.write(small, place / "homework" / "my homework.ipynb")
    nbformat.write(nbformat.v4.new_notebook(), place / "another" / "my own.ipynb")
    (place / "another" / f"{STEM}.py").write_text("# %%")
    (place / "prefix" / f"anna_4711_{STEM.upper()}-2.IPYNB").write_bytes(raw(small))
    latin = os.fsencode(place) + b"/M\xfcller"
    os.mkdir(latin)
    with open(latin + b"/" + STEM.encode() + b" B\xe4r.ipynb", "wb") as file:
        file.write(raw(small))
    (place / "mail.zip").touch()
    (place / "list.txt").touch()
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
    return submissions.run(submissions.command(place, build, 90, "--fresh"), build)


ONLY_2_1 = {"2.1": 1}
CASES = [
    ("right", POINTS, ""),
    ("empty", {}, ""),
    ("partial", {"2.1": 1, "2.3": 2}, ""),
    ("helped", {"2.1": 1, "2.2": 2, "2.3": 2}, ""),
    ("edited", {"2.3": 2}, "02: check 2.1 was edited: put back; 02: check 2.2 was missing: put "
                           "back; 02: check 2.3 is there more than once: the last one counts"),
    ("pictures", ONLY_2_1, ""), ("中文", ONLY_2_1, ""), ("turned", {}, ""),
    ("stub below", {"2.1": 1, "2.2": 2}, "02: exercise 2.1 has two answers: the last one that is "
                                         "not an untouched stub counts; 02: exercise 2.2 has two"),
    *[(name, {}, None) for name in ("patched", "blind", "reader", "printer")],
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
    ("another", {}, "02 was not found by its name or its cells; there is 02_emit_te_ingestion.py"),
    ("homework", ONLY_2_1, "02: 1 file(s) could be it, my homework.ipynb was taken"),
    ("mail", {}, "02 was not handed in (mail.zip cannot be opened ("),
    (r"b\x01", ONLY_2_1, ""), (r"b\x02", ONLY_2_1, ""), ("a;'=1+1", ONLY_2_1, ""),
    ("prefix", ONLY_2_1, f"02: 1 file(s) could be it, anna_4711_{STEM.upper()}-2.IPYNB was taken"),
    (r"new\x0aline\x1b[31m", ONLY_2_1, ""),
    ("'=1+1", ONLY_2_1, ""),
    ("M\\udcfcller", ONLY_2_1, "02_emit_te_ingestion B\\udce4r.ipynb was taken"),
    ("Zoë [2] (late)", {"2.1": 1, "2.2": 2}, "02: 1 file(s) could be it, work/02_emit_te_ingestion"
                                             " (1).ipynb was taken"),
]


@BOX
@pytest.mark.parametrize(("name", "earned", "problem"), CASES, ids=[ascii(c[0]) for c in CASES])
def test_each_gets_what_it_deserves(graded, name: str, earned: dict, problem: str | None) -> None:
    graded.check(name, earned, problem)


SILENT = type("Box", (), {"tell": lambda self, value: None})()


def _job(notebook: nbformat.NotebookNode) -> Job:
    return Job(STEM, raw(notebook), json.dumps(student.student_version(MASTER)), page=False)


@BOX
def test_the_same_source_is_checked_once() -> None:
    """The time in an answer's message tells when it was checked."""
    timed = "def linear(x, w, b):\n    import time\n    raise ValueError(time.time_ns())"
    grader, words = Grader(), []
    for own, answer in [("", timed), ("a = 1", timed), ("", timed + "\n# another")]:
        result = grader.grade(_job(answers("2.1", own=own, _2_2=answer)))
        assert result.whole and result.points["2.1"] == 1 and result.points["2.2"] == 0
        words.append((result.words["2.1"], result.words["2.2"]))
    assert len({first for first, _ in words}) == 1
    assert words[0] == words[1], "what the answer does not need is no part of it"
    assert words[1][1] != words[2][1]


@BOX
def test_all_are_graded_and_nothing_is_printed_raw(graded) -> None:
    assert graded.status == 0
    assert set(graded.rows) == {case[0] for case in CASES}
    assert not any("could not be graded" in row["problems"] for row in graded.rows.values())
    assert b"\x1b" not in graded.printed and b"Traceback" not in graded.printed
    assert b"list.txt is not a readable notebook, folder or archive: left" in graded.printed
    assert b"_late is not a student's: left out. Rename it if" in graded.printed
    assert b"graded before" not in graded.printed


HEAD = ['<!doctype html>\n<html lang="en">', '<meta name="viewport"']
PAGES = [  # whose page, which one, words that are on it, and words that are not
    ("right", "index", [*HEAD, '<th scope="col">exercise</th>'], []),
    ("right", STEM, [*HEAD, 'alt="'], []),
    *[("turned", page, [r"\x202ea\x1b[31m\x07"], ["\u202e", "\x1b", "\x07"])
      for page in ("index", STEM)],
    ("中文", "index", ['<html lang="zh">', "<th scope=\"col\">练习</th>"],
     ["exercise", "points", "what the check said", "the answer", "as it was graded"]),
    ("中文", STEM, ['<html lang="zh">'], []),
    ("partial", "index", ["1 of 1</td><td><pre>Exercise 2.1 ✓", f"3 of {OF}",
                          "  input b:  [1, 0]"], []),
    ("partial", STEM, ["Exercise 2.2 ✗"], []), ("no notebook", "index", ["was not handed in"], []),
    ("reader", "index", ["FileNotFoundError: [Errno 2] No such file"], []),
    ("printer", "index", ["SystemExit"], []),
    ("no Python", "index", ["SyntaxError", "your line 2: return (x"], []),
    ("large", STEM, ["Exercise 2.1 ✓"], []), ("brackets", STEM, ["Exercise 2.1 ✓"], [])]


@BOX
@pytest.mark.parametrize(("name", "page", "there", "absent"), PAGES)
def test_a_page_says_what_was_wrong_and_hides_nothing(graded, name, page, there, absent) -> None:
    text = graded.page(name, page)
    assert [words for words in there if words not in text] == []
    assert [words for words in absent if words in text] == []
    assert text.index("Content-Security-Policy") < text.index("<style>")


@BOX
def test_what_cannot_be_excluded_can_be_read(graded) -> None:
    """An answer that forges its verdict stands beside it; answers that are alike are counted."""
    assert "np.isclose = lambda a, *others" in graded.page("forged")
    alike = {name: (int(row["as published"]), int(row["as another's"]))
             for name, row in graded.rows.items()}
    assert alike["right"] == (7, 0) and alike["empty"] == (0, 0)
    assert alike["copied"] == (2, 0) and alike["partial"] == (2, 1), "2.2 is wrong, as patched's"
    assert alike["printer"] == (0, 0)


@BOX
def test_nothing_is_graded_where_the_courses_own_solution_fails(tmp_path) -> None:
    """In a copy of the course whose solution of 2.2 lacks its bias; nobody gets 0 points for it."""
    course = tmp_path / "course"
    shutil.copytree(ROOT, course, ignore=lambda folder, names: [
        name for name in names if name in ("build", "work", ".venv", ".git", "tests", "paired_md",
                                           "FashionMNIST", "__pycache__")])
    broken = course / "notebooks" / MASTER.name
    broken.write_text(broken.read_text().replace(" + b[j]", ""), encoding="utf-8")
    submissions.write(tmp_path / "class", {"one": answers("2.1"), "two": answers("2.3")})
    words = submissions.command(tmp_path / "class", course / "build", 60)
    done = subprocess.run(words, cwd=course, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said
    assert "the course's own solution is not accepted here: Exercise 2.2 ✗" in said, said
    assert not (course / "build" / "grades.csv").exists()
    assert not list((course / "build" / "graded").glob("*.json"))


def test_what_was_spoilt_has_no_points(tmp_path) -> None:
    """A fault before the answer's first line, or three boxes that do not start: no grade."""
    for lines in ([["plan", {}, [], {}, "en"], ["at", "2.1"], ["said", True, "Exercise 2.1 ✓"],
                   ["at", "2.2"], ["said", None, "PermissionError: /opt/packages/torch"]], []):
        sitting = Sitting(_job(answers()), {})
        for _ in range(3):
            sitting.asked()
            for line in lines:
                sitting.take(SILENT, *line)
            sitting.ended("")
        assert sitting.at == "end" and not sitting.result.whole
        assert "could not be graded (" in sitting.result.notes[-1]
    found = Found({STEM: tmp_path}, {STEM: []})
    report = grade.Report([grade.Student(name, found) for name in "ab"], POINTS,
                          dict.fromkeys(POINTS, STEM), set(), tmp_path, tqdm(disable=True))
    report.take(0, STEM, sitting.result)
    report.take(1, STEM, Result({"2.1": 1}, whole=True))
    rows = submissions.rows(tmp_path)
    assert [rows["a"][key] for key in ("2.1", "2.2", "total")] == ["", "", ""]
    assert report.spoilt == 1
    assert [rows["b"][key] for key in ("2.1", "2.2", "total")] == ["1", "0", "1"]
    assert "not graded" in (tmp_path / "feedback" / "a" / "index.html").read_text()
    kept = Kept(tmp_path / "graded", {})
    kept.keep("key", sitting.result)
    assert kept.find("key") is None


def test_what_a_box_says_is_not_believed() -> None:
    """Lines of the wrong form, of exercises that are not there, and verdicts that come twice."""
    sitting = Sitting(_job(answers()), {})
    for line in [["plan", 3], ["plan", {"2.1": ["k"]}, [["x", "{0}"], 5, ["edited", "9.9"]],
                               {"2.1": [5, {}], "2.2": 7}, "en"],
                 ["at", "9.9"], ["said", True, "x"], ["at", "2.1"], ["said", "yes", "x"],
                 ["said", True, 5], ["plan", {"2.1": "k"}, [["edited", "2.1"]], {}, "en"],
                 ["said", False, "no"], ["said", True, "yes"], ["done"], ["said", True, "yes"],
                 ["cell", "x", []], ["at", "2.2"], ["stopped"], ["stopped", "code", "x"], ["done"],
                 ["at", "nowhere"], ["at", "executing"], ["stopped"], ["page", 7], [], [{}]]:
        sitting.take(SILENT, *line)
    assert sitting.said["2.1"] == (False, "no") and sitting.said.keys() == {"2.1", "2.2"}
    assert sitting.result.words["2.2"] == \
        "Exercise 2.2 ✗\n  the answer gave a verdict that is not the check's"


def _without(tmp_path: Path, **programs: str) -> dict[str, str]:
    """Return an environment with some programs only, each a shell script."""
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return {"PATH": str(tmp_path)}


@pytest.mark.parametrize(("programs", "message"), [
    ({}, "Nothing here can isolate a submission. Install bubblewrap 0.8 or later"),
    ({"bwrap": "echo No permissions to create new namespace >&2; exit 1"},
     "Nothing here can isolate a submission (No permissions to create new namespace). Install"),
    ({"docker": "exit 1"}, "Nothing here can isolate a submission. Install"),
    ({"podman": "test $1 = info"}, "podman is here, but not the image to grade in. Make "
                                   "it once:\npodman build -t mlc-grader -f "),
])
def test_without_a_sandbox_two_lines_say_what_to_do(tmp_path, programs, message: str) -> None:
    submissions.write(tmp_path / "class", {"one": answers()})
    done = submissions.run(submissions.command(tmp_path / "class", tmp_path / "build"), tmp_path,
                           **_without(tmp_path, **programs))
    said = done.printed.decode()
    assert done.status == 1 and message in said and len(said.splitlines()) == 2, said


@BOX
def test_systemd_is_told_what_to_count(tmp_path) -> None:
    """A stand-in for systemd-run writes down how it is called, and runs the rest."""
    submissions.write(tmp_path / "class", {"one": answers("2.1")})
    shell = _without(tmp_path, **{"systemd-run": f"""echo "$*" > {tmp_path}/asked
while case "$1" in -*) true;; *) false;; esac; do shift; done
exec "$@\""""})
    done = submissions.run(submissions.command(tmp_path / "class", tmp_path / "build"),
                           tmp_path / "build", PATH=f"{shell['PATH']}:{os.environ['PATH']}")
    assert b"bwrap keeps submissions in; a scope of systemd counts memory" in done.printed
    assert done.rows["one"]["total"] == "1"
    asked = (tmp_path / "asked").read_text()
    assert "-pMemoryMax=6442450944 -pMemorySwapMax=0 -pTasksMax=200 env -i" in asked


@BOX
def test_a_box_shows_what_lies_below_tmp(tmp_path, monkeypatch) -> None:
    """A clone may be there, with its Python."""
    (tmp_path / "there").write_text("seen")
    tmp_path.chmod(0o755)
    binds = [*box._binds(), (str(tmp_path), "/tmp/clone")]
    monkeypatch.setattr(box, "_binds", lambda: binds)
    with box.rules() as file:
        done = subprocess.run(box._bwrap(["cat", "/tmp/clone/there"], file.fileno()), timeout=60,
                              capture_output=True, pass_fds=[file.fileno()])
    assert done.stdout == b"seen", done.stderr


def test_a_container_is_told_what_to_keep_out(tmp_path) -> None:
    """A stand-in for Podman writes down how it is called, and runs nothing."""
    submissions.write(tmp_path / "class", {"one": answers()})
    podman = f'[ "$1" != run ] || echo "$*" > {tmp_path}/asked'
    done = submissions.run(submissions.command(tmp_path / "class", tmp_path / "build"), tmp_path,
                           **_without(tmp_path, podman=podman))
    assert b"podman keeps submissions in; its limits count memory" in done.printed
    asked = (tmp_path / "asked").read_text()
    for words in ("--network=none", "--memory=", "--pids-limit=200", "--cap-drop=ALL",
                  "--read-only", "--security-opt=no-new-privileges", "--user=",
                  "--ulimit=nproc=200:200", "/course/tools/grading:ro",
                  "TVM_BIND_THREADS=0"):  # TVM would put all boxes on the first CPU
        assert words in asked, words
    for words in ("/notebooks", "/tests", "paired_md", str(tmp_path / "class")):
        assert words not in asked, words


@BOX
def test_unsafe_is_said(tmp_path) -> None:
    submissions.write(tmp_path / "class", {"one": answers("2.1")})
    done = submissions.run(submissions.command(tmp_path / "class", tmp_path / "build"),
                           tmp_path / "build", UNSAFE="1")
    assert done.status == 0 and b"UNSAFE: nothing keeps submissions from your" in done.printed
    assert done.rows["one"]["total"] == "1"
    assert "UNSAFE" in done.rows["one"]["problems"] and "UNSAFE" in done.page("one")


@pytest.mark.parametrize(("arguments", "message"), [
    (["/nowhere"], "There is no folder /nowhere: make grade SUBMISSIONS="),
    (["{empty}"], "has no student's work: it needs a folder, an archive or files"),
    (["{one}"], "No notebook of the course is in"),
    (["{one}", "77"], "There is no notebook 77: take the two digits"),
    (["{one}", "02", "--cluster", "tcp://127.0.0.1:1"],
     "No Dask scheduler answers at tcp://127.0.0.1:1"),
    (["{one}", "02", "--cluster", "somewhere"], "No Dask scheduler answers at somewhere"),
    (["{one}", "02", "--cluster", "tls://127.0.0.1:1", "--tls", "/nowhere"],
     "There is no /nowhere/ca.pem: TLS="),
])
def test_errors_are_for_people(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one" / "student").mkdir(parents=True)
    words = [word.format(empty=tmp_path / "empty", one=tmp_path / "one") for word in arguments]
    done = submissions.run([sys.executable, "-m", "tools.grade", *words, "--to", str(tmp_path)],
                           tmp_path)
    assert done.status == 1 and b"Traceback" not in done.printed
    assert message.encode() in done.printed
