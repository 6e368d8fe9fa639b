"""The CNN in int8 by an intrinsic, on random weights and images: as in NumPy, on any CPU."""

import numpy as np
import pytest
import tvm

import helpers
from course import cnn8, fewbits, intrinsics

HOST, ANY = tvm.target.Target.from_device("cpu"), tvm.target.Target("llvm")
BATCH = 8


@pytest.fixture(scope="module")
def random_model() -> tuple[list, list[np.float32], np.ndarray, np.ndarray]:
    """Return layers, steps, images of all kinds of pixels, and the sums of the last layer."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (BATCH, 28, 28))
    images[0] = 255
    rows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), (1, 2)).reshape(-1, 9)
    layers, steps = [], [np.float32(1 / 255)]
    for number, (m, k) in enumerate(((32, 9), (100, 5408), (10, 100))):
        weight, bias = draw.normal(size=(m, k)), draw.normal(size=m)
        layers.append(fewbits.layer(weight.astype("float32"), bias.astype("float32"), steps[-1]))
        matrix, added, unit = layers[-1]
        total = rows @ matrix.T.astype("int64") + added
        if number < 2:
            steps.append(np.float32((total * unit).max() / 300))  # so that some are clipped
            rows = fewbits.requantised(total, *fewbits.fractions(unit / steps[-1]))
        if number == 0:
            pooled = rows.reshape(BATCH, 13, 2, 13, 2, 32).max((2, 4))
            rows = pooled.transpose(0, 3, 1, 2).reshape(BATCH, -1)
        rows = rows.astype("int64")
    unit = np.full(10, 1 / np.abs(total).max(), "float32")  # none of the probabilities is near 0
    layers[-1] = *layers[-1][:2], unit
    return layers, steps, images, total * unit


@pytest.mark.parametrize("target", [HOST, ANY], ids=["host", "any"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_cnn_is_that_in_numpy(random_model, lanes: int, target: tvm.target.Target) -> None:
    layers, steps, images, logits = random_model
    pairs = intrinsics.register(f"cnn_{lanes}", intrinsics.of_pairs(lanes))
    mod = cnn8.model(layers, steps, BATCH, lanes, pairs, 2)
    with target, helpers.quiet():
        main = helpers.build(mod, target)["main"]
    near = images[:, None] + np.random.default_rng(1).uniform(-0.4, 0.4, (BATCH, 1, 28, 28))
    came = main(tvm.runtime.tensor((near / 255).astype("float32"))).numpy()
    right = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(came, right, rtol=2e-6)
    assert right.min() > 1e-3 and right.max() < 0.9


def test_one_program_is_the_model(random_model) -> None:
    layers, steps, images, _logits = random_model
    pairs = intrinsics.register("cnn_one", intrinsics.of_pairs(8))
    mod = cnn8.model(layers, steps, BATCH, 8, pairs, 2)
    func, packed = cnn8.one_program(mod)
    assert "T.parallel" in mod.script() and "T.parallel" not in func.script()  # C has no threads
    given = tvm.runtime.tensor((images[:, None] / 255).astype("float32"))
    came = tvm.runtime.tensor(np.zeros((BATCH, 10), "float32"))
    with ANY, helpers.quiet():
        main = helpers.build(mod, ANY)["main"]
    intrinsics.compiled(func, ANY)["main"](given, tvm.runtime.tensor(packed), came)
    np.testing.assert_array_equal(came.numpy(), main(given).numpy())
