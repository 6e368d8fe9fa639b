"""Notebook 06's fast program, for several CPUs and batch sizes; and the tuning database."""

import math
import platform
import re
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import ir, tirx
from tvm.s_tir import meta_schedule as ms

import helpers
from course import kernels
from course.checks.compare.tolerance import to_numpy
from course.tir.walk import walk
from tools import tune

CPUS = {"host": tvm.target.Target.from_device("cpu")}
if platform.machine() in ("x86_64", "AMD64"):
    CPUS["AVX2"] = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})


def test_one_call_at_least_is_timed() -> None:
    """However little time is left when the first call begins: a process can wait for its turn."""
    assert kernels.least_seconds(lambda: None, 0) < math.inf


def _probabilities(mod: tvm.IRModule, target: tvm.target.Target, images: torch.Tensor
                   ) -> np.ndarray:
    return to_numpy(helpers.build(mod, target)["main"](tvm.runtime.tensor(images.numpy())))


THREADS, BATCHES = (1, 2, 3, 4, 7, 8, 16), (1, 4, 16, 64)


def _equals_pytorch(batch: int, threads: int, cpu: tvm.target.Target, runs_on: tvm.target.Target,
                    regions: int = 1) -> None:
    weights = helpers.load_weights("cnn")
    images = next(iter(helpers.test_loader(batch, batch)))[0]
    with torch.inference_mode():
        expected = helpers.pytorch_model(weights)(images).numpy()
    mod = kernels.packed_model(weights, batch, cpu, threads, regions)
    np.testing.assert_allclose(_probabilities(mod, runs_on, images), expected, 1e-4, 1e-7)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("threads", THREADS)
def test_the_packed_model_equals_pytorch_for_any_threads(threads: int, batch: int) -> None:
    _equals_pytorch(batch, threads, CPUS["host"], CPUS["host"])


@pytest.mark.parametrize(("threads", "batch"), [(1, 6), (2, 3), (3, 1), (5, 5), (4, 12), (99, 2)])
@pytest.mark.parametrize("cpu", CPUS)
def test_the_packed_model_equals_pytorch_for_other_cpus_and_sizes(cpu: str, threads: int,
                                                                 batch: int) -> None:
    _equals_pytorch(batch, threads, CPUS[cpu], CPUS[cpu])


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (2, 4), (4, 16), (7, 64)])
def test_its_layout_for_wide_vectors_is_right_on_any_cpu(threads: int, batch: int,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "wide_vectors", lambda _: True)
    _equals_pytorch(batch, threads, CPUS["host"], CPUS["host"])


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("regions", [2, 3])
def test_several_regions_equal_pytorch(regions: int, threads: int, batch: int) -> None:
    _equals_pytorch(batch, threads, CPUS["host"], CPUS["host"], regions)


def _operations(value: Any) -> int:
    """Count the additions, multiplications, divisions and maxima of an expression's floats."""
    if isinstance(value, tirx.expr.BinaryOpExpr):
        return 1 + _operations(value.a) + _operations(value.b)
    if isinstance(value, ir.Call):
        return max(map(_operations, value.args[-2:]))  # the branches of if_then_else; exp(...)
    return 0  # a number, or a load, whose indices are integers


def _pieces(batch: int, threads: int) -> tuple[int, int, int]:
    """Return the pieces of the one parallel loop, the operations of one, and those outside."""
    func = kernels.packed_model(helpers.load_weights("cnn"), batch, CPUS["host"], threads)["cnn"]
    regions, inside, outside = set(), 0, 0
    for node, place in walk(func.body):
        if isinstance(node, tirx.BufferStore):
            extents = [loop.extent for loop in place.loops]
            if place.loops[0].kind == "parallel":
                regions.add(place.loops[0].variable)
                inside += _operations(node.value) * math.prod(extents[1:])
            else:
                outside += _operations(node.value) * math.prod(extents)
    (region,) = {loop.extent for _, place in walk(func.body) for loop in place.loops
                 if loop.kind == "parallel"}
    assert len(regions) == 1, "one barrier"
    return region, inside, outside


def longest(batch: int, threads: int) -> float:
    """Return the operations of the longest thread, beside an even share of what has to be done."""
    pieces, inside, outside = _pieces(batch, threads)
    its_pieces, one_image, its_head = _pieces(1, 1)
    even = batch * (its_pieces * one_image + its_head) / threads
    return (math.ceil(pieces / threads) * inside + outside) / even


def test_every_thread_has_its_share() -> None:
    shares = {(batch, threads): longest(batch, threads) for batch in BATCHES for threads in THREADS}
    assert shares[16, 8] <= 1.15
    assert max(shares.values()) <= 1.15
    rows = [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in (helpers.ROOT / "docs/benchmark.md").read_text("utf-8").splitlines()]
    for batch in BATCHES:  # as the document gives them
        assert [f"{batch}", *(f"{shares[batch, threads]:.2f}" for threads in THREADS)] in rows


def _inner_loops(assembly: str) -> list[tuple[int, int]]:
    """Count the FMAs, and the vectors stored on the stack, of each innermost loop."""
    lines = [line.strip() for line in assembly.splitlines()]
    labels = {line.split(":")[0]: at for at, line in enumerate(lines) if line.startswith(".L")}
    jumps = ((line.split()[-1], at) for at, line in enumerate(lines) if re.match(r"j\w+\s", line))
    loops = [(labels[label], at) for label, at in jumps if labels.get(label, at) < at]
    inner = [(first, last) for first, last in loops
             if not any(first <= start and end <= last and (start, end) != (first, last)
                        for start, end in loops)]
    spill = r"vmov[au]p[sd]\s+%[xyz]mm\d+, -?\d*\(%rsp"
    return [(sum(line.startswith("vfm") for line in lines[first:last]),
             sum(bool(re.match(spill, line)) for line in lines[first:last]))
            for first, last in inner]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
def test_sums_stay_in_registers(cpu: str, batch: int) -> None:
    """With a serial loop around them LLVM stores 26 vectors a round (AVX-512, 64 images)."""
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu})
    for threads in (1, 2):
        func = kernels.packed_model(helpers.load_weights("cnn"), batch, target, threads)["cnn"]
        code = tvm.compile(func.with_attr("global_symbol", "main"), target=target)
        loops = [loop for loop in _inner_loops(code.mod.inspect_source("asm")) if loop[0] >= 12]
        assert loops, "loops of many FMAs"
        # 2 images by 8 vectors of `rest` are 16 sums for 16 registers; 1 image is no faster there
        most = 12 if (cpu, batch) == ("x86-64-v3", 4) else 0
        assert sum(spills for _, spills in loops) <= most, (threads, loops)


def test_peak_and_bandwidth_are_measured() -> None:
    peak, bandwidth = (measure(CPUS["host"], 1) for measure in
                       (kernels.measure_peak, kernels.measure_bandwidth))
    assert 1 < peak < 1000 and 1 < bandwidth < 1000, "GFLOP/s and GB/s of one core"


def test_several_sums_fill_what_one_leaves_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.least_seconds, "__defaults__", (0.3,))  # of many calls, not of few
    one, eight = (kernels.measure_peak(CPUS["host"], 1, sums) for sums in (1, 8))
    assert eight > 2 * one, "GFLOP/s: one sum waits for itself"


def test_caches_are_found_where_linux_tells_of_them() -> None:
    sizes = list(kernels.cache_sizes().values())
    assert sizes == sorted(sizes) and all(size >= 1024 for size in sizes)


def test_the_database_knows_every_program_of_the_model() -> None:
    cnn = helpers.pytorch_model(helpers.load_weights("cnn"))
    fused = tune.fuse(helpers.import_model(cnn, tune.SHAPE))
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    database = ms.database.JSONDatabase(work_dir=str(helpers.ROOT / "data" / "tuned"))
    tasks = ms.relax_integration.extract_tasks(fused, target)
    assert len(tasks) == 6
    for task in tasks:
        assert database.has_workload(task.dispatched[0]), task.task_name
        assert database.query_tuning_record(task.dispatched[0], target, task.task_name)
