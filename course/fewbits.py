"""Numbers as small integers with a scale, as notebook 13 makes them; a library.

The notebook explains this code. Real number = scale * integer; no zero points.
"""

import numpy as np


def in_groups(weights: np.ndarray, size: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 weights (n, k) as integers of some bits in groups of `size`, and the scales.

    The integers are int8 (n, k), symmetric about 0, so that with 8 bits none is -128; the scales
    float32 (n, k // size). A group is `size` neighbours in a row, and `size` divides k.
    """
    most = 2 ** (bits - 1) - 1
    groups = weights.reshape(len(weights), -1, size)
    scales = np.abs(groups).max(axis=-1).astype("float32") / np.float32(most)
    scales[scales == 0] = 1
    whole = np.rint(groups / scales[..., None]).clip(-most, most)
    return whole.astype("int8").reshape(weights.shape), scales


def activations(x: np.ndarray, largest: float) -> tuple[np.ndarray, np.float32]:
    """Return numbers from 0 on as uint8 in steps of largest / 255, larger ones cut; and the step."""
    step = np.float32(largest / 255)
    return np.rint(x / step).clip(0, 255).astype("uint8"), step
