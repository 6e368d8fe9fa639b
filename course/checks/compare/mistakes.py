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


_CONV2D: dict[str, Mistake] = {
    _("the kernel is flipped (a deep-learning conv2d does not)"):
        lambda layer, x: F.conv2d(x, layer.weight.flip(2, 3), layer.bias),
    _("padding is 1, and the output is cut to its size"): _cropped}


def _often(layer: nn.MaxPool2d, x: Tensor) -> Tensor:
    """Pool with a stride of 1, and cut the output to its size."""
    rows, columns = layer(x).shape[2:]
    return F.max_pool2d(x, layer.kernel_size, 1)[..., :rows, :columns]


_MAX_POOL2D: dict[str, Mistake] = {
    _("the start value of the maximum: windows below zero give 0"):
        lambda layer, x: layer(x).clamp(0),
    _("the stride of the pooling is 1, and the output is cut to its size"): _often}
_LINEAR: dict[str, Mistake] = {
    _("the bias: it is inside the sum, so it is added k times"):
        lambda layer, x: F.linear(x, layer.weight, x.shape[-1] * layer.bias),
    _("the weight is not transposed"): lambda layer, x: F.linear(x, layer.weight.T, layer.bias)}


def _shifted(x: Tensor) -> Tensor:
    """The exponentials of a stable softmax: the largest of each row is subtracted first."""
    return (x - x.amax(1, keepdim=True)).exp()


_SOFTMAX: dict[str, Mistake] = {  # of the rows of a matrix
    _("the quotient: the exponentials are not divided by their sum"):
        lambda layer, x: _shifted(x),
    # cause: sum-of-all
    _("the sum: it runs over the whole array, not over one row"):
        lambda layer, x: _shifted(x) / _shifted(x).sum(),
    _("the sum: it goes on from row to row; it has to start again in each"):
        lambda layer, x: _shifted(x) / _shifted(x).sum(1, keepdim=True).cumsum(0),
    # cause: max-of-all
    _("the maximum: it is taken over the whole array, not over each row (all exponentials of a row "
      "can be 0)"):
        lambda layer, x: (powers := (x - x.max()).exp()) / powers.sum(1, keepdim=True),
    _("softmax runs over axis 0 (each column of the batch) instead of axis 1"):
        lambda layer, x: x.softmax(0)}


def layer_mistakes(layer: nn.Module) -> dict[str, Mistake]:
    """Return the mistakes that are named of a layer."""
    match layer:
        case nn.Conv2d():
            return _CONV2D
        case nn.Linear():
            return _LINEAR
        case nn.MaxPool2d():
            return _MAX_POOL2D
    return _SOFTMAX
