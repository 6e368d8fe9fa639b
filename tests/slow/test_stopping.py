"""make grade when it is stopped: at once, nothing is left running, and the rows above stay."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
import psutil
import submissions
from submissions import BOX, ROOT, answers, family, rows

IN_THE_CELL = "in the cell"
TELLS = f"open('/proc/self/comm', 'w').write({IN_THE_CELL!r})\n"
COMPUTES = TELLS + "while True:\n    pass"
STAYS = submissions.STAYS + TELLS + "time.sleep(600)"


def _rows_so_far(build: Path) -> bool:
    with contextlib.suppress(OSError, KeyError):
        return bool(rows(build))
    return False


def _in_the_cell(process: subprocess.Popen) -> bool:
    """Whether the cell of the one that hangs runs: it gave its process another name."""
    with contextlib.suppress(psutil.Error):
        return any(below.name() == IN_THE_CELL for below in family(process))
    return False


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # whom the machine's own init takes in may be a zombie
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@BOX
@pytest.mark.parametrize(("number", "own", "jobs"), [
    (signal.SIGINT, STAYS, 2), (signal.SIGTERM, COMPUTES, 1), (signal.SIGKILL, STAYS, 2)],
    ids=["SIGINT, daemons", "SIGTERM, computing", "SIGKILL, daemons"])
def test_a_stopped_grader_leaves_nothing(tmp_path: Path, number: signal.Signals, own: str,
                                         jobs: int) -> None:
    build = ROOT / "build" / f"test_stopping_{number.name}_{jobs}"
    shutil.rmtree(build, ignore_errors=True)
    submissions.write(tmp_path, {"a first": answers(), "b hangs": answers(own=own)})
    words = submissions.command(tmp_path, build, 90, "--jobs", str(jobs))
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        end = time.monotonic() + 300
        while not _rows_so_far(build) or not _in_the_cell(process):
            assert time.monotonic() < end, "nothing is graded"
            assert process.poll() is None, process.stdout and process.stdout.read().decode()
            time.sleep(0.1)
        running = family(process)
        assert len(running) >= 4
        start = time.monotonic()
        if number == signal.SIGINT:  # as a terminal sends it: to all that it started
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(20)
        while left := list(filter(_runs, running)):
            assert time.monotonic() - start < 10, left
            time.sleep(0.1)
        printed = process.stdout.read().decode()
    assert list(rows(build)) == ["a first"], "who was in hand has no row"
    if number != signal.SIGKILL:
        assert process.returncode == 130 and "Stopped." in printed and "Traceback" not in printed


