"""The checks of notebook 03: library functions."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn
from torch.nn import functional as F

import helpers
from checks.answers import exercise, line_of_answer
from checks.comparing import ATOL, RTOL, Mistakes, compare, random, to_numpy
from checks.equivalence import build
from checks.libraries import (
    check_call,
    check_values,
    recording,
    registered,
    registry,
    run_library,
)
from checks.mistakes import layer_mistakes, with_parameters
from checks.models import INPUT, cnn, create, make, random_cnn, reference
from checks.primfuncs import QUICK
from checks.saying import CheckFailed, reason
from checks.values import is_layer
from checks.watching import numpy_only
from loops import nests


def _linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    # by PyTorch, which has one thread in the child; NumPy's library has several, which may wait
    return F.linear(*map(torch.from_numpy, (x, w.copy(), b.copy()))).numpy()


def _conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return F.conv2d(torch.from_numpy(x), torch.from_numpy(w.copy())).numpy() + b


@exercise("3.1")
def exercise_3_1(register_relu: Callable) -> str:
    """env.relu writes max(x, 0) into out."""
    shapes, layer = [(1, 128), (4, 3, 5, 5), (7,)], nn.ReLU()
    with registry():
        function = registered(register_relu, "env.relu")
        for shape in shapes:
            x = random(*shape)
            with numpy_only("NumPy in env.relu", "np.from_dlpack and np.maximum"):
                came = run_library(function, "env.relu", shape, x=x)
            compare(came, np.maximum(x, 0), "the formula: max(x, 0), element by element",
                    layer_mistakes(layer), layer, torch.from_numpy(x))
    return ("env.relu is registered, can be registered again, and writes max(x, 0) into out;\n"
            f"tried with shapes {', '.join(map(str, shapes))}")


# Functions of x, weight and bias: what main does beside its call.
_BIAS_OF_LINEAR: Mistakes = {
    "the bias: it is 0 in the call, or taken off again": lambda x, w, b: x @ w.T,
    "the bias: env.linear adds it already": lambda x, w, b: x @ w.T + 2 * b}


@exercise("3.2")
def exercise_3_2(create_linear_module: Callable) -> str:
    """main(x) calls env.linear with the weight and the bias as constants."""
    for m, k in [(128, 784), (5, 3)]:
        weight, bias, x = random(m, k), random(m), random(1, k)
        calls: list[list[np.ndarray]] = []
        mod = create_linear_module(weight.copy(), bias.copy())
        with registry(linear=recording(_linear, calls)):
            machine = build(mod, QUICK)
            if len(mod["main"].params) != 1:
                names = ", ".join(param.name for param in mod["main"].params)
                raise CheckFailed("main with one parameter, x", f"parameters {names}",
                                  'the weight and the bias: relax.const(weight, "float32")')
            came = to_numpy(machine["main"](tvm.runtime.tensor(x)))
        check_call(calls, "env.linear", x=(1, k), w=(m, k), b=(m,), out=(1, m))
        check_values("env.linear", calls[0], x=x, w=weight, b=bias)
        compare(came, _linear(x, weight, bias), "which variable main returns", _BIAS_OF_LINEAR,
                x, weight, bias)
    return ("main(x) calls env.linear once with x, w, b as given, and returns x @ w.T + b;\n"
            "tried with weights (128, 784) and (5, 3)")


def _check_conv2d(register: Callable, watch: Callable) -> str:
    """Run env.conv2d on several shapes, inside the context `watch()`, against PyTorch."""
    cases = [((1, 1, 28, 28), (32, 1, 3, 3)), ((3, 2, 6, 6), (4, 2, 3, 3)),
             ((2, 3, 9, 7), (5, 3, 2, 4))]
    with registry():
        function = registered(register, "env.conv2d")
        for x_shape, w_shape in cases:
            x, w, b = random(*x_shape), random(*w_shape), random(1, w_shape[0], 1, 1)
            layer = with_parameters(nn.Conv2d(w_shape[1], w_shape[0], w_shape[2:]), w, b)
            expected = _conv2d(x, w, b)
            with watch():
                came = run_library(function, "env.conv2d", expected.shape, x=x, w=w, b=b)
            compare(came, expected, "the sum: over input channels, kernel rows, kernel columns",
                    layer_mistakes(layer), layer, torch.from_numpy(x))
    return "env.conv2d equals PyTorch's convolution with bias;\ntried with " + ",\n".join(
        f"x {x_shape} and w {w_shape}" for x_shape, w_shape in cases)


@exercise("3.3")
def exercise_3_3(register_conv2d: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out."""
    return _check_conv2d(register_conv2d, contextlib.nullcontext)


@exercise("3.4")
def exercise_3_4(register_conv2d_numpy: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out, without PyTorch."""
    watch = functools.partial(numpy_only, "NumPy alone in env.conv2d",
                              "np.lib.stride_tricks.sliding_window_view, np.einsum")
    return _check_conv2d(register_conv2d_numpy, watch) + ";\nno function of PyTorch was called"


def _convolving(mod: tvm.IRModule) -> list[str]:
    """Name the PrimFuncs with a reduction in seven loops: four of the output, three of the sum."""
    return [variable.name_hint for variable, func in mod.functions_items()
            if isinstance(func, tvm.tirx.PrimFunc)
            and any(nest.reduces and len(nest.loops) >= 7 for nest in nests(func))]


def _check_library_conv2d(mod: tvm.IRModule, machine: Any, calls: list[list[np.ndarray]],
                          weights: Mapping[str, np.ndarray], images: np.ndarray) -> None:
    """Run the CNN on one batch and check how it calls env.conv2d; `calls` is what that noted."""
    came = images
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # check_same will tell
        came = to_numpy(machine["main"](tvm.runtime.tensor(images)))
    if not calls and (names := _convolving(mod)):
        raise CheckFailed("the convolution by env.conv2d", "env.conv2d is not called, PrimFunc "
                          f"{names[0]} convolves", "bb.emit(relax.op.call_dps_packed(...)) in "
                          "place of bb.emit_te for the convolution")
    if calls:
        check_call(calls, "env.conv2d", x=INPUT, w=(32, 1, 3, 3), b=(1, 32, 1, 1),
                   out=(4, 32, 26, 26))
        check_values("env.conv2d", calls[0], x=images, w=weights["conv2d_weight"],
                     b=weights["conv2d_bias"].reshape(1, 32, 1, 1))
    twice = helpers.pytorch_model({**weights, "conv2d_bias": 2 * weights["conv2d_bias"]})
    with torch.no_grad():
        if is_layer(came, twice(torch.from_numpy(images)).numpy(), twice[-1]):
            raise CheckFailed("the bias of the convolution, once", "twice the bias",
                              "what follows env.conv2d, which adds the bias already")


_LIBRARY = ("env.conv2d", "env.linear", "env.relu")


@exercise("3.5", seconds=90, prepare=[reference, random_cnn])
def exercise_3_5(create_model_with_library_conv2d: Callable) -> str:
    """The CNN is equivalent to PyTorch and its convolution is env.conv2d."""
    (weights, model), batches = cnn(), reference()
    images = batches[0].images
    try:
        mod, other = create(create_model_with_library_conv2d, _LIBRARY, lowered=False)
    except AssertionError as error:  # TOPI's own: shapes that do not fit
        raise CheckFailed("layers whose shapes fit", reason(error), "the output type of "
                          "env.conv2d (4, 32, 26, 26), pooled (4, 32, 13, 13), flattened (4, 5408);"
                          f" it failed at {line_of_answer(error)}") from None
    calls: list[list[np.ndarray]] = []
    factor = 1.0
    functions = {"conv2d": recording(lambda x, w, b: factor * _conv2d(x, w, b), calls),
                 "linear": recording(_linear, []),
                 "relu": recording(lambda x: np.maximum(x, 0), [])}
    with registry(keep=True, **functions):
        made = make(mod, other)
        machine = made.machine
        _check_library_conv2d(mod, machine, calls, weights, images)
        before, verified = len(calls), made.check()
        count = len(calls) - before - 1  # one batch was of random images
        made.check_random()
        factor = 0.0  # the layers after it must feel the 0
        came = to_numpy(machine["main"](tvm.runtime.tensor(images)))
    with torch.no_grad():
        expected = model[1:](torch.zeros(4, 32, 26, 26)).numpy()
    others = ", ".join(_convolving(mod)) or "none"
    if count != len(batches) or others != "none" or not np.allclose(came, expected, RTOL, ATOL):
        raise CheckFailed("that all comes from env.conv2d, called once a batch",
                          f"{count} calls in {len(batches)} batches; PrimFuncs that convolve: "
                          f"{others}",
                          "which variable the first ReLU takes")
    return ("env.conv2d is called once a batch, with x (4, 1, 28, 28), w (32, 1, 3, 3), "
            "b (1, 32, 1, 1);\nno PrimFunc convolves, and the other layers work with what it "
            f"writes, with random weights too\n{verified}")
