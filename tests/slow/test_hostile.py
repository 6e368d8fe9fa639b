"""Hostile submissions, two at a time: what they may not do, and that each gets what it earned."""

import os
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
import psutil
import submissions
from submissions import BOX, ROOT, STEM, answers

MARK = f"# stays, of test {os.getpid()}"  # test_stopping's processes have another
EARNED = {"2.1": 1, "2.3": 2}
CASES = {
    "crash": ("import ctypes\nctypes.string_at(0)", "",
              "02: the answer to 2.2 ended its process (SIGSEGV)"),
    "contained": (submissions.LINEAR_OUT_OF_BOUNDS, "", ""),
    "hang": ("while True:\n    pass", "",
             "0 seconds; "),  # computing, or where the machine is busy waiting for it
    "waits": ("import time\ntime.sleep(1000)", "", "02: the answer to 2.2 waited 20 seconds"),
    "exit": ("import os\nos._exit(0)", "", None),
    "kill all": ("import os\nos.kill(-1, 9)", "", "02: the answer to 2.2 ended its process"),
    "stop all": ("import os, time\nos.kill(-1, 19)\ntime.sleep(1000)", "", None),
    "bomb": (submissions.BOMB, "", "02: the answer to 2.2 started more than 100 processes"),
    "bomb in a cell": ("", submissions.BOMB, "02: a cell started more than 100 processes"),
    "leaks": (submissions.LEAKS, "", ""), "full": (submissions.FULL, "", ""),
    "lowered": (submissions.LOWERED, "", ""), "watched": (submissions.WATCHED, "", ""),
    "foreign": (submissions.FOREIGN, "", "02: the answer to 2.2 ended its process (SIGSYS)"),
    "threads": ("", submissions.THREADS, ""),
    "hogs": ("", submissions.FOUR_HOGS, "02: a cell took more than 6 GB of memory with all its"),
    "hogs in answer": (submissions.FOUR_HOGS, "", "02: the answer to 2.2 took more than 6 GB"),
    "stays": ("", submissions.STAYS.replace("# stays", MARK), ""),
    "fills": ("", submissions.FILLS, ""), "prints": ("", submissions.PRINTS_FOR_EVER, ""),
    "junk": ("", submissions.JUNK, None), "junk in answer": (submissions.JUNK, "", None),
    "signals": ("", submissions.SIGNALS, ""), "hostile": ("", "", ""),
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Path:
    """A folder of the grader's own, with what nobody should get at."""
    place = tmp_path_factory.mktemp("outside")
    (place / "precious").touch(0o644)
    (place / "secret").write_text("the grader's own key")
    return place


def _kernels() -> list[str]:
    """What may stay behind in the kernel: System V's objects, keys."""
    return [Path("/proc/sysvipc", name).read_text() for name in ("msg", "sem", "shm")] + [
        line for line in Path("/proc/keys").read_text().splitlines() if "mlc" in line]


@pytest.fixture(scope="module")
def graded(tmp_path_factory, outside) -> tuple[submissions.Run, list, list[str]]:
    place, before = tmp_path_factory.mktemp("submissions"), _kernels()
    listeners = submissions.Listeners(outside / "socket")
    submissions.write(place, {
        name: submissions.hostile(outside, listeners.port, str(listeners.path), *EARNED)
        if name == "hostile" else answers(*EARNED, own=own, **{"_2_2": answer} if answer else {})
        for name, (answer, own, _) in CASES.items()})
    (place / "hostile" / "helpers.py").write_text("print('my own helpers')")
    (place / "hostile" / "checks").mkdir()
    (place / "hostile" / "checks" / "__init__.py").write_text("print('my own checks')")
    build = ROOT / "build" / "test_hostile"  # below the course, as build/ is
    run = submissions.run(submissions.command(place, build, 20, "--fresh", "--jobs", "2"), build)
    return run, listeners.close(), [before, _kernels()]


@BOX
@pytest.mark.parametrize("name", CASES)
def test_each_gets_what_it_earned(graded, name: str) -> None:
    graded[0].check(name, EARNED, CASES[name][2])


@BOX
def test_a_hostile_submission_does_no_harm(graded, outside) -> None:
    graded, called, (before, after) = graded
    assert graded.status == 0 and b"Traceback" not in graded.printed
    assert graded.printed.startswith(b"bwrap keeps submissions in; ")
    assert called == [], "it reached a socket"
    assert before == after, "something stayed in the kernel"
    assert (outside / "precious").stat().st_mode & 0o777 == 0o644
    assert not (outside / "escaped").exists()
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19
    page = graded.page("hostile", STEM)
    for words in ("MemoryError", "Read-only file system", "No such file", "Operation not permitted",
                  "queue -1 semaphores -1 segment -1", "keys (-1, 1) (-1, 1)",
                  "namespaces [-1, -1, -1] -1", "SECRET None", "I may write here"):
        assert words in page, words
    for words in ("DONE", "my own helpers", "my own checks", "s3cret", "the grader&#39;s own key",
                  "the grader's own key", "nbformat_minor&quot;: 5", "/tests", "/notebooks'"):
        assert words not in page, words
    assert len(page) < 3_000_000, "5 MB were printed"
    assert "the disk is full" not in graded.page("fills", STEM)
    threads = graded.page("threads", STEM).partition("threads: ")[2]
    assert 50 < int(threads[:3]) < 200, threads[:20]
    page = graded.page("signals", STEM)
    assert "it says File too large" in page and "it says Broken pipe" in page


@BOX
def test_nothing_stays(graded) -> None:
    left = []
    for process in psutil.process_iter():
        line = " ".join(submissions.cmdline(process))
        left += [line] if MARK in line or f"{graded[0].build}/" in line else []
    assert left == [] and not (graded[0].build / "grading").exists()


@BOX
def test_a_fork_bomb_is_over_within_seconds(tmp_path) -> None:
    """Also for the rest of the machine: another program is served meanwhile, and afterwards."""
    submissions.write(tmp_path, {"bomb": answers("2.1", _2_2=submissions.BOMB)})
    build, most = ROOT / "build" / "test_bomb", 0
    with subprocess.Popen(submissions.command(tmp_path, build, 20, "--fresh"), cwd=ROOT,
                          stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, len(submissions.family(process)))
            start = time.monotonic()
            subprocess.run(["true"], check=True)
            assert time.monotonic() - start < 10
            time.sleep(0.2)
    assert 50 < most < 450, "it was one, and each box has 200 at most"
    assert submissions.rows(build)["bomb"]["total"] == "1"
