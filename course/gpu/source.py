"""The CUDA source that TVM writes, and the PTX that NVIDIA's compiler makes from it."""

import inspect
import re
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import tvm
from tvm import tirx

from course import present
from course.words import _
from data.store import CourseError

TARGET = {"kind": "cuda", "arch": "sm_80"}
_MARK = "barrier_of_the_program"
UNBOUND = _("no loop is bound to blocks or threads: this program is one for the CPU. "
             "schedule.bind(loop, \"blockIdx.x\") binds one")


def source(func: tirx.PrimFunc, barriers: bool = True) -> str:
    """Return the CUDA source of a PrimFunc whose loops are bound to blocks and threads.

    Without `barriers`, those that TVM inserts are left out. Raises CourseError if TVM refuses the
    program.
    """
    text = _whole(func if barriers else with_marks(func))
    kernels = text[text.index('extern "C" __global__'):]
    if not barriers:
        kernels = own_alone(kernels)
    return "\n".join(line for line in kernels.splitlines() if not (
        line.startswith('extern "C"') and line.endswith(";"))).strip() + "\n"


def with_marks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a PrimFunc with a mark instead of each barrier that is written in it."""
    return tvm.script.from_source(re.sub(
        r"T\.tvm_storage_sync\(.*\)", f'T.evaluate(T.call_extern("int32", "{_MARK}"))',
        func.script()))


def own_alone(text: str) -> str:
    """Return CUDA source with barriers only at the marks of `with_marks`."""
    return re.sub(r"[^\n]*__syncthreads\(\);\n", "", text).replace(_MARK, "__syncthreads")


def _whole(func: tirx.PrimFunc) -> str:
    """Return the CUDA source with what comes before the kernels: types and includes."""
    with tvm.transform.PassContext(config={"tirx.disable_cse_tir": True}):  # easier to read
        try:
            compiled = tvm.compile(func.with_attr("global_symbol", "main"),
                                   target=tvm.target.Target(TARGET, host="llvm"))
        except (ValueError, RuntimeError, TypeError) as error:
            raise CourseError(_("TVM makes no GPU program of it: {reason}").format(
                reason=last_line(error))) from None
    if not compiled.mod.imports:
        raise CourseError(UNBOUND)
    return compiled.mod.imports[0].inspect_source()


def ptx(func: tirx.PrimFunc) -> str:
    """Return the PTX that NVIDIA's NVRTC compiles the CUDA source to.

    If NVRTC (from pip) does not work, print a line that says what is missing and return "". Raises
    CourseError if NVRTC rejects the source.
    """
    if not (nvrtc := present.need("nvrtc").command):
        return ""
    text = present.run(nvrtc, _whole(func).encode()).stdout.decode()
    return text[text.index(".visible .entry"):]


def tensor_core_intrinsics() -> dict[str, str]:
    """Return the names of TVM's intrinsics for products of 16 x 16 float16 matrices, by their part.

    TVM makes all of its 81 when the first is used, and TVMScript has `inspect` look through all
    modules for each frame of each, which takes 40 s; when told where to look, 4 s.
    """
    def module_of(item: Any, file: str | None = None) -> ModuleType | None:
        return sys.modules.get(getattr(item, "f_globals", vars(sys.modules[__name__]))["__name__"])

    with mock.patch.object(inspect, "getmodule", module_of):
        from tvm.s_tir.tensor_intrin.cuda import get_wmma_intrin_group
    return get_wmma_intrin_group(load_scope="shared", store_scope="global", in_dtype="float16",
                                 out_dtype="float32", trans_b=False)


def last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
