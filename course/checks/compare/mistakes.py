"""Mistakes in layers that a specification names: a hint, and what comes of the mistake.

Each is a function of the layer and its input, as the right one is: `layer(x)`. It is named where it
alone gives all that came, on fresh inputs too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.words import _

Mistake = Callable[[Any, Tensor], Tensor]
Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


def with_parameters(layer: Layer, weight: np.ndarray, bias: np.ndarray | None = None) -> Layer:
    """Return the layer with copies of these float32 arrays, whose sizes it may take over."""
    layer.weight = nn.Parameter(torch.tensor(weight))
    layer.register_parameter(
        "bias", None if bias is None else nn.Parameter(torch.tensor(bias).flatten()))
    return layer.eval()


def conv2d_and_x(given: dict[str, np.ndarray]) -> tuple[nn.Conv2d, Tensor]:
    """Return of inputs x, w, and a bias if there is one, the layer that convolves x, and x."""
    x, w, *bias = given.values()
    return (with_parameters(nn.Conv2d(w.shape[1], w.shape[0], w.shape[2:]), w, *bias),
            torch.from_numpy(x))


def _cropped(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Convolve with padding 1, and cut the output to its size."""
    rows, columns = layer(x).shape[2:]
    return F.conv2d(x, layer.weight, layer.bias, padding=1)[:, :, :rows, :columns]


def _often(layer: nn.MaxPool2d, x: Tensor) -> Tensor:
    """Pool with a stride of 1, and cut the output to its size."""
    rows, columns = layer(x).shape[2:]
    return F.max_pool2d(x, layer.kernel_size, 1)[..., :rows, :columns]


MISTAKES: dict[type[nn.Module], dict[str, Mistake]] = {
    nn.Conv2d: {
        _("the kernel is flipped (a deep-learning conv2d does not)"):
            lambda layer, x: F.conv2d(x, layer.weight.flip(2, 3), layer.bias),
        _("padding is 1, and the output is cut to its size"): _cropped},
    nn.MaxPool2d: {
        _("the start value of the maximum: windows below zero give 0"):
            lambda layer, x: layer(x).clamp(0),
        _("the stride of the pooling is 1, and the output is cut to its size"): _often},
    nn.Linear: {
        _("the bias: it is inside the sum, so it is added k times"):
            lambda layer, x: F.linear(x, layer.weight, x.shape[-1] * layer.bias),
        _("the weight is not transposed"):
            lambda layer, x: F.linear(x, layer.weight.T, layer.bias)}}
