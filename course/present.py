"""Optional tools, used if they are here and work: compilers, Node, NVRTC, a GPU, git, and others.

    present.tool("c++")     true if one was seen to work; its `command` starts it
    present.need("c++")     the same; if none works it prints what is missing and how to get it

It is not enough that a tool is found: a Mac has a g++ that only asks to be installed, and torch
brings half of NVRTC. So each is tried, once per process, in its smallest use, with a time limit.
This module imports only the standard library: `make doctor` uses it before anything is installed.
"""

from __future__ import annotations  # the doctor runs on old Pythons too, and says so

import contextlib
import ctypes
import functools
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course.words import ROOT, CourseError, _

Command = tuple[str, ...]
PATIENCE = 20.0  # seconds for a command
SLOW = {sys.executable: 60.0, "ziglang": 600.0}  # imports much; builds a library first, once
EMULATOR = () if platform.machine() == "aarch64" else ("qemu-aarch64",)  # starts programs for arm64
SHARED = ["-shared", "-fPIC", *(["-undefined", "dynamic_lookup"] * (sys.platform == "darwin"))]
NOTHING = _("{program} does not do what it should")
HERE = Path(__file__).parent


class SlowError(CourseError):
    """A command was still running when its time was over."""


@dataclass(frozen=True)
class Tool:
    """A command that was seen to work, or one line that says why there is none."""

    command: Command = ()
    said: str = ""

    def __bool__(self) -> bool:
        return bool(self.command)


@dataclass(frozen=True)
class Kind:
    """What a tool is called and used for, how to get it, where it may be, and how it is tried.

    `trial` gets one of the `candidates` and returns its output, which contains `shows`.
    """

    thing: str
    use: str
    get: Command
    candidates: Callable[[], Iterable[Command]]
    trial: Callable[[Command], str]
    shows: str = "42"


def name(command: Sequence[str | Path]) -> str:
    """Return what a command is called in a sentence."""
    return "ziglang" if "ziglang" in command else Path(command[0]).name


def run(command: Sequence[str | Path], given: bytes = b"", seconds: float = 0, check: bool = True,
        **places: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command; when its time is over, by default PATIENCE, end it and all that it started.

    `places`: its `cwd` and `env`, as Popen takes them.

    Raises CourseError if it cannot be started or takes too long; and, if `check`, with its own
    words if it fails.
    """
    seconds = seconds or max((SLOW.get(str(part), PATIENCE) for part in command), default=PATIENCE)
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, start_new_session=True, **places) as process:
            try:
                out, told = process.communicate(given, seconds)
            except BaseException:  # Ctrl-C too
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired:
        raise SlowError(_("{program} is still running after {seconds} seconds").format(
            program=name(command), seconds=f"{seconds:g}")) from None
    except OSError as error:
        raise CourseError(f"{name(command)}: {error.strerror}") from None
    if check and process.returncode:
        said = told.decode(errors="replace").strip() or _("it ended with {code}").format(
            code=process.returncode)
        raise CourseError(f"{name(command)}: {said}")
    return subprocess.CompletedProcess(command, process.returncode, out, told)


def workplace() -> tempfile.TemporaryDirectory:
    """Return a new folder in build/, or among the system's; it is deleted when it is not used."""
    for parent in (ROOT / "build", None):
        with contextlib.suppress(OSError):
            if parent:
                parent.mkdir(exist_ok=True)
            return tempfile.TemporaryDirectory(prefix="made-", dir=parent)
    raise CourseError(_("no folder here can be written to"))


@functools.cache
def tool(kind: str) -> Tool:
    """Return the first tool of a kind in KNOWN that works here. Raises nothing, prints nothing."""
    known = KNOWN[kind]
    seen: list[str] = []
    for command in known.candidates():
        try:
            if known.shows in known.trial(command):
                return Tool(command)
            seen.append(NOTHING.format(program=name(command)))
        except SlowError as error:
            seen.append(str(error))
            break  # the user need not wait for the others too
        except (CourseError, OSError) as error:
            seen.append(why(str(error).removeprefix(f"{Path(sys.executable).name}: ")))
    said = _("{thing}: does not work here ({why})").format(
        thing=known.thing, why="; ".join(dict.fromkeys(seen))) if seen \
        else _("{thing}: not here").format(thing=known.thing)
    return Tool(said=_("{said}. To get it: {commands}").format(
        said=said, commands=_(", or ").join(known.get)) if known.get else said)


def need(kind: str) -> Tool:
    """Return tool(kind); if none works, print the line that says so."""
    found = tool(kind)
    if not found:
        print(found.said)
    return found


def why(text: str) -> str:
    """Return the most informative line of an error."""
    lines = text.splitlines() or [""]
    last = lines[-1] if "Traceback" in text else lines[0]
    return next((line.strip() for line in lines if " error: " in line), last)[:150]


# ---- where a tool may be, and how it is tried ------------------------------------------------


def _installed(*modules: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return all(importlib.util.find_spec(module) for module in modules)
    return False


def _programs(*names: str, then: Command = (), zig: Command = ()) -> Callable[[], list[Command]]:
    """Find programs, with the arguments that each gets; last, PyPI's ziglang, with its own."""
    def candidates() -> list[Command]:
        found = [(name, *then) for name in dict.fromkeys(names) if name and shutil.which(name)]
        if zig and _installed("ziglang"):
            found.append((sys.executable, "-m", "ziglang", *zig))
        return found
    return candidates


def _python(code: str, *modules: str) -> Callable[[], list[Command]]:
    """If these modules are installed, a Python program in a separate process."""
    return lambda: [(sys.executable, "-P", "-c", code)] * _installed(*modules)


def _toolkits() -> list[Command]:
    """Return NVRTC for each folder of the packages `nvidia`, which may be in several places."""
    spec = importlib.util.find_spec("nvidia") if _installed("nvidia") else None
    return [(sys.executable, "-P", "-c", NVRTC, f"{place}/cu13")
            for place in (spec and spec.submodule_search_locations) or ()
            if Path(place, "cu13").is_dir()]


def _drivers() -> list[Command]:
    """Return the trial of a GPU if NVIDIA's driver is here: TVM takes seconds to find none."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return _python(GPU, "tvm")()
    return []


def _says(*words: str, given: bytes = b"") -> Callable[[Command], str]:
    """Run a command with some arguments, and take its output."""
    return lambda command: run([*command, *words], given).stdout.decode(errors="replace")


def _makes(source: str, *options: str, by: Command = (), ending: str = ".c"
           ) -> Callable[[Command], str]:
    """Compile a source, and take the program's output; `by`: a command that reads the file."""
    def trial(command: Command) -> str:
        with workplace() as folder:
            file, made = Path(folder, f"source{ending}"), Path(folder, "made")
            file.write_text(source, encoding="utf-8")
            run([*command, str(file), *options, "-o", str(made)])
            return run([*by, str(made)]).stdout.decode(errors="replace")
    return trial


C = '#include <stdio.h>\nint main(void) { printf("42"); return 0; }\n'
CPP = "#include <iostream>\nint main() { std::cout << 42; }\n"
CPP20 = """#include <barrier>
#include <iostream>
#include <thread>
int main() {
  std::barrier all{2};
  std::thread other([&] { all.arrive_and_wait(); });
  all.arrive_and_wait();
  other.join();
  std::cout << 42;
}
"""
LIBRARY = "int answer = 42;\n"
LOADED = "import ctypes, sys; print(ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[1]), 'answer').value)"
WASM = r"import sys; print(42 * (open(sys.argv[1], 'rb').read(4) == b'\0asm'))"
NODE = 'console.log(42 * WebAssembly.validate(require("fs").readFileSync(process.argv[1])))'
KERNEL = b'#include <mma.h>\nextern "C" __global__ void kernel(float *x) { x[0] = 42; }\n'
NVRTC = """
import os, sys, warnings
warnings.simplefilter("ignore")
os.environ.update(CUDA_PATH=sys.argv[1], TVM_CUDA_NVRTC_EXTRA_OPTS=f"-I{sys.argv[1]}/include/cccl")
from tvm.support import nvcc
made = nvcc.compile_cuda(sys.stdin.read(), target_format="ptx", arch="sm_80")
sys.stdout.write(bytes(made).decode())
"""
GPU = """
import numpy, sys, tvm
from tvm import te
if not tvm.cuda(0).exist:
    sys.exit("TVM sees none")
x = te.placeholder((32,), name="x")
plan = tvm.s_tir.Schedule(te.create_prim_func([x, te.compute((32,), lambda i: x[i] + 1, name="y")]))
plan.bind(plan.get_loops(plan.get_sblock("y"))[0], "threadIdx.x")
given, came = (tvm.runtime.tensor(numpy.full(32, 41, "float32"), tvm.cuda(0)) for _ in range(2))
tvm.compile(plan.mod["main"], target="cuda")["main"](given, came)
print(came.numpy().min())
"""
# torch's exporter, which takes seconds, is not tried: the pins are those that work together
ONNX = """
import numpy, onnx.parser, onnxruntime, onnxscript
made = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> relu (float[1] x) => (float[1] y) {y = Relu(x)}')
session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
print(session.run(None, {"x": numpy.full(1, 42, "float32")}))
"""
OPENVINO = """
import onnx, onnxscript, openvino
print(42 * ("CPU" in openvino.Core().available_devices))
"""

MAC = sys.platform == "darwin"
GCC, GXX = (("xcode-select --install",) if MAC else (f"sudo apt install {name}",)
            for name in ("gcc", "g++"))
ZIG = ".venv/bin/pip install ziglang"
CC, CXX = os.environ.get("CC", ""), os.environ.get("CXX", "")
KNOWN = {
    "c": Kind(_("C compiler"), _("Notebooks 11 and 13: a program without TVM"), (*GCC, ZIG),
              _programs(CC, "gcc", "clang", "cc", zig=("cc",)), _makes(C, "-lm")),
    "shared": Kind(_("linker of libraries"), _("Notebooks 08, 11 and 13: a model as one file"),
                   (*GCC, ZIG), _programs(CXX, CC, "g++", "gcc", "clang++", "clang", "c++", "cc",
                                          zig=("cc",)),
                   _makes(LIBRARY, *SHARED, by=(sys.executable, "-c", LOADED))),
    # ziglang's C++ library is not TVM's: a program that has both crashes
    "c++": Kind(_("C++ compiler"), _("Notebook 11: a program with TVM's runtime; torch.compile"),
                GXX, _programs(CXX, "g++", "clang++"), _makes(CPP, "-std=c++17", ending=".cpp")),
    "c++20": Kind(_("C++20 compiler"), _("Notebook 10: CUDA source on the CPU"), (*GXX, ZIG),
                  _programs(CXX, "g++", "clang++", zig=("c++",)),
                  _makes(CPP20, "-std=c++20", "-pthread", ending=".cpp")),
    "wasm": Kind(_("linker of WebAssembly"), _("Notebook 11: a program for the browser"),
                 (ZIG, "sudo apt install clang lld"),
                 _programs("clang", then=("--target=wasm32",),
                           zig=("cc", "-target", "wasm32-freestanding")),
                 _makes(LIBRARY, "-nostdlib", "-Wl,--no-entry", "-Wl,--export=answer",
                        by=(sys.executable, "-c", WASM))),
    "node": Kind("Node", _("Notebook 11: the browser's program, without a browser"),
                 ("sudo apt install nodejs", "https://nodejs.org"), _programs("node"),
                 _says("-e", NODE, str(HERE / "ship" / "cnn.wasm"))),
    "arm64": Kind(_("compiler and emulator for arm64"), _("Notebook 11: a program for arm64"),
                  ("sudo apt install gcc-aarch64-linux-gnu qemu-user",),
                  _programs("aarch64-linux-gnu-gcc", then=("-static",),
                            zig=("cc", "-target", "aarch64-linux-musl")) if EMULATOR else
                  _programs(CC, "gcc", "clang", "cc", zig=("cc",)), _makes(C, "-lm", by=EMULATOR)),
    "nvrtc": Kind("NVRTC", _("Notebook 10: PTX"),
                  (".venv/bin/pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime "
                   "nvidia-cuda-cccl nvidia-cuda-crt",),
                  _toolkits, _says(given=KERNEL), ".visible .entry"),
    "gpu": Kind("GPU", _("Notebook 10: CUDA source on it"), (), _drivers, _says()),
    "onnxruntime": Kind("ONNX Runtime", _("Notebooks 07 and 08, `make bench`: to compare with"),
                        ("make bench",), _python(ONNX, "onnxruntime", "onnx", "onnxscript"),
                        _says()),
    "openvino": Kind("OpenVINO", _("`make bench`: to compare with"), ("make bench",),
                     _python(OPENVINO, "openvino", "onnx", "onnxscript"), _says()),
    "git": Kind("git", _("`make site`, `make colab`: the repository's address and commit"),
                ("sudo apt install git",), _programs("git"), _says("--version"), "git version"),
    "tar": Kind("tar", _("Notebook 08: candidates that are sent to a device"),
                ("sudo apt install tar",), _programs("tar"),
                _says("-cf", "-", "-C", str(HERE), "present.py"), "present.py"),
}
