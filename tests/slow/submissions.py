"""What students hand in, right, wrong, broken and hostile, and a run of make grade over it."""

import contextlib
import csv
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell

from tools import grade, student
from tools.grading import box
from tools.grading.submission import name_of

ROOT = Path(__file__).resolve().parents[2]
STEM = "02_emit_te_ingestion"
MASTER = ROOT / "notebooks" / f"{STEM}.ipynb"
SOLVED = nbformat.read(MASTER, as_version=4)
POINTS = {name_of(cell): cell.metadata.nbgrader.points for cell in SOLVED.cells
          if cell.metadata.get("nbgrader", {}).get("grade")}
OF = sum(POINTS.values())
try:
    KEPT = box.keeper() == "bwrap"
except box.Lost:
    KEPT = False
BOX = pytest.mark.skipif(not KEPT, reason="no sandbox: bubblewrap is missing, or not allowed here")

LINEAR_OUT_OF_BOUNDS = """
def linear(x, w, b):
    import ctypes
    ctypes.memset(ctypes.addressof(ctypes.create_string_buffer(8)) + 2**42, 1, 8)
"""
PATCHES = """
import numpy as np
np.isclose = lambda a, *others, **options: np.ones(np.shape(a), bool)
np.allclose = lambda *others, **options: True
np.isnan = lambda a, *others, **options: np.zeros(np.shape(a), bool)
"""
# of the checks: what they call, their tolerances, their expected results; of IPython
PATCHES_MORE = """
import sys
checks.exercise_2_2 = lambda answer: None
for name, module in list(sys.modules.items()):
    if name.startswith("course.checks."):
        for tolerance in {"ATOL", "RTOL", "ATOL_PROBABILITIES"} & vars(module).keys():
            setattr(module, tolerance, 1e9)
import torch
from course.checks.exercises import models
for cnn in (models.cnn()[1], models.random_cnn()[1]):
    cnn[len(cnn) - 1] = torch.nn.ReLU()
for batch in models.reference():
    batch.expected[:] = models.cnn()[1](torch.from_numpy(batch.images)).detach().numpy()
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
# of cells, which go on
SIGNALS = """
import os, subprocess
try:
    with open("large", "wb") as file:
        file.write(bytes(65 << 20))
except OSError as error:
    print("it says", error.strerror)
os.path.exists("large") and os.remove("large")
done = subprocess.Popen(["true"], stdin=subprocess.PIPE)
done.wait()
try:
    done.stdin.write(b"x" * 100_000)
    done.stdin.flush()
except OSError as error:
    print("it says", error.strerror)
"""
BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
THREADS = """
import threading, time
for number in range(6000):
    try:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    except RuntimeError:
        print("threads:", number)
        break
"""
RETURNS_X = """
def linear(x, w, b):
    return x
"""
TAKES = """
keep = []
try:
    while True:
        keep.append({})
except (OSError, MemoryError):
    pass
""" + RETURNS_X
LEAKS, FULL = TAKES.format("open('/dev/null')"), TAKES.format("bytearray(1 << 20)")
LOWERED = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))" + RETURNS_X
FOREIGN = "import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)"
WATCHED = """
import helpers, tools.grading.inside, course.checks.say.messages as messages
messages.reason = tools.grading.inside.MOST_SAID = None
""" + RETURNS_X
MASTERS_SOLUTION = f"""
import json
for cell in json.load(open({str(MASTER)!r}))["cells"]:
    if cell["metadata"].get("nbgrader", {{}}).get("grade_id") == "2-2-solution":
        exec("".join(cell["source"]))
"""
# each cell prints DONE where it did what it must not
HOSTILE = """open({outside!r} + "/escaped", "w").write("x"); print("DO" + "NE")
import os; os.remove({outside!r} + "/precious"); print("DO" + "NE")
open("/course/escaped", "w").write("x"); print("DO" + "NE")
print(open({outside!r} + "/secret").read())
print(open({root!r} + "/notebooks/{stem}.ipynb").read()[:300])
import glob; print("files:", [n for p in ("/home/*", "/run/*", "/var/*", "/etc/*", "/course/*", "/course/t*/*") for n in glob.glob(p)])
import socket; socket.create_connection(("127.0.0.1", {port}), 2); print("DO" + "NE")
import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port}))
import socket; s = socket.socket(socket.AF_UNIX); s.connect({local!r}); print("DO" + "NE")
import socket; s = socket.socket(socket.AF_UNIX); s.connect("\0" + {local!r}); print("DO" + "NE")
import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b"x", {local!r} + "d"); print("DO" + "NE")
import socket; socket.socket(40, 1); print("DO" + "NE")
import socket; a, b = socket.socketpair(); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22); print("DO" + "NE")
hog = bytearray(8 << 30); print("DO" + "NE")
import os; os.kill({grader}, 15)
import os; os.setpriority(os.PRIO_PROCESS, {grader}, 19)
import ctypes, os; c = ctypes.CDLL(None, use_errno=True); call = lambda *a: (c.syscall(*a), ctypes.get_errno())
print("queue", c.msgget(0, 0o1600), "semaphores", c.semget(0, 250, 0o1600), "segment", c.shmget(0, 1 << 20, 0o1600))
print("keys", call(250, 0, -3, 0), call(248, b"user", b"mlc", b"x", 1, -3))
print("namespaces", [call(56, flag | 17, 0, 0, 0, 0)[0] for flag in (0x10000000, 0x20000, 0x40000000)], c.unshare(0x10000000))
import os; os.memfd_create("hog"); print("DO" + "NE")
for i in range(500): print("x" * 10_000)
open("mine", "w").write("x"); print("I may", "write here")
print("SECRET", os.environ.get("SECRET_OF_THE_GRADER"), [p for p in os.listdir("/proc") if p.isdigit()])
print([t for t in (open("/proc/self/environ").read() + open("/proc/1/environ").read()).split(chr(0)) if "s3" + "cret" in t])
open(f"/proc/{{os.getppid()}}/mem", "rb"); print("DO" + "NE")
import os; print(len(os.listdir(f"/proc/{{os.getppid()}}/fd")), "DO" + "NE")"""  # noqa: E501 (a line is a cell)
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
# a little more than 6 GB altogether
FOUR_HOGS = """
import os, time
for number in range(4):
    if not os.fork():
        hog = bytearray(b"x") * (13 << 27)
        time.sleep(90)
        os._exit(0)
for _ in range(9000):  # it is not asleep while they fill it, on a busy machine slowly
    time.sleep(0.01)
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


def cell(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if name_of(cell) == name)


def answers(*solved: str, own: str = "", **others: str) -> nbformat.NotebookNode:
    """A student's notebook without the given cells (for speed): _2_2="..." is an answer.

    `own` is the text of a cell that the student added above the first exercise.
    """
    notebook = student.student_version(MASTER)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [*code[:2], *(cell for cell in code if "nbgrader" in cell.metadata)]
    for name in solved:
        cell(notebook, f"{name}-solution").source = cell(SOLVED, f"{name}-solution").source
    for name, source in others.items():
        cell(notebook, f"{name[1:].replace('_', '.')}-solution").source = source
    if own:
        notebook.cells.insert(2, new_code_cell(own))
    return notebook


def _wrong(number: str, right: str, wrong: str) -> str:
    source = cell(SOLVED, f"{number}-solution").source
    assert source.count(right) == 1
    return source.replace(right, wrong)


def wrong_linear() -> str:
    return _wrong("2.2", "+ b[j]", "")


def without_softmax() -> str:
    return _wrong("2.5", "topi.nn.softmax, lv, axis=1", "topi.nn.relu, lv")


def edited() -> nbformat.NotebookNode:
    notebook = answers("2.3")
    cell(notebook, "2.1").source = "print('Exercise 2.1 ✓')"
    notebook.cells.remove(cell(notebook, "2.2"))
    twice = cell(notebook, "2.3")
    notebook.cells += [new_code_cell(twice.source, metadata=twice.metadata) for _ in range(20)]
    cell(notebook, "2.4").metadata.nbgrader.points = 100
    return notebook


def helped() -> nbformat.NotebookNode:
    """Right answers that need own cells above them, a magic, and a name from another exercise."""
    notebook = answers("2.1", "2.3")
    solution = cell(SOLVED, "2.2-solution").source.replace("def linear(", "def _line(")
    notebook.cells.insert(2, new_code_cell("%matplotlib inline\nfrom math import *\n" + solution))
    answer = cell(notebook, "2.2-solution")
    answer.source = ("%%time\n%matplotlib inline\n%pwd\n"
                     "def linear(x, w, b):\n    return _line(x, w, b)\n")
    return notebook


def hostile(outside: Path, port: int, local: str, *solved: str) -> nbformat.NotebookNode:
    notebook = answers(*solved)
    lines = HOSTILE.format(outside=str(outside), root=str(ROOT), stem=STEM, port=port, local=local,
                           grader=os.getpid()).splitlines()  # a line is a cell
    notebook.cells[2:2] = [new_code_cell(line) for line in lines]
    notebook.cells.append(new_code_cell("from IPython.display import HTML\n"
                                        "HTML('<script>evil()</script>')"))
    return notebook


def raw(notebook: nbformat.NotebookNode, **changes: bytes) -> bytes:
    text = nbformat.writes(notebook).encode()
    for old, new in changes.items():
        assert old.encode() in text
        text = text.replace(old.encode(), new)
    return text


def write(place: Path, notebooks: Mapping[str, nbformat.NotebookNode | bytes]) -> None:
    """Write a folder of submissions: a folder for each student with one notebook in it."""
    for name, notebook in notebooks.items():
        (place / name).mkdir(parents=True)
        path = place / name / f"{STEM}.ipynb"
        path.write_bytes(notebook if isinstance(notebook, bytes) else raw(notebook))


def command(place: Path, to: Path, seconds: int = 90, *more: str) -> list[str]:
    return [sys.executable, "-m", "tools.grade", str(place), "02", "--seconds", str(seconds),
            "--to", str(to), *more]


def rows(build: Path) -> dict[str, dict[str, str]]:
    """Return the rows of grades.csv by the student's name."""
    with (build / "grades.csv").open(encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def family(process: subprocess.Popen | psutil.Process) -> list[psutil.Process]:
    """Return all processes below one that was started."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def boxes(*started: subprocess.Popen) -> list[psutil.Process]:
    """Return the processes of sandboxes, below those that were started."""
    return [child for process in started for child in family(process)
            if "tools.grading.inside" in cmdline(child)]


def cmdline(process: psutil.Process) -> list[str]:
    """Return what a process was started with, or [] if it is gone."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


class Listeners:
    """Sockets of the grader's own that no submission may reach: TCP, UDP and local ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all = [socket.socket(), socket.socket(type=socket.SOCK_DGRAM)]
        self.all[0].bind(("127.0.0.1", 0))
        self.port = self.all[0].getsockname()[1]
        self.all[1].bind(("127.0.0.1", self.port))
        for kind, name in [(socket.SOCK_STREAM, str(path)), (socket.SOCK_STREAM, f"\0{path}"),
                           (socket.SOCK_DGRAM, f"{path}d")]:
            self.all.append(socket.socket(socket.AF_UNIX, kind))
            self.all[-1].bind(name)
        for listener in self.all:
            if listener.type == socket.SOCK_STREAM:
                listener.listen()

    def close(self) -> list:
        """Return what reached them."""
        called: list = []
        for listener in self.all:
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError, OSError):
                called.append(listener.recv(10) if listener.type == socket.SOCK_DGRAM
                              else listener.accept())
            listener.close()
        return called


@dataclass
class Run:
    """What came of a run of make grade."""

    build: Path
    status: int
    printed: bytes

    @property
    def rows(self) -> dict[str, dict[str, str]]:
        return rows(self.build)

    def page(self, name: str, page: str = "index") -> str:
        """Return a page of feedback."""
        return (self.build / "feedback" / name / f"{page}.html").read_text(encoding="utf-8")

    def check(self, name: str, earned: Mapping[str, float], problem: str | None) -> None:
        """Assert a student's points, and words of the column problems; "" is none, None any."""
        row = self.rows[name]
        came = {exercise: float(row[exercise]) for exercise in POINTS if float(row[exercise] or 0)}
        assert row["total"] and came == earned, row["problems"]
        assert float(row["total"]) == sum(earned.values()) and row["of"] == str(OF)
        if problem is not None:
            assert problem in row["problems"] if problem else row["problems"] == "", row["problems"]
        assert row["problems"].count("; ") <= grade.MOST_NOTES
        assert not re.search(r"[\x00-\x1f]", row["problems"])


def run(words: list[str], build: Path, **environment: str) -> Run:
    """Run a command that grades, with a secret in its environment, into `build`."""
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "SECRET_OF_THE_GRADER": "s3cret", **environment},
                          check=False)
    return Run(build, done.returncode, done.stdout)
