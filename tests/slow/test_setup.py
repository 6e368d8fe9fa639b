"""The doctor on broken set-ups; a clone that is updated; the symbols of the newest TVM."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import versions
from tools import doctor, symbols

ROOT = Path(__file__).resolve().parents[2]


def _run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone with the working tree's files, so that uncommitted changes are tested too."""
    place = tmp_path_factory.mktemp("clone") / "course"
    _run("git", "clone", "--quiet", str(ROOT), str(place))
    listed = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes((ROOT / name).read_bytes())
    return place


# ---- make doctor ----


def test_doctor_where_nothing_is_installed(tmp_path: Path, clone: Path) -> None:
    venv.create(tmp_path / "bare")
    result = _run(str(tmp_path / "bare" / "bin" / "python"), "-m", "tools.doctor", cwd=clone)
    assert result.returncode == 1 and "Traceback" not in result.stdout + result.stderr
    lines = result.stdout.splitlines()
    for name, wanted in versions.pins().items():
        assert f"FAIL {name} is not installed, {wanted} is needed: {versions.FIX}" in lines
    assert any(line.startswith("FAIL TVM ModuleNotFoundError") for line in lines)
    assert any(line.startswith("FAIL torch ") for line in lines)
    assert any(line.startswith("FAIL data ") for line in lines)


def test_doctor_here(clone: Path) -> None:
    result = _run(sys.executable, "-m", "tools.doctor", cwd=clone, MLC_DATA="data/stand_in")
    lines = [line for line in result.stdout.splitlines() if line and "things" not in line]
    wrong = [line for line in lines if not line.startswith("OK  ")]
    # the environment of the tests is not the .venv of the clone; all else is as it should be
    assert len(wrong) == 1 and wrong[0].startswith("FAIL environment is not the course's own")
    assert any("compiles and runs a PrimFunc for llvm" in line for line in lines)
    assert any("data are the stand-in" in line for line in lines)
    assert result.returncode == 1 and result.stdout.endswith("begin with the first FAIL.\n")


@pytest.mark.parametrize(("damage", "message"), [
    (lambda raw: raw.write_bytes(raw.read_bytes()[:3000]), "FAIL data The test images cannot be"),
    (lambda raw: raw.unlink(), "no FashionMNIST/raw/t10k-images-idx3-ubyte there. Point MLC_DATA"),
])
def test_doctor_on_damaged_data(tmp_path: Path, damage, message: str) -> None:
    place = shutil.copytree(ROOT / "data" / "stand_in", tmp_path / "data")
    damage(place / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte")
    result = _run(sys.executable, "-m", "tools.doctor", MLC_DATA=str(place))
    assert message in result.stdout and "Traceback" not in result.stdout
    assert result.returncode == 1


@pytest.mark.parametrize(("system", "chip", "good", "words"), [
    ("Linux", "x86_64", True, "Linux x86_64"), ("Linux", "aarch64", True, "aarch64"),
    ("Darwin", "arm64", True, "Darwin arm64"), ("Darwin", "x86_64", False, "no wheel"),
    ("Windows", "AMD64", False, "WSL2")])
def test_doctor_on_platforms(monkeypatch, system, chip, good, words) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    monkeypatch.setattr(doctor.platform, "machine", lambda: chip)
    came, text = doctor.machine()
    assert came is good and words in text and text.startswith("OK" if good else "FAIL")


def test_doctor_on_versions(monkeypatch) -> None:
    monkeypatch.setattr(versions.metadata, "version", lambda name: "2.13.0+cpu")
    assert versions.package("torch", "2.13.0") == (True, "OK   torch 2.13.0+cpu")
    good, text = versions.package("torch", "2.14.0")
    assert not good and text.startswith("FAIL torch is 2.13.0+cpu, the course needs 2.14.0: run")
    monkeypatch.setattr(doctor.sys, "version_info", (3, 14, 0))
    good, text = doctor.python_version()
    assert not good and "install Python 3.11, 3.12 or 3.13" in text


def test_doctor_survives_a_crash_and_a_hang(monkeypatch) -> None:
    good, text = doctor.attempt("TVM", "import os; os.abort()", "do this")
    assert not good and text == "FAIL TVM crashes (signal 6): do this"
    real = subprocess.run

    def impatient(*args, timeout, **options):
        return real(*args, timeout=1, **options)

    monkeypatch.setattr(doctor.subprocess, "run", impatient)
    good, text = doctor.attempt("TVM", "import time; time.sleep(60)", "do this")
    assert not good and "does not answer" in text


def test_the_setup_cell_stops_with_the_doctors_line(clone: Path) -> None:
    requirements = clone / "requirements.txt"
    before = requirements.read_text()
    requirements.write_text(before.replace("apache-tvm==0.27", "apache-tvm==0.99"))
    try:
        result = _run(sys.executable, "-c", "import helpers", cwd=clone, PYTHONPATH=str(clone))
    finally:
        requirements.write_text(before)
    assert "FAIL apache-tvm is 0.27.0.post1, the course needs 0.99.0.post1: run" in result.stderr


# ---- make, where there is no Python ----


def test_a_venv_whose_python_is_gone_is_told(clone: Path) -> None:
    ready = _run("make", "-np", "doctor", cwd=clone).stdout
    name = next(line.split(":")[0] for line in ready.splitlines()
                if line.startswith(".venv/.ready-") and ": requirements.txt" in line)
    (clone / ".venv" / "bin").mkdir(parents=True)
    (clone / ".venv" / "bin" / "python").symlink_to("/nowhere/python3")
    (clone / name).touch()
    try:
        result = _run("make", "data", cwd=clone)
        told = _run("make", "doctor", cwd=clone)
    finally:
        shutil.rmtree(clone / ".venv")
    assert result.returncode and "The Python in .venv does not run" in result.stdout
    assert "rm -r .venv" in result.stdout and "Traceback" not in result.stdout + result.stderr
    assert "FAIL environment .venv has no Python that runs" in told.stdout


def test_a_python_that_is_none_is_told(clone: Path) -> None:
    result = _run("make", "data", "PYTHON=/nonexistent", cwd=clone)
    assert result.returncode and "/nonexistent is no Python that runs" in result.stdout
    assert not (clone / ".venv").exists()


# ---- updating a clone ----


def _git(place: Path, *words: str) -> None:
    result = _run("git", "-c", "user.name=x", "-c", "user.email=x@x", *words, cwd=place)
    assert result.returncode == 0, result.stderr


def test_a_pull_loses_nothing_and_fresh_keeps_the_old_copy(tmp_path: Path, clone: Path) -> None:
    _git(clone, "checkout", "-q", "-B", "teachers")
    _git(clone, "add", "-A")
    _git(clone, "commit", "-q", "--allow-empty", "-m", "as it is now")
    _run("git", "clone", "--quiet", str(clone), str(tmp_path / "mine"))
    mine = tmp_path / "mine"
    fill = (sys.executable, "-m", "tools.student")
    assert "03_extern_library_calls.ipynb: made" in _run(*fill, cwd=mine).stdout
    work = mine / "work" / "03_extern_library_calls.ipynb"
    work.write_text(work.read_text().replace("raise NotImplementedError", "return 'my answer'"))
    answered = work.read_text()

    master = clone / "notebooks" / "03_extern_library_calls.ipynb"
    master.write_text(master.read_text().replace("# Calling", "# Better: calling"))
    (clone / "notebooks" / "09_new.ipynb").write_text(master.read_text())
    _git(clone, "add", "-A")
    _git(clone, "commit", "-q", "-m", "a better notebook, and a new one")
    _git(mine, "pull", "--quiet")
    assert "# Better: calling" in (mine / "notebooks" / work.name).read_text()
    assert _run(*fill, cwd=mine).stdout == "09_new.ipynb: made\n"
    assert work.read_text() == answered

    said = _run(*fill, "03", cwd=mine).stdout
    assert "your old copy is now 03_extern_library_calls.old1.ipynb" in said
    assert (work.parent / "03_extern_library_calls.old1.ipynb").read_text() == answered
    assert "# Better: calling" in work.read_text() and "my answer" not in work.read_text()
    _run(*fill, "03", cwd=mine)
    assert (work.parent / "03_extern_library_calls.old2.ipynb").exists()
    nobody = _run(*fill, "77", cwd=mine)
    assert nobody.returncode == 1 and "There is no notebook 77" in nobody.stderr


# ---- the newest TVM ----


def test_every_symbol_of_the_course_resolves() -> None:
    assert symbols.gone() == []


def test_a_symbol_that_is_gone_is_named() -> None:
    used = symbols.names("""
import tvm, tvm.relax.op as op, numpy as np
from tvm import relax
from tvm.s_tir import meta_schedule as ms
relax.vm.build(mod); tvm.nd.array(x); ms.tune_tir; op.add; np.zeros(3); te.compute
""")
    assert used == {"tvm", "tvm.relax.op", "tvm.relax.op.add", "tvm.relax", "tvm.relax.vm",
                    "tvm.relax.vm.build", "tvm.nd", "tvm.nd.array", "tvm.s_tir.meta_schedule",
                    "tvm.s_tir.meta_schedule.tune_tir"}
    everywhere = {name for source in symbols.sources().values() for name in symbols.names(source)}
    assert {"tvm.s_tir.meta_schedule.database.JSONDatabase", "tvm.te.compute"} <= everywhere
    assert symbols.resolves("tvm.relax")
    assert not symbols.resolves("tvm.relax.vm.build") and not symbols.resolves("tvm.nd.array")
