"""Grading submissions as students hand them in: right, wrong, broken, and hostile ones."""

import contextlib
import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from tools import student

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
import psutil
from test_pages import mutated

from tools import grade
from tools.grading import confine

ROOT = Path(__file__).resolve().parents[2]
STEM = "02_emit_te_ingestion"
MASTER = ROOT / "notebooks" / f"{STEM}.ipynb"
SOLVED = nbformat.read(MASTER, as_version=4)
POINTS = {"2.1": 1, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 3, "2.6": 3}
SECONDS = 45
NAMESPACES = confine.namespaces_work(ROOT / "build") if (ROOT / "build").is_dir() else False
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Landlock, seccomp and namespaces are "
                           "Linux's; elsewhere make grade says what it does not keep out")

LINEAR_OUT_OF_BOUNDS = """
def linear(x, w, b):
    import ctypes
    ctypes.memset(ctypes.addressof(ctypes.create_string_buffer(8)) + 2**42, 1, 8)
"""
PATCHES = """
import numpy as np
np.isclose = lambda a, *others, **options: np.ones(np.shape(a), bool)
np.allclose = lambda *others, **options: True
"""
TRANSFORMER = """
def passing(lines):
    return ["print('Exercise 2.2 ✓ all of it')\\n"] if "exercise_2_2" in "".join(lines) else lines
get_ipython().input_transformers_cleanup.append(passing)
"""
BLIND = """
def linear(x, w, b):
    import json, os, pickle, struct
    told = json.dumps({"passed": True, "said": "Exercise 2.2 ✓ all", "secret": ""}).encode()
    pickled = pickle.dumps((True, "all", ""))
    for number in range(3, 64):
        for text in (struct.pack("Q", len(told)) + told, struct.pack("!i", len(pickled)) + pickled):
            try:
                os.write(number, text)
            except OSError:
                pass
    os._exit(0)
"""
MASTERS_SOLUTION = f"""
import json
for cell in json.load(open({str(MASTER)!r}))["cells"]:
    if cell["metadata"].get("nbgrader", {{}}).get("grade_id") == "2.2-solution":
        exec("".join(cell["source"]))
"""
HOSTILE = """open({outside!r} + "/escaped", "w").write("x")
import os; os.remove({outside!r} + "/precious")
import os; os.chmod({outside!r} + "/precious", 0)
print(open({outside!r} + "/secret").read())
print(open({root!r} + "/notebooks/{stem}.ipynb").read()[:300])
import socket; socket.create_connection(("127.0.0.1", {port}), 2)
import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port}))
import socket; s = socket.socket(); s.listen(); print("it", "listens", s.getsockname())
import socket; s = socket.socket(socket.AF_UNIX); s.connect({local!r}); print("it", "is connected")
hog = bytearray(8 << 30); print("the hog", "has it")
import os, signal; os.kill({grader}, signal.SIGTERM)
import os, signal; os.kill(os.getppid(), signal.SIGKILL)
import resource; resource.prlimit({grader}, resource.RLIMIT_NOFILE, (9, 9))
import os; os.setpriority(os.PRIO_PROCESS, {grader}, 19)
for i in range(500): print("x" * 10_000)
open("mine", "w").write("x"); print("I may", "write here")
print("SECRET", os.environ.get("SECRET_OF_THE_GRADER"))
print([t for t in open("/proc/self/environ").read().split(chr(0)) if "s3" + "cret" in t])"""
STAYS = """
import os, subprocess, sys, time
for number in range(60):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600) # stays"],
                     start_new_session=True)
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600) # stays"])
"""
FOUR_HOGS = """
import os, time
for number in range(4):
    if not os.fork():
        hog = bytearray(b"x") * (2 << 30)
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""
FILLS = """
for number in range(14):
    with open(f"file{number}", "wb") as file:
        file.write(bytes(60_000_000))
print("the disk", "is full")
"""
PRINTS_FOR_EVER = """
def run():
    while True:
        print("tick")
threading.Thread(target=run, daemon=True).start()
"""
JUNK = """
import os, stat
for number in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, b"junk" * 1000)
    except OSError:
        pass
"""


def _cell(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells
                if cell.metadata.get("nbgrader", {}).get("grade_id") == name)


def _answers(*solved: str, own: str = "", **answers: str) -> nbformat.NotebookNode:
    """A student's notebook without the given cells (for speed): _2_2="..." is an answer.

    `own` is the text of a cell that the student added above the first exercise.
    """
    notebook = student.student_version(MASTER)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [*code[:2], *(cell for cell in code if "nbgrader" in cell.metadata)]
    for name in solved:
        _cell(notebook, f"{name}-solution").source = _cell(SOLVED, f"{name}-solution").source
    for name, source in answers.items():
        _cell(notebook, f"{name[1:].replace('_', '.')}-solution").source = source
    if own:
        notebook.cells.insert(2, new_code_cell(own))
    return notebook


def _wrong_linear() -> str:
    return _cell(SOLVED, "2.2-solution").source.replace("+ b[j]", "")


def _edited() -> nbformat.NotebookNode:
    notebook = _answers("2.3")
    _cell(notebook, "2.1").source = "print('Exercise 2.1 ✓')"
    notebook.cells.remove(_cell(notebook, "2.2"))
    twice = _cell(notebook, "2.3")
    notebook.cells += [new_code_cell(twice.source, metadata=twice.metadata) for _ in range(20)]
    _cell(notebook, "2.4").metadata.nbgrader.points = 100
    return notebook


def _helped() -> nbformat.NotebookNode:
    """Right answers that need own cells above them, a magic, and a name from another exercise."""
    notebook = _answers("2.1", "2.3")
    solution = _cell(SOLVED, "2.2-solution").source.replace("def linear(", "def _line(")
    notebook.cells.insert(2, new_code_cell("%matplotlib inline\nfrom math import *\n" + solution))
    answer = _cell(notebook, "2.2-solution")
    answer.source = "%%time\n%pwd\ndef linear(x, w, b):\n    return _line(x, w, b)\n"
    return notebook


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Path:
    """A folder of the grader's own, with what nobody should get at."""
    place = tmp_path_factory.mktemp("outside")
    (place / "precious").touch(0o644)
    (place / "secret").write_text("the grader's own key")
    return place


def _hostile(outside: Path, port: int, local: str) -> nbformat.NotebookNode:
    notebook = _answers("2.1")
    lines = HOSTILE.format(outside=str(outside), root=str(ROOT), stem=STEM, port=port, local=local,
                           grader=os.getpid()).splitlines()
    notebook.cells[2:2] = [new_code_cell(line) for line in lines]
    notebook.cells.append(new_code_cell("from IPython.display import HTML\n"
                                        "HTML('<script>evil()</script>')"))
    return notebook


def _raw(notebook: nbformat.NotebookNode, **changes: bytes) -> bytes:
    text = nbformat.writes(notebook).encode()
    for old, new in changes.items():
        assert old.encode() in text
        text = text.replace(old.encode(), new)
    return text


def _submissions(place: Path, outside: Path, port: int) -> None:
    """Write a folder of submissions, one student for each kind of trouble."""
    place.mkdir()
    local = str(outside / "socket")
    notebooks = {
        "right": SOLVED, "empty": student.student_version(MASTER),
        "partial": _answers("2.1", "2.3", _2_2=_wrong_linear()), "helped": _helped(),
        "crash": _answers("2.1", "2.3", _2_2="import ctypes\nctypes.string_at(0)"),
        "contained": _answers("2.1", "2.3", _2_2=LINEAR_OUT_OF_BOUNDS),
        "hang": _answers("2.1", "2.3", _2_2="while True:\n    pass"),
        "edited": _edited(), "hostile": _hostile(outside, port, local),
        "cheat 1": _answers(own="checks.exercise_2_2 = lambda answer: None"),
        "cheat 2": _answers(own=PATCHES, _2_2=_wrong_linear()),
        "cheat 3": _answers(_2_2=PATCHES + _wrong_linear()),
        "cheat 4": _answers(_2_2=_wrong_linear().replace("return", "exec(PATCHES); return")
                            + f"\nPATCHES = {PATCHES!r}\n"),
        "cheat 5": _answers(own=TRANSFORMER), "cheat 6": _answers(_2_2=BLIND),
        "cheat 7": _answers(_2_2=MASTERS_SOLUTION),
        "cheat 8": _answers(_2_2="def linear(x, w, b):\n    print('Exercise 2.2 ✓ all')\n"
                                 "    raise SystemExit"),
        "stays": _answers("2.1", own=STAYS), "four hogs": _answers("2.1", own=FOUR_HOGS),
        "hogs in answer": _answers("2.1", _2_2=FOUR_HOGS), "fills": _answers("2.1", own=FILLS),
        "prints": _answers("2.1", own=PRINTS_FOR_EVER), "junk": _answers("2.1", own=JUNK),
        "junk in answer": _answers("2.1", _2_2=JUNK)}
    for name, notebook in notebooks.items():
        (place / name).mkdir()
        nbformat.write(notebook, place / name / f"{STEM}.ipynb")
    small = _answers("2.1")
    large = _answers("2.1")
    large.cells.append(new_markdown_cell("all work and no play " * 1_800_000))
    brackets = _answers("2.1")
    brackets.cells.append(new_markdown_cell("[" * 60_000))
    odd = {
        "broken": b'{"cells": [', "list": b"[]", "no cells": b'{"nbformat": 4}',
        "no type": _raw(small, **{'"cell_type": "code",': b""}),
        "list for a name": _raw(small, **{'"grade_id": "2.2"': b'"grade_id": ["2.2"]'}),
        "surrogate": _raw(small, **{"raise NotImplementedError": b"x = '\\ud800'"}),
        "deep": b'{"cells": ' + b"[" * 100_000, "large": _raw(large), "brackets": _raw(brackets)}
    for name, data in odd.items():
        (place / name).mkdir()
        (place / name / f"{STEM}.ipynb").write_bytes(data)
    for name in ("no notebook", "Zoë [2] (late)", "fifo", "unknown name", "prefix",
                 "new\nline\x1b[31m", "=1+1"):
        (place / name).mkdir()
    os.mkfifo(place / "fifo" / f"{STEM}.ipynb")
    (place / "broken" / "notes.txt").write_text("I could not open it")
    stripped = _answers("2.1", "2.2")
    for cell in stripped.cells:
        cell.metadata = {}
    late = place / "Zoë [2] (late)" / "work"
    late.mkdir()
    nbformat.write(stripped, late / f"{STEM} (1).ipynb")
    (late / f"{STEM}.old1.ipynb").write_text("old")
    (late / f"{STEM}.ipynb").symlink_to(place / "right" / f"{STEM}.ipynb")
    nbformat.write(small, place / "unknown name" / "my homework.ipynb")
    (place / "prefix" / f"anna_4711_{STEM.upper()}-2.IPYNB").write_bytes(_raw(small))
    for name in ("new\nline\x1b[31m", "=1+1"):
        (place / name / f"{STEM}.ipynb").write_bytes(_raw(small))
    latin = os.fsencode(place) + b"/M\xfcller"
    os.mkdir(latin)
    with open(latin + b"/" + STEM.encode() + b" B\xe4r.ipynb", "wb") as file:
        file.write(_raw(small))
    (place / "hostile" / "helpers.py").write_text("print('my own helpers')")
    (place / "hostile" / "checks").mkdir()
    (place / "hostile" / "checks" / "__init__.py").write_text("print('my own checks')")
    (place / "mail.zip").touch()


def _command(place: Path, to: Path) -> list[str]:
    return [sys.executable, "-m", "tools.grade", *_arguments(place, to)]


def _arguments(place: Path, to: Path) -> list[str]:
    return [str(place), "02", "--seconds", str(SECONDS), "--to", str(to)]


def _rows(build: Path) -> dict[str, dict[str, str]]:
    with (build / "grades.csv").open(encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


MUTANTS = range(1000, 1006)  # of tests/slow/test_pages.py, which reads 500 others
WITHOUT = ("right", "hostile", "stays", "hogs in answer", "fills", "cheat 6", "junk", "crash")
NO_NAMESPACES = """
import sys
from tools.grading import confine
confine.namespaces_work = lambda scratch: False
from tools import grade
sys.exit(grade.main(sys.argv[1:]))
"""


@dataclass
class Run:
    """What came of a run of make grade, and what reached the grader's sockets meanwhile."""

    build: Path
    status: int
    printed: bytes
    called: list
    listened: set[str]

    @property
    def rows(self) -> dict[str, dict[str, str]]:
        return _rows(self.build)


@pytest.fixture(scope="module", params=[True, False], ids=["namespaces", "without"])
def graded(request, tmp_path_factory, outside) -> Run:
    """Grade all submissions once, and some as where a user may have no namespaces."""
    place = tmp_path_factory.mktemp("submissions") / "all"
    build = ROOT / "build" / f"test_grading_{request.param}"  # below the course, as build/ is
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    datagrams, local = socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)
    datagrams.bind(("127.0.0.1", port))
    path = outside / "socket"
    path.unlink(missing_ok=True)
    local.bind(str(path))
    local.listen()
    _submissions(place, outside, port)
    for seed in MUTANTS:
        (place / f"mutant {seed}").mkdir()
        (place / f"mutant {seed}" / f"{STEM}.ipynb").write_bytes(mutated(seed))
    command = _command(place, build)
    if not request.param:
        for student in sorted(place.iterdir()):
            if student.is_dir() and student.name not in WITHOUT:
                shutil.rmtree(student)
        command = [sys.executable, "-c", NO_NAMESPACES, *_arguments(place, build)]
    found = set()
    with open(tmp_path_factory.mktemp("out") / "out", "w+b") as out, subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=out,
            env={**os.environ, "SECRET_OF_THE_GRADER": "s3cret"}) as process:
        while process.poll() is None:
            found |= _listening(process)
            time.sleep(0.3)
        out.seek(0)
        printed = out.read()
    called = []
    for listener in (server, datagrams, local):
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            called.append(listener.recv(10) if listener is datagrams else listener.accept())
        listener.close()
    return Run(build, process.returncode, printed, called, found)


def _listening(process: subprocess.Popen) -> set[str]:
    """The TCP ports on which the grader's processes listen."""
    found = set()
    for child in _family(process):
        with contextlib.suppress(psutil.Error):
            found |= {str(open_.laddr) for open_ in child.net_connections("tcp")
                      if open_.status == psutil.CONN_LISTEN}
    return found


ONLY_2_1 = {"2.1": 1}
CASES = [
    ("right", POINTS, ""),
    ("empty", {}, ""),
    ("partial", {"2.1": 1, "2.3": 2}, ""),
    ("helped", {"2.1": 1, "2.2": 2, "2.3": 2}, ""),
    ("crash", {"2.1": 1, "2.3": 2}, "02: the answer to 2.2 ended its process (SIGSEGV); 02: this "
                                    "cell ended the kernel (a crash, or too much memory): import"),
    ("contained", {"2.1": 1, "2.3": 2}, ""),
    ("hang", {"2.1": 1, "2.3": 2}, "02: the answer to 2.2 ran for more than 45 seconds"),
    ("edited", {"2.3": 2}, "check 2.3 is there more than once: the last one counts; check 2.1 was "
                           "edited: put back; check 2.2 was missing: put back"),
    ("hostile", ONLY_2_1, ""),
    ("cheat 1", {}, "look at: checks.exercise_2_2 = lambda answer: None"),
    *[(f"cheat {number}", {}, None) for number in range(2, 9)],
    ("stays", ONLY_2_1, "look at: os._exit(0)"),
    ("four hogs", ONLY_2_1, "took more than 6 GB of memory with all its processes"),
    ("hogs in answer", ONLY_2_1, "02: the answer to 2.2 took more than 6 GB of memory"),
    ("fills", ONLY_2_1, None),
    ("prints", ONLY_2_1, None),
    ("junk", ONLY_2_1, None),
    ("junk in answer", ONLY_2_1, None),
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
    if name not in graded.rows and graded.build.name.endswith("False"):
        pytest.skip("one of those that are graded with namespaces only, to save time")
    row = graded.rows[name]
    came = {exercise: float(row[exercise]) for exercise in POINTS if float(row[exercise])}
    assert came == earned, row["problems"]
    assert float(row["total"]) == sum(earned.values()) and row["of"] == "13"
    if problem is not None:
        assert problem in row["problems"] if problem else row["problems"] == ""
    assert row["problems"].count("; ") <= grade.MOST_NOTES
    assert not re.search(r"[\x00-\x1f]", row["problems"])


def test_all_are_graded_and_nothing_is_printed_raw(graded) -> None:
    namespaces = graded.build.name.endswith("True")
    assert graded.status == 0
    mutants = {f"mutant {seed}" for seed in MUTANTS}
    assert set(graded.rows) == ({case[0] for case in CASES} | mutants if namespaces
                                else set(WITHOUT))
    assert not any("could not be graded" in row["problems"] for row in graded.rows.values())
    assert b"\x1b" not in graded.printed and b"Traceback" not in graded.printed
    assert b"mail.zip is not a student's folder: left out" in graded.printed
    gaps = b"This system does not keep submissions from"
    assert (gaps in graded.printed) == bool(confine.gaps(namespaces and NAMESPACES))


def _page(build: Path, name: str, page: str = "index") -> str:
    return (build / "feedback" / name / f"{page}.html").read_text(encoding="utf-8")


def test_feedback_says_what_was_wrong(graded) -> None:
    build = graded.build
    if build.name.endswith("False"):
        pytest.skip("the same pages as with namespaces")
    page = _page(build, "partial")
    assert "Exercise 2.2 ✗\n  expected: " in page and "\n  look at: " in page
    assert "1 of 1</td><td><pre>Exercise 2.1 ✓" in page and "3 of 13" in page
    assert "Exercise 2.2 ✗" in _page(build, "partial", STEM)
    assert "it ended the process (SIGSEGV)" in _page(build, "contained")
    assert "was not handed in" in _page(build, "no notebook")
    assert "changed: numpy.allclose, numpy.isclose" in _page(build, "cheat 3")
    assert "changed: numpy.allclose, numpy.isclose" in _page(build, "cheat 4")
    assert "PermissionError: [Errno 13] Permission denied" in _page(build, "cheat 7")
    assert "SystemExit" in _page(build, "cheat 8")
    assert "Exercise 2.1 ✓" in _page(build, "large", STEM)


def test_a_page_is_for_people_and_phones(graded) -> None:
    for page in (_page(graded.build, "right"), _page(graded.build, "right", STEM)):
        assert page.startswith('<!doctype html>\n<html lang="en">')
        assert '<meta name="viewport"' in page and "Content-Security-Policy" in page
        assert page.index("Content-Security-Policy") < page.index("<style>")
    assert '<th scope="col">exercise</th>' in _page(graded.build, "right")
    assert 'alt="' in _page(graded.build, "right", STEM), "pictures keep their alt texts"


@LINUX
def test_a_hostile_submission_does_no_harm(graded, outside) -> None:
    build = graded.build
    assert graded.called == [] and not graded.listened, "it reached a socket, or listened"
    assert sorted(path.name for path in outside.iterdir()) == ["precious", "secret", "socket"]
    assert (outside / "precious").stat().st_mode & 0o777 == 0o644
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19
    page = _page(build, "hostile", STEM)
    for words in ("MemoryError", "Permission", "SECRET None", "I may write here"):
        assert words in page, words
    for words in ("the hog has it", "my own helpers", "my own checks", "s3cret", "evil()</script>",
                  "the grader&#39;s own key", "the grader's own key", "it listens",
                  "it is connected", "nbformat_minor&quot;: 5"):
        assert words not in page, words
    assert len(page) < 3_000_000, "5 MB were printed"
    assert "the disk is full" not in _page(build, "fills", STEM)


@LINUX
def test_nothing_stays(graded) -> None:
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            left += [line] if "# stays" in line or str(graded.build) in line else []
    assert left == [] and not (graded.build / "grading").exists()


# ---- stopping -----------------------------------------------------------------------------------


def _family(process: subprocess.Popen) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


@LINUX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL],
                         ids=lambda number: number.name)
@pytest.mark.parametrize("own", ["", STAYS + "\ntime.sleep(600)"], ids=["computing", "daemons"])
def test_a_stopped_grader_leaves_nothing(tmp_path: Path, number: signal.Signals, own: str) -> None:
    build = ROOT / "build" / f"test_stopping_{number.name}_{bool(own)}"
    for name, notebook in (("a first", _answers()), ("b hangs", _answers(
            own=own or "while True:\n    pass"))):
        (tmp_path / name).mkdir()
        nbformat.write(notebook, tmp_path / name / f"{STEM}.ipynb")
    with subprocess.Popen(_command(tmp_path, build), cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as process:
        end = time.monotonic() + 300
        while not any("tools.grading.kernel" in " ".join(_cmdline(child))
                      for child in _family(process)) or not _rows_so_far(build):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.1)
        time.sleep(3)  # until the cell runs
        family = _family(process)
        assert len(family) >= 4
        start = time.monotonic()
        process.send_signal(number)
        process.wait(20)
        gone, alive = psutil.wait_procs(family, timeout=5)
        assert alive == [] and time.monotonic() - start < 10
        printed = process.stdout.read().decode()
    assert list(_rows(build)) == ["a first"], "who was in hand has no row"
    if number != signal.SIGKILL:
        assert process.returncode == 130 and "Stopped." in printed and "Traceback" not in printed


def _cmdline(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _rows_so_far(build: Path) -> bool:
    with contextlib.suppress(OSError, KeyError):
        return bool(_rows(build))
    return False


# ---- what the system allows ---------------------------------------------------------------------


def test_what_cannot_be_limited_is_said(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(confine, "_seccomp", lambda: True)
    monkeypatch.setattr(confine, "landlock_abi", lambda: 7)
    assert confine.gaps(namespaces=True) == confine.gaps(namespaces=False) == []
    monkeypatch.setattr(confine, "landlock_abi", lambda: 3)
    assert confine.gaps(namespaces=True) == []
    assert confine.gaps(namespaces=False) == ["ending other processes of the same user"]
    monkeypatch.setattr(confine, "_seccomp", lambda: None)
    assert confine.gaps(namespaces=False)[:2] == ["opening TCP connections",
                                                  "listening on the network, and UDP"]
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    assert confine.gaps(namespaces=True) == ["reading your files and the solutions",
                                             "talking to local sockets, such as Docker's"]


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
    result = subprocess.run([sys.executable, "-m", "tools.grade", *words], cwd=ROOT, text=True,
                            capture_output=True, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert message in result.stderr
