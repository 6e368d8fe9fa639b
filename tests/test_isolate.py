"""checks.run.isolate: what a child may take, and what is said of one that gives nothing."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from course.checks.run import check
from course.checks.run.isolate import GIGABYTE, Child, Ended, Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing forks")


def _fill() -> None:
    every = []
    while True:
        every.append(b"x" * 1_000_000)


def _fork() -> None:
    for _ in range(8):
        if not os.fork():
            time.sleep(60)
            os._exit(0)
    time.sleep(60)


def _leave_one_behind() -> None:
    if not os.fork():
        os.setsid()
        time.sleep(3)
    os._exit(3)


@pytest.mark.parametrize(("function", "limits", "why"), [
    (_fill, Limits(memory=200_000_000), "memory"),
    (_fork, Limits(processes=5), "processes"),
    (lambda: time.sleep(60), Limits(wall=0.5), "wall"),
    (lambda: time.sleep(60), Limits(asleep=0.5), "asleep"),
    (lambda: os._exit(3), Limits(), "code 3"),
    (lambda: os.kill(os.getpid(), signal.SIGTERM), Limits(), "code -15"),
    (_leave_one_behind, Limits(), "code 3"),
    (lambda: 1 / 0, Limits(), "raised ZeroDivisionError: division by zero"),
    (lambda: "x" * 2000, Limits(given=1000), "strange"),
    (lambda: os.closerange(3, 4096), Limits(), "code 1"),
])
def test_why_nothing_came(function: Callable, limits: Limits, why: str) -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(Ended, match=why):
        Child(function, limits=limits).result()
    time.sleep(0.1)
    left = [process for process in psutil.Process().children(recursive=True)
            if process not in before and process.status() != psutil.STATUS_ZOMBIE]
    assert not left


def test_a_child_has_no_file_of_ours(tmp_path: Path) -> None:
    def ours() -> list[str]:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        return [name for name in found if name.startswith(str(tmp_path))]

    with (tmp_path / "open").open("w"):
        assert ours() == [str(tmp_path / "open")]
        assert Child(ours).result() == []


def test_torch_computes_in_a_child_after_it_did_in_several_threads_here() -> None:
    def total() -> float:
        return torch.ones(1_000_000).clone().sum().item()

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert total() == 1e6 and Child(total, limits=Limits(asleep=60, wall=120)).result() == 1e6
    finally:
        torch.set_num_threads(threads)


def test_several_work_at_once() -> None:
    children = {Child(lambda number=number: number): number for number in range(3)}
    while children:
        for child in select.select(list(children), [], [])[0]:
            assert child.result() == children.pop(child)


def test_a_verdict_given_while_its_child_ends_is_read(monkeypatch) -> None:
    """Between two looks at the pipe: what is printed keeps the parent busy meanwhile."""
    def prints_and_ends() -> str:
        os.write(1, b"printed")
        time.sleep(0.2)
        return "given"

    listen = Child._listen

    def slowly(child: Child) -> bool:
        time.sleep(0.8)
        return listen(child)

    monkeypatch.setattr(Child, "_listen", slowly)
    child = Child(prints_and_ends)
    assert child.result() == "given" and child.printed == b"printed"


def test_a_check_that_fills_the_memory_is_told(monkeypatch) -> None:
    monkeypatch.setattr(check, "Limits", lambda **given: Limits(**given, memory=GIGABYTE // 5))
    passed, (expected, came, _) = check.isolated(_fill, 20)
    assert not passed and expected == "an answer that fits in memory", came
    assert came == "more than 0.2 GB, or 100 processes"


def test_no_test_is_kept_on_one_cpu() -> None:
    """Where the number of TVM's threads is set, TVM also binds the process to the first CPU."""
    said = subprocess.run(
        [sys.executable, "-c", "import os, tvm\n"
         "tvm.get_global_func('runtime.config_threadpool')(1, 1)\n"
         "print(len(os.sched_getaffinity(0)))"], capture_output=True, text=True, check=True,
        env={**os.environ, "TVM_NUM_THREADS": "1"})
    assert int(said.stdout) == len(os.sched_getaffinity(0))
