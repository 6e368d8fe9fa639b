"""What every notebook imports: data, weights, the PyTorch model, building, showing, timing.

It is thin on purpose: notebooks hold what they explain, and this module what would distract.
"""

import contextlib
import gc
import os
import platform
import sys
import time
import timeit
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course.words import _
from data import versions
from data.store import (
    CLASS_NAMES,
    N_IMAGES,
    ROOT,
    CourseError,
    data_folder,
    data_line,
    load_weights,
    read_arrays,
    test_images,
)

if wrong := versions.wrong("apache-tvm"):
    raise CourseError(_("{wrong}.\n     In JupyterLab take the kernel 'Python 3 (ipykernel)'. "
                        "`make doctor` looks at everything.").format(wrong=wrong))

gc.disable()  # these imports make no garbage, and looking for it takes a second
import torch
import tvm
from torch import nn
from tvm import relax

from course.listing import Listing, bindings, bytecode, first_sentence, script, show, show_diff
from course.tir.loops import nests

gc.freeze()  # nor is it searched later
gc.enable()
versions.allow_torchvision()  # for notebook 01; nothing here imports it, because that takes seconds


def test_data(count: int = N_IMAGES) -> list[tuple[torch.Tensor, int]]:
    """Return the first `count` test images with their labels, as torchvision makes them.

    An image is float32 (1, 28, 28) in [0, 1], a label an int from 0 to 9. Raises CourseError where
    the files are damaged.
    """
    images, labels = test_images(count)
    return list(zip(torch.tensor(images)[:, None].float() / 255, labels.tolist(), strict=True))


def test_loader(batch_size: int = 4, count: int = N_IMAGES) -> torch.utils.data.DataLoader:
    """Return the test images in order, as batches: float32 (batch_size, 1, 28, 28), int64."""
    return torch.utils.data.DataLoader(test_data(count), batch_size=batch_size, shuffle=False)


# ---- the model -----------------------------------------------------------------------------


def pytorch_model(weights: Mapping[str, np.ndarray]) -> nn.Sequential:
    """Return the CNN that notebook 01 builds: (n, 1, 28, 28) images to (n, 10) probabilities."""
    model = nn.Sequential(nn.Conv2d(1, 32, kernel_size=3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(5408, 100), nn.ReLU(), nn.Linear(100, 10),
                          nn.Softmax(dim=1))
    layers = {"0": "conv2d", "4": "linear0", "6": "linear1"}
    model.load_state_dict({f"{i}.{kind}": torch.from_numpy(weights[f"{name}_{kind}"].copy())
                           for i, name in layers.items() for kind in ("weight", "bias")})
    return model.eval()


def import_operators(model: nn.Module, input_shape: tuple[int, ...]) -> tvm.IRModule:
    """Import a PyTorch model with TVM's own importer; its operators stay whole (R.nn.conv2d)."""
    from tvm.relax.frontend.torch import from_exported_program
    with warnings.catch_warnings(action="ignore"):  # torch.export's FutureWarning, with a path
        program = torch.export.export(model, (torch.zeros(input_shape),))
        return from_exported_program(program, unwrap_unit_return_tuple=True)


def import_model(model: nn.Module, input_shape: tuple[int, ...]) -> tvm.IRModule:
    """Import a PyTorch model and lower its operators to PrimFuncs, one for each."""
    return relax.transform.LegalizeOps()(import_operators(model, input_shape))


def build(mod: tvm.IRModule, target: Any = "llvm") -> relax.VirtualMachine:
    """Compile an IRModule for a target; return a VirtualMachine that runs it on the CPU."""
    executable = relax.build(mod, target=target)
    # as it is: else TVM has a C compiler make a library where there is no PrimFunc, of nothing
    as_it_is = tvm.target.Target(target).kind.name == "llvm"
    return relax.VirtualMachine(executable.mod if as_it_is else executable, tvm.cpu())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings that do not concern the reader: torch.export's, and those of TVM's C++.

    The latter go to the process's own standard error, which Python's redirections don't reach.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


# ---- timing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: the median and the quartiles of the repeats."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        unsteady = _("  unsteady: is the machine busy?") if self.high > 2 * self.low else ""
        return f"{self.median:8.1f} µs  ({self.low:.1f} to {self.high:.1f}){unsteady}"


def measure(candidates: Mapping[str, Callable[[], Any]], repeats: int = 9,
            seconds: float = 0.02) -> dict[str, Timing]:
    """Time functions, warmed up and interleaved with one another; return microseconds.

    Each gets `repeats` timed blocks of calls, and each block lasts at least `seconds`.
    A pause before each block lets the thread pools of the others fall asleep: TVM's spin for
    150 ms after their last call, and spinning threads take the cores from the next candidate.
    """
    if os.environ.get("MLC_QUICK") == "1":  # set by conftest.py: tests do not read times
        return {name: Timing(*[timeit.timeit(run, number=1) * 1e6] * 3)
                for name, run in candidates.items()}
    calls = {}
    for name, run in candidates.items():
        run()
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < seconds:
            run()
            count += 1
        calls[name] = count
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _round in range(repeats):
        for name, run in candidates.items():
            time.sleep(0.16)
            run()
            start = time.perf_counter()
            for _call in range(calls[name]):
                run()
            samples[name].append((time.perf_counter() - start) / calls[name] * 1e6)
    return {name: Timing(*(float(np.percentile(times, q)) for q in (50, 25, 75)))
            for name, times in samples.items()}


def machine() -> str:
    """Return one line: the CPU, the threads of TVM and of PyTorch, and whether it is busy."""
    try:
        cpu = next(line.split(":")[1].strip() for line in
                   Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    busy = os.getloadavg()[0] > (os.cpu_count() or 1) + 0.5  # this process alone makes one a core
    said = _("{cpu}, threads: TVM {tvm}, PyTorch {torch}").format(
        cpu=cpu, tvm=tvm.runtime.num_threads(), torch=torch.get_num_threads())
    return said + _("; BUSY with something else: no time here means much") if busy else said
