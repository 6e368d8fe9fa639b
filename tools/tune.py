"""Tune the fused CNN with MetaSchedule and write data/tuned/, which notebook 08 replays.

    make tune                                on this machine
    make tune TRACKER=host:9190 KEY=name     on the devices registered there

It takes about six minutes on two cores, needs tools/requirements-bench.txt (xgboost, cloudpickle),
and an otherwise idle machine: whatever else runs disturbs the times. Shapes and programs are tuned,
not values, so the result is the same for the real weights and the stand-in's. Nothing is written
before the search has ended.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

import helpers
from course import devices, kernels
from course.words import _
from data.store import CourseError

SHAPE = (4, 1, 28, 28)
THREADS = 2
TRIALS, ROUND = 192, 16  # candidates measured in all, and in one round on one PrimFunc
LOOK, LOOKS = 3, 3  # seconds between two looks at a tracker, and how many have to find no server


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """Return mod fused as in notebook 08, with its weights marked.

    They are constants, so that a schedule may reorder them once, when the model is compiled.
    """
    return relax.transform.AttachAttrLayoutFreeBuffers()(kernels.fuse_by_kind(mod))


def tune(mod: tvm.IRModule, folder: Path, work_dir: str, measured_on: devices.Devices | None
         ) -> None:
    """Tune every PrimFunc of mod; write the best record of each into folder.

    Measurements go to `work_dir`. Tunes for the CPU of the devices, or of this machine; the target
    of each record names it.
    """
    os.environ["TVM_NUM_THREADS"] = str(THREADS)  # for the processes that run the candidates
    cpu = tvm.target.Target.from_device("cpu")
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu.attrs["mcpu"], "num-cores": THREADS})
    runner = "local"
    if measured_on:
        target, runner = measured_on.target(), measured_on.runner()
    tasks = sorted(ms.relax_integration.extract_tasks(mod, target), key=lambda task: task.task_name)
    found = ms.relax_integration.tune_relax(
        mod, {}, target, work_dir, max_trials_global=TRIALS, num_trials_per_iter=ROUND, seed=0,
        runner=runner,
        # only there: the search, in this process, needs the instructions
        builder=devices.builder())
    records = [found.query_tuning_record(task.dispatched[0], target, task.task_name)
               for task in tasks]
    if missing := [task.task_name for task, record in zip(tasks, records, strict=True)
                   if record is None]:
        raise CourseError(_("No candidate of {name} could be measured; nothing is written. The "
                            "lines above say why.").format(name=missing[0]))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    best = ms.database.JSONDatabase(work_dir=str(folder))
    for task, record in zip(tasks, records, strict=True):
        best.commit_workload(record.workload.mod)
        best.commit_tuning_record(record)
        print(f"{task.task_name:26} {min(map(float, record.run_secs)) * 1e6:8.1f} µs")


def _child(folder: Path, work_dir: str, there: devices.Devices | None) -> None:
    """Tune, in a separate process; end with 1 and one line if something is wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    try:
        cnn = helpers.pytorch_model(helpers.load_weights("cnn"))
        tune(fuse(helpers.import_model(cnn, SHAPE)), folder, work_dir, there)
    except CourseError as error:
        sys.exit(str(error))


def wait(process: BaseProcess, there: devices.Devices | None) -> int:
    """Return a process's exit status; end it and its children if no server is left for it.

    A server that ends costs the candidate that it had; the search continues with the others.
    Raises CourseError.
    """
    bad, why = 0, ""
    try:
        while process.exitcode is None:
            process.join(LOOK)
            if not there or process.exitcode is not None:
                continue
            try:  # a server is away for a moment after each candidate
                bad = 0 if devices.keys(there.host, there.port).get(there.key) else bad + 1
                why = _("no server is left under KEY={key}").format(key=there.key)
            except CourseError as error:
                bad, why = bad + 1, str(error)
            if bad == LOOKS:
                raise CourseError(_("Stopped, {why}; nothing is written.").format(why=why))
        return process.exitcode
    finally:
        if process.is_alive() and process.pid:
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                with contextlib.suppress(psutil.Error):
                    child.kill()


def _devices(options: argparse.Namespace) -> devices.Devices | None:
    """Return the devices that the command line names; None for this machine alone."""
    if bool(options.tracker) != bool(options.key):
        raise CourseError(_("TRACKER=host:port and KEY=name go together."))
    if not options.tracker:
        return None
    there = devices.ask(options.tracker, options.key)
    if there.host not in ("127.0.0.1", "localhost"):
        print(_("Anyone who can reach the tracker or its servers can run programs there: there is "
                "no password. Use ssh tunnels, see instructor/README.md."))
    print(_("{count} server(s) under {key}: {cpu}, {threads} thread(s) each").format(
        count=there.count, key=there.key, cpu=there.cpu, threads=there.threads), flush=True)
    return there


def main(arguments: list[str]) -> int:
    """Tune as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description="Tune the fused CNN of notebook 08.")
    parser.add_argument("--tracker", help="host:port of a running RPC tracker")
    parser.add_argument("--key", help="the key of the servers that are to measure")
    parser.add_argument("--to", type=Path, default=helpers.ROOT / "data" / "tuned")
    options = parser.parse_args(arguments)
    # the semaphores of a killed process are cleaned up silently
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    try:
        there = _devices(options)
        with tempfile.TemporaryDirectory() as work_dir:
            process = multiprocessing.get_context("spawn").Process(
                target=_child, args=(options.to, work_dir, there))
            process.start()
            return wait(process, there)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(_("Stopped; nothing is written."), file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
