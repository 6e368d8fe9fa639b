"""The checks of notebook 02: emit_te."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import helpers
from checks.answers import CheckFailed, compare, exercise, random, run_te
from checks.equivalence import check_same, cnn, intermediate_values, is_layer, layer_mistakes


@exercise("2.1")
def exercise_2_1(leaky_relu: Callable) -> str:
    """a leaky ReLU as a tensor expression."""
    for shape, slope in [((4, 6), 0.1), ((7, 3), 2.0), ((128, 128), 0.0)]:
        x = random(*shape)
        compare(run_te(lambda a, slope=slope: leaky_relu(a, slope), x),
                np.where(x > 0, x, x * np.float32(slope)), "which of x and slope * x is chosen",
                {"the slope: a plain ReLU ignores it": lambda x=x: np.maximum(x, 0),
                 "the slope, which is applied everywhere": lambda x=x, s=slope: x * s,
                 "the larger of x and slope * x: wrong where the slope is above 1":
                     lambda x=x, s=slope: np.maximum(x, s * x),
                 "the condition, which is the wrong way round":
                     lambda x=x, s=slope: np.where(x > 0, x * s, x)})
    return "equal to NumPy for three shapes and slopes"


@exercise("2.2")
def exercise_2_2(linear: Callable) -> str:
    """a linear layer as a tensor expression."""
    for n, m, k in [(4, 5, 5), (1, 3, 8), (6, 10, 7)]:
        x, w, b = random(n, k), random(m, k, seed=1), random(m, seed=2)
        compare(run_te(linear, x, w, b), x @ w.T + b, "the index of w that runs over k",
                {"the bias: it is left out": lambda x=x, w=w: x @ w.T,
                 "the weight: it is not transposed": lambda x=x, w=w, b=b: x @ w + b,
                 "the bias: it is inside the sum, so it is added k times":
                     lambda x=x, w=w, b=b, k=k: x @ w.T + k * b,
                 "the weight: it is reshaped, not transposed":
                     lambda x=x, w=w, b=b, k=k, m=m: x @ w.reshape(k, m) + b})
    return "x W^T + b for three shapes, equal to NumPy"


@exercise("2.3")
def exercise_2_3(conv2d: Callable) -> str:
    """a convolution as a tensor expression."""
    for shape, kernel in [((4, 1, 28, 28), (32, 1, 3, 3)), ((2, 3, 9, 7), (4, 3, 2, 3))]:
        x, w = random(*shape), random(*kernel, seed=1)
        a, b = torch.from_numpy(x), torch.from_numpy(w)
        compare(run_te(conv2d, x, w), F.conv2d(a, b).numpy(), "the indices of x and of w",
                {"the kernel: it is flipped": lambda a=a, b=b: F.conv2d(a, b.flip(2, 3)),
                 "the kernel: its rows and columns are exchanged":
                     lambda a=a, b=b: F.conv2d(a, b.transpose(2, 3)),
                 "the input channels: only the first is summed":
                     lambda a=a, b=b: F.conv2d(a[:, :1], b[:, :1]),
                 "the output's shape: it is the input's height and width, padded":
                     lambda a=a, b=b: F.conv2d(
                         F.pad(a, [0, b.shape[3] - 1, 0, b.shape[2] - 1]), b)})
    return "equal to PyTorch for one and for three input channels, square and not"


@exercise("2.4")
def exercise_2_4(max_pool: Callable) -> str:
    """max pooling as a tensor expression."""
    for shape in [(4, 32, 26, 26), (2, 3, 4, 6)]:
        x = random(*shape) - np.float32(0.5)  # many windows with nothing above zero
        a = torch.from_numpy(x)
        compare(run_te(max_pool, x), F.max_pool2d(a, 2).numpy(), "where window (i, j) starts",
                {"the reduction: this is the average": lambda a=a: F.avg_pool2d(a, 2),
                 "the reduction: this is the sum": lambda a=a: 4 * F.avg_pool2d(a, 2),
                 "the windows: they overlap, their stride is 1": lambda a=a: F.max_pool2d(
                     a, 2, 1)[..., :a.shape[2] // 2, :a.shape[3] // 2],
                 "what the maximum starts from: windows below zero give 0":
                     lambda a=a: F.max_pool2d(a, 2).clamp(min=0)})
    return "equal to PyTorch for two shapes, negative windows too"


@exercise("2.5")
def exercise_2_5(create_model: Callable) -> str:
    """the CNN by emit_te."""
    weights, model = cnn()
    mod = create_model(weights)
    verified = check_same(mod, model, helpers.test_loader())
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            operator = getattr(getattr(binding.value, "op", None), "name", "")
            if operator.startswith("relax.") and not operator.startswith("relax.call_"):
                raise CheckFailed("operators as PrimFuncs", f"{binding.var.name} is {operator}",
                                  "bb.emit_te(topi...), not bb.emit(relax.op...)")
    return f"operators as PrimFuncs. {verified}"


_SAYS = {nn.Conv2d: "convolution", nn.Linear: "linear layer"}


@exercise("2.6")
def exercise_2_6(create_model: Callable) -> str:
    """the CNN by own tensor expressions."""
    weights, model = cnn()
    mod = create_model(weights)
    verified = check_same(mod, model, helpers.test_loader())
    images = next(iter(helpers.test_loader()))[0]
    found, value = intermediate_values(mod, images.numpy()), images
    for layer in model:
        with torch.no_grad():
            before, value = value, layer(value)
            without = layer_mistakes(layer, before).get(
                f"the bias of the {_SAYS.get(type(layer))} is left out")
            plain = without().numpy() if without else None
        for name, kernel, came in found:
            if plain is not None and is_layer(came, plain, layer):
                raise CheckFailed(f"the {_SAYS[type(layer)]} as one PrimFunc that takes its bias",
                                  f"{kernel} computes {name}, without the bias",
                                  "the tensor expression of this layer: x, w and b go in")
    return f"convolution and linear layers take their bias. {verified}"
