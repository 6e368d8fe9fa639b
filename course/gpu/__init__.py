"""GPU programs on any machine: their CUDA source, what their threads do, and running that source.

TVM writes CUDA without a GPU and without NVIDIA's tools.
"""

from course.gpu.compiled import compiler, how, run_source
from course.gpu.simulated import launches_of, run, run_kernels
from course.gpu.source import TARGET, ptx, source, tensor_core_intrinsics
