"""What every notebook imports: data, weights, the PyTorch model, building, showing, timing.

Thin on purpose. What a notebook explains stands in the notebook; here is what would be in its way.
"""

import functools
import hashlib
import html
import io
import os
import pickle
import platform
import re
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent
CLASS_NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
               "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
N_IMAGES = 1000  # the notebooks evaluate on the first 1,000 test images; there are 10,000


class CourseError(Exception):
    """An error whose message is meant for the reader: notebooks show it without a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks the exception for this
        return str(self).splitlines()


def _require_pins() -> None:
    """Raise CourseError, with the doctor's line, where TVM is not the version of the course."""
    from tools.doctor import package, pins
    for name, wanted in pins().items():
        good, line = package(name, wanted)
        if not good and name.startswith("apache-tvm"):
            raise CourseError(f"{line}.\n     In JupyterLab take the kernel 'Python 3 "
                              "(ipykernel)'. `make doctor` looks at everything.")


_require_pins()

import torch
import tvm
from torch import nn
from tvm import relax


def _import_torchvision() -> types.ModuleType:
    """Import torchvision, also beside a CPU-only torch.

    PyPI's torchvision is compiled for CUDA and registers operators when it is imported; beside a
    CPU-only torch that fails with "operator torchvision::nms does not exist". The course needs
    its datasets and transforms, which use none of those operators, so their registration is left
    out and the import tried again.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        stub = "torchvision._meta_registrations"
        sys.modules[stub] = types.ModuleType(stub)
        import torchvision
    return torchvision


torchvision = _import_torchvision()


# ---- data ----------------------------------------------------------------------------------

_IDX = [f"{part}-{what}-ubyte" for part in ("t10k", "train") for what in
        ("images-idx3", "labels-idx1")]


@dataclass(frozen=True)
class Weights:
    """A published weight file: its name, SHA-256, and the shape of each array in it."""

    file: str
    sha256: str
    shapes: Mapping[str, tuple[int, ...]]


WEIGHTS = {
    "cnn": Weights("fasionmnist_mlp_assignment_params.pkl",
                   "5002bc310ff329ce00cddff6a8aa9065558a24248c9f7f211bb8b7e1d5c0db2e",
                   {"conv2d_weight": (32, 1, 3, 3), "conv2d_bias": (32,),
                    "linear0_weight": (100, 5408), "linear0_bias": (100,),
                    "linear1_weight": (10, 100), "linear1_bias": (10,)}),
    "mlp": Weights("fasionmnist_mlp_params.pkl",
                   "65e60c21536ed052ba5e1e6c94806530c7d804056822a6b39066ce6a5b02e646",
                   {"w0": (128, 784), "b0": (128,), "w1": (10, 128), "b1": (10,)}),
}


def missing(folder: Path) -> list[str]:
    """Names of the files that `folder` lacks; each model is a published .pkl or an .npz."""
    images = [f"FashionMNIST/raw/{name}" for name in _IDX]
    models = [f"models/{spec.file}" for name, spec in WEIGHTS.items()
              if not (folder / "models" / f"{name}.npz").is_file()]
    return [name for name in images + models if not (folder / name).is_file()]


@functools.cache
def data_folder() -> Path:
    """Return the folder with the images and the weights, found in this order.

    The folder that the environment variable MLC_DATA names (relative to the repository);
    data/ if it is complete; data/ after a download; the stand-in that comes with the course.
    """
    named = os.environ.get("MLC_DATA")
    if named:
        folder = (ROOT / named).resolve()
        if absent := missing(folder):
            raise CourseError(f"MLC_DATA={named}: no {absent[0]} there.\n"
                              "Point MLC_DATA at a folder laid out like data/ (data/README.md), "
                              "or unset it: then the data are downloaded.")
        return folder
    if missing(ROOT / "data"):
        subprocess.run([sys.executable, str(ROOT / "data" / "fetch.py")], capture_output=True,
                       check=False)
    return ROOT / "data" if not missing(ROOT / "data") else ROOT / "data" / "stand_in"


def is_stand_in() -> bool:
    """Whether the data are the drawn stand-in and not Fashion-MNIST."""
    return data_folder() == ROOT / "data" / "stand_in"


def data_line() -> str:
    """One line that says which data the course runs on."""
    if is_stand_in():
        return ("Data: the STAND-IN, drawn garments (this is not Fashion-MNIST). "
                "For the real images, `make data` with a network; see data/README.md.")
    return "Data: Fashion-MNIST and the published weights."


def test_data(count: int = N_IMAGES) -> torch.utils.data.Dataset:
    """Return the first `count` test images: float32 (1, 28, 28) in [0, 1], and labels 0 to 9.

    Raises CourseError where the files are damaged or hold fewer images.
    """
    try:
        dataset = torchvision.datasets.FashionMNIST(
            str(data_folder()), train=False, transform=torchvision.transforms.ToTensor())
    except Exception as error:  # torchvision raises whatever its parser stumbles over
        raise CourseError("The test images cannot be read: damaged or incomplete IDX files "
                          f"({str(error) or type(error).__name__}).\n{_REPAIR}") from None
    images, labels = dataset.data, dataset.targets
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or int(labels.max()) > 9:
        raise CourseError(f"The test images do not fit their labels: images "
                          f"{tuple(images.shape)}, labels {tuple(labels.shape)}.\n{_REPAIR}")
    if count > len(dataset):
        raise CourseError(f"{count:,} test images asked for, {len(dataset):,} are there.\n"
                          f"Ask for fewer, or get all 10,000: data/README.md.")
    return torch.utils.data.Subset(dataset, range(count))


_REPAIR = ("Delete the folder data/FashionMNIST and restart the kernel: "
           "it is then downloaded anew.")


def test_loader(batch_size: int = 4, count: int = N_IMAGES) -> torch.utils.data.DataLoader:
    """Return the test images in order, as batches: float32 (batch_size, 1, 28, 28), int64."""
    return torch.utils.data.DataLoader(test_data(count), batch_size=batch_size, shuffle=False)


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled numpy arrays and refuses everything else before it is executed."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"),
                              ("numpy._core.multiarray", "_reconstruct"),
                              ("numpy", "ndarray"), ("numpy", "dtype")}:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, not for an array")


def read_arrays(data: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Read a pickled dict of float32 arrays that must have these names and shapes.

    Raises CourseError for anything else in the pickle, without executing it.
    """
    try:
        arrays = _ArraysOnly(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise CourseError(f"The weight file is refused: {error}.") from None
    return _checked(arrays, shapes)


def _checked(arrays: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    if not isinstance(arrays, dict) or set(arrays) != set(shapes):
        names = sorted(map(str, arrays)) if isinstance(arrays, dict) else type(arrays).__name__
        raise CourseError(f"The weights should be {sorted(shapes)}, the file has {names}.")
    for name, shape in shapes.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float32:
            came = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
            raise CourseError(f"Weight {name} should be float32 {shape}, the file has {came}.")
        if not np.isfinite(array).all():
            raise CourseError(f"Weight {name} holds NaN or infinity: the file is damaged.")
    return arrays


def load_weights(model: str) -> dict[str, np.ndarray]:
    """Return the trained weights of "cnn" (the assignment's) or "mlp" as float32 arrays.

    Raises CourseError where the checksum, a name, a shape or a value is wrong.
    """
    spec, folder = WEIGHTS[model], data_folder() / "models"
    published = folder / spec.file
    if published.is_file():
        data = published.read_bytes()
        if hashlib.sha256(data).hexdigest() != spec.sha256:
            raise CourseError(f"{spec.file} is not the published file (its SHA-256 differs).\n"
                              "Delete it and restart the kernel: it is then downloaded anew.")
        return read_arrays(data, spec.shapes)
    try:
        with np.load(folder / f"{model}.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name].astype(np.float32) for name in stored.files}
    except Exception as error:  # a damaged archive raises nearly anything
        raise CourseError(f"{model}.npz cannot be read ({error}).") from None
    return _checked(arrays, spec.shapes)


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
    with warnings.catch_warnings():  # a FutureWarning of torch.export, with a path in it
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (torch.zeros(input_shape),))
        return from_exported_program(program, unwrap_unit_return_tuple=True)


def import_model(model: nn.Module, input_shape: tuple[int, ...]) -> tvm.IRModule:
    """Import a PyTorch model and lower its operators to PrimFuncs, one for each."""
    return relax.transform.LegalizeOps()(import_operators(model, input_shape))


def build(mod: tvm.IRModule, target: Any = "llvm") -> relax.VirtualMachine:
    """Compile an IRModule and return a VirtualMachine that runs it on the CPU."""
    return relax.VirtualMachine(relax.build(mod, target=target), tvm.cpu())


def to_numpy(value: Any) -> np.ndarray:
    """Return what a VirtualMachine gave, a tvm or torch tensor or a tuple of one, as an array."""
    if not hasattr(value, "numpy"):
        (value,) = value
    return value.numpy()


# ---- showing -------------------------------------------------------------------------------


class Listing:
    """Text with colours: highlighted HTML for people, plain text beside it for comparison."""

    def __init__(self, text: str, lexer: str = "python") -> None:
        self.text, self.lexer = text.strip("\n"), lexer

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from pygments import highlight, lexers
        from pygments.formatters import HtmlFormatter
        style = ("background:#f6f8fa;color:#24292f;padding:.6em 1em;line-height:1.35;"
                 "font-family:monospace;font-size:90%;white-space:pre;overflow-x:auto")
        if self.lexer == "diff":  # colour whole lines: a diff is read by its margins
            ink = {"+": "background:#dafbe1", "-": "background:#ffebe9", "@": "color:#6e7781"}
            lines = "\n".join(f'<span style="{ink.get(line[:1], "")}">{html.escape(line)}</span>'
                              for line in self.text.splitlines())
            return f'<pre style="{style}">{lines}</pre>'
        formatter = HtmlFormatter(noclasses=True, nobackground=True, prestyles=style)
        return highlight(self.text, lexers.get_lexer_by_name(self.lexer), formatter)


def script(item: tvm.IRModule | tvm.ir.BaseFunc) -> str:
    """Return an IRModule or function as TVMScript, without the printer's comments about imports.

    use_pep695=False: symbolic shapes would print differently on Python 3.11 and 3.12.
    """
    text = item.script(extra_config={"script.use_pep695": False})
    return "\n".join(line for line in text.splitlines()
                     if not line.startswith(("# from tvm", "# Metadata omitted"))).strip("\n")


def _readable(text: str) -> str:
    """Write T.int64(26) as 26: TVM marks the type of every extent and index."""
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", text)


def show(item: tvm.IRModule | tvm.ir.BaseFunc, only: str | None = None) -> Listing:
    """Show TVMScript, of a whole IRModule or `only` of its function with this name.

    For reading: extents are shown without their type (T.int64); `script` has them.
    """
    if only is None:
        return Listing(_readable(script(item)))
    return Listing(_readable(script(item[only])).replace("def main(", f"def {only}(", 1))


def show_diff(before: Any, after: Any, context: int = 3) -> Listing:
    """Show what changed between two modules, functions or texts: - before, + after."""
    import difflib
    texts = [_readable(item if isinstance(item, str) else script(item))
             for item in (before, after)]
    lines = difflib.unified_diff(*(text.splitlines() for text in texts), n=context, lineterm="")
    return Listing("\n".join(list(lines)[2:]) or "no difference", "diff")


# ---- loop nests ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """One loop of a PrimFunc; kind is serial, parallel, vectorized or unrolled."""

    name: str
    extent: int | str  # a str where the shape is symbolic
    kind: str
    node: Any  # the tvm.tirx.For

    def __str__(self) -> str:
        return f"{self.name}: {self.extent}" + ("" if self.kind == "serial" else f" {self.kind}")


@dataclass(frozen=True)
class Nest:
    """An sblock and the loops around it, outermost first."""

    block: str
    loops: tuple[Loop, ...]
    realize: Any  # the tvm.s_tir.SBlockRealize

    @property
    def reduces(self) -> bool:
        """Whether the block has a reduction axis."""
        return any(int(var.iter_type) == 2 for var in self.realize.block.iter_vars)

    @property
    def has_init(self) -> bool:
        """Whether T.init still stands in the block: the reduction is not decomposed."""
        return self.realize.block.init is not None

    @property
    def buffer(self) -> str:
        """Name of the buffer that the block writes."""
        return self.realize.block.writes[0].source.name


def nests(func: tvm.tirx.PrimFunc) -> list[Nest]:
    """Return the loop nest of each sblock of a PrimFunc, in program order."""
    found: list[Nest] = []

    def walk(node: Any, loops: tuple[Loop, ...]) -> None:
        match type(node).__name__:
            case "For":
                kind = tvm.tirx.ForKind(node.kind).name.lower()
                extent = getattr(node.extent, "value", None)
                loop = Loop(node.loop_var.name, str(node.extent) if extent is None else int(extent),
                            kind, node)
                walk(node.body, (*loops, loop))
            case "SeqStmt":
                for part in node.seq:
                    walk(part, loops)
            case "SBlockRealize":
                inner = len(found)
                walk(node.block.body, loops)
                if len(found) == inner and node.block.name_hint != "root":
                    found.append(Nest(node.block.name_hint, loops, node))

    walk(func.body, ())
    return found


# ---- timing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: the median and the quartiles of the repeats."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        unsteady = "  unsteady: is the machine busy?" if self.high > 2 * self.low else ""
        return f"{self.median:8.1f} µs  ({self.low:.1f} to {self.high:.1f}){unsteady}"


def measure(candidates: Mapping[str, Callable[[], Any]], repeats: int = 9,
            seconds: float = 0.02) -> dict[str, Timing]:
    """Time functions against one another: warmed up, interleaved, median and quartiles.

    A pause before each block lets the thread pools of the others fall asleep: TVM's spin for
    150 ms after their last call, and spinning threads take the cores from the next candidate.
    """
    calls = {}
    for name, run in candidates.items():
        run()
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            run()
            count += 1
        calls[name] = count
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            time.sleep(0.16)
            run()
            start = time.perf_counter()
            for _ in range(calls[name]):
                run()
            samples[name].append((time.perf_counter() - start) / calls[name] * 1e6)
    return {name: Timing(*(float(np.percentile(times, q)) for q in (50, 25, 75)))
            for name, times in samples.items()}


def machine() -> str:
    """One line: the CPU, the numbers of threads of TVM and PyTorch, and whether it is busy."""
    try:
        cpu = next(line.split(":")[1].strip() for line in
                   Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    busy = os.getloadavg()[0] > (os.cpu_count() or 1) + 0.5  # this process alone: one a core
    return (f"{cpu}, TVM with {tvm.runtime.num_threads()} threads, PyTorch with "
            f"{torch.get_num_threads()}" + "; BUSY with something else: no time here means much"
            * busy)
