"""The C program of notebook 11 gives what PyTorch gives, and refuses what is not its own."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm

import helpers
from course import present
from course.ship import kernel, native
from data.store import CourseError

COMPILER = pytest.mark.skipif(not present.tool("c"), reason=present.tool("c").said)
ARM = tvm.target.Target({"kind": "llvm", "mtriple": native.ARM, "mattr": ["+neon"]})


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.stack([image.numpy() for image, _label in helpers.test_data(200)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, images: np.ndarray) -> Path:
    """A folder with the CNN for this machine, its weights and images."""
    place, target = tmp_path_factory.mktemp("cnn"), tvm.target.Target("llvm")
    cnn, packed = kernel.cnn(helpers.load_weights("cnn"), target)
    kernel.write(cnn, target, place)
    packed.tofile(place / "weights.bin")
    images.tofile(place / "images.bin")
    return place


def _equal_pytorch(folder: Path, images: np.ndarray, *start: str) -> None:
    _said, told = native.run([*start, folder / "cnn", folder / "weights.bin",
                              folder / "images.bin", folder / "came.bin"])
    assert told.startswith(f"{len(images)} images, ")
    with torch.no_grad():
        right = helpers.pytorch_model(helpers.load_weights("cnn"))(torch.from_numpy(images)).numpy()
    came = np.fromfile(folder / "came.bin", "float32").reshape(-1, 10)
    np.testing.assert_allclose(came, right, 1e-4, 1e-7)


@COMPILER
def test_the_program_in_c_equals_pytorch(folder: Path, images: np.ndarray) -> None:
    native.run(native.alone(folder))
    _equal_pytorch(folder, images)
    linked = (folder / "cnn").read_bytes()
    assert b"libtvm" not in linked and len(linked) < 100_000


@COMPILER
@pytest.mark.parametrize(("given", "says"), [
    (["images.bin", "images.bin", "came.bin"], "images.bin: not the numbers of this model"),
    (["weights.bin", "no.bin", "came.bin"], "no.bin: cannot be read"),
    (["weights.bin", "images.bin", "no/came.bin"], "came.bin: cannot be written"),
    ([], "WEIGHTS IMAGES PROBABILITIES")])
def test_the_program_in_c_says_what_is_wrong(folder: Path, given: list[str], says: str) -> None:
    if not (folder / "cnn").exists():
        native.run(native.alone(folder))
    with pytest.raises(CourseError, match=says):
        native.run([folder / "cnn", *(folder / name for name in given)])


@pytest.mark.skipif(not present.tool("arm64"), reason=present.tool("arm64").said)
def test_the_program_for_arm64_equals_pytorch(folder: Path, images: np.ndarray,
                                              tmp_path: Path) -> None:
    kernel.write(kernel.cnn(helpers.load_weights("cnn"), ARM)[0], ARM, tmp_path)
    for name in ("weights.bin", "images.bin"):
        shutil.copy(folder / name, tmp_path)
    native.run(native.alone(tmp_path, arm=True))
    _equal_pytorch(tmp_path, images, *native.EMULATOR)


def test_a_program_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "SECONDS", 0.2)
    with pytest.raises(CourseError, match="is still running after"):
        native.run([sys.executable, "-c", "while True: pass"])
