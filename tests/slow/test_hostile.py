"""Hostile submissions, two at a time: what they may not do, with namespaces and without any.

With namespaces they are graded by workers that make grade starts; without, by those of a cluster.
"""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="Dask is missing: `make test-all` installs it")
import clusters
import psutil
import submissions
from submissions import LINUX, ROOT, STEM, answers

from tools.grading import confine

MARK = f"# stays, of test {os.getpid()}"  # test_stopping's processes have another
# the folder of the first is made, and of the second not: what a user of Ubuntu 24.04 has
WITHOUT = ("crash", "hostile", "stays", "hogs in answer", "shared hogs", "fills", "junk")
NO_NAMESPACES = """
import errno, os, sys
import pyseccomp
rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "unshare")
rules.load()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
ONLY_2_1 = {"2.1": 1}
CASES = [
    ("crash", {"2.1": 1, "2.3": 2}, "02: the answer to 2.2 ended its process (SIGSEGV); 02: this "
                                    "cell ended the kernel (a crash, or too much memory): import"),
    ("contained", {"2.1": 1, "2.3": 2}, ""),
    ("hang", {"2.1": 1, "2.3": 2}, "02: the answer to 2.2 ran for more than 30 seconds"),
    ("hostile", ONLY_2_1, ""),
    ("stays", ONLY_2_1, ""),
    ("four hogs", ONLY_2_1, "took more than 6 GB of memory with all its processes"),
    ("hogs in answer", ONLY_2_1, "02: the answer to 2.2 took more than 6 GB of memory"),
    ("shared hogs", ONLY_2_1, "took more than 6 GB of memory with all its processes"),
    ("nobody's memory", ONLY_2_1, ""), ("spinners", ONLY_2_1, ""),
    ("fills", ONLY_2_1, None),
    ("prints", ONLY_2_1, None),
    ("junk", ONLY_2_1, None),
    ("junk in answer", ONLY_2_1, None),
]


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Path:
    """A folder of the grader's own, with what nobody should get at."""
    place = tmp_path_factory.mktemp("outside")
    (place / "precious").touch(0o644)
    (place / "secret").write_text("the grader's own key")
    return place


def _run(place: Path, outside: Path, namespaces: bool) -> tuple[submissions.Run, list]:
    listeners = submissions.Listeners(outside / f"socket {namespaces}")
    four = submissions.FOUR_HOGS
    notebooks = {
        "crash": answers("2.1", "2.3", _2_2="import ctypes\nctypes.string_at(0)"),
        "contained": answers("2.1", "2.3", _2_2=submissions.LINEAR_OUT_OF_BOUNDS),
        "hang": answers("2.1", "2.3", _2_2="while True:\n    pass"),
        "hostile": submissions.hostile(outside, listeners.port, str(listeners.path)),
        "stays": answers("2.1", own=submissions.STAYS.replace("# stays", MARK)),
        "four hogs": answers("2.1", own=four),
        "hogs in answer": answers("2.1", _2_2=four),
        "shared hogs": answers("2.1", own=submissions.SHARED_HOGS),
        "nobody's memory": answers("2.1", own=submissions.NOBODYS_MEMORY),
        "spinners": answers("2.1", own=submissions.SPINNERS),
        "fills": answers("2.1", own=submissions.FILLS),
        "prints": answers("2.1", own=submissions.PRINTS_FOR_EVER),
        "junk": answers("2.1", own=submissions.JUNK),
        "junk in answer": answers("2.1", _2_2=submissions.JUNK)}
    submissions.write(place, {name: notebook for name, notebook in notebooks.items()
                              if namespaces or name in WITHOUT})
    (place / "hostile" / "helpers.py").write_text("print('my own helpers')")
    (place / "hostile" / "checks").mkdir()
    (place / "hostile" / "checks" / "__init__.py").write_text("print('my own checks')")
    build = ROOT / "build" / f"test_hostile_{namespaces}"  # below the course, as build/ is
    out = outside.parent / f"out{namespaces}"
    words = submissions.command(place, build, 30, "--fresh", "--jobs", "2")
    if namespaces:
        return submissions.run(words, build, out), listeners.close()
    before = [sys.executable, "-c", NO_NAMESPACES]
    with clusters.cluster(outside.parent / "cluster", 2, before) as made:
        graded = submissions.run([*words, *made.options()], build, out, *made.processes)
    return graded, listeners.close()


@pytest.fixture(scope="module", params=[True, False], ids=["namespaces", "without"])
def graded(request, tmp_path_factory, outside) -> tuple[submissions.Run, list]:
    """Grade the submissions once, and some as where a user may have no namespaces."""
    return _run(tmp_path_factory.mktemp("submissions"), outside, request.param)


@LINUX
@pytest.mark.parametrize(("name", "earned", "problem"), CASES, ids=[case[0] for case in CASES])
def test_each_gets_what_it_deserves(graded, name: str, earned: dict, problem: str | None) -> None:
    if name in graded[0].rows:  # without namespaces some are enough
        graded[0].check(name, earned, problem)
    else:
        assert name not in WITHOUT


@LINUX
def test_a_hostile_submission_does_no_harm(graded, outside) -> None:
    graded, called = graded
    assert graded.status == 0 and b"Traceback" not in graded.printed
    assert called == [] and not graded.listened, "it reached a socket, or listened"
    assert (b"does not keep submissions from: ending other processes" in graded.printed) == \
        ("True" not in graded.build.name and confine.landlock_abi() < 6)
    assert (outside / "precious").stat().st_mode & 0o777 == 0o644
    assert not (outside / "escaped").exists()
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19
    page = graded.page("hostile", STEM)
    for words in ("MemoryError", "Permission", "SECRET None", "I may write here"):
        assert words in page, words
    for words in ("the hog has it", "my own helpers", "my own checks", "s3cret", "evil()</script>",
                  "the grader&#39;s own key", "the grader's own key", "it listens",
                  "it is connected", "it lists", "nbformat_minor&quot;: 5"):
        assert words not in page, words
    assert len(page) < 3_000_000, "5 MB were printed"
    assert "the disk is full" not in graded.page("fills", STEM)
    if "spinners" in graded.rows:
        assert "80 have ended" in graded.page("spinners", STEM)
        page = graded.page("nobody's memory", STEM)
        assert "False segment" in page and "PermissionError" in page and "hog has it" not in page


@LINUX
def test_nothing_stays(graded) -> None:
    left = []
    for process in psutil.process_iter():
        line = " ".join(submissions.cmdline(process))
        left += [line] if MARK in line or f"{graded[0].build}/" in line else []
    assert left == [] and not (graded[0].build / "grading").exists()
