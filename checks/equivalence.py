"""A whole model against PyTorch: whether they agree, and else which layer differs and why."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn
from torch.nn import functional as F
from tvm import relax

import helpers
from checks.answers import (
    ATOL,
    ATOL_PROBABILITIES,
    RTOL,
    CheckFailed,
    bound,
    isolated,
    reason,
    refuse_out_of_bounds,
    to_numpy,
    where,
)


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


def intermediate_values(mod: tvm.IRModule, images: np.ndarray) -> list[tuple[str, str, np.ndarray]]:
    """Run `main` and return (variable, kernel, value) of every tensor that it binds, in order."""
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
    values = helpers.build(everything)["main"](tvm.runtime.tensor(images))
    return [(binding.var.name, kernel_of(binding.value), value.numpy())
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


def layer_mistakes(layer: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """For each usual mistake, a function that computes what this layer gives with it."""
    match layer:
        case nn.Conv2d(weight=w, bias=b):
            def conv(w=w, b=b, **changes) -> torch.Tensor:
                given = {name: getattr(layer, name) for name in
                         ("stride", "padding", "dilation", "groups")}
                return F.conv2d(x, w, b, **given | changes)

            def along(axis: int) -> torch.Tensor:
                plain, shape = conv(b=None), [1, 1, 1, 1]
                shape[axis] = plain.shape[axis]
                return plain + b[:plain.shape[axis]].reshape(shape)

            def cropped(**changes) -> torch.Tensor:
                rows, columns = conv().shape[2:]
                return conv(**changes)[:, :, :rows, :columns]

            bias = {} if b is None else {
                "the bias of the convolution is left out": lambda: conv(b=None),
                "the bias of the convolution is added twice": lambda: conv(b=2 * b),
                "the bias is added along the width instead of the channels": lambda: along(3),
                "the bias is added along the height instead of the channels": lambda: along(2),
                "the bias is added along the batch instead of the channels": lambda: along(0)}
            return bias | {
                "the kernel is flipped (a deep-learning conv2d does not)":
                    lambda: conv(w.flip(2, 3)),
                "the kernel's height and width are exchanged": lambda: conv(w.transpose(2, 3)),
                "padding is 1": lambda: conv(padding=1), "padding is 0": lambda: conv(padding=0),
                "padding is 1, and the output is cut to its size": lambda: cropped(padding=1),
                "the stride is 2": lambda: conv(stride=2),
                "the stride is 1": lambda: conv(stride=1)}
        case nn.ReLU():
            return {"the ReLU is left out": lambda: x}
        case nn.MaxPool2d(kernel_size=size, stride=stride):
            rows, columns = layer(x).shape[-2:]
            return {"average pooling instead of max pooling": lambda: F.avg_pool2d(x, size, stride),
                    "the stride of the pooling is 1": lambda: F.max_pool2d(x, size, 1),
                    "the stride of the pooling is 1, and the output is cut to its size":
                        lambda: F.max_pool2d(x, size, 1)[..., :rows, :columns]}
        case nn.Flatten():
            return {"flattened as NHWC instead of NCHW": lambda: x.permute(0, 2, 3, 1).flatten(1)}
        case nn.Linear(weight=w, bias=b):
            bias = {} if b is None else {
                "the bias of the linear layer is left out": lambda: F.linear(x, w),
                "the bias of the linear layer is added twice": lambda: F.linear(x, w, 2 * b),
                "the bias is added along the batch instead of the features":
                    lambda: F.linear(x, w) + b[:len(x), None]}
            return bias | {
                "the weight is not transposed": lambda: F.linear(x, w.T, b),
                "the weight is reshaped where it should be transposed":
                    lambda: F.linear(x, w.reshape(w.shape[::-1]).T, b)}
        case nn.Softmax():
            return {"the softmax is left out": lambda: x,
                    "softmax runs over axis 0 (the batch) instead of axis 1": lambda: x.softmax(0),
                    "log_softmax instead of softmax": lambda: x.log_softmax(1)}
    return {}


Forward = Callable[[torch.Tensor], torch.Tensor]


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
        except (RuntimeError, IndexError):  # with this mistake the shapes no longer fit
            break
        values.append(value)
    return values


def _cause(layers: list[nn.Module], reference: list[torch.Tensor], good: int,
           later: list[np.ndarray], final: np.ndarray) -> tuple[str, int, list[torch.Tensor]]:
    """Return the verified cause ("" if unknown), its layer, and the values from there on.

    Verified: with the mistake the chain ends in what main returns, or else one of the values
    after the mistaken layer's own is found in the module. (The own value alone would not do: a
    convolution before its bias stands in every right module too.) Of several causes that end in
    the same, the one is taken of which most is found: a softmax hides what adds to all logits.
    """
    def count(values: list[torch.Tensor]) -> int:
        return sum(any(is_layer(seen, value.numpy(), layer) for seen in later)
                   for value, layer in zip(values, layers[index:], strict=False))

    partly: tuple[str, int, list[torch.Tensor]] | None = None
    for index in range(good, len(layers)):
        mistakes = [(text, {index: lambda x, compute=compute: compute()}) for text, compute in
                    layer_mistakes(layers[index], reference[index]).items()]
        whole: list[tuple[str, int, list[torch.Tensor]]] = []
        for text, changed in [*mistakes, *_mixed_up(layers, index)]:
            values = _chain(layers, index, reference[index], changed)
            if len(values) == len(layers) - index \
                    and is_layer(final, values[-1].numpy(), layers[-1]):
                whole.append((text, index, values))
            if not partly and len(values) > 1 and any(
                    is_layer(seen, value.numpy(), layer) for seen in later for value, layer in
                    zip(values[1:], layers[index + 1:], strict=False)
                    if not any(torch.equal(value, right) for right in reference)):
                partly = f"{text}; and something after it differs too", index, values
        if whole:
            return max(whole, key=lambda story: count(story[2]))
    return partly or ("", good, [])


def _says(layers: list[nn.Module], first: int, last: int) -> str:
    """Name layers, as "layer 4, Linear" or "layers 0 to 1, Conv2d to ReLU"."""
    names = type(layers[first]).__name__, type(layers[last]).__name__
    if first == last:
        return f"layer {first}, {names[0]}"
    return f"layers {first} to {last}, {names[0]} to {names[1]}"


Binding = tuple[str, str, np.ndarray]  # variable, kernel, value


def _covering(layers: list[nn.Module], reference: list[torch.Tensor], index: int,
              values: list[torch.Tensor], rest: list[Binding]) -> tuple[Binding, int]:
    """Return the binding that covers layer `index`, and the last layer that is in it too.

    With a verified cause: the first binding that holds one of the mistaken values. Without: the
    nearest one of the layer's shape. A fused kernel is nearer to a later layer than to this one.
    """
    for position, value in enumerate(values):
        for binding in rest:
            if is_layer(binding[2], value.numpy(), layers[index + position]):
                return binding, index + position

    def distance(binding: Binding, layer: int) -> float:
        right = reference[layer + 1].numpy()
        return float(np.abs(binding[2] - right).max()) if binding[2].shape == right.shape \
            else np.inf

    if len(rest) == 1:  # what is left is one kernel
        return rest[0], len(layers) - 1
    candidates = [binding for binding in rest if np.isfinite(distance(binding, index))]
    if not candidates:  # a fused kernel whose output has another shape: the next one that fits
        return next(((binding, layer) for binding in rest for layer in range(index, len(layers))
                     if np.isfinite(distance(binding, layer))), (rest[0], index))
    nearest = min(candidates, key=lambda binding: distance(binding, index))
    return nearest, min(range(index, len(layers)), key=lambda layer: distance(nearest, layer))


@torch.no_grad()
def diagnose(mod: tvm.IRModule, model: nn.Sequential, images: np.ndarray) -> CheckFailed:
    """Find the first layer whose values are nowhere in the module, and why.

    A layer that is not found is excused if a later one is: a fused kernel, or a convolution whose
    bias is added afterwards, has no binding of its own. A cause is named only if recomputing with
    it gives values that are in the module; see _cause.
    """
    found = intermediate_values(mod, images)
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
    good, after = 0, -1  # layers matched, and the binding that matched last
    for number, (layer, values) in enumerate(zip(layers, reference[1:], strict=True), start=1):
        for position, (_, _, value) in enumerate(found):
            if position >= after and is_layer(value, values.numpy(), layer):
                good, after = number, position
                break
    if good == len(layers) and is_layer(found[-1][2], reference[-1].numpy(), layers[-1]):
        return CheckFailed("PyTorch's values within the tolerance", "values close to them",
                           "the order of the axes that main returns, and the precision")
    if good == len(layers):  # every layer is there, so main returns something else
        return CheckFailed(f"that main returns layer {good - 1}, {type(layers[-1]).__name__}",
                           "this layer is computed, but main returns another value",
                           "bb.emit_output and bb.emit_func_output: which variable do they get?")
    rest = found[after + 1:] or found[-1:]
    cause, index, mistaken = _cause(layers, reference, good, [value for _, _, value in rest],
                                    found[-1][2])
    final, wanted = found[-1][2], reference[-1]
    if not cause and not good and final.shape != tuple(wanted.shape):
        return CheckFailed(f"an output of shape {tuple(wanted.shape)}", f"{final.shape}",
                           "which variable is emitted as the output, and the last layers")
    (name, kernel, value), last = _covering(layers, reference, index, mistaken, rest)
    right = reference[last + 1].numpy()
    says = _says(layers, index, index if cause else last)
    shape = tuple(reference[(index if cause else last) + 1].shape)
    came = "no value like it; "
    if mistaken and torch.equal(mistaken[0], reference[index]):  # the layer is not there at all
        came += f"{name} {value.shape} from {kernel} is computed without it"
    elif last == index:
        came += f"nearest is {name} {value.shape} from {kernel}"
    else:
        came += f"{kernel} computes {_says(layers, index, last)}, in one: {name} {value.shape}"
    if value.shape == right.shape:
        difference = np.abs(value - right)
        came += f": max |difference| {difference.max():.2g} " \
                f"at {where(difference == difference.max())}"
        atol = ATOL_PROBABILITIES if isinstance(layers[last], nn.Softmax) else ATOL
        bad = sorted({int(i) for i in np.argwhere(~np.isclose(value, right, RTOL, atol))[:, 0]})
        if 0 < len(bad) < len(value):
            came += f", only in image{'s' * (len(bad) > 1)} {', '.join(map(str, bad))} of the batch"
            if bad == list(range(1, len(value))):
                cause = cause or "only the first image of the batch is right: the batch axis"
    return CheckFailed(f"{says}, {shape}, as in PyTorch", came,
                       cause or f"{kernel}: its arguments and its output shape")


def build(mod: Any, target: Any = "llvm") -> relax.VirtualMachine:
    """Check an IRModule and build it, with a message in words where that fails."""
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed("an IRModule", type(mod).__name__, "what your function returns: bb.get()")
    names = [variable.name_hint for variable in mod.get_global_vars()]
    if "main" not in names:
        raise CheckFailed("a function named main", f"functions {names}", 'bb.function("main", [x])')
    refuse_out_of_bounds(mod)
    try:
        relax.analysis.well_formed(mod)  # builds may pass without it: a forgotten emit_output does
    except Exception as error:  # TVM raises many kinds here
        raise CheckFailed("a well-formed IRModule", reason(error),
                          "the shapes of the calls, and bb.emit_output for what leaves the block"
                          ) from None
    try:
        return helpers.build(mod, target)
    except Exception as error:  # TVM raises many kinds here
        if "Cannot find ffi::Function" in str(error):
            raise CheckFailed("that every library function is registered", reason(error),
                              "the name in register_global_func and the name that is called"
                              ) from None
        raise CheckFailed("a module that builds", reason(error),
                          "the call that this message speaks of") from None


@torch.no_grad()
def check_same(mod: Any, model: nn.Sequential, loader: Iterable, target: Any = "llvm") -> str:
    """Return what was verified about a module against PyTorch, or raise CheckFailed."""
    if not isinstance(model, nn.Sequential):
        raise CheckFailed("a nn.Sequential as the second argument", type(model).__name__,
                          "the order of the arguments: mod, torch_model, test_loader")
    random_in_training = nn.modules.dropout._DropoutNd | nn.modules.batchnorm._NormBase
    if any(isinstance(layer, random_in_training) and layer.training for layer in model.modules()):
        raise CheckFailed("a model in evaluation mode", "one that is training",
                          "torch_model.eval() before the comparison")
    machine = build(mod, target)
    atol = ATOL_PROBABILITIES if isinstance(model[-1], nn.Softmax) else ATOL
    images_seen = batches = right = right_torch = 0
    largest = 0.0
    for images, labels in loader:
        expected = model(images).numpy()
        try:
            output = machine["main"](tvm.runtime.tensor(images.numpy()))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(f"main to take float32 {tuple(images.shape)}", reason(error),
                              "the shape and dtype of x, how many parameters main has, and whether "
                              "the batches of the loader have the module's size") from None
        if not hasattr(output, "numpy") and len(output) != 1:
            raise CheckFailed("one output", f"a tuple of {len(output)}", "what main returns")
        came = to_numpy(output)
        if came.dtype != expected.dtype:
            raise CheckFailed(f"an output of {expected.dtype}", f"{came.dtype}",
                              "constants and casts: all of them float32")
        if came.shape != expected.shape or not np.allclose(came, expected, RTOL, atol):
            raise diagnose(mod, model, images.numpy())
        largest = max(largest, float(np.abs(came - expected).max()))
        images_seen, batches = images_seen + len(labels), batches + 1
        if came.ndim == 2:
            right += int((came.argmax(1) == labels.numpy()).sum())
            right_torch += int((expected.argmax(1) == labels.numpy()).sum())
    if not batches:
        raise CheckFailed("images to compare", "a loader without batches", "the loader")
    verified = (f"{images_seen:,} images in {batches:,} batches: max |difference| to PyTorch below "
                f"{bound(largest, -5 if atol == ATOL_PROBABILITIES else -4)}")
    if came.ndim != 2:  # a layer and no classifier
        return verified
    return verified + (f"\nRight on {right} of {images_seen:,} images; PyTorch on {right_torch}")


def check_equivalence(mod: tvm.IRModule, torch_model: nn.Sequential, test_loader: Iterable,
                      target: Any = "llvm") -> None:
    """Compare an IRModule with a PyTorch model on every batch, and say where they part.

    `main` takes a batch as the loader gives it and returns what the model returns: rtol 1e-4, and
    atol 1e-7 for probabilities, 1e-4 for logits. Raises CheckFailed with the first layer that
    differs, its shape, its kernel, the largest error and, where it can be verified, the cause.
    """
    passed, parts = isolated(lambda: check_same(mod, torch_model, test_loader, target), 120)
    if not passed:
        raise CheckFailed(*parts, title="Not equivalent ✗")
    print(f"Equivalent ✓ {parts}")


def cnn() -> tuple[dict[str, np.ndarray], nn.Sequential]:
    weights = helpers.load_weights("cnn")
    return weights, helpers.pytorch_model(weights)
