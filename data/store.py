"""The data: where they are, whose they are, and reading them. NumPy only.

Nothing here trusts a name or a place: images and weights are identified by their SHA-256.
"""

import functools
import hashlib
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course.words import ROOT, CourseError, Sentence, _

DATA = ROOT / "data"
CLASS_NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
               "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
N_IMAGES = 1000  # the notebooks evaluate on the first 1,000 test images; there are 10,000


# ---- what is here --------------------------------------------------------------------------

_IDX = [f"{part}-{what}-ubyte" for part in ("t10k", "train") for what in
        ("images-idx3", "labels-idx1")]


@dataclass(frozen=True)
class Weights:
    """A published weight file: its name, SHA-256, and the shape of each array in it.

    `stand_in` is the SHA-256 of the .npz that replaces it in data/stand_in/models/.
    """

    file: str
    sha256: str
    stand_in: str
    shapes: Mapping[str, tuple[int, ...]]


WEIGHTS = {
    "cnn": Weights("fasionmnist_mlp_assignment_params.pkl",
                   "5002bc310ff329ce00cddff6a8aa9065558a24248c9f7f211bb8b7e1d5c0db2e",
                   "9aaa2200a5c5e607231d912fb705f21614ff5b66dfe66cfd62d3c5a6e8b8bc64",
                   {"conv2d_weight": (32, 1, 3, 3), "conv2d_bias": (32,),
                    "linear0_weight": (100, 5408), "linear0_bias": (100,),
                    "linear1_weight": (10, 100), "linear1_bias": (10,)}),
    "mlp": Weights("fasionmnist_mlp_params.pkl",
                   "65e60c21536ed052ba5e1e6c94806530c7d804056822a6b39066ce6a5b02e646",
                   "06caa5bc77c1bedd7bfa73af96b02838a01e08b41dc2bcb3d0ebf546f04cd6c7",
                   {"w0": (128, 784), "b0": (128,), "w1": (10, 128), "b1": (10,)}),
}


def missing(folder: Path) -> list[str]:
    """Return the names of the files that `folder` lacks; a model is a published .pkl or an .npz."""
    images = [f"FashionMNIST/raw/{name}" for name in _IDX]
    models = [f"models/{spec.file}" for name, spec in WEIGHTS.items()
              if not (folder / "models" / f"{name}.npz").is_file()]
    return [name for name in images + models if not (folder / name).is_file()]


@functools.cache
def data_folder() -> Path:
    """Return the folder with the images and the weights, found in this order.

    The folder that the environment variable MLC_DATA names (relative to the repository);
    data/ if it is complete; data/ after a download; the stand-in that comes with the course.
    Raises CourseError where MLC_DATA names a folder that is not complete.
    """
    named = os.environ.get("MLC_DATA")
    if named:
        folder = (ROOT / named).resolve()
        if absent := missing(folder):
            raise CourseError(_(
                "MLC_DATA={folder}: no {file} there.\nPoint MLC_DATA at a folder laid out like "
                "data/ (data/README.md), or unset it: then the data are downloaded.").format(
                    folder=named, file=absent[0]))
        return folder
    if missing(DATA):
        subprocess.run([sys.executable, "-m", "data.fetch"], cwd=ROOT, capture_output=True,
                       check=False)
    return DATA if not missing(DATA) else DATA / "stand_in"


# ---- whose it is ---------------------------------------------------------------------------

REAL, STAND_IN, UNKNOWN = "real", "stand-in", "unknown"
# SHA-256 of the pixels and then the labels of the first 1,000 test images, without IDX headers:
# the same whether a file holds these images or all 10,000
_IMAGES = {"99324003f90225ff171e1aec72f674b69ec6865868cc89648a79ce554830d86d": REAL,
           "5240651309124a77073c377b62912deea047ad67f7b069b42db1359631b2dc08": STAND_IN}
_WHOSE = {REAL: (_("Fashion-MNIST's images"), _("the published weights")),
          STAND_IN: (_("the stand-in's images"), _("the stand-in's weights")),
          UNKNOWN: (_("images of unknown origin"), _("weights of unknown origin"))}


def provenance() -> tuple[str, str]:
    """Return whose the test images and the weights in use are: each REAL, STAND_IN or UNKNOWN.

    The files' content decides, wherever they are. Damaged files are UNKNOWN.
    """
    raw, models = data_folder() / "FashionMNIST" / "raw", data_folder() / "models"
    digest = hashlib.sha256()
    for name, header, size in [(_IDX[0], 16, 28 * 28), (_IDX[1], 8, 1)]:
        with (raw / name).open("rb") as file:
            file.seek(header)
            digest.update(file.read(N_IMAGES * size))
    found = set()
    for name, spec in WEIGHTS.items():
        published = (models / spec.file).is_file()
        stored = (models / (spec.file if published else f"{name}.npz")).read_bytes()
        known = {spec.sha256: REAL, spec.stand_in: STAND_IN}
        found.add(known.get(hashlib.sha256(stored).hexdigest(), UNKNOWN))
    weights = found.pop() if len(found) == 1 else UNKNOWN
    return _IMAGES.get(digest.hexdigest(), UNKNOWN), weights


def is_real() -> bool:
    """Return whether the data are Fashion-MNIST and the published weights, as in stored outputs."""
    return provenance() == (REAL, REAL)


def is_stand_in() -> bool:
    """Return whether the data are the drawn stand-in, images and weights."""
    return provenance() == (STAND_IN, STAND_IN)


def data_line() -> Sentence:
    """Return one line that says which data the course runs on."""
    images, weights = provenance()
    if (images, weights) == (REAL, REAL):
        return _("Data: Fashion-MNIST and the published weights.")
    if (images, weights) == (STAND_IN, STAND_IN):
        return _("Data: the STAND-IN, drawn garments (this is not Fashion-MNIST). "
                 "For the real images, `make data` with a network; see data/README.md.")
    return _("Data: {images} and {weights}. No number that the course states holds for them; see "
             "data/README.md.").format(images=_WHOSE[images][0], weights=_WHOSE[weights][1])


# ---- images --------------------------------------------------------------------------------

_REPAIR = _("\nDelete the folder data/FashionMNIST and restart the kernel: "
            "it is then downloaded again.")


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """Return the uint8 array with this number of axes that an IDX file holds.

    The header, in 32-bit integers, high byte first: 2048, for uint8, plus the number of axes, then
    the extent of each. Raises ValueError for another header, or if it does not fit the data.
    """
    data = path.read_bytes()
    kind, *shape = np.frombuffer(data[:4 + 4 * axes].ljust(4, b"\0"), ">i4").tolist()
    if kind != 2048 + axes or min(shape, default=0) < 1:
        raise ValueError(f"not an IDX file of bytes with {axes} axes")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def test_images(count: int | None = N_IMAGES) -> tuple[np.ndarray, np.ndarray]:
    """Return the first `count` test images, or all: uint8 (count, 28, 28), labels uint8 (count,).

    Raises CourseError if the files are damaged or hold fewer images.
    """
    raw = data_folder() / "FashionMNIST" / "raw"
    try:
        images, labels = _read_idx(raw / _IDX[0], 3), _read_idx(raw / _IDX[1], 1)
    except Exception as error:  # whatever the parser raises
        raise CourseError(_(
            "The test images cannot be read: damaged or incomplete IDX files ({reason}).").format(
                reason=str(error) or type(error).__name__) + _REPAIR) from None
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max() > 9:
        raise CourseError(_(
            "The test images do not fit their labels: images {images}, labels {labels}.").format(
                images=images.shape, labels=labels.shape) + _REPAIR)
    if count is not None and count > len(images):
        raise CourseError(_("{wanted} test images asked for, {have} are there.\nAsk for fewer, or "
                            "get all 10,000: data/README.md.").format(
                                wanted=f"{count:,}", have=f"{len(images):,}"))
    return images[:count], labels[:count]


# ---- weights -------------------------------------------------------------------------------


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
        raise CourseError(_("The weight file is refused: {reason}.").format(reason=error)) from None
    return _checked(arrays, shapes)


def _checked(arrays: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return arrays that have these names and shapes, float32 and finite; else CourseError."""
    if not isinstance(arrays, dict) or set(arrays) != set(shapes):
        names = sorted(map(str, arrays)) if isinstance(arrays, dict) else type(arrays).__name__
        raise CourseError(_("The weights should be {expected}, the file has {came}.").format(
            expected=sorted(shapes), came=names))
    for name, shape in shapes.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float32:
            came = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
            raise CourseError(_("Weight {name} should be {expected}, the file has {came}.").format(
                name=name, expected=f"float32 {shape}", came=came))
        if not np.isfinite(array).all():
            raise CourseError(_("Weight {name} holds NaN or infinity: the file is damaged.").format(
                name=name))
    return arrays


def load_weights(model: str) -> dict[str, np.ndarray]:
    """Return the trained weights of "cnn" (the assignment's) or "mlp" as float32 arrays.

    Raises CourseError if the checksum, a name, a shape or a value is wrong.
    """
    spec, folder = WEIGHTS[model], data_folder() / "models"
    published = folder / spec.file
    if published.is_file():
        data = published.read_bytes()
        if hashlib.sha256(data).hexdigest() != spec.sha256:
            raise CourseError(_("{file} is not the published file (its SHA-256 differs).\nDelete "
                                "it and restart the kernel: it is then downloaded again.").format(
                                    file=spec.file))
        return read_arrays(data, spec.shapes)
    try:
        with np.load(folder / f"{model}.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name].astype(np.float32) for name in stored.files}
    except Exception as error:  # a damaged archive raises nearly anything
        raise CourseError(_("{file} cannot be read ({reason}).").format(
            file=f"{model}.npz", reason=error)) from None
    return _checked(arrays, spec.shapes)
