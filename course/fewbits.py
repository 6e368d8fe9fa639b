"""Numbers as small integers with a scale, as notebook 13 makes them; a library.

The notebook explains this code. Real number = scale * integer; no zero points.
"""

import math

import numpy as np


def in_groups(weights: np.ndarray, size: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 weights (n, k) as integers of some bits in groups of `size`, and the scales.

    The integers are int8 (n, k), symmetric about 0, so that with 8 bits none is -128; the scales
    float32 (n, k // size). A group is `size` neighbours in a row, and `size` divides k.
    """
    most = (1 << bits - 1) - 1
    groups = weights.reshape(len(weights), -1, size)
    scales = np.abs(groups).max(axis=-1).astype("float32") / np.float32(most)
    scales[scales == 0] = 1
    whole = np.rint(groups / scales[..., None]).clip(-most, most)
    return whole.astype("int8").reshape(weights.shape), scales


def activations(x: np.ndarray, largest: float) -> tuple[np.ndarray, np.float32]:
    """Return numbers from 0 on as uint8, larger ones clipped; and the step, largest / 255."""
    step = np.float32(largest / 255)
    return np.rint(x / step).clip(0, 255).astype("uint8"), step


def least_loss(x: np.ndarray, bits: int) -> float:
    """Return the range with which numbers from 0 on, clipped and rounded, lose least."""
    levels, best = 2**bits - 1, (np.inf, 0.0)
    for share in np.exp(np.linspace(-7, 0, 400)):
        most = float(x.max() * share)
        back = np.rint(np.minimum(x, most) * (levels / most)) * (most / levels)
        best = min(best, (float(np.square(back - x).mean()), most))
    return best[1]


def layer(weight: np.ndarray, bias: np.ndarray, step: np.float32
          ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a layer in integers: its weights as int8 (m, k), its bias as int32, and the unit.

    `step` is the input's; the unit (m,) is what 1 in a sum stands for. Raises ValueError where a
    sum could leave int32, for inputs of uint8.
    """
    matrix, steps = in_groups(weight.reshape(len(weight), -1), weight[0].size, 8)
    unit = step * steps[:, 0]
    whole = np.rint(bias.astype("float64") / unit)
    if (np.abs(whole) + 255.0 * np.abs(matrix.astype("int64")).sum(axis=1) >= 2**31).any():
        raise ValueError("a sum of products and a bias may not fit int32")
    return matrix, whole.astype("int32"), unit


# ---- how far off a layer is, in units of the input's step times the weight's ---------------


def worst_error(inputs: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return how far a layer of integers can be off: inputs (n, k), matrix (m, k), to (n, m).

    No layer is further off whose numbers were rounded to these integers, and none clipped: of
    (q + d)(r + e) with d and e of at most 1/2, all but q r.
    """
    q, r = np.abs(inputs.astype("float64")), np.abs(matrix.astype("float64"))
    return (q.sum(axis=1)[:, None] + r.sum(axis=1) + inputs.shape[1] / 2) / 2


def likely_error(inputs: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the rms error of a layer of integers, shapes as above, if errors are independent.

    What is 0 is taken to be exact, as after a ReLU.
    """
    q, r = inputs.astype("float64") ** 2, matrix.astype("float64") ** 2
    some = (inputs != 0).astype("float64")
    return np.sqrt((q.sum(axis=1)[:, None] + some @ r.T + some.sum(axis=1)[:, None] / 12) / 12)


# ---- requantising --------------------------------------------------------------------------


def fraction(ratio: float) -> tuple[int, int]:
    """Return whole and shift: whole / 2**shift is a ratio from 2**-30 to 1, to 31 bits."""
    mantissa, exponent = math.frexp(ratio)
    return round(mantissa * 2**31), 31 - exponent


def fractions(ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole and shift of each ratio, int64."""
    whole, shift = zip(*map(fraction, np.asarray(ratios, "float64").tolist()), strict=True)
    return np.array(whole, "int64"), np.array(shift, "int64")


def requantised(total: np.ndarray, whole: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return int32 sums (..., m) times whole / 2**shift (m,), rounded and clipped to uint8."""
    scaled = (total.astype("int64") * whole + (1 << shift - 1)) >> shift
    return scaled.clip(0, 255).astype("uint8")
