"""The usual mistakes of each layer, in one table: a hint, and what comes of the mistake.

Each is a function of the layer and its input, as the right one is: `layer(x)`. The right formulas
are those of the pages of torch.nn (https://docs.pytorch.org/docs/stable/nn.html) for these classes.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from course.words import _

Mistake = Callable[[Any, Tensor], Tensor | None]  # None: nothing can be said of this input
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


def pair(value: Any) -> tuple[Any, Any]:
    """Return what a layer has for height and width: it may hold one number for both."""
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)


# ---- convolution ---------------------------------------------------------------------------


def _conv(layer: nn.Conv2d, x: Tensor, **changes: Any) -> Tensor:
    """Convolve as the layer does, but for the changes."""
    names = ("weight", "bias", "stride", "padding", "dilation", "groups")
    return F.conv2d(x, **{name: getattr(layer, name) for name in names} | changes)


def _conv_bias(layer: nn.Conv2d, x: Tensor, axis: int) -> Tensor:
    """Add the bias along an axis that is not the channels', as far as it is long."""
    plain, shape = _conv(layer, x, bias=None), [1, 1, 1, 1]
    shape[axis] = plain.shape[axis]
    assert layer.bias is not None
    return plain + layer.bias[:plain.shape[axis]].reshape(shape)


def _conv_cropped(layer: nn.Conv2d, x: Tensor) -> Tensor:
    rows, columns = layer(x).shape[2:]
    return _conv(layer, x, padding=1)[:, :, :rows, :columns]


def _conv_as_large(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Give the output the input's height and width: zeros follow below and on the right."""
    down, across = layer.weight.shape[2:]
    return _conv(layer, F.pad(x, [0, across - 1, 0, down - 1]))


_CONV2D_BIAS: dict[str, Mistake] = {
    # cause: no-conv-bias
    _("the bias of the convolution is left out"): lambda layer, x: _conv(layer, x, bias=None),
    _("the bias of the convolution is added twice"):
        lambda layer, x: _conv(layer, x, bias=2 * layer.bias),
    _("the bias is added along the width instead of the channels"):
        lambda layer, x: _conv_bias(layer, x, 3),
    _("the bias is added along the height instead of the channels"):
        lambda layer, x: _conv_bias(layer, x, 2),
    _("the bias is added along the batch instead of the channels"):
        lambda layer, x: _conv_bias(layer, x, 0)}

_CONV2D: dict[str, Mistake] = {
    _("the kernel is flipped (a deep-learning conv2d does not)"):
        lambda layer, x: _conv(layer, x, weight=layer.weight.flip(2, 3)),
    _("the kernel's height and width are exchanged"):
        lambda layer, x: _conv(layer, x, weight=layer.weight.transpose(2, 3)),
    _("the input channels: only the first is summed"):
        lambda layer, x: _conv(layer, x[:, :1], weight=layer.weight[:, :1]),
    # cause: stride-1
    _("the stride: the layer's is ignored, 1 is used"): lambda layer, x: _conv(layer, x, stride=1),
    # cause: padding-0
    _("the padding: the layer's is ignored, 0 is used"):
        lambda layer, x: _conv(layer, x, padding=0),
    # cause: dilation-1
    _("the dilation: the layer's is ignored, 1 is used"):
        lambda layer, x: _conv(layer, x, dilation=1),
    _("stride, padding and dilation: the layer's are ignored"):
        lambda layer, x: _conv(layer, x, stride=1, padding=0, dilation=1),
    _("the stride: down and across are exchanged"):
        lambda layer, x: _conv(layer, x, stride=pair(layer.stride)[::-1]),
    _("the padding: rows and columns are exchanged"):
        lambda layer, x: _conv(layer, x, padding=pair(layer.padding)[::-1]),
    _("the stride: only its first number is used"):
        lambda layer, x: _conv(layer, x, stride=layer.stride[0]),
    _("the padding: only its first number is used"):
        lambda layer, x: _conv(layer, x, padding=layer.padding[0]),
    _("the dilation: only its first number is used"):
        lambda layer, x: _conv(layer, x, dilation=layer.dilation[0]),
    _("only the first number of each pair is used"):
        lambda layer, x: _conv(layer, x, stride=layer.stride[0], padding=layer.padding[0],
                               dilation=layer.dilation[0]),
    _("padding is 1"): lambda layer, x: _conv(layer, x, padding=1),
    _("padding is 1, and the output is cut to its size"): _conv_cropped,
    _("the output's shape: it is the input's height and width, padded"): _conv_as_large,
    _("the stride is 2"): lambda layer, x: _conv(layer, x, stride=2)}


# ---- pooling -------------------------------------------------------------------------------


def _pool(layer: nn.MaxPool2d | nn.AvgPool2d, x: Tensor, **changes: Any) -> Tensor:
    """Pool as the layer does, but for the changes."""
    given = {name: getattr(layer, name) for name in ("kernel_size", "stride", "padding")} | changes
    return (F.max_pool2d if isinstance(layer, nn.MaxPool2d) else F.avg_pool2d)(x, **given)


def _pool_cropped(layer: nn.MaxPool2d | nn.AvgPool2d, x: Tensor) -> Tensor:
    rows, columns = layer(x).shape[2:]
    return _pool(layer, x, stride=1)[..., :rows, :columns]


_POOLING: dict[str, Mistake] = {
    _("the stride of the pooling is ignored: windows are as far apart as they are large"):
        lambda layer, x: _pool(layer, x, stride=layer.kernel_size),
    # cause: pool-stride-1
    _("the stride of the pooling is 1"): lambda layer, x: _pool(layer, x, stride=1),
    _("the stride of the pooling is 1, and the output is cut to its size"): _pool_cropped,
    # cause: padding-0
    _("the padding: the layer's is ignored, 0 is used"):
        lambda layer, x: _pool(layer, x, padding=0),
    _("stride and padding: the layer's are ignored"):
        lambda layer, x: _pool(layer, x, stride=layer.kernel_size, padding=0),
    _("the stride: down and across are exchanged"):
        lambda layer, x: _pool(layer, x, stride=pair(layer.stride)[::-1]),
    _("the window: rows and columns are exchanged"):
        lambda layer, x: _pool(layer, x, kernel_size=pair(layer.kernel_size)[::-1]),
    _("the window and the stride: they are exchanged"):
        lambda layer, x: _pool(layer, x, kernel_size=layer.stride, stride=layer.kernel_size),
    _("the window and the stride: it is always 2x2 with stride 2"):
        lambda layer, x: _pool(layer, x, kernel_size=2, stride=2),
    _("the window, the stride and the padding: it is always 2x2 with stride 2 and no padding"):
        lambda layer, x: _pool(layer, x, kernel_size=2, stride=2, padding=0)}


def _padded(layer: nn.MaxPool2d, x: Tensor, value: float, turned: bool = False) -> Tensor:
    """Pool what was padded with `value`; turned: top, left, bottom, right are taken wrongly."""
    down, across = pair(layer.padding)
    sides = (down, across, down, across) if turned else (across, across, down, down)
    return F.max_pool2d(F.pad(x, sides, value=value), layer.kernel_size, layer.stride)


_MAX_POOL2D: dict[str, Mistake] = {
    _("average pooling instead of max pooling"): lambda layer, x: F.avg_pool2d(
        x, layer.kernel_size, layer.stride, layer.padding),
    _("the reduction: this is the sum"): lambda layer, x: F.avg_pool2d(
        x, layer.kernel_size, layer.stride, layer.padding, divisor_override=1),
    _("what the maximum starts from: windows below zero give 0"):
        lambda layer, x: layer(x).clamp(0),
    _("the padding: its four numbers are top, left, bottom, right"):
        lambda layer, x: _padded(layer, x, -torch.inf, turned=True),
    _("the padding: it must never win, and zeros do among negative values"):
        lambda layer, x: _padded(layer, x, 0)}


def _divided(layer: nn.AvgPool2d, x: Tensor, by: Callable[[int, int], float]) -> Tensor:
    """Divide the sum of each window by something else than its size."""
    rows, columns = pair(layer.kernel_size)
    return layer(x) * (rows * columns / by(rows, columns))


_AVG_POOL2D: dict[str, Mistake] = {
    _("the division: this is the sum"): lambda layer, x: _divided(layer, x, lambda *_: 1),
    _("the division: it is always by 4"): lambda layer, x: _divided(layer, x, lambda *_: 4),
    _("the reduction: this is the maximum"):
        lambda layer, x: F.max_pool2d(x, layer.kernel_size, layer.stride, layer.padding)}


# ---- linear, activations -------------------------------------------------------------------

_LINEAR_BIAS: dict[str, Mistake] = {
    _("the bias of the linear layer is left out"): lambda layer, x: F.linear(x, layer.weight),
    _("the bias is added along the batch instead of the features"):
        lambda layer, x: F.linear(x, layer.weight) + layer.bias[:len(x), None],
    _("the bias: it is inside the sum, so it is added k times"):
        lambda layer, x: F.linear(x, layer.weight, x.shape[-1] * layer.bias)}

_LINEAR: dict[str, Mistake] = {
    _("the weight is not transposed"): lambda layer, x: F.linear(x, layer.weight.T, layer.bias),
    _("the weight is reshaped where it should be transposed"): lambda layer, x: F.linear(
        x, layer.weight.reshape(layer.weight.shape[::-1]).T, layer.bias)}

_RELU: dict[str, Mistake] = {
    # cause: no-relu
    _("the ReLU is left out: negative numbers have to become 0"): lambda layer, x: x,
    _("the sign: this is |x|"): lambda layer, x: x.abs(),
    # cause: minimum
    _("the minimum of x and 0, where the maximum is meant"): lambda layer, x: x.clamp(max=0)}

_FLATTEN: dict[str, Mistake] = {
    _("flattened as NHWC instead of NCHW: the channels are not moved to the end"):
        lambda layer, x: x.permute(0, 2, 3, 1).flatten(1)}


# ---- softmax -------------------------------------------------------------------------------


def _dim(layer: nn.Softmax) -> int:
    """The axis of a softmax; without one, PyTorch takes axis 1 of a matrix."""
    return 1 if layer.dim is None else layer.dim


def _largest(layer: nn.Softmax, x: Tensor) -> Tensor:
    return x.amax(_dim(layer), keepdim=True)


def _quotient(layer: nn.Softmax, powers: Tensor) -> Tensor:
    return powers / powers.sum(_dim(layer), keepdim=True)


def _shifted(layer: nn.Softmax, x: Tensor) -> Tensor:
    """The exponentials of a stable softmax: the largest of each row is subtracted first."""
    return (x - _largest(layer, x)).exp()


def _sum_goes_on(layer: nn.Softmax, x: Tensor) -> Tensor:
    powers = _shifted(layer, x)
    return powers / powers.sum(_dim(layer), keepdim=True).cumsum(0)


_SOFTMAX: dict[str, Mistake] = {
    _("the softmax is left out"): lambda layer, x: x,
    _("the quotient: the exponentials are not divided by their sum"): _shifted,
    # cause: sum-of-all
    _("the sum: it runs over the whole array, not over one row"):
        lambda layer, x: _shifted(layer, x) / _shifted(layer, x).sum(),
    _("the sum: it goes on from row to row; it has to start anew in each"): _sum_goes_on,
    _("the exponentials overflow or vanish: no maximum is subtracted"):
        lambda layer, x: _quotient(layer, x.exp()),
    # cause: max-of-all
    _("the maximum: it is that of the whole array, not of each row (all exponentials of a row "
      "can be 0)"):
        lambda layer, x: _quotient(layer, (x - x.max()).exp()),
    _("the maximum: it starts from 0, and for rows below 0 that is too large"):
        lambda layer, x: _quotient(layer, (x - _largest(layer, x).clamp(0)).exp()),
    _("log_softmax instead of softmax: this is the logarithm of the softmax"):
        lambda layer, x: x.log_softmax(_dim(layer))}


def _softmax_over(axis: int, layer: nn.Softmax, x: Tensor) -> Tensor:
    return x.softmax(axis)


def _axes(dim: int) -> dict[str, Mistake]:
    """Softmax over another axis than `dim`; over axis 0 the numbers of a column add up to 1."""
    columns = _("softmax runs over axis {axis} (each column of the batch) instead of axis {dim}")
    other = _("softmax runs over axis {axis} instead of axis {dim}")
    return {(columns if axis == 0 else other).format(
        axis=axis, also=_(" (each column of the batch)") if axis == 0 else "",
        dim=dim): functools.partial(_softmax_over, axis)
            for axis in (0, 1, 2, -1) if axis != dim}


# ---- all -----------------------------------------------------------------------------------


def _image_0_for_all(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x[:1]).expand(len(x), *layer(x).shape[1:])


def _image_0_alone(layer: nn.Module, x: Tensor) -> Tensor:
    right = layer(x).clone()
    right[1:] = torch.nan
    return right


_BATCH: dict[str, Mistake] = {
    _("the batch: every image gets the result of image 0"): _image_0_for_all,
    _("the batch: only image 0 is written"): _image_0_alone}


def _with(change: Callable[[Tensor], Tensor], name: str = "weight") -> Mistake:
    """Return a layer's mistake: its weight, or its bias, changed."""
    return lambda layer, x: functional_call(layer, {name: change(getattr(layer, name))}, (x,))


def _of_whole_weights(layer: Any, x: Tensor) -> Tensor | None:
    """Return what a weight cut to whole numbers gives; nothing is said where none is left."""
    return _with(torch.trunc)(layer, x) if layer.weight.trunc().any() else None


def _of_whole_input(layer: Any, x: Tensor) -> Tensor | None:
    """Return what an input cut to whole numbers gives; nothing is said where none is left."""
    return layer(x.trunc()) if x.trunc().any() else None


_INPUT: dict[str, Mistake] = {
    # cause: input-float16
    _("the input is rounded to float16 before it is used"):
        lambda layer, x: layer(x.half().float()),
    # cause: input-whole
    _("the input is cut to whole numbers before it is used"): _of_whole_input,
    # cause: input-sign
    _("the signs of the input are lost before it is used"): lambda layer, x: layer(x.abs())}
_BIAS: dict[str, Mistake] = {
    # cause: rolled-bias
    _("the bias: each place has the number of the one before"):
        _with(lambda bias: bias.roll(1), "bias")}
_WEIGHT: dict[str, Mistake] = {
    # cause: rolled-weight
    _("the weight's first axis: each place has the numbers of the one before"):
        _with(lambda weight: weight.roll(1, 0)),
    # cause: reversed-weight
    _("the weight's first axis runs backwards"): _with(lambda weight: weight.flip(0)),
    # cause: weight-float16
    _("the weight is rounded to float16"): _with(lambda weight: weight.half().float()),
    # cause: weight-whole
    _("the weight is cut to whole numbers"): _of_whole_weights,
    # cause: weight-sign
    _("the signs of the weight are lost"): _with(torch.abs)}


def layer_mistakes(layer: nn.Module) -> dict[str, Mistake]:
    """Return the usual mistakes of a layer; {} where none is known."""
    match layer:
        case nn.Conv2d():
            biased = {} if layer.bias is None else _CONV2D_BIAS | _BIAS
            return biased | _CONV2D | _BATCH | _INPUT | _WEIGHT
        case nn.Linear():
            biased = {} if layer.bias is None else _LINEAR_BIAS | _BIAS
            return biased | _LINEAR | _BATCH | _INPUT | _WEIGHT
        case nn.MaxPool2d():
            return _MAX_POOL2D | _POOLING | _BATCH
        case nn.AvgPool2d():
            return _AVG_POOL2D | _POOLING | _BATCH | _INPUT
        case nn.ReLU():
            return _RELU | _BATCH
        case nn.Flatten():
            return _FLATTEN | _BATCH
        case nn.Softmax():
            return _axes(_dim(layer)) | _SOFTMAX | _INPUT
    return {}
