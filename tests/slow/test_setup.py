"""The doctor on broken set-ups; which torch comes; updating a clone; the newest TVM's symbols."""

import contextlib
import io
import itertools
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import venv
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import symbols
import torch

from course import present
from data import versions
from tools import doctor, handouts, install

ROOT = Path(__file__).resolve().parents[2]
TORCH = versions.pins()["torch"]


def _run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


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
    whole, _, used = result.stdout.partition("Optional tools, which the course uses")
    lines = whole.splitlines()
    assert len([line for line in used.splitlines() if line[:5] in ("yes  ", "no   ")]) \
        == len(present.KNOWN)
    wrong = [line for line in lines if line.startswith("FAIL")]
    # the environment of the tests is not the .venv of the clone; all else is as it should be
    assert len(wrong) == 1 and wrong[0].startswith("FAIL environment is not the course's own")
    assert any("compiles and runs a PrimFunc for llvm" in line for line in lines)
    assert any("data are the stand-in" in line for line in lines)
    build = " import; the " + ("build for CUDA" if torch.version.cuda else "CPU build")
    assert any(line.startswith(f"OK   torch {TORCH}") and build in line for line in lines)
    assert result.returncode == 1 and result.stdout.endswith("start with the first FAIL.\n")


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
    monkeypatch.setattr(versions.metadata, "version", lambda name: "1.2+cpu")
    assert versions.package("torch", "1.2") == (True, "OK   torch 1.2+cpu")
    good, text = versions.package("torch", "1.3")
    assert not good and text.startswith("FAIL torch is 1.2+cpu, the course needs 1.3: run")
    for version in ((3, 10), (3, 15)):
        monkeypatch.setattr(doctor.sys, "version_info", (*version, 0))
        good, text = doctor.python_version()
        assert not good and "install Python 3.11 to 3.14" in text


def test_doctor_survives_a_crash_and_a_hang(monkeypatch) -> None:
    checks = {"crashes": "os.abort()", "hangs": "__import__('time').sleep(60)",
              "leaves": "os._exit(3)", "raises": "1 / 0", "works": "'as it should'"}
    monkeypatch.setattr(doctor, "PATIENCE", 3.0)
    real = subprocess.Popen

    def start(command: list[str], **options) -> subprocess.Popen:
        made = ", ".join(f"{name}=lambda: {code}" for name, code in checks.items())
        code = command[2].replace("doctor; ", f"doctor; import os; vars(doctor).update({made}); ")
        return real([*command[:2], code], **options)

    monkeypatch.setattr(doctor.subprocess, "Popen", start)
    tried = [(name, type(name, (), {}), "do this") for name in checks]
    assert [*doctor.attempts(tried)] == [
        (False, "FAIL crashes crashes (signal 6): do this"),
        (False, "FAIL hangs does not answer within two minutes: do this"),
        (False, "FAIL leaves says nothing: do this"),
        (False, "FAIL raises ZeroDivisionError: division by zero: do this"),
        (True, "OK   works as it should")]


def test_the_setup_cell_stops_with_the_doctors_line(clone: Path) -> None:
    requirements = clone / "requirements.txt"
    before = requirements.read_text()
    pinned = versions.pins()["apache-tvm"]
    requirements.write_text(before.replace(f"apache-tvm=={pinned}", "apache-tvm==99.0"))
    try:
        result = _run(sys.executable, "-c", "import helpers", cwd=clone, PYTHONPATH=str(clone))
    finally:
        requirements.write_text(before)
    assert f"FAIL apache-tvm is {pinned}, the course needs 99.0: run" in result.stderr


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


# ---- the small torch by default ----

PINS = {name: versions.pins()[name] for name in ("torch", "torchvision", "numpy")}
OFFER = {"cpu": "+cpu", "pypi": ""}  # PyTorch's own index, and pip's; both have all packages


def _wheel(name: str, version: str) -> bytes:
    """Return a wheel with nothing in it but its name, and that it needs NumPy."""
    made, info = io.BytesIO(), f"{name}-{version}.dist-info"
    needs = "" if name == "numpy" else "Requires-Dist: numpy\n"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\n"
                                             f"Version: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\n"
                                          "Root-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return made.getvalue()


class Indexes(BaseHTTPRequestHandler):
    """Both indexes, at /cpu and /pypi; each path that was asked for is noted."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        _, index, name, *file = self.path.split("/")
        version = PINS.get(name, "0") + OFFER.get(index, "")
        wheel = f"{name}-{version}-py3-none-any.whl"
        found = index in OFFER and name in PINS
        data = _wheel(name, version) if any(file) else f'<a href="{wheel}">{wheel}</a>'.encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def indexes(monkeypatch) -> Iterator[tuple[str, list[str]]]:
    """The address of a server with both indexes, pip's one set, and what it was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Indexes) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/pypi")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield url, server.asked
        server.shutdown()


def _serve(answer: bytes) -> Iterator[str]:
    """Give the address of a server that accepts and sends these bytes, one each 0.2 s, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def drip() -> None:
            with contextlib.suppress(OSError):
                talk, _ = listening.accept()
                for byte in itertools.chain(answer, itertools.repeat(10) if answer else ()):
                    talk.sendall(bytes([byte]))
                    time.sleep(0.2)
                time.sleep(60)

        threading.Thread(target=drip, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/cpu"


@pytest.fixture(params=["silent", "drips", "refuses", "no name", "404"])
def no_index(request, indexes, monkeypatch) -> Iterator[str]:
    """The address of an index that does not answer, each in its way."""
    match request.param:
        case "silent":
            yield from _serve(b"")
        case "drips":  # each byte comes in time
            yield from _serve(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 99)
        case "refuses":
            with socket.create_server(("127.0.0.1", 0)) as listening:
                port = listening.getsockname()[1]
            yield f"http://127.0.0.1:{port}/cpu"
        case "no name":
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(60))
            yield "http://index.invalid/cpu"
        case "404":
            yield f"{indexes[0]}/gone"


def test_an_index_is_given_up_in_time(no_index: str) -> None:
    began = time.monotonic()
    assert not install.answers(no_index)
    assert time.monotonic() - began < install.PATIENCE + 0.8 and install.PATIENCE == 3


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """A handout, with three pins and a target that only installs."""
    place = tmp_path_factory.mktemp("handout")
    for name, data in handouts.contents([]).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    (place / "requirements.txt").write_text(
        "".join(f"{name}=={version}  # why\n" for name, version in PINS.items()))
    with (place / "Makefile").open("a") as makefile:
        makefile.write("\nready: $(READY)\n")
    return place


@pytest.fixture
def handout(unpacked: Path) -> Iterator[Path]:
    """It, with nothing installed."""
    yield unpacked
    if (unpacked / ".venv").is_symlink():
        (unpacked / ".venv").unlink()
    shutil.rmtree(unpacked / ".venv", ignore_errors=True)


def _set_up(handout: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """Type make's target that only installs, with a Python outside of any environment."""
    python = getattr(sys, "_base_executable", sys.executable)
    return _run("make", "ready", f"PYTHON={python}", *words, cwd=handout, **environment)


def _installed(handout: Path) -> set[str]:
    return {path.name.removesuffix(".dist-info") for path in handout.glob(
        ".venv/lib/python*/site-packages/*.dist-info") if path.name.split("-")[0] in PINS}


CUDA = {f"{name}-{version}" for name, version in PINS.items()}
CPU = {name + "+cpu" * name.startswith("torch") for name in CUDA}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the index is not asked")
def test_the_small_torch_is_the_default_and_gpu_asks_for_the_other(handout, indexes) -> None:
    url, asked = indexes
    result = _set_up(handout, TORCH_INDEX=f"{url}/cpu")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"torch {TORCH}: the CPU build, about 0.2 GB to download, from {url}/cpu" \
        in result.stdout
    assert _installed(handout) == CPU
    # nothing but torch is looked for at PyTorch's index, and torch nowhere else
    assert {path.split("/")[2] for path in asked if path.startswith("/cpu")} \
        == {"torch", "torchvision"}
    assert {path.split("/")[2] for path in asked if path.startswith("/pypi")} == {"numpy"}

    asked.clear()
    again = _set_up(handout, TORCH_INDEX=f"{url}/cpu")
    assert again.returncode == 0 and "Installing" not in again.stdout and not asked

    for mark in handout.glob(".venv/.ready-*"):  # GPU=1 makes both
        mark.unlink()
    result = _set_up(handout, "GPU=1", TORCH_INDEX=f"{url}/cpu")
    assert "as GPU=1 asks; on Linux that is the CUDA build, several GB" in result.stdout
    assert _installed(handout) == CUDA and not any(path.startswith("/cpu") for path in asked)
    for words in ((), ("GPU=1",)):  # the next command, without GPU=1, leaves it
        again = _set_up(handout, *words, TORCH_INDEX=f"{url}/cpu")
        assert again.returncode == 0 and "Installing" not in again.stdout

    pins = handout / "requirements.txt"
    before = pins.read_text()
    pins.write_text(before + "# another pin\n")
    try:  # what is there already is not asked for anew
        result = _set_up(handout, TORCH_INDEX=f"{url}/cpu")
    finally:
        pins.write_text(before)
    assert result.stdout.startswith("Installing") and "torch 2" not in result.stdout
    assert _installed(handout) == CUDA


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the index is not asked")
def test_where_pytorchs_index_is_silent_torch_comes_from_pips(handout, indexes) -> None:
    _, asked = indexes
    for silent in _serve(b""):
        result = _set_up(handout, TORCH_INDEX=silent)
        assert result.returncode == 0, result.stdout + result.stderr
        assert f"torch {TORCH}: from pip's own index, since {silent} does not answer within 3 " \
            "seconds; on Linux that is mostly the CUDA build, several GB" in result.stdout
    assert _installed(handout) == CUDA and asked


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the index is not asked")
def test_an_index_without_that_torch_is_told_and_gpu_is_named(handout, indexes) -> None:
    url, _ = indexes
    pins = handout / "requirements.txt"
    before = pins.read_text()
    pins.write_text(before.replace(TORCH, "99.0"))
    try:
        result = _set_up(handout, TORCH_INDEX=f"{url}/cpu")
    finally:
        pins.write_text(before)
    assert result.returncode and "Traceback" not in result.stderr
    assert "torch could not be installed: see the lines above. Type the command again, or add " \
        "GPU=1" in result.stderr
    assert not list(handout.glob(".venv/.ready-*"))


@pytest.mark.parametrize("kind", ["link", "folder", "nothing"])
def test_a_failed_set_up_removes_only_what_it_made(tmp_path, handout, kind: str) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kept").touch()
    (tmp_path / "broken").mkdir()  # a Python whose module venv begins, and fails as Debian's does
    (tmp_path / "broken" / "venv.py").write_text(
        "import os, sys\nif __name__ == '__main__':\n"
        "    os.makedirs(sys.argv[1] + '/bin', exist_ok=True)\n"
        "    print('ensurepip is not available')\n    sys.exit(1)\n")
    venv_of_mine = handout / ".venv"
    if kind == "link":
        venv_of_mine.symlink_to(tmp_path / "theirs")
    elif kind == "folder":
        shutil.copytree(tmp_path / "theirs", venv_of_mine)
    result = _set_up(handout, PYTHONPATH=str(tmp_path / "broken"))
    assert result.returncode and "Traceback" not in result.stderr
    assert "This Python cannot make a virtual environment (ensurepip is not available). " \
        in result.stderr and "sudo apt install python3-venv" in result.stderr
    assert ("What was in .venv is still there" in result.stderr) == (kind != "nothing")
    assert venv_of_mine.is_symlink() == (kind == "link")
    assert (venv_of_mine / "kept").exists() == (kind != "nothing") == os.path.lexists(venv_of_mine)


def test_while_pip_works_one_sees_it(tmp_path) -> None:
    assert install.TICK == 10
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\necho \"$@\"\nsleep 1.3\n")
    slow.chmod(0o755)
    command = [sys.executable, "-c", "import sys; from tools import install; install.TICK = 0.5; "
                                     f"sys.exit(not install.pip({str(slow)!r}, 'x'))"]
    piped = _run(*command)
    assert piped.returncode == 0 and " --quiet x\n" in piped.stdout
    assert len(re.findall(r"pip works: \d s\n", piped.stdout)) == 2

    ours, theirs = pty.openpty()
    subprocess.run(command, cwd=ROOT, stdout=theirs, check=True)
    seen = os.read(ours, 1000).decode()
    os.close(ours)
    os.close(theirs)
    assert "install" in seen and "--quiet" not in seen and "pip works" not in seen  # its own bars

    slow.write_text("#!/bin/sh\nexit 1\n")
    assert _run(*command).returncode == 1


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

    # a copy of the term before, when checks and plots were beside helpers.py
    older = answered.replace("from course import checks, plots", "import checks\\nimport plots")
    work.write_text(older)
    assert _run(*fill, cwd=mine).stdout == f"{work.name}: it imports from course/ now\n"
    followed = "".join(json.loads(work.read_text())["cells"][1]["source"])
    assert "from course import checks\nfrom course import plots" in followed
    answered = work.read_text()
    assert "my answer" in answered

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
    # in a process of its own: other tests put something else in the place of modules
    done = _run(sys.executable, "-m", "tests.symbols")
    assert done.stdout.endswith("Every TVM symbol of the course is there.\n"), done.stderr


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


# ---- a container that grades ----


def test_what_an_image_is_built_with(clone: Path, tmp_path: Path) -> None:
    """The commands of instructor/Containerfile, where the packages are there already."""
    lines = (clone / "instructor" / "Containerfile").read_text(encoding="utf-8").splitlines()
    said = [line.split(" ", 1) for line in lines if line[0] != "#"]
    assert dict(said)["FROM"].removeprefix("docker.io/library/python:") in versions.PYTHONS
    place = tmp_path / "packages"
    place.mkdir()
    (tmp_path / "venv").symlink_to(sys.prefix)
    for name, words in said:
        if name == "COPY":
            *sources, target = words.split()
            (place / target).mkdir(parents=True, exist_ok=True)
            for source in map(clone.joinpath, sources):
                copy = shutil.copytree if source.is_dir() else shutil.copy
                copy(source, place / target, **{"dirs_exist_ok": True} if source.is_dir() else {})
    assert not list(place.rglob("*.ipynb"))
    built = _run("sh", "-ec", dict(said)["RUN"].replace("/venv", str(tmp_path / "venv")).replace(
        "/packages", str(place)), cwd=place, PATH=f"{sys.prefix}/bin:{os.environ['PATH']}")
    assert built.returncode == 0, built.stdout + built.stderr
    assert not list(place.iterdir())
