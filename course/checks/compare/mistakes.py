"""The convolution of 2.3 and 3.4 to 3.6 by PyTorch, and mistakes in it by their hints."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from course.words import _


def conv2d(x: np.ndarray, w: np.ndarray, b: Any = 0, padding: int = 0) -> np.ndarray:
    """Return images x (n, c, h, v) convolved with w (o, c, p, q), and b (1, o, 1, 1) added."""
    return F.conv2d(*map(torch.from_numpy, (x, w.copy())), padding=padding).numpy() + b


CONV2D: dict[str, Callable[..., np.ndarray]] = {
    _("as with a flipped kernel (a deep-learning conv2d does not flip it)"):
        lambda x, w, b=0: conv2d(x, w[:, :, ::-1, ::-1], b),
    _("padding is 1, and the output is cut to its size"):
        lambda x, w, b=0: conv2d(x, w, b, padding=1)[
            :, :, :x.shape[2] - w.shape[2] + 1, :x.shape[3] - w.shape[3] + 1]}
