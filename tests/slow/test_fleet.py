"""make grade on a cluster whose workers die: the same grades.csv; and a run that is resumed."""

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="Dask is missing: `make test-all` installs it")
import clusters
import psutil
import submissions
from submissions import BOX, ROOT, STEM, answers, boxes, command, rows, wrong_linear

from tools.grading import fleet
from tools.grading.box import Lost
from tools.grading.job import Job, Kept, Result, course_versions, differs

TOTALS = {"a": "1", "b": "3", "c": "1", "d broken": "0", "e": "0", "f absent": "0"}


def _until(what: Callable[[], Any], seconds: float = 180) -> Any:
    end = time.monotonic() + seconds
    while not (came := what()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)
    return came


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A small class: its submissions."""
    place = tmp_path_factory.mktemp("class")
    submissions.write(place, {"a": answers("2.1"), "b": answers("2.1", "2.3"),
                              "c": answers("2.1", _2_2=wrong_linear()), "d broken": b"{",
                              "e": answers()})
    (place / "f absent").mkdir()
    return place


@pytest.fixture(scope="module")
def serial(place) -> bytes:
    """The table of a run without Dask, with which the others are compared."""
    build = ROOT / "build" / "test_fleet_serial"
    graded = submissions.run(command(place, build, 90, "--fresh", "--jobs", "1"), build)
    assert graded.status == 0, graded.printed
    assert {name: row["total"] for name, row in graded.rows.items()} == TOTALS
    assert "Dask" not in graded.printed.decode()
    return (build / "grades.csv").read_bytes()


def _busy(made: clusters.Cluster) -> list[psutil.Process]:
    """Return the workers in whose hand a job is: above the sandboxes."""
    found = []
    for box in boxes(*made.processes):
        with contextlib.suppress(psutil.Error):
            found += [above for above in box.parents() if "spawn_main" in str(above.cmdline())][:1]
    return found


@BOX
def test_a_worker_that_is_killed_changes_nothing(place, serial, tmp_path) -> None:
    """A scheduler and two workers on loopback, with TLS; a third is of another version."""
    other = tmp_path / "another version"
    shutil.copytree(ROOT, other, ignore=lambda folder, names: [
        name for name in names if name in ("build", "work", ".venv", ".git", "notebooks", "tests",
                                           "paired_md", "FashionMNIST", "__pycache__")])
    with (other / "course" / "checks" / "exercises" / "notebook_02.py").open("a") as file:
        file.write("\n# this check has changed\n")
    build, out = ROOT / "build" / "test_fleet_cluster", tmp_path / "out"
    with clusters.cluster(tmp_path / "cluster", 2) as made, out.open("w+b") as file:
        made.worker(cwd=other)
        words = command(place, build, 90, "--fresh", *made.options())
        with subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=file) as process:
            _until(lambda: process.poll() is not None or _busy(made))
            time.sleep(1)
            killed = _until(lambda: _busy(made))[0]  # between two jobs no worker has one
            killed.kill()
            process.wait(600)
    printed = out.read_text()
    assert process.returncode == 0 and "Traceback" not in printed, printed
    assert (build / "grades.csv").read_bytes() == serial, printed
    assert not killed.is_running()
    assert printed.count("is not asked: the course is ") == 1, printed


@BOX
def test_a_run_that_was_stopped_goes_on(place, serial, tmp_path) -> None:
    """Ctrl-C after the first row; a second run beside the first; the rest; then a correction."""
    mine, build = tmp_path / "class", ROOT / "build" / "test_fleet_resumed"
    shutil.copytree(place, mine)
    words = command(mine, build, 90, "--jobs", "2")

    def some() -> bool:
        with contextlib.suppress(OSError):
            return "a" in rows(build)
        return False

    with subprocess.Popen([*words, "--fresh"], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        _until(lambda: process.poll() is not None or boxes(process))
        second = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert second.returncode == 1 and len(second.stderr.splitlines()) == 1
        assert "Another `make grade` is at work in" in second.stderr
        _until(lambda: process.poll() is not None or some())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "the same command does the rest" in process.stdout.read()
    before = list((build / "graded").glob("*.json"))
    assert 1 <= len(before) <= 4
    result = submissions.run(words, build)
    assert result.status == 0, result.printed
    assert f"{len(before)} of 5 notebooks were graded before" in result.printed.decode()
    assert (build / "grades.csv").read_bytes() == serial
    shutil.copy(mine / "b" / f"{STEM}.ipynb", mine / "e" / f"{STEM}.ipynb")
    assert "4/5" in (said := _on_a_terminal(words)) and "5/5" in said, said
    assert rows(build)["e"]["total"] == "3"
    said = _on_a_terminal(words)
    assert "5 of 5 notebooks were graded before" in said and "5/5" in said and "look at 2" in said


def _on_a_terminal(words: list[str]) -> str:
    """Run a command with a terminal, as make does it; return what it shows."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with subprocess.Popen(words, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs,
                          env={**os.environ, "TQDM_DISABLE": "1"}) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal's end
            while part := os.read(ours, 1 << 16):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode()


def test_a_job_that_ends_its_worker_each_time_is_given_up(tmp_path) -> None:
    """The class goes on, with those that take their place."""
    def deadly(asked: dict) -> dict:
        import os
        import signal
        if asked["data"] == b"deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"points": {"2.1": 1}, "whole": True}

    jobs = [(number, Job(STEM, b"deadly" if number == 1 else b"harmless", "{}"))
            for number in range(6)]
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch, clusters.cluster(tmp_path / "c", 2) as made, \
            fleet.running(made.address, made.tls) as client:
        patch.setattr(fleet, "grade", deadly)
        patch.setattr(fleet, "greet", lambda *_: {"wrong": "", "keeper": "nobody"})
        came = dict(fleet.Fleet(client, {}, [], said.append).results(jobs))
    assert {number: result.whole for number, result in came.items()} == {
        0: True, 1: False, 2: True, 3: True, 4: True, 5: True}
    assert came[1].notes == ["02: could not be graded: one worker after another ended with it"]


@pytest.mark.parametrize(("workers", "first"), [
    (0, "There is no worker yet: waiting for one. Ctrl-C ends this."), (1, ": nobody")])
def test_without_a_scheduler_it_stops(tmp_path, monkeypatch, workers: int, first: str) -> None:
    """While it waits for a worker, and while one is at work."""
    said: list[str] = []
    for name, value in [("PATIENCE", 1), ("LOST", 5), ("grade", lambda _: time.sleep(600)),
                        ("greet", lambda *_: {"wrong": "", "keeper": "nobody"})]:
        monkeypatch.setattr(fleet, name, value)
    with clusters.cluster(tmp_path / "c", workers) as made, \
            fleet.running(made.address, made.tls) as client:
        def say(line: str) -> None:
            said.append(line)
            if first in line:
                threading.Timer(3, made.processes[0].kill).start()

        with pytest.raises(Lost, match="The scheduler is gone"):
            list(fleet.Fleet(client, {}, [], say).results([(0, Job(STEM, b"", "{}"))]))
    assert first in said[-1]


def test_what_a_result_depends_on(tmp_path) -> None:
    """A result counts for the same file, student version, limits and versions, if it is whole."""
    job, versions = Job(STEM, b"{}", "{}"), course_versions()
    kept = Kept(tmp_path, versions)
    kept.keep(kept.key(job), Result({"2.1": 1}, whole=True))
    assert Kept(tmp_path, versions).find(kept.key(job)) == Result({"2.1": 1}, whole=True)
    for other in (Job(STEM, b"[]", "{}"), Job(STEM, b"{}", "[]"), Job(STEM, b"{}", "{}", 30)):
        assert kept.find(kept.key(other)) is None
        kept.keep(kept.key(other), Result())
        assert kept.find(kept.key(other)) is None, "what is not whole is tried again"
    for name in ("the course", "the data", "Python", "apache-tvm", "nh3"):
        changed = Kept(tmp_path, versions | {name: "another"})
        assert changed.find(changed.key(job)) is None
        assert differs(versions | {name: "another"}) == \
            f"{name} is {versions[name]} there and another here"
    (tmp_path / f"{kept.key(job)}.json").write_text('{"points": {"2.1"')  # a power cut
    assert kept.find(kept.key(job)) is None
