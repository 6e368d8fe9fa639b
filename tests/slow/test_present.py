"""What the course uses where it is here and works: absent, found and failing, half installed."""

import ast
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from relax_models import relax_model
from tvm import relax, te

import helpers
from course import gpu, kernels, present
from course.gpu import compiled
from course.ship import native, wasm
from data.store import ROOT, CourseError
from data.versions import PYTHONS
from tools import doctor
from tools.site import project

PROGRAMS = ("gcc", "g++", "cc", "c++", "clang", "clang++", "aarch64-linux-gnu-gcc", "qemu-aarch64",
            "wasm-ld", "node", "git", "tar")
# what a stand-in does, and what is said of it
WAYS = {"fails": ("exit 1", "it ended with 1"),
        "says why": ("echo 'no developer tools were found' >&2; exit 1", "no developer tools"),
        "does nothing": ("exit 0", ""), "says something else": ("echo hello", ""),
        "hangs": (f"{shutil.which('sleep')} 60 & wait", "is still running after 0.5 seconds")}
OF_PROGRAMS = ("c", "shared", "c++", "c++20", "wasm", "node", "arm64", "git", "tar")
TRIALS = {"onnxruntime": present.ONNX, "openvino": present.OPENVINO, "gpu": present.GPU,
          "nvrtc": present.NVRTC}
OF_PYTHON = {"onnxruntime": ("onnxruntime", "onnx", "onnxscript"), "gpu": ("tvm",),
             "openvino": ("openvino", "onnx", "onnxscript"), "nvrtc": ("nvidia", "cuda", "tvm")}


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch):
    """No kind was tried yet, nor is it after the test; and two packages are not installed."""
    for name in ("ziglang", "nvidia"):
        monkeypatch.setitem(sys.modules, name, None)
    present.tool.cache_clear()
    yield
    present.tool.cache_clear()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the whole PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def stand_in(path: Path, does: str, *names: str) -> None:
    for name in names or PROGRAMS:
        (path / name).write_text(f"#!/bin/sh\n{does}\n")
        (path / name).chmod(0o755)


# ---- one kind -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OF_PROGRAMS)
def test_absent(kind: str, path: Path) -> None:
    found = present.tool(kind)
    assert not found and found.command == ()
    known = present.KNOWN[kind]
    assert found.said == f"{known.thing}: not here. To get it: {', or '.join(known.get)}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OF_PROGRAMS)
def test_found_and_failing(kind: str, way: str, path: Path, monkeypatch: pytest.MonkeyPatch
                           ) -> None:
    does, says = WAYS[way]
    stand_in(path, does)
    if way == "hangs":
        monkeypatch.setattr(present, "PATIENCE", 0.5)
    found = present.tool(kind)
    assert found.said.count("is still running") == (way == "hangs"), "no other is waited for"
    assert not found and f"{present.KNOWN[kind].thing}: does not work here (" in found.said
    assert says in found.said and "\n" not in found.said
    assert found.said.endswith(f"To get it: {', or '.join(present.KNOWN[kind].get)}")


@pytest.mark.parametrize("way", ["fails to import", "crashes", "is empty", "hangs"])
@pytest.mark.parametrize("kind", OF_PYTHON)
def test_half_installed(kind: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                        ) -> None:
    text = {"fails to import": "raise RuntimeError('half installed')", "is empty": "",
            "crashes": "import os; os.abort()", "hangs": "import time; time.sleep(60)"}[way]
    for name in OF_PYTHON[kind]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text if name != "nvidia" else "")
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "nvidia" / "cu13").mkdir(parents=True, exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(present.ctypes, "CDLL", lambda _driver: None)  # of a GPU
    if way == "hangs":
        monkeypatch.setattr(present, "PATIENCE", 1.0)
        monkeypatch.setitem(present.SLOW, sys.executable, 1.0)
    found = present.tool(kind)
    assert not found and found.said.startswith(f"{present.KNOWN[kind].thing}: does not work here (")
    assert {"fails to import": "RuntimeError: half installed", "crashes": "it ended with -6",
            "is empty": "", "hangs": "is still running after 1 seconds"}[way] in found.said
    assert "\n" not in found.said and "Traceback" not in found.said


@pytest.mark.parametrize("kind", OF_PYTHON)
def test_a_trial_imports_what_it_tries_and_no_more(kind: str) -> None:
    """The doctor runs them all: with torch's exporter in one, it took twice as long."""
    taken = {(getattr(node, "module", None) or name.name).partition(".")[0]
             for node in ast.walk(ast.parse(TRIALS[kind]))
             if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names}
    assert taken - sys.stdlib_module_names <= {*OF_PYTHON[kind], "numpy"}


@pytest.mark.parametrize("kind", ["c", "shared", "c++20", "wasm", "arm64"])
@pytest.mark.parametrize("program", ["raise SystemExit(1)", "", "import time; time.sleep(60)",
                                     None])
def test_ziglang_that_does_not_work(kind: str, program: str | None, path: Path, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()
    if program is not None:  # else the module is there, and its program is not
        (tmp_path / "ziglang" / "__main__.py").write_text(program)
    monkeypatch.delitem(sys.modules, "ziglang")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if "sleep" in (program or ""):
        monkeypatch.setattr(present, "PATIENCE", 1.0)
        monkeypatch.setattr(present, "SLOW", {})
    found = present.tool(kind)
    assert not found and f"{present.KNOWN[kind].thing}: does not work here (" in found.said


def test_nvrtc_is_looked_for_in_each_folder_of_nvidia(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "nvidia")
    monkeypatch.setattr(present, "NVRTC", "import sys; print('.visible .entry' * ('/b/' in "
                                          "sys.argv[1]))")
    for folder in "ab":
        (tmp_path / folder / "nvidia" / "cu13").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / folder)
    monkeypatch.syspath_prepend(tmp_path / "a")  # the first is none that works
    assert present.tool("nvrtc").command[-1] == str(tmp_path / "b" / "nvidia" / "cu13")


def test_a_compiler_after_one_that_fails_is_taken(path: Path) -> None:
    if not (real := shutil.which("gcc", path=os.defpath)):
        pytest.skip("no gcc here")
    stand_in(path, "exit 1", "gcc")
    stand_in(path, f'PATH={os.defpath} exec {real} "$@"', "clang")
    assert present.tool("c").command == ("clang",)


def test_it_is_tried_once(path: Path) -> None:
    stand_in(path, f"echo x >> {path.parent}/tried; exit 1")
    for _ in range(3):
        assert not present.tool("git")
    assert (path.parent / "tried").read_text() == "x\n"


def test_all_that_a_command_started_is_ended() -> None:
    with pytest.raises(CourseError, match="sh is still running after 0.5 seconds"):
        present.run(["/bin/sh", "-c", f"{shutil.which('sleep')} 61 & wait"], seconds=0.5)

    def still_there() -> bool:
        for listed in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # a process that ended meanwhile
                if b"sleep\x0061" in listed.read_bytes():
                    return True
        return False

    end = time.monotonic() + 10  # it is killed at once, and gone a little later
    while still_there():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_cannot_be_started_or_fails_is_told(tmp_path: Path) -> None:
    for command, says in ((["/nowhere/x"], "x: No such file or directory"),
                          ([str(tmp_path)], f"{tmp_path.name}: Permission denied"),
                          (["/bin/sh", "-c", "echo no >&2; exit 3"], "sh: no"),
                          (["/bin/sh", "-c", "exit 3"], "sh: it ended with 3")):
        with pytest.raises(CourseError) as error:
            present.run(command)
        assert str(error.value) == says
    assert present.run(["/bin/sh", "-c", "exit 3"], check=False).returncode == 3


# ---- those who ask -------------------------------------------------------------------------------


def _bound() -> tvm.tirx.PrimFunc:
    """Return y = x + 1, a thread for each of 32 numbers."""
    x = te.placeholder((32,), name="x")
    y = te.compute((32,), lambda i: x[i] + 1.0, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    schedule.bind(schedule.get_loops(schedule.get_sblock("y"))[0], "threadIdx.x")
    return schedule.mod["main"]


def _askers(tmp_path: Path) -> dict[str, Callable[[], object]]:
    """Return what notebooks and the site call, by the kind that each asks for."""
    project._command.cache_clear()
    return {"shared": native.linker, "c++": lambda: native.with_runtime(tmp_path / "run"),
            "c": lambda: native.alone(tmp_path), "arm64": lambda: native.alone(tmp_path, arm=True),
            "wasm": wasm.linker, "node": lambda: wasm.in_node(tmp_path),
            "nvrtc": lambda: gpu.ptx(_bound()), "git": lambda: project._git("log"),
            "onnxruntime": lambda: kernels.onnx_runtime(torch.nn.ReLU(), 1, torch.ones(1)),
            "": lambda: gpu.run_source(_bound(), np.ones(32), np.ones(32))}


@pytest.mark.parametrize("way", [None, *WAYS])
def test_who_asks_prints_one_line_and_goes_on(way: str | None, path: Path, tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    if way:
        stand_in(path, WAYS[way][0])
    if way == "hangs":
        monkeypatch.setattr(present, "PATIENCE", 0.5)
    for kind, ask in _askers(tmp_path).items():
        assert not ask(), kind
        said = capsys.readouterr().out
        assert said == (f"{present.tool(kind).said}\n" if kind else ""), kind
    assert gpu.how() == f"{present.tool('c++20').said}. CUDA source is shown, and not run"
    with pytest.raises(CourseError) as error:
        wasm.command(tmp_path)
    assert str(error.value) == present.tool("wasm").said


def test_a_gpu_that_does_not_work_leaves_the_source_to_the_cpu(monkeypatch: pytest.MonkeyPatch,
                                                               path: Path) -> None:
    class Seen:
        exist = True

    real = tvm.cuda(0).exist
    monkeypatch.setattr(compiled.tvm, "cuda", lambda _number: Seen)
    monkeypatch.setattr(present.ctypes, "CDLL", lambda _driver: None)
    if real and present.tool("gpu"):
        pytest.skip("a GPU that works")
    first, _, second = gpu.how().partition("\n")
    assert first.startswith("GPU: does not work here (") and "CUDA source is shown" in second


def test_a_line_says_what_an_earlier_cell_did_not_make(tmp_path: Path, capsys) -> None:
    (tmp_path / "there").touch()
    assert native.made(tmp_path / "there") and not capsys.readouterr().out
    assert not native.made(tmp_path / "there", tmp_path / "gpt.so")
    assert capsys.readouterr().out == "gpt.so was not made: see above\n"


USES: dict[str, Callable[[Path], object]] = {
    "shared": lambda place: tvm.relax.build(
        helpers.import_model(torch.nn.ReLU(), (3,)), "llvm").export_library(
            str(place / "a.so"), fcompile=native.linker()),
    "c++": lambda place: native.run(native.with_runtime(place / "run")),
    "c": lambda place: native.run(native.alone(place)),
    "c++20": lambda _place: gpu.run_source(_bound(), np.ones(32), np.ones(32))}


@pytest.mark.skipif(not present.tool("c++"), reason="no C++ compiler here")
@pytest.mark.parametrize("kind", USES)
@pytest.mark.parametrize(("then", "says"), [
    ("exit 3", "it ended with 3"), ("exit 0", "does not do what it should|No such file"),
    (f"{shutil.which('sleep')} 60", "is still running after 0.7 seconds"),
    ("rm", "No such file")])
def test_what_breaks_after_it_was_tried_is_told(kind: str, then: str, says: str, path: Path,
                                                tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    for name in ("gcc", "g++"):
        real = shutil.which(name, path=os.defpath)
        stand_in(path, f'PATH={os.defpath} exec {real} "$@"', name)
    assert present.tool(kind)
    for name in ("gcc", "g++"):
        (path / name).unlink() if then == "rm" else stand_in(path, then, name)
    if "sleep" in then:
        monkeypatch.setattr(native, "SECONDS", 0.7)
        monkeypatch.setattr(compiled, "COMPILING", 0.7)
    with pytest.raises(CourseError, match=says):
        USES[kind](tmp_path)


def test_a_node_that_breaks_is_told(path: Path, tmp_path: Path) -> None:
    stand_in(path, "echo 42", "node")
    with pytest.raises(CourseError, match="node does not do what it should"):
        wasm.in_node(tmp_path)


@pytest.mark.skipif(not present.tool("shared"), reason="nothing links here")
def test_a_library_is_linked_by_what_works(tmp_path: Path) -> None:
    mod = helpers.import_model(torch.nn.ReLU(), (3,))
    tvm.relax.build(mod, "llvm").export_library(str(tmp_path / "a.so"), fcompile=native.linker())
    loaded = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "a.so")), tvm.cpu())
    came = loaded["main"](tvm.runtime.tensor(np.array([-1, 0, 3], "float32"))).numpy()
    assert came.tolist() == [0, 0, 3]


def test_a_module_of_library_calls_needs_no_compiler(path: Path) -> None:
    tvm.register_global_func("env.present", lambda x, out: out.copyfrom(x.numpy() * 2),
                             override=True)
    mod = relax_model(lambda bb, x: relax.op.call_dps_packed("env.present", (x,), x.ty), 3)
    came = helpers.build(mod)["main"](tvm.runtime.tensor(np.ones(3, "float32"))).numpy()
    assert came.tolist() == [2, 2, 2]


def test_the_doctor_names_it_and_its_use(path: Path) -> None:
    assert doctor.used("git") == ("no   `make site`, `make colab`: the repository's address and "
                                  "commit. git: not here. To get it: sudo apt install git")
    stand_in(path, "echo git version 2", "git")
    present.tool.cache_clear()
    assert doctor.used("git").startswith("yes  ") and doctor.used("git").endswith(" commit. git")


# ---- Python ----------------------------------------------------------------------------------


def test_all_say_the_same_of_python() -> None:
    first, last = PYTHONS[0], PYTHONS[-1]
    several = " ".join(f"python{version}" for version in reversed(PYTHONS))
    tuples = [version.replace(".", ", ") for version in (first, last)]
    after = f"3, {int(last.partition('.')[2]) + 1}"
    for name, words in {
            "instructor/student.mk": [f"python3 {several}", f"Python {first} to {last} is needed",
                                      f"({tuples[0]}) <= sys.version_info[:2] <= ({tuples[1]})",
                                      f"需要 Python {first} 到 {last}"],
            "instructor/gradescope/setup.sh": [f"python3 {several}", f"Python {first} to {last}",
                                               f"({tuples[0]}) <= sys.version_info < ({after})"],
            ".github/workflows/test.yml": [str(list(PYTHONS)).replace("'", '"')],
            "README.md": [f"Python {first} to {last}"],
            "README.zh.md": [f"Python {first} 到 {last}"],
            "instructor/README.md": [f"Python {first} to {last}"],
            "instructor/README.zh.md": [f"Python {first} 到 {last}"],
            "instructor/student_README.md": [f"Python {first} to {last}"],
            "instructor/student_README.zh.md": [f"Python {first} 到 {last}"]}.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for word in words:  # what waits for its Chinese is in English
            assert word in text or word.replace(" 到 ", " to ") in text, f"{name}: {word}"


def _made(tmp_path: Path, target: str, **pythons: str) -> str:
    """Return what `make` prints where PATH has these Pythons alone, and says no word of its own."""
    for name in ("student.mk", "requirements.txt"):
        source = ROOT / ("instructor" if name.endswith("mk") else "") / name
        shutil.copy(source, tmp_path / name.replace("student.mk", "Makefile"))
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("sh", "cksum", "test"):
        (folder / name).symlink_to(shutil.which(name))
    for name, code in pythons.items():
        stand_in(folder, f'exec {sys.executable} -c "{code}\n$2"', name)
    done = subprocess.run([shutil.which("make"), target], cwd=tmp_path, capture_output=True,
                          text=True, check=False, env={"PATH": str(folder), "LANG": "C"})
    assert done.returncode and "Traceback" not in done.stdout + done.stderr
    return done.stdout


OLD = "import sys; sys.version_info = (3, 10, 1, 'final', 0)"
HALF = "import sys; sys.modules.update(shutil=None)"
NEEDED = "Python 3.11 to 3.14 is needed and not found"


@pytest.mark.parametrize("target", ["data", "doctor"])
@pytest.mark.parametrize(("pythons", "says"), [
    ({}, NEEDED), ({"python3": OLD}, NEEDED), ({"python3": HALF, "python3.12": HALF},
    "python3 is only a part of Python. On Debian and Ubuntu: sudo apt install python3-venv")])
def test_make_says_in_a_line_what_is_wrong_with_python(target: str, pythons: dict[str, str],
                                                       says: str, tmp_path: Path) -> None:
    if target == "doctor" and pythons.get("python3") == OLD:
        return  # it runs, and says that this Python does not fit
    said = _made(tmp_path, target, **pythons)
    assert says in said and len(said.splitlines()) == 1
