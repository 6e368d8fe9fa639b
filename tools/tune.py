"""Tune the fused CNN with MetaSchedule and write data/tuned/, which notebook 07 replays.

    python -m tools.tune

Takes about six minutes on two cores, needs requirements-bench.txt (xgboost, cloudpickle), and
wants the machine for itself: what else runs is measured too. Shapes and programs are tuned, not
values, so the result is the same for the real weights and the stand-in's.
"""

import os
import tempfile
from pathlib import Path

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

import helpers
import kernels

SHAPE = (4, 1, 28, 28)
THREADS = 2
TRIALS, ROUND = 192, 16  # candidates measured in all, and in one round on one PrimFunc


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """Return mod fused as in notebook 07, with its weights marked.

    They are constants, so that a schedule may store them in another order, once, when the model
    is compiled.
    """
    return relax.transform.AttachAttrLayoutFreeBuffers()(kernels.fuse_by_kind(mod))


def tune(mod: tvm.IRModule, folder: Path) -> None:
    """Tune every PrimFunc of mod for this CPU; write the best record of each into folder."""
    import cloudpickle  # the tests import this file without it
    cloudpickle.register_pickle_by_value(kernels)  # the processes that build don't find the file
    os.environ["TVM_NUM_THREADS"] = str(THREADS)  # for the processes that run the candidates
    cpu = tvm.target.Target.from_device("cpu")
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu.attrs["mcpu"], "num-cores": THREADS})
    with tempfile.TemporaryDirectory() as work_dir:
        found = ms.relax_integration.tune_relax(
            mod, {}, target, work_dir, max_trials_global=TRIALS, num_trials_per_iter=ROUND, seed=0,
            # there alone: the search, in this process, wants the instructions to be there
            builder=ms.builder.LocalBuilder(initializer=kernels.no_tensor_intrinsics))
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()
        best = ms.database.JSONDatabase(work_dir=str(folder))
        tasks = ms.relax_integration.extract_tasks(mod, target)
        for task in sorted(tasks, key=lambda task: task.task_name):
            record = found.query_tuning_record(task.dispatched[0], target, task.task_name)
            best.commit_workload(record.workload.mod)
            best.commit_tuning_record(record)
            print(f"{task.task_name:26} {min(map(float, record.run_secs)) * 1e6:8.1f} µs")


if __name__ == "__main__":
    cnn = helpers.pytorch_model(helpers.load_weights("cnn"))
    tune(fuse(helpers.import_model(cnn, SHAPE)), helpers.ROOT / "data" / "tuned")
