"""The checks of notebook 03: library functions."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import tvm
from torch.nn import functional as F

import helpers
from checks.answers import (
    ATOL,
    RTOL,
    CheckFailed,
    compare,
    exercise,
    line_of_answer,
    numpy_only,
    random,
    reason,
    registered,
    registry,
    run_library,
    to_numpy,
)
from checks.equivalence import build, check_same, cnn, is_layer
from loops import nests


def _recording(compute: Callable[..., np.ndarray], calls: list[list[np.ndarray]]) -> Callable:
    """Return a library function that notes its arguments and writes what `compute` gives."""
    def function(*tensors: Any) -> None:
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        calls.append([array.copy() for array in arrays])
        arrays[-1][...] = np.nan
        with contextlib.suppress(ValueError, RuntimeError, TypeError):  # wrong arguments: see calls
            arrays[-1][...] = compute(*arrays[:-1])
    return function


def _check_call(calls: list[list[np.ndarray]], name: str, **expected: tuple[int, ...]) -> None:
    """Check that a recording function was called once, with float32 arguments of these shapes."""
    if len(calls) != 1:
        raise CheckFailed(f"one call of {name} when main runs", f"{len(calls)} calls",
                          f'bb.emit(relax.op.call_dps_packed("{name}", ...)), once')
    def text(shape: tuple[int, ...], dtype: Any = "float32") -> str:
        return f"{shape}" if dtype == "float32" else f"{dtype} {shape}"
    wanted = [text(shape) for shape in expected.values()]
    came = [text(array.shape, array.dtype) for array in calls[0]]
    if came == wanted:
        return
    if sorted(came) == sorted(wanted):
        hint = "the order of the arguments in call_dps_packed"
    elif len(came) != len(wanted):
        hint = f"the tuple of arguments: {', '.join(list(expected)[:-1])}; out is added by TVM"
    elif came[:-1] == wanted[:-1]:
        hint = "the TensorType in call_dps_packed: it is the shape and dtype of out"
    else:
        hint = "the constants: relax.const(array, \"float32\"), and the shape of each array"
    names = [f"{key} {shape}" for key, shape in zip(expected, wanted, strict=True)]
    raise CheckFailed(f"{name} with {', '.join(names)}", f"with {', '.join(came)}", hint)


def _check_values(name: str, came: list[np.ndarray], **expected: np.ndarray) -> None:
    """Check that a library function was given these numbers, and not others of their shape."""
    for (key, wanted), array in zip(expected.items(), came, strict=False):
        if not np.array_equal(array, wanted):
            raise CheckFailed(f"{name} to be given {key} as it is", "other numbers of its shape",
                              f"the constants and variables in the call of {name}")


def _linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return x @ w.T + b


def _conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray | float = 0.0) -> np.ndarray:
    return F.conv2d(torch.from_numpy(x), torch.from_numpy(w.copy())).numpy() + np.float32(b)


@exercise("3.1")
def exercise_3_1(register_relu: Callable) -> str:
    """env.relu writes max(x, 0) into out."""
    shapes = [(1, 128), (4, 3, 5, 5), (7,)]
    with registry():
        function = registered(register_relu, "env.relu")
        for shape in shapes:
            x = random(*shape)
            with numpy_only("NumPy in env.relu", "np.from_dlpack and np.maximum"):
                came = run_library(function, "env.relu", shape, x=x)
            compare(came, np.maximum(x, 0),
                    "the formula: max(x, 0), element by element", {
                        "the negative numbers: they must become 0": lambda x=x: x,
                        "the sign: this is |x|": lambda x=x: np.abs(x),
                        "np.minimum where np.maximum is meant": lambda x=x: np.minimum(x, 0)})
    return ("env.relu is registered, can be registered again, and writes max(x, 0) into out;\n"
            f"tried with shapes {', '.join(map(str, shapes))}")


@exercise("3.2")
def exercise_3_2(create_linear_module: Callable) -> str:
    """main(x) calls env.linear with the weight and the bias as constants."""
    for m, k in [(128, 784), (5, 3)]:
        weight, bias, x = random(m, k), random(m), random(1, k)
        calls: list[list[np.ndarray]] = []
        mod = create_linear_module(weight.copy(), bias.copy())
        with registry(linear=_recording(_linear, calls)):
            machine = build(mod)
            if len(mod["main"].params) != 1:
                names = ", ".join(param.name for param in mod["main"].params)
                raise CheckFailed("main with one parameter, x", f"parameters {names}",
                                  'the weight and the bias: relax.const(weight, "float32")')
            came = to_numpy(machine["main"](tvm.runtime.tensor(x)))
        _check_call(calls, "env.linear", x=(1, k), w=(m, k), b=(m,), out=(1, m))
        _check_values("env.linear", calls[0], x=x, w=weight, b=bias)
        compare(came, _linear(x, weight, bias), "which variable main returns", {
            "the bias: it is 0 in the call, or taken off again":
                lambda x=x, w=weight: x @ w.T,
            "the bias: env.linear adds it already":
                lambda x=x, w=weight, b=bias: x @ w.T + 2 * b})
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
            expected = _conv2d(x, w, b)
            with watch():
                came = run_library(function, "env.conv2d", expected.shape, x=x, w=w, b=b)
            compare(came, expected, "the sum: over input channels, kernel rows, kernel columns", {
                "the bias: it is left out": lambda x=x, w=w: _conv2d(x, w),
                "the bias: it is added twice": lambda x=x, w=w, b=b: _conv2d(x, w, 2 * b),
                "the bias: it runs along the width, not the channels":
                    lambda x=x, w=w, b=b: _conv2d(x, w, b.reshape(1, 1, 1, -1)),
                "the bias: it runs along the height, not the channels":
                    lambda x=x, w=w, b=b: _conv2d(x, w, b.reshape(1, 1, -1, 1)),
                "the kernel is flipped (a deep-learning conv2d does not)":
                    lambda x=x, w=w, b=b: _conv2d(x, w[:, :, ::-1, ::-1], b),
                "the kernel's height and width are exchanged":
                    lambda x=x, w=w, b=b: _conv2d(x, w.swapaxes(2, 3), b),
                "the batch: every image gets the result of image 0": lambda x=x, w=w, b=b:
                    np.broadcast_to(_conv2d(x[:1], w, b), (len(x), *_conv2d(x, w, b).shape[1:])),
                "the batch: only image 0 is written": lambda x=x, w=w, b=b: np.concatenate([
                    _conv2d(x[:1], w, b), np.full_like(_conv2d(x[1:], w, b), np.nan)])})
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
                          weights: Mapping[str, np.ndarray], images: torch.Tensor) -> None:
    """Run the CNN on one batch and check how it calls env.conv2d; `calls` is what that noted."""
    came = images.numpy()
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # check_same will tell
        came = to_numpy(machine["main"](tvm.runtime.tensor(images.numpy())))
    if not calls and (names := _convolving(mod)):
        raise CheckFailed("the convolution by env.conv2d", "env.conv2d is not called, PrimFunc "
                          f"{names[0]} convolves", "bb.emit(relax.op.call_dps_packed(...)) in "
                          "place of bb.emit_te for the convolution")
    if calls:
        _check_call(calls, "env.conv2d", x=(4, 1, 28, 28), w=(32, 1, 3, 3), b=(1, 32, 1, 1),
                    out=(4, 32, 26, 26))
        _check_values("env.conv2d", calls[0], x=images.numpy(), w=weights["conv2d_weight"],
                      b=weights["conv2d_bias"].reshape(1, 32, 1, 1))
    twice = helpers.pytorch_model({**weights, "conv2d_bias": 2 * weights["conv2d_bias"]})
    with torch.no_grad():
        if is_layer(came, twice(images).numpy(), twice[-1]):
            raise CheckFailed("the bias of the convolution, once", "twice the bias",
                              "what follows env.conv2d, which adds the bias already")


@exercise("3.5", seconds=90)
def exercise_3_5(create_model_with_library_conv2d: Callable) -> str:
    """The CNN is equivalent to PyTorch and its convolution is env.conv2d."""
    (weights, model), loader = cnn(), helpers.test_loader()
    images = next(iter(loader))[0]
    try:
        mod = create_model_with_library_conv2d({name: w.copy() for name, w in weights.items()})
    except AssertionError as error:  # TOPI's own: shapes that do not fit
        raise CheckFailed("layers whose shapes fit", reason(error), "the output type of "
                          "env.conv2d (4, 32, 26, 26), pooled (4, 32, 13, 13), flattened (4, 5408);"
                          f" it failed at {line_of_answer(error)}") from None
    calls: list[list[np.ndarray]] = []
    factor = 1.0
    functions = {"conv2d": _recording(lambda x, w, b: factor * _conv2d(x, w, b), calls),
                 "linear": _recording(_linear, []),
                 "relu": _recording(lambda x: np.maximum(x, 0), [])}
    with registry(keep=True, **functions):
        machine = build(mod)
        _check_library_conv2d(mod, machine, calls, weights, images)
        verified = check_same(mod, model, loader)
        count, factor = len(calls) - 1, 0.0  # the layers after it must feel the 0
        came = to_numpy(machine["main"](tvm.runtime.tensor(images.numpy())))
    with torch.no_grad():
        expected = model[1:](torch.zeros(4, 32, 26, 26)).numpy()
    others = ", ".join(_convolving(mod)) or "none"
    if count != len(loader) or others != "none" or not np.allclose(came, expected, RTOL, ATOL):
        raise CheckFailed("that all comes from env.conv2d, called once a batch",
                          f"{count} calls in {len(loader)} batches; PrimFuncs that convolve: "
                          f"{others}",
                          "which variable the first ReLU takes")
    return ("env.conv2d is called once a batch, with x (4, 1, 28, 28), w (32, 1, 3, 3), "
            "b (1, 32, 1, 1);\nno PrimFunc convolves, and the other layers work with what it "
            f"writes\n{verified}")
