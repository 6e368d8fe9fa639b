"""The checks of notebook 02: emit_te."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from checks.answers import exercise
from checks.comparing import Mistakes, compare, random
from checks.mistakes import layer_mistakes, with_parameters
from checks.models import Made, by_topi, cnn, create, make, random_cnn, reference
from checks.primfuncs import run_te
from checks.saying import CheckFailed
from checks.values import is_layer, values_of
from checks.watching import TorchCalls

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


@exercise("2.5", prepare=[reference, random_cnn])
def exercise_2_5(create_model: Callable) -> str:
    """the CNN by emit_te."""
    with TorchCalls() as calls:
        mod, other = create(create_model)
    made = make(mod, other)
    verified = made.check()
    if "conv2d" in calls.names:
        raise CheckFailed("operators from TOPI, one by one", "PyTorch's conv2d was called while "
                          "your function ran, as an importer does to record the model",
                          "bb.emit_te(topi...) for each operator; the weights are all you need")
    made.check_random()
    return f"operators as PrimFuncs, right with random weights too. {verified}"


_SAYS = {nn.Conv2d: "convolution", nn.Linear: "linear layer"}


def _holds(taken: str | np.ndarray, values: dict[str, np.ndarray], array: np.ndarray) -> bool:
    """Whether a constant, or a variable made of one, has an array's numbers, in any order."""
    held = values.get(taken) if isinstance(taken, str) else taken
    return held is not None and held.size == array.size \
        and np.array_equal(np.sort(held, None), np.sort(array, None))


@torch.no_grad()
def _require_own_layers(made: Made) -> None:
    """Check that each convolution or linear layer is one call that takes x, weight and bias."""
    weights, model = cnn()
    images = reference()[0].images
    bindings = values_of(made.mod, made.machine, [images])
    prepared: dict[str, np.ndarray] = {}  # what main computes of constants alone
    for binding in bindings:
        if all(not isinstance(taken, str) or taken in prepared for taken in binding.takes):
            prepared[binding.name] = binding.value
    layers = [torch.from_numpy(images)]
    for layer in model:
        layers.append(layer(layers[-1]))
    inputs = {binding.name: binding.value for binding in bindings}
    inputs[made.mod["main"].params[0].name] = images
    for index, name in [(0, "conv2d"), (4, "linear0"), (6, "linear1")]:
        says = f"the {_SAYS[type(model[index])]} as one PrimFunc that takes its bias"
        hint = "the tensor expression of this layer: x, w and b go in"
        calls = [binding for binding in bindings if binding.name not in prepared and any(
            _holds(taken, prepared, weights[f"{name}_weight"]) for taken in binding.takes)]
        if not calls:
            raise CheckFailed(says, f"no call in main takes {name}_weight", hint)
        call, others = calls[0], sum(
            any(_holds(taken, prepared, weights[f"{other}_weight"]) for taken in calls[0].takes)
            for other in ("conv2d", "linear0", "linear1"))
        if others > 1:
            raise CheckFailed(says, f"{call.kernel} takes the weights of {others} layers", hint)
        if not any(_holds(taken, prepared, weights[f"{name}_bias"]) for taken in call.takes):
            raise CheckFailed(says, f"{call.kernel} computes {call.name}, without the bias", hint)
        before, layer = layers[index].numpy(), nn.Identity()
        if not any(is_layer(inputs[taken], before, layer) for taken in call.takes
                   if isinstance(taken, str) and taken in inputs):
            raise CheckFailed(says, f"{call.kernel} does not take the layer's input "
                              f"{before.shape}, but what another PrimFunc makes of it", hint)
        if not any(is_layer(call.value, after.numpy(), model[position])
                   for position, after in enumerate(layers[index + 1:], index)):
            raise CheckFailed(says, f"{call.kernel} gives {call.name} {call.value.shape}, of which "
                              "another PrimFunc makes the layer's output", hint)
    for variable, func in made.mod.functions_items():
        if operator := by_topi(func):
            raise CheckFailed("tensor expressions of your own for convolution and linear layers",
                              f"PrimFunc {variable.name_hint} has TOPI's {operator} in it",
                              "te.compute with te.sum, as in exercises 2.2 and 2.3")


@exercise("2.6", prepare=[reference, random_cnn])
def exercise_2_6(create_model: Callable) -> str:
    """the CNN by own tensor expressions."""
    made = make(*create(create_model), values=True)
    verified = made.check()
    _require_own_layers(made)
    made.check_random()
    return ("each convolution and linear layer is one PrimFunc that takes its bias; right with "
            f"random weights too\n{verified}")
