"""Time the course's compiled model against ONNX Runtime, OpenVINO and PyTorch.

    python -m tools.bench 4            batches of 4 images
    python -m tools.bench 1 4 16 64    and of other sizes

With one thread, with two, and with all cores. Each contender has a separate process. They take
turns, one block of calls at a time, for ROUNDS rounds; the next begins when the last one's thread
pool is asleep. A contender whose outputs differ from PyTorch's is not timed. Results are in
build/bench.json, build/bench.md and build/bench.png; the libraries print into build/bench.log.
"""

import contextlib
import datetime
import gc
import importlib.metadata
import json
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import tvm
from matplotlib.figure import Figure

import helpers
from course import kernels, present
from course.checks.compare.tolerance import ATOL_PROBABILITIES, RTOL, to_numpy
from course.words import ROOT, _, told
from data import store

BUILD = ROOT / "build"
ROUNDS, BLOCK = 9, 0.25  # turns of each contender, and the seconds of one
WEIGHTS = 4 * (32 * 9 + 32 + 5408 * 100 + 100 + 100 * 10 + 10)  # bytes of the CNN's parameters
BOUND, NUMPY = ", IOBinding", ", NumPy"
TVM, ORT, OPENVINO, EAGER, COMPILED, IMPORTED = (
    "TVM, one kernel", "ONNX Runtime", "OpenVINO", "PyTorch eager", "torch.compile",
    "TVM as imported")
FLOOR = "floor"
SPAWN = multiprocessing.get_context("spawn")  # fork hangs once TVM or torch has made threads
Call = Callable[[], Any]
NOTE = """Microseconds a batch (less is better): the median and the quartiles of the blocks, and the
least of any 2 ms. Far apart, they say that something else was running on the machine.
x: how many times as fast as that library. NumPy: arrays in, a new array out, compared with ONNX
Runtime's `run`; without it, tensors that are there already, compared with its IOBinding."""


class LeftOutError(Exception):
    """A contender cannot run on this machine; the message says why."""


def needed(kind: str) -> None:
    """Leave a contender out if what it needs does not work here."""
    if not (found := present.tool(kind)):
        raise LeftOutError(found.said)


def flops(batch: int) -> int:
    """Floating-point operations of the convolution and the dense layers, for `batch` images."""
    return 2 * batch * (9 * 32 * 26 * 26 + 5408 * 100 + 100 * 10)


# ---- the contenders -------------------------------------------------------------------------
# Each makes, from images (n, 1, 28, 28) and a number of threads, a function that computes the
# probabilities at each call, and one that turns its result into an array (n, 10).

Made = tuple[Call, Callable[[Any], np.ndarray]]


def network() -> torch.nn.Module:
    """Return the CNN in PyTorch."""
    return helpers.pytorch_model(helpers.load_weights("cnn"))


def one_kernel(images: np.ndarray, threads: int) -> Callable[[Any], Any]:
    """Build the packed kernel for this CPU; return the VM's function that runs it."""
    target = tvm.target.Target.from_device("cpu")
    mod = kernels.packed_model(helpers.load_weights("cnn"), len(images), target, threads)
    return helpers.build(mod, target)["main"]


def tvm_tensors(images: np.ndarray, threads: int) -> Made:
    run, data = one_kernel(images, threads), tvm.runtime.tensor(images)
    return (lambda: run(data)), np.from_dlpack


def tvm_numpy(images: np.ndarray, threads: int) -> Made:
    run, data = one_kernel(images, threads), tvm.runtime.tensor(np.zeros_like(images))
    view = torch.from_dlpack(data).numpy()  # np.from_dlpack's is read-only

    def call() -> np.ndarray:
        np.copyto(view, images)
        return np.from_dlpack(run(data)).copy()
    return call, np.asarray


def tvm_imported(images: np.ndarray, threads: int) -> Made:
    """The starting point: what TVM makes of the model without any schedule."""
    run = helpers.build(helpers.import_model(network(), images.shape))["main"]
    data = tvm.runtime.tensor(images)
    return (lambda: run(data)), to_numpy


def onnx_model(images: np.ndarray) -> bytes:
    """Export the model in the ONNX format."""
    with torch.inference_mode(False):
        program = torch.onnx.export(network(), (torch.zeros(images.shape),), dynamo=True)
    return program.model_proto.SerializeToString()


def ort_session(images: np.ndarray, threads: int) -> Any:
    """Open the model with ONNX Runtime's own settings."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(onnx_model(images), options,
                                        providers=["CPUExecutionProvider"])


def ort_binding(images: np.ndarray, threads: int) -> Made:
    needed("onnxruntime")
    import onnxruntime
    session = ort_session(images, threads)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    data, out = value(images), value(np.zeros((len(images), 10), "float32"))
    binding = session.io_binding()
    binding.bind_ortvalue_input(session.get_inputs()[0].name, data)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, out)
    return (lambda: session.run_with_iobinding(binding)), lambda _: out.numpy()


def ort_numpy(images: np.ndarray, threads: int) -> Made:
    needed("onnxruntime")
    session = ort_session(images, threads)
    feed = {session.get_inputs()[0].name: images}
    return (lambda: session.run(None, feed)), lambda out: out[0]


def open_vino(images: np.ndarray, threads: int) -> Made:
    needed("openvino")
    import openvino
    model = openvino.Core().read_model(onnx_model(images), b"")
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads,
                "INFERENCE_PRECISION_HINT": "f32"}  # else it takes bfloat16 if the CPU has it
    request = openvino.compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(images))  # its own copy, which is never freed
    return request.infer, lambda _: request.get_output_tensor().data


def eager(images: np.ndarray, threads: int) -> Made:
    torch.set_num_threads(threads)
    model, data = network(), torch.from_numpy(images)
    return (lambda: model(data)), to_numpy


def compiled(images: np.ndarray, threads: int) -> Made:
    needed("c++")
    torch.set_num_threads(threads)
    torch._dynamo.reset()  # else the second batch size gets code for every size
    model, data = torch.compile(network()), torch.from_numpy(images)
    return (lambda: model(data)), to_numpy


CONTENDERS = {TVM: tvm_tensors, TVM + NUMPY: tvm_numpy, ORT + BOUND: ort_binding,
              ORT + NUMPY: ort_numpy, OPENVINO: open_vino, EAGER: eager, COMPILED: compiled,
              IMPORTED: tvm_imported}


# ---- in a contender's process ---------------------------------------------------------------


def difference(out: np.ndarray, reference: np.ndarray) -> str | None:
    """Say how an output differs from PyTorch's probabilities, or None if it is equal."""
    if out.shape != reference.shape or out.dtype != reference.dtype:
        return f"gives {out.dtype} {out.shape}, not {reference.dtype} {reference.shape}"
    if np.allclose(out, reference, RTOL, ATOL_PROBABILITIES):
        return None
    return f"differs from PyTorch by up to {np.abs(out - reference).max():.2g}"


def repeat(call: Call, seconds: float) -> list[float]:
    """Call for some seconds; return microseconds per call, each a mean over 2 ms."""
    count, means, end = 1, [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        for _call in range(count):
            call()
        mean = (time.perf_counter() - start) / count
        means.append(mean * 1e6)
        count = max(1, int(0.002 / mean))
    return means


def cores() -> list[int]:
    """The CPUs that this process may use, one of each physical core first; none on macOS."""
    if not hasattr(os, "sched_getaffinity"):
        return []

    return sorted(os.sched_getaffinity(0), key=lambda cpu: (is_second(cpu), cpu))


def is_second(cpu: int) -> bool:
    """Return whether a CPU is a second thread of a physical core."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return path.is_file() and int(re.split("[,-]", path.read_text())[0]) != cpu


def count_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return sum(not is_second(cpu) for cpu in cores()) or psutil.cpu_count(logical=False) or 1


def thread_counts() -> list[int]:
    """Return the numbers of threads to time with: one, two, and the number of cores."""
    return sorted({1, min(2, count_cores()), min(kernels.MOST, count_cores())})


def place(call: Call, threads: int, cpus: list[int]) -> bool:
    """Pin the main thread and the busiest threads to a CPU each, if that is faster.

    It helps some pools and slows others: each contender gets what is better for it.
    """
    def used() -> dict[int, float]:
        return {thread.id: thread.user_time + thread.system_time
                for thread in psutil.Process().threads()}

    def settle(pinned: bool) -> float:
        for thread, cpu in zip(workers, cpus, strict=False):
            with contextlib.suppress(ProcessLookupError):  # a helper that has ended
                os.sched_setaffinity(thread, {cpu} if pinned else set(cpus))
        return float(np.median(repeat(call, 0.15)))

    before, main = used(), os.getpid()
    repeat(call, 0.3)
    spent = {thread: seconds - before.get(thread, 0) for thread, seconds in used().items()}
    others = sorted(spent.keys() - {main}, key=lambda thread: spent[thread], reverse=True)
    workers = [main, *others[:threads - 1]]
    free, pinned = np.median([[settle(False), settle(True)] for _ in range(4)], axis=0)
    settle(pinned < free)
    return bool(pinned < free)


def rest(limit: float = 3.0) -> None:
    """Wait until the threads of this process sleep: pools spin for up to 150 ms after a call."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(0.03)
        if time.process_time() - before < 0.003:
            return


def prepare(make: Callable[..., Made], images: np.ndarray, threads: int, reference: np.ndarray
            ) -> tuple[tuple[str, str], Call | None]:
    """Build a contender, verify its outputs and warm it up; return (state, why), call."""
    try:
        call, read = make(images, threads)
        call()
        if wrong := difference(read(call()), reference):
            return ("wrong", wrong), None
        repeat(call, 0.3)
    except LeftOutError as error:
        return ("left out", str(error)), None
    except Exception as error:  # whatever a library raises, the others continue
        traceback.print_exc()
        return ("failed", f"{type(error).__name__}, see build/bench.log"), None
    return ("ready", ""), call


def serve(pipe: Connection, make: Callable[..., Made]) -> None:
    """Answer the parent until it sends None: prepare a batch, pin threads, or run a block."""
    cpus, threads = cores(), 1
    call: Callable[[], Any] | None = None
    answer: Any
    with torch.inference_mode():
        while message := pipe.recv():
            if message == "block" and call:
                repeat(call, 0.05)  # wakes the pool
                answer = repeat(call, BLOCK)
            elif message == "place" and call:
                answer = bool(cpus) and place(call, threads, cpus)
            else:
                call = None  # ends the last batch's threads
                if cpus:
                    os.sched_setaffinity(0, cpus)  # which new threads inherit
                threads = message[1]
                answer, call = prepare(make, *message)
            rest()
            pipe.send(answer)


def measure_floor(pipe: Connection) -> None:
    """Measure GFLOP/s of multiply-adds, and GB/s of reading as many bytes as the weights have."""
    target = tvm.target.Target.from_device("cpu")
    while threads := pipe.recv():
        answer = (kernels.measure_peak(target, threads),
                  kernels.measure_bandwidth(target, threads, WEIGHTS))
        rest()
        pipe.send(answer)


def work(pipe: Connection, name: str) -> None:
    """Run as the process of a contender, or of the floor; libraries print into the log."""
    log = os.open(BUILD / "bench.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    gc.disable()
    with contextlib.suppress(EOFError, KeyboardInterrupt):  # the parent was stopped
        measure_floor(pipe) if name == FLOOR else serve(pipe, CONTENDERS[name])


# ---- the parent -----------------------------------------------------------------------------


class Worker:
    """A process and the pipe to it."""

    def __init__(self, name: str, threads: int) -> None:
        os.environ.update(TVM_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        self.name, (self.pipe, theirs) = name, multiprocessing.Pipe()
        self.process = SPAWN.Process(target=work, args=(theirs, name), daemon=True)
        self.process.start()
        theirs.close()

    def answer(self) -> Any:
        """Return what the process sends; exit if it has ended."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(5)
            sys.exit(_("\n{name}: its process ended (exit code {code}). Its last words are in "
                       "build/bench.log.").format(name=self.name, code=self.process.exitcode))

    def ask(self, message: Any) -> Any:
        """Send a message, and return the answer."""
        self.pipe.send(message)
        return self.answer()


def timed(team: list[Worker]) -> dict[str, list[list[float]]]:
    """Let the contenders take turns, a different one first each time; return their blocks."""
    blocks: dict[str, list[list[float]]] = {worker.name: [] for worker in team}
    for _round in range(ROUNDS):
        for worker in team:
            blocks[worker.name].append(worker.ask("block"))
        team = team[1:] + team[:1]
        print(".", end="", flush=True)
    return blocks


def summary(blocks: list[list[float]]) -> dict[str, float]:
    """Return microseconds per call: quartiles of the blocks' medians, and the smallest mean."""
    quartiles = np.percentile([np.median(block) for block in blocks], [50, 25, 75]).tolist()
    return {**dict(zip(("median", "low", "high"), quartiles, strict=True)),
            "least": float(min(map(min, blocks)))}


def contest(threads: int, batches: list[int], images: np.ndarray, reference: np.ndarray,
            troubles: dict[str, str]) -> list[dict[str, Any]]:
    """Time every contender with this many threads; return a dict for each batch size.

    Whatever is not timed goes into `troubles`, with the reason.
    """
    print(_("{threads} on {cores}: starting {count} processes").format(
        threads=(_("{count} thread") if threads == 1 else _("{count} threads")).format(
            count=threads), cores=(_("{count} core") if count_cores() == 1 else
                                   _("{count} cores")).format(count=count_cores()),
        count=len(CONTENDERS)), flush=True)
    floor, *team = [Worker(name, threads) for name in (FLOOR, *CONTENDERS)]
    settings, floors = [], []
    for batch in batches:
        for worker in team:
            worker.pipe.send((images[:batch], threads, reference[:batch]))
        ready = []
        for worker, (state, why) in [(worker, worker.answer()) for worker in team]:
            if state == "ready":
                ready.append(worker)
            elif worker.name not in troubles:
                troubles[worker.name] = f"{state}: {why}"
                print(f"  {worker.name} {state}: {why}", flush=True)
        floors.append(floor.ask(threads))
        print(_("  batch {batch}: outputs verified, timing ").format(batch=batch), end="",
              flush=True)
        pinned = [worker.name for worker in ready if worker.ask("place")]
        blocks = timed(ready)
        print(flush=True)
        settings.append({"batch": batch, "threads": threads, "pinned": pinned,
                         "times": {name: summary(times) for name, times in blocks.items()}})
    floors.append(floor.ask(threads))
    for worker in (floor, *team):
        worker.pipe.send(None)
        worker.process.join(10)
    gflops, gbytes = (max(values) for values in zip(*floors, strict=True))
    return [{**setting, "gflops": gflops, "gbytes": gbytes} for setting in settings]


# ---- the report -----------------------------------------------------------------------------


def plural(count: int, word: str = "thread") -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def ratios(times: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return how many times as fast as its peers each is: NumPy by NumPy, all else by IOBinding."""
    return {name: {peer: times[column]["median"] / time["median"] for peer, column in (
                (ORT, ORT + (NUMPY if name.endswith(NUMPY) else BOUND)), (EAGER, EAGER),
                (COMPILED, COMPILED)) if column in times}
            for name, time in times.items()}


def table(setting: dict[str, Any]) -> str:
    """Return one batch size at one number of threads as a Markdown table, with its floor."""
    widths, peers = (10, 16, 6, 12, 14, 15, 15), (ORT, EAGER, COMPILED)
    row = "| {:23} |" + "".join(f" {{:>{width}}} |" for width in widths)
    heads = ("median, µs", "quartiles", "least", "of the floor", *(f"x {peer}" for peer in peers))
    lines = [row.format("", *heads),
             row.format("-" * 23, *("-" * (width - 1) + ":" for width in widths))]
    work_done, gflops, gbytes = flops(setting["batch"]), setting["gflops"], setting["gbytes"]
    arithmetic, reading = work_done / gflops / 1e3, WEIGHTS / gbytes / 1e3
    times = ratios(setting["times"])
    for name, took in setting["times"].items():
        lines.append(row.format(
            name, f"{took['median']:.1f}", f"{took['low']:.1f} to {took['high']:.1f}",
            f"{took['least']:.1f}", f"{max(arithmetic, reading) / took['median']:.0%}",
            *(f"{times[name][peer]:.2f}" if peer in times[name] else "-" for peer in peers)))
    return (f"Batch {setting['batch']}, {plural(setting['threads'])}\n\n" + "\n".join(lines) +
            f"\n\nFloor, the greater of two: {work_done / 1e6:.2f} MFLOP at the measured "
            f"{gflops:.0f} GFLOP/s take {arithmetic:.1f} µs; reading {WEIGHTS / 1e6:.2f} MB of "
            f"weights at the measured {gbytes:.0f} GB/s takes {reading:.1f} µs.\nEach thread on a "
            f"separate CPU, where that was faster: {'; '.join(setting['pinned']) or 'none'}.")


def plot(settings: list[dict[str, Any]], path: Path) -> None:
    """Draw the medians as points with their quartiles, and the floor as a line."""
    columns = len({setting["threads"] for setting in settings})
    rows = len(settings) // columns
    figure = Figure(figsize=(4.6 * columns + 1.5, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex="row", sharey=True)
    for ax, setting in zip(axes.T.flat, settings, strict=True):
        for name, took in setting["times"].items():
            ax.plot([took["low"], took["high"]], [name, name], color="#57606a", lw=2)
            ax.plot(took["median"], name, "o", color="#1a7f37" if TVM in name else "#57606a")
            ax.annotate(f"{took['median']:.0f}", (took["high"], name), (6, 0), va="center",
                        textcoords="offset points", size=9)
        floor = max(flops(setting["batch"]) / setting["gflops"], WEIGHTS / setting["gbytes"]) / 1e3
        ax.axvline(floor, color="#cf222e", ls="--")
        ax.grid(axis="x", which="both", color="#eaeef2")
        ax.set(xscale="log", title=f"batch {setting['batch']}, {plural(setting['threads'])}")
        ax.margins(x=0.15, y=0.1)
    for ax in axes[-1]:
        ax.set_xlabel("µs a batch, logarithmic; dashed: the floor")
    axes[0, 0].invert_yaxis()  # shared: all of them
    figure.savefig(path, dpi=130)


def write(settings: list[dict[str, Any]], about: dict[str, Any], folder: Path) -> str:
    """Write bench.json, bench.md and bench.png to `folder`; return the text of bench.md."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    counts = " and ".join(map(str, dict.fromkeys(setting["threads"] for setting in settings)))
    text = "\n\n".join([f"{about['date']}, {about['cpu']}, {plural(about['cores'], 'core')}, "
                        f"threads: {counts}. {versions}.", *map(table, settings),
                        NOTE,
                        *(f"{name} {why}." for name, why in about["not timed"].items())]) + "\n"
    (folder / "bench.json").write_text(json.dumps({**about, "settings": settings}, indent=1) + "\n")
    (folder / "bench.md").write_text(text, encoding="utf-8")
    plot(settings, folder / "bench.png")
    return text


def main(words: list[str]) -> None:
    """Time batches of the sizes in `words`; exit with the usage if there are none."""
    if not words or not all(word.isdecimal() and int(word) for word in words):
        sys.exit((__doc__ or "").partition("\n\nWith")[0])
    batches = [int(word) for word in words]
    os.environ["MLC_DATA"] = str(store.data_folder())  # else each process tries to download
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.log").write_text("")
    if (load := os.getloadavg()[0]) > 0.5:
        print(_("This machine is busy (load {load}): the times will be disturbed.").format(
            load=f"{load:.1f}"), flush=True)
    images = next(iter(helpers.test_loader(max(batches), max(batches))))[0]
    with torch.inference_mode():
        reference = network()(images).numpy()
    settings: list = []
    troubles: dict = {}
    for threads in thread_counts():
        settings += contest(threads, batches, images.numpy(), reference, troubles)
    target = tvm.target.Target.from_device("cpu")
    versions = {name: importlib.metadata.version(name)
                for name in ("apache-tvm", "torch", *filter(present.tool, (
                    "onnxruntime", "openvino")))}
    about = {"date": datetime.date.today().isoformat(), "cores": count_cores(),
             "cpu": told(helpers.machine(), "en").partition(", threads:")[0]
             + f" ({target.attrs['mcpu']})",
             "versions": versions, "not timed": troubles}
    print("\n" + write(settings, about, BUILD))
    print(_("Written: build/bench.json, build/bench.md, build/bench.png"))
    if any(not why.startswith("left out") for why in troubles.values()):
        sys.exit(_("Not every contender could be timed: see above."))


if __name__ == "__main__":
    main(sys.argv[1:])
