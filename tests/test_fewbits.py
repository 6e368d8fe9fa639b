"""What notebook 13 says about errors of layers in integers, on a thousand random layers."""

import numpy as np
import pytest

from course import fewbits

LAYERS = 1000
SLACK = 1 + 1e-5  # the steps, and the divisions by them, are float32


@pytest.fixture(scope="module")
def layers() -> list[dict]:
    """Return small layers of all kinds: inputs of a ReLU, of even or exponential numbers."""
    draw = np.random.default_rng(0)
    made = []
    for number in range(LAYERS):
        n, k, m = draw.integers(1, 6), int(draw.integers(1, 40)), draw.integers(1, 6)
        x = (np.abs(draw.normal(size=(n, k))), draw.uniform(0, 1, (n, k)),
             draw.exponential(size=(n, k)), draw.normal(size=(n, k)).clip(0))[number % 4]
        x = (x * 10.0 ** draw.integers(-3, 4)).astype("float32")
        weight = (draw.normal(size=(m, k)) * 10.0 ** draw.integers(-3, 3)).astype("float32")
        bias = draw.normal(size=m) * x.max() * np.abs(weight).max(axis=1)
        bias = bias.astype("float32")
        integers, step = fewbits.activations(x, float(x.max()) or 1.0)
        matrix, added, unit = fewbits.layer(weight, bias, step)
        exact = x.astype("float64") @ weight.astype("float64").T + bias
        total = integers.astype("int32") @ matrix.T.astype("int32") + added
        made.append({"x": x, "weight": weight, "bias": bias, "integers": integers, "step": step,
                     "matrix": matrix, "unit": unit, "exact": exact, "total": total})
    return made


def test_no_number_is_further_from_its_integer_than_half_a_step(layers: list[dict]) -> None:
    for layer in layers:
        for bits in (2, 3, 4, 8):
            for size in {1, layer["weight"].shape[1]}:
                integers, steps = fewbits.in_groups(layer["weight"], size, bits)
                each = np.repeat(steps, size, axis=1).astype("float64")
                assert (np.abs(integers * each - layer["weight"]) <= each / 2 * SLACK).all()
        off = np.abs(layer["integers"] * np.float64(layer["step"]) - layer["x"])
        assert (off <= layer["step"] / 2 * SLACK).all()


def test_no_sum_is_beyond_its_bound(layers: list[dict]) -> None:
    nearest = 0.0
    for layer in layers:
        off = np.abs(layer["unit"].astype("float64") * layer["total"] - layer["exact"])
        bound = layer["unit"] * (fewbits.worst_error(layer["integers"], layer["matrix"]) + 0.5)
        assert (off <= bound * SLACK).all()
        nearest = max(nearest, float((off / bound).max()))
    assert nearest > 0.5  # short sums come near it: no smaller bound would hold


def test_no_sum_is_beyond_its_bound_given_the_inputs(layers: list[dict]) -> None:
    """As notebook 13 compares layer by layer: inputs are what they stand for, so they are exact."""
    for layer in layers:
        given = np.float64(layer["step"]) * layer["integers"]
        exact = given @ layer["weight"].T.astype("float64") + layer["bias"]
        off = np.abs(layer["unit"].astype("float64") * layer["total"] - exact)
        bound = layer["unit"] * (layer["integers"].sum(axis=1, dtype="int64")[:, None] + 1) / 2
        assert (off <= bound * SLACK).all()


def test_a_bias_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        fewbits.layer(np.ones((2, 3), "float32"), np.array([0, 1e9], "float32"), np.float32(1))


def test_the_likely_error_is_what_is_found() -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(300, 200)).clip(0).astype("float32")
    weight = draw.normal(size=(50, 200)).astype("float32")
    integers, step = fewbits.activations(x, float(x.max()))
    matrix, _added, unit = fewbits.layer(weight, np.zeros(50, "float32"), step)
    total = integers.astype("int32") @ matrix.T.astype("int32")
    off = unit * total - x.astype("float64") @ weight.T
    likely = unit * fewbits.likely_error(integers, matrix)
    assert np.sqrt((off**2).mean() / (likely**2).mean()) == pytest.approx(1, abs=0.03)


def test_requantising_is_as_near_as_said(layers: list[dict]) -> None:
    draw = np.random.default_rng(2)
    for layer in layers:
        ratios = layer["unit"].astype("float64") / (
            np.abs(layer["exact"]).max() / 255 * draw.uniform(0.5, 2))
        ratios = ratios.clip(2.0**-30, 1)
        whole, shift = fewbits.fractions(ratios)
        assert (np.abs(whole / 2.0**shift - ratios) <= ratios * 2.0**-31).all()
        exact = layer["total"] * ratios
        found = fewbits.requantised(layer["total"], whole, shift)
        within = 0.5 + 2.0**-31 * np.abs(exact)
        assert (np.abs(found - exact.clip(0, 255)) <= within).all()


def test_the_least_loss_is_no_more_than_that_of_other_ranges() -> None:
    draw = np.random.default_rng(3)
    for bits in (2, 4, 8):
        x = draw.exponential(size=2000).astype("float32")

        def loss(most: float, x: np.ndarray = x, bits: int = bits) -> float:
            step = most / (2**bits - 1)
            return float(((np.rint(x.clip(0, most) / step) * step - x) ** 2).mean())
        least = min(loss(share * float(x.max())) for share in np.linspace(0.01, 1, 300))
        assert loss(fewbits.least_loss(x, bits)) <= 1.02 * least
