"""The checks of notebook 02: emit_te."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from checks.answers import exercise
from checks.comparing import Mistakes, compare, random
from checks.equivalence import check_same
from checks.mistakes import layer_mistakes, with_parameters, without_bias
from checks.models import cnn, own_weights, reference
from checks.primfuncs import run_te
from checks.saying import CheckFailed
from checks.values import intermediate_values, is_layer

# Functions of the input and the slope.
_LEAKY_RELU: Mistakes = {
    "the slope: a plain ReLU ignores it": lambda x, slope: np.maximum(x, 0),
    "the slope, which is applied everywhere": lambda x, slope: x * slope,
    "the larger of x and slope * x: wrong where the slope is above 1":
        lambda x, slope: np.maximum(x, slope * x),
    "the condition, which is the wrong way round": lambda x, slope: np.where(x > 0, x * slope, x)}


def _run_leaky_relu(leaky_relu: Callable, x: np.ndarray, slope: float) -> np.ndarray:
    return run_te(lambda a: leaky_relu(a, slope), x)


@exercise("2.1")
def exercise_2_1(leaky_relu: Callable) -> str:
    """a leaky ReLU as a tensor expression.

    The formula: https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html
    """
    for shape, slope in [((4, 6), 0.1), ((7, 3), 2.0), ((128, 128), 0.0)]:
        x = random(*shape)
        compare(_run_leaky_relu(leaky_relu, x, slope),
                np.where(x > 0, x, x * np.float32(slope)), "which of x and slope * x is chosen",
                _LEAKY_RELU, x, slope)
    return "equal to NumPy for three shapes and slopes"


@exercise("2.2")
def exercise_2_2(linear: Callable) -> str:
    """a linear layer as a tensor expression."""
    for n, m, k in [(4, 5, 5), (1, 3, 8), (6, 10, 7)]:
        x, w, b = random(n, k), random(m, k, seed=1), random(m, seed=2)
        layer = with_parameters(nn.Linear(k, m), w, b)
        compare(run_te(linear, x, w, b), x @ w.T + b, "the index of w that runs over k",
                layer_mistakes(layer), layer, torch.from_numpy(x))
    return "x W^T + b for three shapes, equal to NumPy"


@exercise("2.3")
@torch.no_grad()
def exercise_2_3(conv2d: Callable) -> str:
    """a convolution as a tensor expression."""
    for shape, kernel in [((4, 1, 28, 28), (32, 1, 3, 3)), ((2, 3, 9, 7), (4, 3, 2, 3))]:
        x, w = random(*shape), random(*kernel, seed=1)
        layer = with_parameters(nn.Conv2d(kernel[1], kernel[0], kernel[2:]), w)
        images = torch.from_numpy(x)
        compare(run_te(conv2d, x, w), layer(images).numpy(), "the indices of x and of w",
                layer_mistakes(layer), layer, images)
    return "equal to PyTorch for one and for three input channels, square and not"


@exercise("2.4")
def exercise_2_4(max_pool: Callable) -> str:
    """max pooling as a tensor expression."""
    layer = nn.MaxPool2d(2)
    for shape in [(4, 32, 26, 26), (2, 3, 4, 6)]:
        x = random(*shape) - np.float32(0.5)  # many windows with nothing above zero
        images = torch.from_numpy(x)
        compare(run_te(max_pool, x), layer(images).numpy(), "where window (i, j) starts",
                layer_mistakes(layer), layer, images)
    return "equal to PyTorch for two shapes, negative windows too"


@exercise("2.5", prepare=[reference])
def exercise_2_5(create_model: Callable) -> str:
    """the CNN by emit_te."""
    mod = create_model(own_weights())
    verified = check_same(mod, cnn()[1], reference())
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            operator = getattr(getattr(binding.value, "op", None), "name", "")
            if operator.startswith("relax.") and not operator.startswith("relax.call_"):
                raise CheckFailed("operators as PrimFuncs", f"{binding.var.name} is {operator}",
                                  "bb.emit_te(topi...), not bb.emit(relax.op...)")
    return f"operators as PrimFuncs. {verified}"


_SAYS = {nn.Conv2d: "convolution", nn.Linear: "linear layer"}


@exercise("2.6", prepare=[reference])
@torch.no_grad()
def exercise_2_6(create_model: Callable) -> str:
    """the CNN by own tensor expressions."""
    model, batches = cnn()[1], reference()
    mod = create_model(own_weights())
    verified = check_same(mod, model, batches)
    images = batches[0].images
    found, value = intermediate_values(mod, [images]), torch.from_numpy(images)
    for layer in model:
        plain, value = without_bias(layer, value), layer(value)
        for name, kernel, _, (came,) in found:
            if plain is not None and is_layer(came, plain.numpy(), layer):
                raise CheckFailed(f"the {_SAYS[type(layer)]} as one PrimFunc that takes its bias",
                                  f"{kernel} computes {name}, without the bias",
                                  "the tensor expression of this layer: x, w and b go in")
    return f"convolution and linear layers take their bias. {verified}"
