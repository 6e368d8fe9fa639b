"""Run CUDA source: on a GPU if there is one, else with this machine's C++ compiler.

threads.hpp defines `threadIdx`, `__shared__` and `__syncthreads`, so that a C++20 compiler makes
a program in which each thread of a block is a thread of the CPU: slow, but right or wrong as on a
GPU.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from course import present
from course.gpu.simulated import lowered
from course.gpu.source import last_line, own_alone, source, with_marks
from course.tir import threads
from course.words import _
from data.store import CourseError

SECONDS = 60
_HEADER = Path(__file__).with_name("threads.hpp")
COMPILING = 300
_MOST_SHARED, _DIVERGENT = 227 * 1024, 3


def compiler() -> tuple[str, ...]:
    """Return the command of a C++20 compiler that works here, or an empty tuple."""
    return present.tool("c++20").command


def on_gpu() -> bool:
    """Return whether TVM sees a GPU here, and can use it."""
    return bool(tvm.cuda(0).exist and present.tool("gpu"))


def how() -> str:
    """Say how the CUDA source runs on this machine, and why a GPU that is here does not run it."""
    if on_gpu():
        return _("CUDA source runs here on the GPU")
    said = _("CUDA source runs here by {compiler}: each thread of a block is a thread of the "
             "CPU").format(compiler=present.name(compiler())) if compiler() else _(
        "{missing}. CUDA source is shown, and not run").format(missing=present.tool("c++20").said)
    return f"{present.tool('gpu').said}\n{said}" if tvm.cuda(0).exist else said


def run_source(func: tirx.PrimFunc, *arrays: np.ndarray, barriers: bool = True) -> bool:
    """Run a PrimFunc's CUDA source; the last array gets its result. False if nothing here runs it.

    It runs on a GPU if one works, else on the CPU, in a separate process. Arrays are float32, in
    the order of the parameters. Raises CourseError if it crashes or takes more than SECONDS.
    """
    if on_gpu():
        _run_on_gpu(func, arrays, barriers)
        return True
    if not compiler():
        return False
    text = source(func, barriers).replace("__shared__ alignas(64)", "alignas(64) __shared__")
    text = re.sub(r"extern __shared__ __align__\((\d+)\) (\w+ \w+)\[\]",  # of bytes, the most
                  rf"alignas(\1) __shared__ \2[{_MOST_SHARED}]", text)
    names = [param.name for param in func.params]
    lines = [text, "int main() {"]
    for name, array in zip(names, arrays, strict=True):
        lines.append(f"  std::vector<float> {name}({array.size}); "
                     f"fread({name}.data(), 4, {array.size}, stdin);")
    signatures = re.findall(r"(\w+)\((float\*[^)]*)\) {", text)
    launches = threads.launches(lowered(func))
    most = max(math.prod(block) for _grid, block in launches)
    if most > threads.MOST_THREADS:
        raise CourseError(_("{count} threads a block, and a GPU takes at most {most}").format(
            count=f"{most:,}", most=f"{threads.MOST_THREADS:,}"))
    for (kernel, given), (grid, block) in zip(signatures, launches, strict=True):
        given = ", ".join(f"{name}.data()" for name in re.findall(r"(\w+)_ptr", given))
        lines.append(f"  launch({_dim3(grid)}, {_dim3(block)}, [&] {{ {kernel}({given}); }});")
    lines.append(f"  fwrite({names[-1]}.data(), 4, {arrays[-1].size}, stdout);\n}}")
    result = _executed(_HEADER.read_text() + "\n".join(lines), b"".join(
        np.ascontiguousarray(array, "float32").tobytes() for array in arrays))
    arrays[-1][...] = np.frombuffer(result, "float32").reshape(arrays[-1].shape)
    return True


def _run_on_gpu(func: tirx.PrimFunc, arrays: Sequence[np.ndarray], barriers: bool) -> None:
    """As run_source, on the first GPU; NVRTC or NVIDIA's compiler makes machine code of it."""
    name = "tvm_callback_cuda_postproc"  # TVM asks it for the source to compile
    tvm_ffi.register_global_func(name, lambda text, _target: text if barriers else own_alone(text),
                                 override=True)
    func = func if barriers else with_marks(func)
    try:
        compiled = tvm.compile(func.with_attr("global_symbol", "main"), target="cuda")
        given = [tvm.runtime.tensor(np.ascontiguousarray(array, "float32"), tvm.cuda(0))
                 for array in arrays]
        compiled["main"](*given)
        arrays[-1][...] = given[-1].numpy()
    except (ImportError, RuntimeError, ValueError) as error:
        raise CourseError(_("the GPU does not run it: {why}. The end of notebook 10 says "
                            "what to install").format(why=last_line(error))) from None
    finally:
        tvm_ffi.remove_global_func(name)


def _dim3(extents: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, extents)) + "}"


def _executed(program: str, given: bytes) -> bytes:
    """Compile a C++ program and return what it writes for this input."""
    with present.workplace() as folder:
        file, built = Path(folder, "kernel.cpp"), Path(folder, "kernel")
        file.write_text(program)
        try:
            present.run([*compiler(), "-std=c++20", "-O1", "-pthread", file, "-o", built],
                        seconds=COMPILING)
        except CourseError as error:
            raise CourseError(_("the source is not compiled: {why}").format(
                why=present.why(str(error)))) from None
        try:
            done = present.run([built], given, SECONDS, check=False)
        except present.SlowError:
            raise CourseError(_("still running after {seconds} seconds").format(
                seconds=SECONDS)) from None
    if done.returncode == _DIVERGENT:
        *block, count = map(int, done.stderr.split()[1:])
        raise threads.divergent(count, tuple(block))
    if done.returncode:
        raise CourseError(_("the program crashed (exit {code})").format(code=done.returncode))
    return done.stdout
