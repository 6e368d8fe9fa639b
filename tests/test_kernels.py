"""Notebook 06's fast program, for several CPUs and batch sizes; and the tuning database."""

import platform

import numpy as np
import pytest
import torch
import tvm
from tvm.s_tir import meta_schedule as ms

import helpers
import kernels
from checks.compare.trials import to_numpy
from tools import tune

CPUS = {"host": tvm.target.Target.from_device("cpu")}
if platform.machine() in ("x86_64", "AMD64"):
    CPUS["AVX2"] = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})


def _probabilities(mod: tvm.IRModule, target: tvm.target.Target, images: torch.Tensor
                   ) -> np.ndarray:
    return to_numpy(helpers.build(mod, target)["main"](tvm.runtime.tensor(images.numpy())))


@pytest.mark.parametrize("one_region", [True, False])
@pytest.mark.parametrize("batch", [1, 4, 6, 16])
@pytest.mark.parametrize("cpu", CPUS)
def test_the_packed_model_equals_pytorch(cpu: str, batch: int, one_region: bool) -> None:
    weights = helpers.load_weights("cnn")
    images = next(iter(helpers.test_loader(batch, batch)))[0]
    with torch.inference_mode():
        expected = helpers.pytorch_model(weights)(images).numpy()
    mod = kernels.packed_model(weights, batch, CPUS[cpu], one_region)
    np.testing.assert_allclose(_probabilities(mod, CPUS[cpu], images), expected, 1e-4, 1e-7)


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
