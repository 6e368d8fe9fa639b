"""The checks of notebook 02: emit_te."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import nn
from torch.nn import functional as F

import helpers
from course.checks.compare.mistakes import CONV2D, conv2d
from course.checks.compare.tolerance import fractions, random, shapes
from course.checks.diagnose.equivalence import random_like, refusal
from course.checks.exercises.models import Made, cnn, create, make, random_cnn, reference
from course.checks.observe.intermediates import Binding, is_layer, values_of
from course.checks.observe.spies import Expressions, TorchCalls
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import Misuse, expression
from course.checks.spec.spec import Cases, Spec, check, not_finite, window_fits
from course.tir.walk import constant, sblocks
from course.words import _


def _leaky_relu_cases() -> Cases:
    slopes = (0.1, 2.0, 0.0, -0.5, 0.3, -2.0, 1e6)
    for number, shape in enumerate([*shapes(128, 128), *7 * [(5, 7)]]):
        slope, x = slopes[number % len(slopes)], 3 * random(*shape)
        x.flat[[x.size // 2, 0, -1]] = 0, -1000, 1000
        yield {"x": x, "slope": slope}


_LEAKY = Spec(expression, lambda x, slope: np.where(x > 0, x, x * np.float32(slope)),
              _leaky_relu_cases, {"x": "n m"}, fault=Misuse)


@exercise("2.1", "leaky_relu(x, slope)")
def exercise_2_1(leaky_relu: Callable) -> str:
    """a leaky ReLU as a tensor expression.

    The formula: https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html
    """
    return _("equal to NumPy for {count} shapes and {slopes} slopes").format(
        count=check(_LEAKY, leaky_relu) - 6, slopes=7)


def _linear_cases() -> Cases:
    for number, (n, m, k) in enumerate([
            (4, 5, 5), (1, 3, 8), (6, 10, 7), (7, 2, 3), (1, 1, 1), (3, 1, 5), (2, 6, 1),
            (5, 103, 2)]):
        x, w = fractions(n, k, fine=number % 2 == 0), fractions(m, k, seed=1, fine=number % 2 == 1)
        yield {"x": x, "w": w, "b": fractions(m, seed=2)}


_DENSE = Spec(
    expression, lambda x, w, b: x @ w.T + b, _linear_cases, {"x": "n k", "w": "m k", "b": "m"},
    {_("the bias is added k times"):
        lambda x, w, b: x @ w.T + np.float32(x.shape[1]) * b,
     _("it is x W + b"): lambda x, w, b: x @ w + b},
    least={"n": 2, "m": 2, "k": 2},
    beyond=lambda: not_finite({"x": fractions(4, 3), "w": fractions(5, 3, seed=1),
                               "b": fractions(5, seed=2)}), fault=Misuse)


@exercise("2.2", "linear(x, w, b)")
def exercise_2_2(linear: Callable) -> str:
    """a linear layer as a tensor expression."""
    return _("x W^T + b for {count} shapes, equal to NumPy").format(count=check(_DENSE, linear))


def _conv2d_cases() -> Cases:
    for number, (shape, kernel) in enumerate([
            ((4, 1, 28, 28), (32, 1, 3, 3)), ((2, 3, 9, 7), (4, 3, 2, 3)),
            ((1, 2, 5, 8), (1, 2, 4, 1)), ((3, 7, 4, 6), (5, 7, 4, 6)),
            ((2, 1, 3, 4), (3, 1, 1, 1)), ((5, 2, 31, 30), (33, 2, 3, 4))]):
        fine = number % 2 == 0  # one of the two, in turn
        yield {"x": fractions(*shape, fine=fine), "w": fractions(*kernel, seed=1, fine=not fine)}


_CONVOLUTION = Spec(
    expression, conv2d, _conv2d_cases, {"x": "n c h v", "w": "o c p q"},
    CONV2D | {_("as with a kernel whose rows and columns are exchanged"):
              lambda x, w: conv2d(x, w.swapaxes(2, 3))},
    beyond=lambda: not_finite({"x": fractions(2, 3, 5, 4), "w": fractions(4, 3, 2, 3, seed=1)}),
    least={"h": 2, "v": 2, "p": 2, "q": 2}, fits=window_fits, fault=Misuse)


@exercise("2.3", "conv2d(x, w)")
def exercise_2_3(conv2d: Callable) -> str:
    """a convolution as a tensor expression."""
    return _("equal to PyTorch for {count} shapes: one input channel and several, square and not, "
             "a 1x1 kernel and one as large as the image").format(
                 count=check(_CONVOLUTION, conv2d))


def _pool_cases() -> Cases:
    for shape, shift in [((4, 32, 26, 26), 0.5), ((2, 3, 4, 6), 0.5), ((1, 1, 2, 2), 1e5),
                         ((3, 2, 8, 2), -200), ((1, 5, 2, 10), 3), ((5, 33, 30, 28), 0.5)]:
        x = random(*shape) - np.float32(shift)  # many windows with nothing above zero
        for place in range(4):  # the largest of a window is in each of its four places
            x[place % len(x), place % shape[1], place // 2::4, place % 2::4] += 2
        if shape == (2, 3, 4, 6):
            x.flat[::5] = -1e8  # beside small numbers: their sum is not exact
        yield {"x": x}


def _pooled(x: np.ndarray, stride: int = 2) -> np.ndarray:
    return F.max_pool2d(torch.from_numpy(x), 2, stride).numpy()


_MAX_POOL = Spec(
    expression, _pooled, _pool_cases, {"x": "n c h w"}, {
        _("windows below zero give 0"):
            lambda x: _pooled(x).clip(0),
        _("the stride of the pooling is 1, and the output is cut to its size"):
            lambda x: _pooled(x, 1)[..., :x.shape[2] // 2, :x.shape[3] // 2]},
    beyond=lambda: not_finite({"x": random(2, 3, 4, 6)}, (np.inf, -np.inf)),
    least={"h": 2, "w": 2}, fits=lambda given: not any(n % 2 for n in given["x"].shape[2:]),
    fault=Misuse)


@exercise("2.4", "max_pool(x)")
def exercise_2_4(max_pool: Callable) -> str:
    """max pooling as a tensor expression."""
    return _("equal to PyTorch for {count} shapes, negative windows too").format(
        count=check(_MAX_POOL, max_pool))


@exercise("2.5", "create_model_via_emit_te(weights)", seconds=30, prepare=[reference, random_cnn])
def exercise_2_5(create_model: Callable) -> str:
    """the CNN by emit_te."""
    with TorchCalls() as calls:
        mod, other = create(create_model)
    made = make(mod, other)
    verified = made.require_trained()
    if "conv2d" in calls.names:
        raise CheckFailed(_("operators from TOPI, without PyTorch's conv2d"),
                          _("PyTorch's conv2d was called while your function ran"),
                          _("bb.emit_te(topi...) for each operator; the weights are all you need"))
    made.require_random()
    return _("operators as PrimFuncs, right with random weights too. {verified}").format(
        verified=verified)


_SAYS = {nn.Conv2d: _("convolution"), nn.Linear: _("linear layer")}


def _holds(taken: np.ndarray, array: np.ndarray) -> bool:
    """Whether a tensor has an array's numbers, in any order."""
    return taken.size == array.size and np.array_equal(np.sort(taken, None), np.sort(array, None))


def _taken(call: Binding, calls: Sequence[Binding], images: np.ndarray) -> list[np.ndarray]:
    """Return the constants that a call takes, and the values of the others, or main's images."""
    return [*call.constants, *(calls[place].value if place >= 0 else images for place in call.of)]


def _lacks(call: Binding, taken: Sequence[np.ndarray], values: Sequence[np.ndarray],
           index: int, layers: Sequence[nn.Module], arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return what of a layer's a call neither takes nor gives.

    The first of `layers` makes values[index + 1] of values[index] by its `arrays`.
    """
    result = _("the result {shape}").format(shape=values[index + 1].shape)
    there = {
        f"x {values[index].shape}": any(
            is_layer(one, values[index], nn.Identity()) for one in taken),
        **{name: any(_holds(one, array) for one in taken) for name, array in arrays.items()},
        result: any(is_layer(call.value, after, layer)  # with what is done to it inside
                    for after, layer in zip(values[index + 1:], layers, strict=True))}
    lacking = [part for part, found in there.items() if not found]
    # what is not given cannot be in the result
    return [part for part in lacking if part != result] or lacking


@torch.no_grad()
def _require_own_layers(made: Made, expressions: Expressions) -> None:
    """Raise CheckFailed unless each layer with weights is one call with x, weight and bias."""
    (weights, model), values = cnn(), [reference()[0].images]
    calls = values_of(made.mod, made.machine, values)
    for layer in model:
        values.append(layer(torch.from_numpy(values[-1])).numpy())
    for index, name in [(0, "conv2d"), (4, "linear0"), (6, "linear1")]:
        parameters = [f"{name}_weight", f"{name}_bias"]
        lacks = functools.partial(_lacks, values=values, index=index, layers=model[index:],
                                  arrays={one: weights[one] for one in parameters})
        nearest, given = min(((call, _taken(call, calls, values[0])) for call in calls),
                             key=lambda both: len(lacks(*both)))
        if lacking := lacks(nearest, given):
            raise CheckFailed(
                _("the {layer} as one PrimFunc, of x {shape}, {parameters}").format(
                    layer=_SAYS[type(model[index])], shape=values[index].shape,
                    parameters=", ".join(parameters)),
                _("{kernel} has all of it but {lacking}; it takes {taken}").format(
                    kernel=nearest.kernel, lacking=_(", ").join(lacking),
                    taken=_(", ").join(str(one.shape) for one in given)))
        inside = _reductions(made.mod[nearest.kernel])  # also of what was fused since
        sums = [operation.name for func, operations in expressions.made
                if any(tvm_ffi.structural_equal(one, other, True)
                       for one in _reductions(func) for other in inside)
                for operation in operations
                if _is_sum_with(operation, weights[parameters[0]].shape)]
        if sums:
            raise CheckFailed(_("tensor expressions of your own for convolution and linear layers"),
                              _("{kernel} has TOPI's {operator} in it, a sum").format(
                                  kernel=nearest.kernel, operator=sums[0]),
                              _("te.compute with te.sum, as in exercises 2.2 and 2.3"))


def _is_sum_with(operation: Any, shape: Sequence[int]) -> bool:
    """Whether an operation is a sum in which a tensor of a shape, such as a weight, has a part."""
    if not getattr(operation, "reduce_axis", ()) \
            or not isinstance(operation.body[0].combiner.result[0], tvm.tirx.Add):
        return False
    waiting = [*operation.input_tensors]
    while waiting:
        tensor = waiting.pop()
        if [constant(extent) for extent in tensor.shape] == list(shape):
            return True
        if not getattr(tensor.op, "reduce_axis", ()):  # what was added up before is another's
            waiting += [*tensor.op.input_tensors]
    return False


def _reductions(func: tvm.tirx.PrimFunc) -> list[tvm.s_tir.SBlock]:
    return [block for block in sblocks(func) if block.init is not None]


@exercise("2.6", "create_model_via_own_te(weights)", seconds=30, prepare=[reference, random_cnn])
def exercise_2_6(create_model: Callable) -> str:
    """the CNN by own tensor expressions."""
    with Expressions() as expressions:
        mod, other = create(create_model)
    made = make(mod, other, values=True)
    verified = made.require_trained()
    _require_own_layers(made, expressions)
    made.require_random()
    return _("each convolution and linear layer is one PrimFunc that takes its bias; right with "
             "random weights too\n{verified}").format(verified=verified)


_LOUD = 200  # exp(200) is beyond float32
_BELOW = np.float32(-20 * _LOUD)


@torch.no_grad()
def _require_shifted(create_model: Callable) -> None:
    """Raise CheckFailed unless the softmax is right for logits far from 0, and from one another."""
    weights, model = random_cnn()
    images = [random_like(reference()[0].images, seed) for seed in range(8)]
    logits = model[:-1](torch.from_numpy(np.concatenate(images))).numpy()
    # what is far apart: the logits of a row, the rows of a batch, and all of them from 0
    by = _LOUD / logits.std(0).mean()
    loud = [weights | {"linear1_weight": by * weights["linear1_weight"],
                       "linear1_bias": by * (weights["linear1_bias"] - logits.mean(0)) + shift}
            for shift in (0, _BELOW)]
    made = make(*(create_model(one) for one in loud))
    for one, mod, machine, main, words in (
            (loud[0], made.mod, made.machine, "main", _("logits that differ by hundreds")),
            (loud[1], made.other, made.other_machine, made.other_main,
             _("logits that differ by hundreds, around {number}").format(number=int(_BELOW)))):
        model = helpers.pytorch_model(one)
        for number, batch in enumerate(images):
            came = machine[main](tvm.runtime.tensor(batch)).numpy()
            if not np.allclose(came, model(torch.from_numpy(batch)), 1e-2, 1e-4):
                raise refusal(_("with {words}").format(words=words), mod, model,
                              [batch, images[number - 1]])


@exercise("2.7", "create_model_without_topi(weights)", seconds=30, prepare=[reference, random_cnn])
def exercise_2_7(create_model: Callable) -> str:
    """the CNN by own tensor expressions alone."""
    with Expressions() as expressions:
        mod, other = create(create_model)
    expressions.require_own()
    made = make(mod, other)
    verified = made.require_trained()
    made.require_random()
    _require_shifted(create_model)
    return _("no tensor of TOPI's in it; right with random weights, and with logits that differ by "
             "hundreds\n{verified}").format(verified=verified)
