"""Why a module's values differ from PyTorch's: usual mistakes, put into PyTorch's chain of layers.

A mistake is the cause if PyTorch's layers with it give what the module gave for every input that
was tried, and no other known mistake does.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.checks.compare.mistakes import Mistake, layer_mistakes, without_bias
from course.checks.compare.tolerance import ATOL, RTOL
from course.checks.observe.intermediates import Binding, is_layer
from course.words import _

Forward = Callable[[Tensor], Tensor | None]
Layers = list[nn.Module]
# A mistake's text, what takes the place of layers by their numbers, and its family.
Change = tuple[str, dict[int, Forward], str]


class Hypothesis(NamedTuple):
    """A cause, the layer where it begins, and for each input the values from that layer on.

    `until` is the last layer that differs from PyTorch's. Those of one `family` are one mistake in
    several places, which may have the same effect.
    """

    cause: str
    layer: int
    values: list[list[Tensor]]
    until: int
    family: str = ""

    def at(self, layer: int) -> list[Tensor] | None:
        """Return the values of a layer for each input, or None where the chain breaks before."""
        position = layer - self.layer
        if position < 0 or any(position >= len(values) for values in self.values):
            return None
        return [values[position] for values in self.values]


def holds(binding: Binding, values: Sequence[Tensor], layer: nn.Module) -> bool:
    """Whether a binding has a layer's values for every input."""
    return all(is_layer(came, right.numpy(), layer)
               for came, right in zip(binding.values, values, strict=True))


def found_at(bindings: Sequence[Binding], values: Sequence[Tensor] | None, layer: nn.Module) -> int:
    """Return the position of the first binding with a layer's values for every input, or -1."""
    if values is None:
        return -1
    return next((position for position, binding in enumerate(bindings)
                 if holds(binding, values, layer)), -1)


def equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether values are the same for every input, as far as the comparison can see."""
    return all(a.shape == b.shape and torch.allclose(a, b, RTOL, ATOL / 10, equal_nan=True)
               for a, b in zip(some, others, strict=True))


# ---- mistakes that only a whole model has ---------------------------------------------------


def _named(layer: nn.Module) -> str:
    return _("convolution") if isinstance(layer, nn.Conv2d) else _("linear layer")


def _one_short(layer: nn.Conv2d, x: Tensor, axis: int) -> Tensor:
    """Convolve without the last row or column of the kernel, into an output as large."""
    weight = layer.weight.clone()
    weight.select(axis, -1).zero_()
    return torch.func.functional_call(layer, {"weight": weight}, (x,))


def _normed(layer: nn.BatchNorm2d, x: Tensor, **changes: Any) -> Tensor:
    """Normalise as the layer does, but for the changes."""
    names = ("running_mean", "running_var", "weight", "bias", "eps")
    return F.batch_norm(x, **{name: getattr(layer, name) for name in names} | changes)


# What becomes of the images before the first layer.
_IMAGES: dict[str, Mistake] = {
    _("the images: their rows and columns are exchanged"):
        lambda layer, x: layer(x.transpose(-1, -2)),
    _("the images: they are inverted, 1 - x"): lambda layer, x: layer(1 - x),
    _("the images: they are normalised, (x - 0.5) / 0.5"): lambda layer, x: layer(2 * x - 1),
    _("the images: they are multiplied by 255"): lambda layer, x: layer(255 * x),
    _("the images: they are divided by 255"): lambda layer, x: layer(x / 255)}
# What becomes of a layer's result, in the kernel that computes it.
_RESULT: dict[str, Mistake] = {
    # cause: result-float16
    _("the result is rounded to float16"): lambda layer, x: layer(x).half().float(),
    _("the result is rounded to bfloat16"): lambda layer, x: layer(x).bfloat16().float(),
    # cause: result-whole
    _("the result is cut to whole numbers"): lambda layer, x: layer(x).trunc()}
# Those of a module's layers beside the usual ones, by the layer's class.
_MORE: dict[Any, dict[str, Mistake]] = {
    nn.Conv2d: {
        _("the sum leaves out the last row of the kernel"):
            lambda layer, x: _one_short(layer, x, 2),
        _("the sum leaves out the last column of the kernel"):
            lambda layer, x: _one_short(layer, x, 3),
        _("the output's height and width are one short: see + 1"):
            lambda layer, x: layer(x)[..., :-1, :-1]},
    nn.Linear: {
        _("the sum leaves out the last k"):
            lambda layer, x: F.linear(x[..., :-1], layer.weight[:, :-1], layer.bias),
        _("the sum leaves out the first k"):
            lambda layer, x: F.linear(x[..., 1:], layer.weight[:, 1:], layer.bias),
        _("the weight has another order than x: its columns run backwards"):
            lambda layer, x: F.linear(x, layer.weight.flip(1), layer.bias)},
    nn.Softmax: {
        # cause: softmax-twice
        _("the softmax is applied twice"): lambda layer, x: layer(layer(x)),
        _("the softmax is computed of -x"): lambda layer, x: layer(-x)},
    nn.Flatten: {
        _("flattened with height and width exchanged"): lambda layer, x: layer(x.transpose(-1, -2)),
        _("the flattened features run backwards"): lambda layer, x: layer(x).flip(-1)},
    nn.ReLU: {
        # cause: relu6
        _("the ReLU is cut off at 6, as a ReLU6"): lambda _, x: x.clamp(0, 6),
        # cause: leaky-relu
        _("the ReLU lets a part of negative numbers through (0.01 x), as a leaky ReLU"):
            lambda _, x: F.leaky_relu(x),
        _("a sigmoid instead of the ReLU"): lambda _, x: x.sigmoid(),
        _("tanh instead of the ReLU"): lambda _, x: x.tanh(),
        # cause: gelu
        _("GELU instead of the ReLU"): lambda _, x: F.gelu(x),
        _("SiLU instead of the ReLU"): lambda _, x: F.silu(x)},
    nn.BatchNorm2d: {
        _("the running mean is not subtracted"):
            lambda layer, x: _normed(layer, x, running_mean=torch.zeros_like(layer.running_mean)),
        _("nothing is divided by the running variance's root"):
            lambda layer, x: _normed(layer, x, running_var=torch.ones_like(layer.running_var)),
        _("the weight of the normalisation is left out"):
            lambda layer, x: _normed(layer, x, weight=None),
        _("the bias of the normalisation is left out"):
            lambda layer, x: _normed(layer, x, bias=None),
        _("eps is left out"): lambda layer, x: _normed(layer, x, eps=0),
        _("eps is 1e-5, not the layer's"): lambda layer, x: _normed(layer, x, eps=1e-5)},
    nn.MaxPool2d | nn.AvgPool2d: {
        _("the pooling is left out"): lambda _, x: x,
        _("the reduction: this is the minimum"): lambda layer, x: -F.max_pool2d(
            -x, layer.kernel_size, layer.stride, layer.padding)}}


def _own(layers: Layers, index: int) -> Iterator[Change]:
    """Yield the mistakes of one layer alone: the usual ones, and those of a module's layers."""
    layer = layers[index]
    more = next((table for kind, table in _MORE.items() if isinstance(layer, kind)), {})
    result = {} if isinstance(layer, nn.Softmax) else _RESULT  # compared by their logarithms
    for text, mistake in (layer_mistakes(layer) | more | result
                          | (_IMAGES if not index else {})).items():
        yield text, {index: functools.partial(mistake, layer)}, ""
    follows = layers[index + 1] if index + 1 < len(layers) else None
    if isinstance(layer, nn.Conv2d | nn.Linear) and not isinstance(follows, nn.ReLU):
        yield (_("a ReLU follows the {named}, which PyTorch's model does not have").format(
            named=_named(layer)),
               {index: lambda x: layer(x).relu()}, "")


def _spread(bias: Tensor, like: Tensor) -> Tensor:
    """Return a bias for each channel in a shape that adds to `like`, also to a flattened one."""
    if like.ndim == 4:
        return bias.reshape(1, -1, 1, 1)
    return bias.repeat_interleave(like.shape[-1] // len(bias))


def _bias_later(layers: Layers, index: int) -> Iterator[Change]:
    """Yield what happens where a bias is added only after a later layer."""
    layer = layers[index]
    bias = getattr(layer, "bias", None)
    if bias is None or not isinstance(layer, nn.Conv2d | nn.Linear):
        return

    def plain(x: Tensor) -> Tensor:
        value = without_bias(layer, x)
        assert value is not None
        return value

    for later in range(index + 1, len(layers)):
        after = layers[later]
        if isinstance(after, nn.Conv2d | nn.Linear):
            return

        def added(x: Tensor, after: nn.Module = after) -> Tensor:
            return (value := after(x)) + _spread(bias, value)
        yield (_("the bias of the {layer} is added after layer {later}, {name}, not before "
                 "it").format(layer=_named(layer), later=later, name=type(after).__name__),
               {index: plain, later: added}, "later")


def _mixed_up(layers: Layers, index: int) -> Iterator[Change]:
    """Yield what happens where a layer gets the weight or bias of another one of its shape."""
    def with_parameter(layer: nn.Module, name: str, value: Tensor) -> Forward:
        return lambda x: torch.func.functional_call(layer, {name: value}, (x,))

    for name in ("weight", "bias"):
        own = getattr(layers[index], name, None)
        for other, layer in enumerate(layers):
            value = getattr(layer, name, None)
            if other == index or own is None or value is None or own.shape != value.shape:
                continue
            mine = with_parameter(layers[index], name, value)
            if index < other:  # the chain has to begin at the first of the two
                yield (_("layers {index} and {other} have each other's {name}").format(index=index,
                                                                                       other=other,
                                                                                       name=name),
                       {index: mine, other: with_parameter(layer, name, own)}, "")
            yield _("it has the {name} of layer {other}").format(name=name,
                                                                 other=other), {index: mine}, ""


def _exchanged(layers: Layers, index: int) -> Iterator[Change]:
    if index + 1 < len(layers):
        first, second = layers[index], layers[index + 1]
        # cause: exchanged-layers
        yield (_("layers {layer} and {next}, {name} and {other}, have changed places").format(
            layer=index, next=index + 1, name=type(first).__name__, other=type(second).__name__),
               {index: second, index + 1: first}, "")


def hypotheses(layers: Layers, index: int, before: list[Tensor]) -> Iterator[Hypothesis]:
    """Yield what comes of each usual mistake in a layer; `before`: its input, for each input tried.

    A mistake that changes nothing, as padding 0 where the layer has none, is left out.
    """
    for text, changed, family in itertools.chain(
            _own(layers, index), _mixed_up(layers, index), _bias_later(layers, index),
            _exchanged(layers, index)):
        values = [_chain(layers, index, x, changed) for x in before]
        if not all(values):
            continue
        right = [layers[index](x) for x in before]
        firsts = [value[0] for value in values]
        if equal(firsts, right) or len(changed) > 1 and equal(firsts, before):
            continue  # it has no effect, or that of another mistake
        yield Hypothesis(text, index, values, max(changed), family)


def _chain(layers: Sequence[Forward], index: int, value: Tensor,
           changed: Mapping[int, Forward]) -> list[Tensor]:
    """Return the values from layer `index` on, as far as the shapes fit."""
    values: list[Tensor] = []
    for position in range(index, len(layers)):
        layer = changed.get(position, layers[position])
        if isinstance(layer, nn.Linear) and value.shape[-1] != layer.in_features:
            # a PrimFunc whose sum is as long as one of the two reads no more of the other
            depth = min(value.shape[-1], layer.in_features)
            layer = functools.partial(F.linear, weight=layer.weight[:, :depth], bias=layer.bias)
            value = value[..., :depth]
        try:
            value = layer(value)
        except (RuntimeError, ValueError, IndexError):  # with this mistake shapes do not fit
            break
        if value is None:
            break
        values.append(value)
    return values


# ---- which of them it was ------------------------------------------------------------------


def _same(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether two are one mistake in other words: nothing that was tried tells them apart."""
    if one.family and one.family == other.family and one.layer == other.layer:
        return True
    return one.layer == other.layer and all(
        len(a) == len(b) and equal(a, b) for a, b in zip(one.values, other.values, strict=True))


def unique(told: list[Hypothesis], layers: Layers, bindings: Sequence[Binding]
           ) -> Hypothesis | None:
    """Return the hypothesis of whose values the module has most; None where several have as many.

    Of those that begin at one layer, the one whose first value comes last counts: what comes before
    it, as a sum before its bias, is in right modules too.
    """
    def seen(guess: Hypothesis) -> int:
        return sum(found_at(bindings, guess.at(layer), layers[layer]) >= 0
                   for layer in range(guess.layer, len(layers)))

    counted = [(seen(guess), guess) for guess in told]
    most = max((count for count, _ in counted), default=0)
    best = [guess for count, guess in counted if count == most]
    if len({guess.layer for guess in best}) == 1:
        places = [found_at(bindings, guess.at(guess.layer), layers[guess.layer]) for guess in best]
        best = [guess for guess, place in zip(best, places, strict=True) if place == max(places)]
    if best and all(_same(best[0], guess) for guess in best[1:]):
        return best[0]
    return None


def ends_as(guess: Hypothesis, final: Binding, layers: Layers, layer: int) -> bool:
    """Whether a hypothesis gives at a layer what main returns, for every input."""
    values = guess.at(layer)
    return values is not None and layer >= guess.until and all(
        came.shape == value.shape and is_layer(came, value.numpy(), layers[layer])
        for came, value in zip(final.values, values, strict=True))


def explain(layers: Layers, references: list[list[Tensor]], bindings: Sequence[Binding],
            first: int, good: int) -> tuple[Hypothesis, int] | None:
    """Return the verified cause and the layer after which main ends, or None.

    `references`: for each input, itself and PyTorch's layers; `bindings`: all of the module, what
    main returns last; `first`: the first layer that may be wrong; `good`: how many are right. A
    cause is one mistake, or two, of which the second is in a later layer.
    """
    final, last = bindings[-1], len(layers) - 1
    told = [guess for index in range(first, len(layers))
            for guess in hypotheses(layers, index, [values[index] for values in references])
            # what makes a right layer wrong afterwards has to be in the module
            if index >= good or found_at(bindings, guess.at(index), layers[index]) >= 0]
    for end in range(last, first - 1, -1):
        whole = [guess for guess in told if ends_as(guess, final, layers, end)]
        if whole:
            best = unique(whole, layers, bindings)
            return (best, end) if best else None
    pairs: list[Hypothesis] = []
    for guess in told:
        for layer in range(max(guess.until + 1, good), last + 1):
            before = guess.at(layer - 1)
            if before is None or found_at(bindings, before, layers[layer - 1]) < 0:
                continue
            for second in hypotheses(layers, layer, before):
                if ends_as(second, final, layers, last):
                    values = [[*one[:layer - guess.layer], *two]
                              for one, two in zip(guess.values, second.values, strict=True)]
                    says = _("{first}; and layer {layer}, {name}: {second}").format(
                        first=guess.cause, layer=layer, name=type(layers[layer]).__name__,
                        second=second.cause)
                    pairs.append(Hypothesis(says, guess.layer, values, second.until))
    best = unique(pairs, layers, bindings)
    return (best, last) if best else None
