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
from tvm import relax

import helpers
from checks.compare.mistakes import layer_mistakes, with_parameters
from checks.compare.trials import ATOL, RTOL, Mistakes, judged, random, to_numpy
from checks.diagnose.equivalence import build
from checks.exercises.models import INPUT, cnn, create, make, random_cnn, reference
from checks.observe import libraries
from checks.observe.intermediates import is_layer
from checks.observe.primfuncs import QUICK
from checks.observe.spies import require_no_tvm, require_numpy_only, require_torch
from checks.run.answer import line_of_answer
from checks.run.check import exercise
from checks.say.messages import CheckFailed, reason
from tir.loops import nests
from words import _


def _linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    # by PyTorch, which has one thread in the child; NumPy's library has several, which may wait
    return F.linear(*map(torch.from_numpy, (x, w.copy(), b.copy()))).numpy()


def _conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return F.conv2d(torch.from_numpy(x), torch.from_numpy(w.copy())).numpy() + b


_RELU: Mistakes = {
    _("numbers above 1 are cut"): lambda _, x: x.clamp(0, 1),
    _("numbers above 6 are cut: this is ReLU6"): lambda _, x: x.clamp(0, 6),
    _("negative numbers keep a hundredth: this is the leaky ReLU"): lambda _, x: F.leaky_relu(x)}


@exercise("3.1")
def exercise_3_1(register_relu: Callable) -> str:
    """env.relu writes max(x, 0) into out."""
    shapes = [(1, 128), (4, 3, 5, 5), (7,), (1,), (2, 300, 1), (5, 1), (41, 35)]
    layer = nn.ReLU()
    with libraries.registry(), judged(_("the formula: max(x, 0), element by element"),
                                      layer_mistakes(layer) | _RELU) as note:
        function = libraries.registered(register_relu, "env.relu")
        for number, shape in enumerate([*shapes, shapes[0]]):  # with other numbers
            x = np.float32(10) ** (3 * number) * random(*shape, seed=number)
            if not number:  # extremes in the first, a middle and the last place
                x[0, [0, 60, -1]] = -1e30, 1e30, 1e38
            with require_numpy_only(_("NumPy in env.relu"), _("np.from_dlpack and np.maximum")):
                came = libraries.run_library(function, "env.relu", shape, x=x)
            note(came, np.maximum(x, 0), layer, torch.from_numpy(x))
    return _("env.relu is registered, can be registered again, writes max(x, 0) into out and "
             "returns nothing;\ntried with shapes {shapes}").format(
        shapes=", ".join(map(str, shapes)))


# Functions of x, weight and bias: what main does beside its call.
_BIAS_OF_LINEAR: Mistakes = {
    _("the bias: it is 0 in the call, or taken off again"): lambda x, w, b: x @ w.T,
    _("the bias: env.linear adds it already"): lambda x, w, b: x @ w.T + 2 * b}


def _require_x(mod: Any, m: int, k: int) -> None:
    """Raise CheckFailed where main does not take x float32 (1, k) alone."""
    names = [variable.name_hint for variable in mod.get_global_vars()] \
        if isinstance(mod, tvm.IRModule) else []
    if "main" not in names or not isinstance(mod["main"], relax.Function):
        return
    params = list(mod["main"].params)
    if len(params) != 1:
        raise CheckFailed(_("main with one parameter, x"),
                          _("parameters {params}").format(
                              params=", ".join(param.name for param in params) or _("none")),
                          _('the weight and the bias: relax.const(weight, "float32")'))
    values = getattr(getattr(params[0].ty, "shape", None), "values", None)
    dtype = str(params[0].ty.dtype).removeprefix("T.") \
        if isinstance(params[0].ty, relax.TensorType) else ""
    shape = tuple(int(extent) if isinstance(extent, tvm.tirx.IntImm) else str(extent)
                  for extent in values or ())
    fits = values is None or len(shape) == 2 and all(
        isinstance(came, str) or came == wanted for came, wanted in zip(shape, (1, k), strict=True))
    if not fits or dtype != "float32":
        hint = 'relax.Var("x", relax.TensorType(shape, "float32"))'
        if shape == (1, m):
            hint = _("m and k: the weight is (m, k), x has k numbers")
        elif shape == (1, 784):
            hint = _("the sizes of the example: take them from weight.shape")
        elif shape == (k,):
            hint = _("the shape of x: one row of k numbers is (1, k)")
        came = f"x {dtype} {shape}" if values is not None else f"x {params[0].ty}"
        raise CheckFailed(_("main to take x float32 {shape} for a weight {weight}").format(
                              shape=(1, k), weight=(m, k)), came, hint)


def _run_linear(machine: relax.VirtualMachine, mod: tvm.IRModule, x: np.ndarray,
                calls: list[list[np.ndarray]], out: tuple[int, int]) -> np.ndarray:
    """Run main(x) and check how it calls env.linear; return what it gives."""
    output: Any = None
    problem = None
    try:
        output = machine["main"](tvm.runtime.tensor(x))
    except (ValueError, TypeError, RuntimeError) as error:
        problem = error
    k = x.shape[1]
    if "call_dps_packed" not in helpers.script(mod) and calls and len(calls[0]) == 3:
        raise CheckFailed(_("env.linear with x, w, b and out"),
                          _("with x, w, b: nobody brought out"),
                          _("relax.op.call_dps_packed, which allocates out and hands it over"))
    if calls or not problem:
        libraries.require_call(calls, "env.linear", x=(1, k), w=(out[1], k), b=(out[1],), out=out)
    if problem:
        raise CheckFailed(_("main to run on x {shape}").format(shape=(1, k)), reason(problem),
                          _("the shapes and types of main's calls"))
    if not hasattr(output, "numpy"):
        came = _("a tuple of {count}").format(count=len(output)) if hasattr(output, "__len__") \
            else type(output).__name__
        raise CheckFailed(_("one tensor {out}").format(out=out), came,
                          _("what main returns: bb.emit_func_output(gv)"))
    return output.numpy()


@exercise("3.2")
def exercise_3_2(create_linear_module: Callable) -> str:
    """main(x) calls env.linear with the weight and the bias as constants."""
    with judged(_("which variable main returns, and what stands between it and the call"),
                _BIAS_OF_LINEAR) as note:
        sizes = [(128, 784), (5, 3), (150, 900), (1, 4), (6, 1)]
        for number, (m, k) in enumerate([*sizes, sizes[1]]):  # with other numbers
            weight, bias, x = (random(*shape, seed=number) for shape in [(m, k), (m,), (1, k)])
            calls: list[list[np.ndarray]] = []
            mod = create_linear_module(weight.copy(), bias.copy())
            _require_x(mod, m, k)
            with libraries.registry(linear=libraries.recording(_linear, calls)):
                came = _run_linear(build(mod, QUICK), mod, x, calls, (1, m))
            libraries.require_values("env.linear", calls[0], x=x, w=weight, b=bias)
            note(came, _linear(x, weight, bias), x, weight, bias)
    return _("main(x) calls env.linear once with x, w, b as given, and returns x @ w.T + b;\n"
             "tried with weights (128, 784), (5, 3), (150, 900), (1, 4) and (6, 1)")


def _require_conv2d(register: Callable, watch: Callable) -> str:
    """Compare env.conv2d with PyTorch on several shapes; it runs inside the context `watch()`."""
    shapes = [((1, 1, 28, 28), (32, 1, 3, 3)), ((3, 2, 6, 6), (4, 2, 3, 3)),
              ((2, 3, 9, 7), (5, 3, 2, 4)), ((2, 2, 30, 31), (1, 2, 5, 1)),
              ((2, 40, 4, 3), (2, 40, 4, 3)), ((1, 2, 1, 5), (3, 2, 1, 1)),
              ((34, 2, 4, 3), (35, 2, 3, 2))]
    again = shapes[1]  # with other numbers: what was kept of the first call is wrong then
    with libraries.registry(), judged(
            _("the sum, over input channels, kernel rows and kernel columns; and the bias, one "
              "number for each output channel"),
            layer_mistakes(nn.Conv2d(1, 1, 1))) as note:  # those of a layer with a bias
        function = libraries.registered(register, "env.conv2d")
        for number, (x_shape, w_shape) in enumerate([*shapes, again]):
            scales = ((1, 1, 1), (200, 1, 9), (1, 200, 1))[number % 3]  # small and large ones
            x, w, b = (np.float32(scale) * random(*shape, seed=number) for scale, shape in
                       zip(scales, (x_shape, w_shape, (1, w_shape[0], 1, 1)), strict=True))
            layer = with_parameters(nn.Conv2d(w_shape[1], w_shape[0], w_shape[2:]), w, b)
            expected = _conv2d(x, w, b)
            with watch():
                came = libraries.run_library(function, "env.conv2d", expected.shape, x=x, w=w, b=b)
            note(came, expected, layer, torch.from_numpy(x), atol=1e-4 * max(scales))
    return _("env.conv2d equals PyTorch's convolution with bias, and returns nothing;\ntried with "
             "{shapes}").format(
        shapes=',\n'.join((f"x {x_shape} and w {w_shape}" for x_shape, w_shape in shapes)))


@exercise("3.3")
def exercise_3_3(register_conv2d: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out."""
    watch = functools.partial(require_torch, _("the convolution by means of PyTorch"),
                              "torch.nn.functional.conv2d")
    return _('{require_conv2d};\nPyTorch did the products').format(
        require_conv2d=_require_conv2d(register_conv2d, watch))


@exercise("3.4")
def exercise_3_4(register_conv2d_numpy: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out, without PyTorch."""
    said = _("NumPy alone in env.conv2d"), "np.lib.stride_tricks.sliding_window_view, np.einsum"
    with require_no_tvm(*said):
        verified = _require_conv2d(register_conv2d_numpy,
                                   functools.partial(require_numpy_only, *said))
    return _('{verified};\nno function of PyTorch was called').format(verified=verified)


def _convolving(mod: tvm.IRModule) -> list[str]:
    """Name the PrimFuncs with a reduction in seven loops: four of the output, three of the sum."""
    return [variable.name_hint for variable, func in mod.functions_items()
            if isinstance(func, tvm.tirx.PrimFunc)
            and any(nest.reduces and len(nest.loops) >= 7 for nest in nests(func))]


def _require_library_conv2d(mod: tvm.IRModule, machine: Any, calls: list[list[np.ndarray]],
                            weights: Mapping[str, np.ndarray], images: np.ndarray) -> None:
    """Run the CNN on one batch and check how it calls env.conv2d, which notes that in `calls`."""
    came = images
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # require_same will tell
        came = to_numpy(machine["main"](tvm.runtime.tensor(images)))
    if not calls and (names := _convolving(mod)):
        raise CheckFailed(_("the convolution by env.conv2d"),
                          _("env.conv2d is not called, PrimFunc {names} convolves").format(
                              names=names[0]),
                          _("bb.emit(relax.op.call_dps_packed(...)) in place of bb.emit_te for "
                            "the convolution"))
    if calls:
        libraries.require_call(calls, "env.conv2d", x=INPUT, w=(32, 1, 3, 3), b=(1, 32, 1, 1),
                               out=(4, 32, 26, 26))
        libraries.require_values("env.conv2d", calls[0], x=images, w=weights["conv2d_weight"],
                                 b=weights["conv2d_bias"].reshape(1, 32, 1, 1))
    twice = helpers.pytorch_model({**weights, "conv2d_bias": 2 * weights["conv2d_bias"]})
    with torch.no_grad():
        if is_layer(came, twice(torch.from_numpy(images)).numpy(), twice[-1]):
            raise CheckFailed(_("the bias of the convolution, once"), _("twice the bias"),
                              _("what follows env.conv2d, which adds the bias already"))


_LIBRARY = ("env.conv2d", "env.linear", "env.relu")


@exercise("3.5", seconds=90, prepare=[reference, random_cnn])
def exercise_3_5(create_model_with_library_conv2d: Callable) -> str:
    """The CNN is equivalent to PyTorch and its convolution is env.conv2d."""
    (weights, model), batches = cnn(), reference()
    images = batches[0].images
    try:
        mod, other = create(create_model_with_library_conv2d, _LIBRARY, lowered=False)
    except AssertionError as error:  # TOPI's own: shapes that do not fit
        raise CheckFailed(_("layers whose shapes fit"), reason(error),
                          _("the output type of env.conv2d (4, 32, 26, 26), pooled (4, 32, 13, "
                            "13), flattened (4, 5408); it failed at {line_of_answer}").format(
            line_of_answer=line_of_answer(error))) from None
    calls: list[list[np.ndarray]] = []
    factor = 1.0
    functions = {"conv2d": libraries.recording(lambda x, w, b: factor * _conv2d(x, w, b), calls),
                 "linear": libraries.recording(_linear, []),
                 "relu": libraries.recording(lambda x: np.maximum(x, 0), [])}
    with libraries.registry(keep=True, **functions):
        made = make(mod, other)
        machine = made.machine
        _require_library_conv2d(mod, machine, calls, weights, images)
        before, verified = len(calls), made.require_trained()
        count = len(calls) - before - 1  # one batch was of random images
        made.require_random()
        factor = 0.0  # the layers after it must feel the 0
        came = to_numpy(machine["main"](tvm.runtime.tensor(images)))
    with torch.no_grad():
        expected = model[1:](torch.zeros(4, 32, 26, 26)).numpy()
    convolving = _convolving(mod)
    if count != len(batches) or convolving or not np.allclose(came, expected, RTOL, ATOL):
        raise CheckFailed(_("that all comes from env.conv2d, called once a batch"),
                          _("{count} calls in {batches} batches; PrimFuncs that convolve: "
                            "{others}").format(count=count, batches=len(batches),
                                               others=", ".join(convolving) or _("none")),
                          _("which variable the first ReLU takes"))
    return _("env.conv2d is called once a batch, with x (4, 1, 28, 28), w (32, 1, 3, 3), b (1, "
             "32, 1, 1);\nno PrimFunc convolves, and the other layers work with what it writes, "
             "with random weights too\n{verified}").format(verified=verified)
