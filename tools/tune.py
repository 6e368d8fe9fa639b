"""Tune the fused CNN with MetaSchedule and write data/tuned/, which notebook 07 replays.

    make tune                                on this machine
    make tune SERVERS=2                      on servers of this machine, through a tracker
    make tune TRACKER=host:9190 KEY=name     on the devices that somebody registered there

Takes about six minutes on two cores, needs requirements-bench.txt (xgboost, cloudpickle), and
wants the machine for itself: what else runs is measured too. Shapes and programs are tuned, not
values, so the result is the same for the real weights and the stand-in's. Nothing is written
before the search has ended.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

import devices
import helpers
import kernels
from data.store import CourseError

SHAPE = (4, 1, 28, 28)
THREADS = 2
TRIALS, ROUND = 192, 16  # candidates measured in all, and in one round on one PrimFunc
LOOK = 20  # seconds between two looks at a tracker


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """Return mod fused as in notebook 07, with its weights marked.

    They are constants, so that a schedule may store them in another order, once, when the model
    is compiled.
    """
    return relax.transform.AttachAttrLayoutFreeBuffers()(kernels.fuse_by_kind(mod))


def tune(mod: tvm.IRModule, folder: Path, measured_on: devices.Devices | None = None,
         trials: int = TRIALS) -> None:
    """Tune every PrimFunc of mod; write the best record of each into folder.

    For the CPU of the devices, or of this machine; each record names it, in its target.
    """
    os.environ["TVM_NUM_THREADS"] = str(THREADS)  # for the processes that run the candidates
    cpu = tvm.target.Target.from_device("cpu")
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu.attrs["mcpu"], "num-cores": THREADS})
    runner = "local"
    if measured_on:
        target, runner = measured_on.target(), measured_on.runner()
    with tempfile.TemporaryDirectory() as work_dir:
        found = ms.relax_integration.tune_relax(
            mod, {}, target, work_dir, max_trials_global=trials, num_trials_per_iter=ROUND, seed=0,
            runner=runner,
            # there alone: the search, in this process, wants the instructions to be there
            builder=devices.builder())
        tasks = sorted(ms.relax_integration.extract_tasks(mod, target),
                       key=lambda task: task.task_name)
        records = [found.query_tuning_record(task.dispatched[0], target, task.task_name)
                   for task in tasks]
        if missing := [task.task_name for task, record in zip(tasks, records, strict=True)
                       if record is None]:
            raise CourseError(f"No candidate of {missing[0]} could be measured; nothing is "
                              "written. The lines above say why.")
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()
        best = ms.database.JSONDatabase(work_dir=str(folder))
        for task, record in zip(tasks, records, strict=True):
            best.commit_workload(record.workload.mod)
            best.commit_tuning_record(record)
            print(f"{task.task_name:26} {min(map(float, record.run_secs)) * 1e6:8.1f} µs")


@contextlib.contextmanager
def watched(there: devices.Devices) -> Iterator[None]:
    """End the block below by a CourseError when no server is left: TVM would wait for one for ever.

    A server that ends costs the candidate that it had; the search goes on with the others.
    """
    over, why, main_thread = threading.Event(), "", threading.get_ident()

    def look() -> None:
        nonlocal why
        bad = 0
        while not over.wait(LOOK):
            try:
                bad = 0 if devices.keys(there.host, there.port).get(there.key) else bad + 1
                text = f"no server is left under KEY={there.key}"
            except CourseError as error:
                bad, text = bad + 1, str(error)
            if bad == 2:  # two in a row: a server is away for a moment after each candidate
                why = text
                signal.pthread_kill(main_thread, signal.SIGINT)  # wakes it
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        if why:
            raise CourseError(f"Stopped, {why}; nothing is written.") from None
        raise
    finally:
        over.set()


@contextlib.contextmanager
def _devices(options: argparse.Namespace) -> Iterator[devices.Devices | None]:
    """Give the devices that the command line names, watched over; None for this machine alone."""
    if bool(options.tracker) != bool(options.key):
        raise CourseError("TRACKER=host:port and KEY=name go together.")
    with contextlib.ExitStack() as stack:
        there = None
        if options.servers:
            threads = max(1, (os.cpu_count() or 1) // options.servers)
            there = stack.enter_context(devices.local(options.servers, threads))
        elif options.tracker:
            there = devices.ask(options.tracker, options.key)
            if there.host not in ("127.0.0.1", "localhost"):
                print("Whoever reaches the tracker or its servers can run programs there: no "
                      "password is asked. Use ssh tunnels, see instructor/README.md.")
        if there:
            print(f"{there.count} server{'s' * (there.count > 1)} under {there.key}: "
                  f"{there.cpu}, {there.threads} thread(s) each", flush=True)
            stack.enter_context(watched(there))
        yield there


def main(arguments: list[str]) -> int:
    """Tune as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description="Tune the fused CNN of notebook 07.")
    parser.add_argument("--tracker", help="host:port of a running RPC tracker")
    parser.add_argument("--key", help="the key of the servers that are to measure")
    parser.add_argument("--servers", type=int, default=0, help="start so many on this machine")
    parser.add_argument("--trials", type=int, default=TRIALS, help="candidates in all")
    parser.add_argument("--to", type=Path, default=helpers.ROOT / "data" / "tuned")
    options = parser.parse_args(arguments)
    typed = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal typed
        typed = True
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with _devices(options) as there:
            cnn = helpers.pytorch_model(helpers.load_weights("cnn"))
            tune(fuse(helpers.import_model(cnn, SHAPE)), options.to, there, options.trials)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Exception) as error:
        if not typed and not isinstance(error, KeyboardInterrupt):
            raise
        # where Ctrl-C meets a function that TVM has called, TVM makes another error of it
        print("Stopped; nothing is written.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGINT, before)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
