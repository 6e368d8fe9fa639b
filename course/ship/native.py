"""C and C++ programs with the course's models: which command builds them on this machine."""

import contextlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tvm
import tvm_ffi

from course.ship.kernel import SHIM
from course.words import _
from data.store import ROOT, CourseError

HERE = SHIM.parent
ARM = "aarch64-linux-gnu"
SECONDS = 120


def _first(*names: str) -> list[str]:
    """Return the first of these commands that this machine has; of none, an empty list."""
    return [name for name in names if shutil.which(name)][:1]


def _zig() -> list[str]:
    found = importlib.util.find_spec("ziglang")
    return [sys.executable, "-m", "ziglang", "cc"] if found else []


def with_runtime(program: Path) -> list[str]:
    """Return the command that builds run.cpp, which needs TVM's runtime libraries.

    An empty list where no C++ compiler is installed.
    """
    if not (compiler := _first("g++", "clang++")):
        return []
    packages = [Path(package.__file__).parent for package in (tvm, tvm_ffi)]
    return [*compiler, "-std=c++17", "-O1", str(HERE / "run.cpp"), "-o", str(program),
            *(f"-I{package}/include" for package in packages),
            *(option for package in packages
              for option in (f"-L{package}/lib", f"-Wl,-rpath,{package}/lib")),
            "-ltvm_runtime", "-ltvm_ffi"]


def alone(folder: Path, *, arm: bool = False) -> list[str]:
    """Return the command that builds `folder`/cnn from cnn.o and layout.h there: no TVM is in it.

    `arm`: for Linux on arm64, whatever this machine is, without shared libraries. An empty list
    where no C compiler for that is installed.
    """
    native = not arm or platform.machine() == "aarch64"
    compiler = (_first("gcc", "clang") if native else _first(f"{ARM}-gcc")) or _zig()
    if compiler and not native:
        compiler += ["-target", "aarch64-linux-musl"] if "ziglang" in compiler else ["-static"]
    return compiler and [*compiler, "-O2", f"-I{folder}", str(SHIM), str(HERE / "main.c"),
                         str(folder / "cnn.o"), "-lm", "-o", str(folder / "cnn")]


def emulator() -> list[str] | None:
    """Return what a program for arm64 is started with here: nothing on such a machine.

    None where it can't run.
    """
    if platform.machine() == "aarch64":
        return []
    return _first("qemu-aarch64") or None


def workplace() -> tempfile.TemporaryDirectory:
    """Return a new folder in build/, or where the system has such; it goes when nobody has it."""
    for parent in (ROOT / "build", None):
        with contextlib.suppress(OSError):
            if parent:
                parent.mkdir(exist_ok=True)
            return tempfile.TemporaryDirectory(prefix="ship-", dir=parent)
    raise CourseError(_("no folder here can be written to"))


def run(command: Sequence[str | Path]) -> tuple[str, str]:
    """Run a command and return what it printed: to stdout, to stderr.

    Raises CourseError with its own words where it fails, or takes more than SECONDS.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise CourseError(_("{program} is still at it after {seconds} seconds").format(
            program=Path(command[0]).name, seconds=SECONDS)) from None
    if done.returncode:
        said = done.stderr.strip() or _("it ended with {code}").format(code=done.returncode)
        raise CourseError(f"{Path(command[0]).name}: {said}")
    return done.stdout, done.stderr
