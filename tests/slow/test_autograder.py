"""Gradescope's autograder, laid out as the service does it, and points as JSON."""

import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
import submissions
from submissions import BOX, OF, POINTS, SOLVED, STEM, answers, wrong_linear

from tools import autograder, handouts
from tools.grading import box
from tools.grading.job import Job, Result

NUMBER = (int, float)
TEST = {"score": NUMBER, "max_score": NUMBER, "status": str, "name": str, "number": str,
        "output": str, "output_format": str, "visibility": str}
WHOLE = {"score": NUMBER, "output": str, "output_format": str, "stdout_visibility": str,
         "tests": list}


@pytest.fixture(scope="module")
def packed() -> bytes:
    """The zip."""
    return autograder.write("02").read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory, packed: bytes) -> Path:
    """What Gradescope makes of the zip, with the environment that setup.sh would fill."""
    place = tmp_path_factory.mktemp("autograder")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(place / "source")
    shutil.copy(place / "source" / "run_autograder", place)
    os.symlink(sys.prefix, place / "source" / "course" / ".venv")  # installed: pip finds all of it
    setup = subprocess.run(["bash", place / "source" / "setup.sh"], capture_output=True, text=True,
                           check=False)
    assert setup.returncode == 0, setup.stdout + setup.stderr
    (place / "results").mkdir()
    return place


def _graded(place: Path, *, within: tuple[str, ...] = ("bash", "run_autograder"),
            **files: nbformat.NotebookNode | bytes) -> dict[str, Any]:
    """Hand files in and run the script as the service does; return results.json."""
    shutil.rmtree(place / "submission", ignore_errors=True)
    (place / "submission").mkdir()
    for name, notebook in files.items():
        data = notebook if isinstance(notebook, bytes) else submissions.raw(notebook)
        (place / "submission" / f"{name}.ipynb").write_bytes(data)
    (place / "results" / "results.json").unlink(missing_ok=True)
    done = subprocess.run(within, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((place / "results" / "results.json").read_text())
    for one, kinds in [(results, WHOLE), *((test, TEST) for test in results["tests"])]:
        assert one.keys() == kinds.keys()
        assert all(isinstance(one[key], kind) for key, kind in kinds.items())
    assert {test["status"] for test in results["tests"]} <= {"passed", "failed"}
    assert {test["visibility"] for test in results["tests"]} == {"visible"}
    assert [test["number"] for test in results["tests"]] == list(POINTS)
    assert [test["max_score"] for test in results["tests"]] == list(POINTS.values())
    assert results["score"] == sum(test["score"] for test in results["tests"])
    return results


@BOX
def test_gradescope_gets_points_and_messages(place) -> None:
    start = time.monotonic()
    results = _graded(place, **{STEM: SOLVED})
    assert results["score"] == OF and results["output"] == ""
    assert all(test["output"].startswith("Exercise 2.") for test in results["tests"])
    assert time.monotonic() - start < 60 * max(1, os.getloadavg()[0]), "for a machine with no load"
    results = _graded(place, my_02_emit_te_ingestion=answers("2.1", _2_2=wrong_linear()))
    assert results["score"] == 1 and "my_02_emit_te_ingestion.ipynb was taken" in results["output"]
    assert results["tests"][1]["status"] == "failed"
    for part in ("input b: ", "expected: ", "got: "):
        assert part in results["tests"][1]["output"]


@BOX
def test_what_is_broken_or_missing_gets_a_line(place) -> None:
    results = _graded(place, **{STEM: b"{"})
    assert results["score"] == 0 and "02: not a notebook (" in results["output"]
    assert {test["output"] for test in results["tests"]} == {"not graded"}
    results = _graded(place)
    assert results["score"] == 0 and results["output"] == "02 was not handed in"


@BOX
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_where_bubblewrap_may_not_run_another_user_does(place) -> None:
    """In a container without bwrap, of which any user may read the course and Python."""
    submission = answers("2.1", _2_2="""
import os, socket
def linear(x, w, b):
    try:
        socket.socket()
    except OSError as error:
        raise ValueError(f"{os.getuid()}, {error.strerror}, {os.environ.get('SECRET')}")""")
    shown = [path for path in (os.path.realpath(sys.base_prefix), os.path.realpath(sys.prefix))
             if path.startswith("/root/")]
    os.chmod(place, 0o755)
    results = _graded(place, within=(
        "bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "--proc",
        "/proc", "--ro-bind", "/dev/null", shutil.which("bwrap") or "", "--tmpfs", "/mnt",
        "--perms", "0755", "--tmpfs", "/root",
        *(word for path in shown for word in ("--ro-bind", path, path)),
        "--bind", str(place), "/mnt/autograder", "env", "SECRET=s3cret", "MLC_DATA=data/stand_in",
        "bash", "/mnt/autograder/run_autograder"), **{STEM: submission})
    assert results["score"] == 1
    assert f"{box.USER}, Operation not permitted, None" in results["tests"][1]["output"]


def test_no_solution_is_in_the_zip_and_its_bytes_are_the_same(packed: bytes) -> None:
    assert autograder.write("02").read_bytes() == packed
    archive = zipfile.ZipFile(io.BytesIO(packed))
    modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert {name for name in modes if "/" not in name} == {"setup.sh", "run_autograder"}
    assert modes["setup.sh"] == modes["run_autograder"] == 0o100755
    assert b"gradescope 02 " in archive.read("run_autograder")
    text = archive.read(f"course/notebooks/{STEM}.ipynb").decode()
    assert handouts.leaks({f"{STEM}.ipynb": text.encode()}) == []
    assert "raise NotImplementedError" in text


def test_others_get_json(tmp_path, monkeypatch, capsys) -> None:
    asked = []

    class Grader:
        def grade(self, job: Job) -> Result:
            asked.append(job)
            return Result({"2.1": 1}, {"2.1": "well done"}, ["02: a note"], whole=True)

    monkeypatch.setattr(autograder, "Grader", Grader)
    (tmp_path / "x.ipynb").write_bytes(submissions.raw(answers("2.1")))
    autograder.main(["json", "02", str(tmp_path / "x.ipynb")])
    graded = json.loads(capsys.readouterr().out)
    assert (graded["points"], graded["of"], graded["notebook"]) == (1, OF, STEM)
    assert graded["exercises"][0] == {"exercise": "2.1", "points": 1, "of": 1,
                                      "message": "well done"}
    assert graded["notes"] == ["02: a note"] and not asked[0].page
    with pytest.raises(SystemExit, match="There is no /nowhere: a notebook, or a folder"):
        autograder.main(["json", "02", "/nowhere"])
    with pytest.raises(SystemExit, match="Which notebook[?] make autograder NB=02"):
        autograder.main(["zip"])
