"""Which layer of a module differs from PyTorch's first, in which kernel, and why.

Every value that `main` binds becomes an output, and each PyTorch layer is looked for among them. A
cause is a usual mistake that, put into PyTorch's chain of layers, gives what the module gives.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax

import helpers
from checks.comparing import ATOL, ATOL_PROBABILITIES, RTOL
from checks.mistakes import layer_mistakes
from checks.saying import CheckFailed, where

# ---- the values of a module ----------------------------------------------------------------


class Binding(NamedTuple):
    """A variable of main, the PrimFunc or library function that computes it, and its value."""

    name: str
    kernel: str
    value: np.ndarray


def kernel_of(value: Any) -> str:
    """Name what computes a binding: the PrimFunc or library function that is called."""
    if not isinstance(value, relax.Call):
        return type(value).__name__
    called = [value.args[0]] if len(value.args) else []
    for callee in [*called, value.op]:  # call_tir and call_dps_packed have it as first argument
        for attribute in ("name_hint", "global_symbol", "name"):
            if isinstance(name := getattr(callee, attribute, None), str) \
                    and not isinstance(callee, relax.Var):
                return name
    return "Call"


def intermediate_values(mod: tvm.IRModule, images: np.ndarray, target: Any = "llvm"
                        ) -> list[Binding]:
    """Build for the target, run `main`, and return every tensor that it binds, in order."""
    plain = relax.transform.ToNonDataflow()(mod)
    main = plain["main"]
    every = [binding for block in main.body.blocks for binding in block.bindings
             if isinstance(binding.var.ty, relax.TensorType)]
    bindings = [binding for binding in every if not isinstance(binding.value, relax.Var)]
    # what main returns goes last, also where something else was bound after it
    returned = main.body.body
    for binding in reversed(every):  # emit_output gives a value a second name: gv = lv11
        if binding.var.same_as(returned) and isinstance(binding.value, relax.Var):
            returned = binding.value
    bindings += [binding for binding in bindings[:-1] if binding.var.same_as(returned)]
    outputs = relax.Tuple([binding.var for binding in bindings])
    all_values = relax.Function(main.params, relax.SeqExpr(main.body.blocks, outputs),
                                relax.TupleType([binding.var.ty for binding in bindings]),
                                is_pure=main.is_pure).with_attr("global_symbol", "main")
    functions = {variable: func for variable, func in plain.functions_items()
                 if variable.name_hint != "main"}
    everything = tvm.IRModule({**functions, plain.get_global_var("main"): all_values})
    values = helpers.build(everything, target)["main"](tvm.runtime.tensor(images))
    return [Binding(binding.var.name, kernel_of(binding.value), value.numpy())
            for binding, value in zip(bindings, values, strict=True)]


def is_layer(a: np.ndarray, b: np.ndarray, layer: nn.Module) -> bool:
    """Whether `a` holds the layer's values `b`, up to a permutation of the axes.

    Probabilities are compared by their logarithms: they are nearly one-hot, so that unequal ones
    pass an absolute tolerance. A flattened tensor has to have its exact order.
    """
    if isinstance(layer, nn.Softmax):
        with np.errstate(all="ignore"):
            return a.shape == b.shape and np.allclose(np.log(np.maximum(a, 1e-30)),
                                                      np.log(np.maximum(b, 1e-30)), 0, 1e-3)
    if a.shape == b.shape and np.allclose(a, b, RTOL, ATOL):
        return True
    if isinstance(layer, nn.Flatten) or a.ndim != b.ndim or sorted(a.shape) != sorted(b.shape):
        return False
    return any(np.allclose(a.transpose(axes), b, RTOL, ATOL)
               for axes in itertools.permutations(range(a.ndim))
               if tuple(a.shape[i] for i in axes) == b.shape
               and not (a.ndim == 4 and axes[2] > axes[3]))  # height and width exchanged: wrong


# ---- the cause -----------------------------------------------------------------------------

Forward = Callable[[torch.Tensor], torch.Tensor]


class _Story(NamedTuple):
    """A verified cause ("" if unknown), its layer, and the values from that layer on."""

    cause: str
    layer: int
    values: list[torch.Tensor]


def _mixed_up(layers: list[nn.Module], index: int) -> Iterator[tuple[str, dict[int, Forward]]]:
    """Yield what happens where a layer gets the weight or bias of another one of its shape."""
    def with_parameter(layer: nn.Module, name: str, value: torch.Tensor) -> Forward:
        return lambda x: torch.func.functional_call(layer, {name: value}, (x,))

    for name in ("weight", "bias"):
        own = getattr(layers[index], name, None)
        for other, layer in enumerate(layers):
            value = getattr(layer, name, None)
            if other == index or own is None or value is None or own.shape != value.shape:
                continue
            mine = with_parameter(layers[index], name, value)
            yield (f"layers {min(index, other)} and {max(index, other)} have each other's {name}",
                   {index: mine, other: with_parameter(layer, name, own)})
            yield f"it has the {name} of layer {other}", {index: mine}


def _chain(layers: Sequence[Forward], index: int, value: torch.Tensor,
           changed: Mapping[int, Forward]) -> list[torch.Tensor]:
    """Return the values from layer `index` on, as far as the shapes fit."""
    values: list[torch.Tensor] = []
    for position in range(index, len(layers)):
        layer = layers[position]
        if isinstance(layer, nn.Linear):  # a PrimFunc that takes its depth from the weight
            value = value[..., :layer.in_features]  # reads no further
        try:
            value = changed.get(position, layer)(value)
        except (RuntimeError, ValueError, IndexError):  # with this mistake shapes do not fit
            break
        values.append(value)
    return values


def _stories(layers: list[nn.Module], index: int, before: torch.Tensor) -> Iterator[_Story]:
    """Yield what comes of each usual mistake in a layer; `before` is what the layer is given."""
    right = layers[index](before)
    single: list[tuple[str, dict[int, Forward]]] = [
        (text, {index: functools.partial(mistake, layers[index])})
        for text, mistake in layer_mistakes(layers[index]).items()]
    for text, changed in [*single, *_mixed_up(layers, index)]:
        values = _chain(layers, index, before, changed)
        if values and not torch.equal(values[0], right):  # padding 0 may be what the layer has
            yield _Story(text, index, values)


def _explain(layers: list[nn.Module], reference: list[torch.Tensor], good: int,
             later: list[np.ndarray], final: np.ndarray) -> _Story:
    """Return the verified cause of the first layer after the `good` ones that has one.

    Verified: with the mistake the chain ends in what main returns, or else one of the values
    after the mistaken layer's own is found in the module. (The own value alone would not do: a
    convolution before its bias stands in every right module too.) Of several causes that end in
    the same, the one is taken of which most is found: a softmax hides what adds to all logits.
    """
    def is_there(value: torch.Tensor, layer: nn.Module) -> bool:
        return any(is_layer(seen, value.numpy(), layer) for seen in later)

    partly: _Story | None = None
    for index in range(good, len(layers)):
        whole: list[_Story] = []
        for story in _stories(layers, index, reference[index]):
            ends = len(story.values) == len(layers) - index
            if ends and is_layer(final, story.values[-1].numpy(), layers[-1]):
                whole.append(story)
            if not partly and any(
                    is_there(value, layer) for value, layer in
                    zip(story.values[1:], layers[index + 1:], strict=False)
                    if not any(torch.equal(value, right) for right in reference)):
                partly = story._replace(cause=f"{story.cause}; and something after it differs too")
        if whole:
            return max(whole, key=lambda story: sum(
                map(is_there, story.values, layers[story.layer:])))
    return partly or _Story("", good, [])


# ---- the message ---------------------------------------------------------------------------


def _says(layers: list[nn.Module], first: int, last: int) -> str:
    """Name layers, as "layer 4, Linear" or "layers 0 to 1, Conv2d to ReLU"."""
    names = type(layers[first]).__name__, type(layers[last]).__name__
    if first == last:
        return f"layer {first}, {names[0]}"
    return f"layers {first} to {last}, {names[0]} to {names[1]}"


def _covering(layers: list[nn.Module], reference: list[torch.Tensor], story: _Story,
              rest: list[Binding]) -> tuple[Binding, int]:
    """Return the binding that covers the layer of a story, and the last layer that is in it too.

    With a verified cause: the first binding that holds one of the mistaken values. Without: the
    nearest one of the layer's shape. A fused kernel is nearer to a later layer than to this one.
    """
    index = story.layer
    for position, value in enumerate(story.values):
        for binding in rest:
            if is_layer(binding.value, value.numpy(), layers[index + position]):
                return binding, index + position

    def distance(binding: Binding, layer: int) -> float:
        right = reference[layer + 1].numpy()
        return float(np.abs(binding.value - right).max()) \
            if binding.value.shape == right.shape else np.inf

    if len(rest) == 1:  # what is left is one kernel
        return rest[0], len(layers) - 1
    candidates = [binding for binding in rest if np.isfinite(distance(binding, index))]
    if not candidates:  # a fused kernel whose output has another shape: the next one that fits
        return next(((binding, layer) for binding in rest for layer in range(index, len(layers))
                     if np.isfinite(distance(binding, layer))), (rest[0], index))
    nearest = min(candidates, key=lambda binding: distance(binding, index))
    return nearest, min(range(index, len(layers)), key=lambda layer: distance(nearest, layer))


def _matched(layers: list[nn.Module], reference: list[torch.Tensor],
             found: list[Binding]) -> tuple[int, int]:
    """Return how many layers are right as far as the last one found, and its binding's position.

    A layer that is not found is excused if a later one is: a fused kernel, or a convolution whose
    bias is added afterwards, has no binding of its own.
    """
    good, after = 0, -1
    for number, (layer, values) in enumerate(zip(layers, reference[1:], strict=True), start=1):
        for position, binding in enumerate(found):
            if position >= after and is_layer(binding.value, values.numpy(), layer):
                good, after = number, position
                break
    return good, after


def _difference(value: np.ndarray, right: np.ndarray, layer: nn.Module) -> tuple[str, str]:
    """Say how a value differs from a layer's right one of its shape, and the cause that shows."""
    difference = np.abs(value - right)
    says = f": max |difference| {difference.max():.2g} at {where(difference == difference.max())}"
    atol = ATOL_PROBABILITIES if isinstance(layer, nn.Softmax) else ATOL
    bad = sorted({int(i) for i in np.argwhere(~np.isclose(value, right, RTOL, atol))[:, 0]})
    if not 0 < len(bad) < len(value):
        return says, ""
    says += f", only in image{'s' * (len(bad) > 1)} {', '.join(map(str, bad))} of the batch"
    return says, "only the first image of the batch is right: the batch axis" \
        if bad == list(range(1, len(value))) else ""


def _differs(layers: list[nn.Module], reference: list[torch.Tensor], story: _Story,
             rest: list[Binding]) -> CheckFailed:
    """Say which layer differs, which kernel computes it, how far it is off, and why."""
    index = story.layer
    (name, kernel, value), last = _covering(layers, reference, story, rest)
    right = reference[last + 1].numpy()
    named = index if story.cause else last
    came = "no value like it; "
    if story.values and torch.equal(story.values[0], reference[index]):  # the layer is missing
        came += f"{name} {value.shape} from {kernel} is computed without it"
    elif last == index:
        came += f"nearest is {name} {value.shape} from {kernel}"
    else:
        came += f"{kernel} computes {_says(layers, index, last)}, in one: {name} {value.shape}"
    visible = ""
    if value.shape == right.shape:
        says, visible = _difference(value, right, layers[last])
        came += says
    return CheckFailed(
        f"{_says(layers, index, named)}, {tuple(reference[named + 1].shape)}, as in PyTorch", came,
        story.cause or visible or f"{kernel}: its arguments and its output shape")


@torch.no_grad()
def diagnose(mod: tvm.IRModule, model: nn.Sequential, images: np.ndarray,
             target: Any = "llvm") -> CheckFailed:
    """Find the first layer whose values are nowhere in the module, and why.

    The module is built for `target`, for which it was checked. A cause is named only if
    recomputing with it gives values that are in the module; see _explain.
    """
    found = intermediate_values(mod, images, target)
    if not found:
        return CheckFailed("operators in main", "no tensor that it computes", "bb.emit_te")
    layers, reference = list(model), [torch.from_numpy(images)]
    for layer in layers:
        reference.append(layer(reference[-1]))
    for name, kernel, value in found:
        if np.isnan(value).any():
            return CheckFailed("finite numbers", f"NaN in {name} {value.shape} at "
                               f"{where(np.isnan(value))}, which {kernel} computes",
                               f"{kernel}: is every element of its output written?")
    good, after = _matched(layers, reference, found)
    final, wanted = found[-1].value, reference[-1]
    if good == len(layers) and is_layer(final, wanted.numpy(), layers[-1]):
        return CheckFailed("PyTorch's values within the tolerance", "values close to them",
                           "the order of the axes that main returns, and the precision")
    if good == len(layers):  # every layer is there, so main returns something else
        return CheckFailed(f"that main returns layer {good - 1}, {type(layers[-1]).__name__}",
                           "this layer is computed, but main returns another value",
                           "bb.emit_output and bb.emit_func_output: which variable do they get?")
    rest = found[after + 1:] or found[-1:]
    story = _explain(layers, reference, good, [binding.value for binding in rest], final)
    if not story.cause and not good and final.shape != tuple(wanted.shape):
        return CheckFailed(f"an output of shape {tuple(wanted.shape)}", f"{final.shape}",
                           "which variable is emitted as the output, and the last layers")
    return _differs(layers, reference, story, rest)
