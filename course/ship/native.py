"""C and C++ programs with the course's models: the commands that build them on this machine."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from course import present
from course.ship.kernel import SHIM
from course.words import CourseError, _

HERE = SHIM.parent
ARM = "aarch64-linux-gnu"
SECONDS = 120
NO_TORCH = 'raise ModuleNotFoundError("No module named \'torch\'", name="torch")\n'
EMULATOR, workplace = present.EMULATOR, present.workplace


def linker() -> Callable[..., None] | None:
    """Return a linker of object files, which `export_library` takes as `fcompile`.

    If nothing here links, print a line that says what is missing and return None.
    """
    if not (command := present.need("shared").command):
        return None

    def link(library: str, objects: Sequence[str], **_options: Any) -> None:
        run([*command, *present.SHARED, "-o", library, *objects])

    return link


def made(*files: Path) -> bool:
    """Return whether an earlier cell made these files; print a line if one is missing."""
    for file in files:
        if not file.exists():
            print(_("{file} was not made: see above").format(file=file.name))
            return False
    return True


def with_runtime(program: Path) -> list[str]:
    """Return the command that builds run.cpp, which needs TVM's runtime libraries.

    If no C++ compiler works, print a line that says what is missing and return an empty list.
    """
    if not (compiler := present.need("c++").command):
        return []
    packages = [Path(package.__file__).parent for package in (tvm, tvm_ffi)]
    return [*compiler, "-std=c++17", "-O1", str(HERE / "run.cpp"), "-o", str(program),
            *(f"-I{package}/include" for package in packages),
            *(option for package in packages
              for option in (f"-L{package}/lib", f"-Wl,-rpath,{package}/lib")),
            "-ltvm_runtime", "-ltvm_ffi"]


def alone(folder: Path, *, arm: bool = False) -> list[str]:
    """Return the command that builds `folder`/cnn, without TVM, from cnn.o and layout.h in it.

    `arm`: for Linux on arm64, whatever this machine is, if EMULATOR can run the result here too.
    If no C compiler for that works, print a line that says what is missing and return [].
    """
    if not (compiler := present.need("arm64" if arm else "c").command):
        return []
    return [*compiler, "-O2", f"-I{folder}", str(SHIM), str(HERE / "main.c"),
                         str(folder / "cnn.o"), "-lm", "-o", str(folder / "cnn")]


def run(command: Sequence[str | Path]) -> tuple[str, str]:
    """Run a command and return what it printed: to stdout, to stderr.

    Raises CourseError with its own words if it fails or takes more than SECONDS, and if the file
    that it should make, `-o`, is not there.
    """
    done = present.run(command, seconds=SECONDS)
    if "-o" in command and not Path(command[command.index("-o") + 1]).exists():
        raise CourseError(present.NOTHING.format(program=present.name(command)))
    return done.stdout.decode(), done.stderr.decode()


def elsewhere(start: Path, *words: str | Path) -> str:
    """Run `python words` in a folder as on a machine that has NumPy and TVM's runtime.

    There is no torch, no course, no compiler of TVM's, and no other program. Return what it
    printed. Raises CourseError with its own words if it fails or takes more than a minute.
    """
    with workplace() as modules:
        Path(modules, "torch.py").write_text(NO_TORCH, encoding="utf-8")
        places = {"PYTHONPATH": modules, "PATH": modules, "TVM_USE_RUNTIME_LIB": "1"}
        return present.run([sys.executable, *words], seconds=SECONDS / 2, cwd=start,
                           env=os.environ | places).stdout.decode(errors="replace")
