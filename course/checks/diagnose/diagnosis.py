"""Which layer of a module differs from PyTorch's first, between which values, and why.

Every value that `main` binds becomes an output, and each PyTorch layer's value is looked for among
them, on several inputs at once. What a message says is true of all inputs. A wrong value is in the
place of a layer if PyTorch's next layer, given this value, yields another value of the module.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import nn

from course.checks.compare.mistakes import without_bias
from course.checks.compare.tolerance import ATOL, RTOL
from course.checks.diagnose.constants import inexact_constant
from course.checks.diagnose.hypotheses import Hypothesis, explain, found_at, holds
from course.checks.observe.intermediates import Binding, differing, intermediate_values
from course.checks.say.messages import CheckFailed, where
from course.words import _, ngettext

MOST_NAMED = 4  # kernels or channels in one message


class _Facts(NamedTuple):
    """What is known of a module.

    `references`: for each input, itself and what each PyTorch layer gives. The first `good` layers
    are right, and bindings[after] has the value of the last of them; -1: only the input is right.
    """

    layers: list[nn.Module]
    references: list[list[torch.Tensor]]
    bindings: list[Binding]
    good: int
    after: int

    @property
    def final(self) -> Binding:
        """The binding that main returns."""
        return self.bindings[-1]

    def right(self, layer: int) -> list[torch.Tensor]:
        """Return PyTorch's values of a layer, for each input."""
        return [values[layer + 1] for values in self.references]

    def says(self, first: int, last: int | None = None) -> str:
        """Return layers in words: "layer 4, Linear" or "layers 0 to 1, Conv2d to ReLU"."""
        last = first if last is None else last
        names = type(self.layers[first]).__name__, type(self.layers[last]).__name__
        if first == last:
            return _("layer {layer}, {name}").format(layer=first, name=names[0])
        return _("layers {first} to {last}, {name} to {other}").format(
            first=first, last=last, name=names[0], other=names[1])

    def shape(self, layer: int) -> tuple[int, ...]:
        """Return the shape of a layer's output."""
        return tuple(self.right(layer)[0].shape)


def _matched(layers: list[nn.Module], references: list[list[torch.Tensor]],
             found: list[Binding]) -> tuple[int, int]:
    """Return how many layers are right as far as the last one found, and its binding's position.

    A layer that is not found is excused if a later one is: a fused kernel, or a convolution whose
    bias is added afterwards, has no binding of its own.
    """
    good, after = 0, -1
    for number, layer in enumerate(layers, start=1):
        start = max(after, 0)
        position = found_at(found[start:], [values[number] for values in references], layer)
        if position >= 0:
            good, after = number, start + position
    return good, after


def _in_its_place(facts: _Facts) -> tuple[int, int] | None:
    """Return the position of the first wrong binding in the place of a layer, and this layer.

    Verified: what PyTorch's next layer gives for it is a later value of the module.
    """
    layers, bindings = facts.layers, facts.bindings

    def goes_on(position: int, layer: int) -> bool:
        binding = bindings[position]
        if binding.value.shape != facts.shape(layer):
            return False
        following = [layers[layer + 1](torch.from_numpy(value)) for value in binding.values]
        return found_at(bindings[position + 1:], following, layers[layer + 1]) >= 0

    for position in range(facts.after + 1, len(bindings) - 1):
        for layer in range(len(layers) - 2, max(facts.good - 2, -1), -1):
            if goes_on(position, layer):  # before a softmax, a sum may do as much as with a bias
                return max(later for later in range(position, len(bindings) - 1)
                           if later == position or goes_on(later, layer)), layer
    if facts.final.value.shape == facts.shape(len(layers) - 1):
        return len(bindings) - 1, len(layers) - 1
    return None


# ---- the message ---------------------------------------------------------------------------


def _only(masks: list[np.ndarray], axis: int) -> list[int]:
    """Return the places along an axis where something differs, the same for every input.

    [] where they are all places, or not the same for every input: then they are chance.
    """
    places = [sorted({int(place) for place in np.argwhere(mask)[:, axis]}) for mask in masks]
    if any(place != places[0] for place in places) or len(places[0]) == masks[0].shape[axis]:
        return []
    return places[0]


def _difference(values: Sequence[np.ndarray], right: Sequence[np.ndarray],
                layer: nn.Module) -> tuple[str, str]:
    """Return in words how values differ from a layer's right ones, and a cause or ""."""
    difference = np.abs(values[0] - right[0])
    says = _(": max |difference| {difference} at {place}").format(
        difference=f"{difference.max():.2g}", place=where(difference == difference.max()))
    masks = [differing(came, wanted, layer) for came, wanted in zip(values, right, strict=True)]
    if not masks[0].ndim or not all(mask.any() for mask in masks):
        return says, ""  # where only one input shows it, the places would be chance
    images = _only(masks, 0)
    if images:
        says += ngettext(", only in image {images} of the batch",
                         ", only in images {images} of the batch",
                         len(images)).format(images=", ".join(map(str, images)))
    if masks[0].ndim > 1 and (places := _only(masks, 1)) and len(places) <= MOST_NAMED:
        says += (ngettext(", only in channel {places}", ", only in channels {places}", len(places))
                 if masks[0].ndim == 4 else
                 ngettext(", only in column {places}", ", only in columns {places}", len(places))
                 ).format(places=", ".join(map(str, places)))
    # cause: first-image
    return says, _("only the first image of the batch is right: the batch axis") \
        if len(images) > 1 and images == list(range(1, len(values[0]))) else ""


def _innocent_bias(facts: _Facts, position: int, layer: int) -> tuple[str, str]:
    """Return which of a layer's two kernels is wrong, the sum or its bias, and a hint; or "", "".

    Verified: the value before the bias is right, or it differs and the right bias is added to it.
    """
    before, bias = position - 1, getattr(facts.layers[layer], "bias", None)
    if bias is None or before <= facts.after or layer != facts.good:
        return "", ""
    product, added = facts.bindings[before], facts.bindings[position]
    befores = [values[layer] for values in facts.references]
    plain = [without_bias(facts.layers[layer], value) for value in befores]
    known = [value for value in plain if value is not None]
    if len(known) < len(plain) or not added.is_given(product):
        return "", ""
    if holds(product, known, facts.layers[layer]):
        return (added.kernel,
                _("{kernel}, which is given the right {name} from {giver}: its arguments and "
                  "its output shape").format(kernel=added.kernel, name=product.name,
                                             giver=product.kernel))
    offset = bias.numpy().reshape((-1,) + (1,) * (product.value.ndim - 2))
    if all(a.shape == b.shape and np.allclose(a + offset, b, RTOL, ATOL)
           for a, b in zip(product.values, added.values, strict=True)):
        kernels = _kernels(facts.bindings[facts.after + 1:before + 1])
        return (kernels,
                _("{kernels}: its arguments and its output shape; {kernel} adds the right bias to "
                  "what it gets").format(kernels=kernels, kernel=added.kernel))
    return "", ""


def _kernels(bindings: Sequence[Binding]) -> str:
    names = list(dict.fromkeys(binding.kernel for binding in bindings))
    if len(names) > MOST_NAMED:
        names = [*names[:MOST_NAMED - 1], "...", names[-1]]
    return ", ".join(names)


def _since(facts: _Facts) -> str:
    """Name the last right value."""
    if facts.after < 0:
        return "x"
    binding = facts.bindings[facts.after]
    return _("{name} from {kernel}, which is right ({says})").format(
        name=binding.name, kernel=binding.kernel, says=facts.says(facts.good - 1))


def _unexplained(facts: _Facts, place: tuple[int, int] | None) -> CheckFailed:
    """Say which layer differs, between which values, where no cause is known; `place` as found."""
    good, after = facts.good, facts.after
    if place is None:
        rest = facts.bindings[after + 1:] or [facts.final]
        first = min(good, len(facts.layers) - 1)
        return CheckFailed(_("{says}, {shape}, as in PyTorch").format(says=facts.says(first),
                                                                      shape=facts.shape(first)),
                           _("no value like it; main returns {name} {shape}").format(
                               name=facts.final.name, shape=facts.final.value.shape),
                           _("{kernels}: its arguments and its output shape, after {since}").format(
                               kernels=_kernels(rest), since=_since(facts)))
    position, layer = place
    binding, between = facts.bindings[position], facts.bindings[after + 1:position + 1]
    says, visible = _difference(binding.values, [value.numpy() for value in facts.right(layer)],
                                facts.layers[layer])
    if layer < good:  # right first, and changed before the next layer
        return CheckFailed(_("{says}, {shape}, as in PyTorch, given to layer {layer}").format(
                               says=facts.says(layer), shape=facts.shape(layer), layer=layer + 1),
                           _("{since}; but {kernels} changes it, and what follows takes "
                             "{name}{says}").format(since=_since(facts), kernels=_kernels(between),
                                                    name=binding.name, says=says),
                           visible
                           or _("{kernels}: its arguments and its output shape, or whether it is "
                             "wanted at all").format(kernels=_kernels(between)))
    kernel, look_at = _innocent_bias(facts, position, layer)
    came = _("{name} {shape} from {kernel}").format(name=binding.name, shape=binding.value.shape,
                                                    kernel=binding.kernel)
    if kernel:
        came = _("{came} is in its place").format(came=came)
    elif len(between) == 1 and layer > good:
        came = _("{kernel} computes {says}, in one: {name} {shape}").format(
            kernel=binding.kernel, says=facts.says(good, layer), name=binding.name,
            shape=binding.value.shape)
    else:
        came = _("nearest is {came}").format(came=came)
    if len(between) == 1:
        look_at = _("{kernel}: its arguments and its output shape; it is given {since}").format(
            kernel=binding.kernel, since=_since(facts))
    return CheckFailed(_("{says}, {shape}, as in PyTorch").format(says=facts.says(good, layer),
                                                                  shape=facts.shape(layer)),
                       _("no value like it; {came}{says}").format(came=came, says=says),
                       visible
                       or look_at
                       or _("{kernels}: its arguments and its output shape, one after the other; "
                         "before them stands {since}").format(kernels=_kernels(between),
                                                              since=_since(facts)))


def _covering(facts: _Facts, guess: Hypothesis) -> tuple[Binding, int]:
    """Return the first binding that holds a value of a hypothesis, and the layer of this value."""
    for layer in range(guess.layer, len(facts.layers)):
        if (position := found_at(facts.bindings, guess.at(layer), facts.layers[layer])) >= 0:
            return facts.bindings[position], layer
    return facts.final, len(facts.layers) - 1


def _explained(facts: _Facts, guess: Hypothesis, end: int) -> CheckFailed:
    """Say which layer differs, which kernel computes it, how far it is off, and why."""
    index = guess.layer
    binding, last = _covering(facts, guess)
    right = [value.numpy() for value in facts.right(last)]
    came = _("no value like it; ") if index >= facts.good else _("another value goes on: ")
    # the layer is missing, or its value comes before it in the module
    if (values := guess.at(index)) and all(
            torch.equal(a, reference[index])
            for a, reference in zip(values, facts.references, strict=True)):
        came += _("{name} {shape} from {kernel} is computed without it").format(
            name=binding.name, shape=binding.value.shape, kernel=binding.kernel)
    elif last > facts.good and index >= facts.good and binding is facts.bindings[facts.after + 1]:
        came += _("{kernel} computes {says}, in one: {name} {shape}").format(
            kernel=binding.kernel, says=facts.says(facts.good, last), name=binding.name,
            shape=binding.value.shape)
    else:
        came += _("nearest is {name} {shape} from {kernel}").format(name=binding.name,
                                                                    shape=binding.value.shape,
                                                                    kernel=binding.kernel)
    if binding.value.shape == right[0].shape:
        came += _difference(binding.values, right, facts.layers[last])[0]
    missing = _("; and {ends}").format(ends=_ends(facts,
                                                  end)) if end < len(facts.layers) - 1 else ""
    return CheckFailed(_("{says}, {shape}, as in PyTorch").format(says=facts.says(index),
                                                                  shape=facts.shape(index)), came,
                       guess.cause + missing)


def _ends(facts: _Facts, layer: int) -> str:
    """Say that main ends after a layer, and which are missing."""
    last = len(facts.layers) - 1
    says = _("main ends after {layer}; layer {last} is missing") if layer + 1 == last \
        else _("main ends after {layer}; layers {next} to {last} are missing")
    return says.format(layer=facts.says(layer), next=layer + 1, last=last)


def _half_built(facts: _Facts) -> CheckFailed | None:
    """Say that main returns a layer's right value that is not the last layer's, or return None."""
    last, final = len(facts.layers) - 1, facts.final
    for layer in range(last - 1, -1, -1):
        if not holds(final, facts.right(layer), facts.layers[layer]):
            continue
        if facts.good - 1 > layer:
            return CheckFailed(_("that main returns layer {last}, {name}").format(
                                   last=last, name=type(facts.layers[last]).__name__),
                               _("main returns layer {layer}, {name}, though {value} is layer "
                                 "{good}").format(layer=layer,
                                                  name=type(facts.layers[layer]).__name__,
                                                  value=facts.bindings[facts.after].name,
                                                  good=facts.good - 1),
                               _("bb.emit_output and bb.emit_func_output: which variable do they "
                                 "get?"))
        return CheckFailed(
            _("{count} layers, up to {name} {shape}").format(count=len(facts.layers),
                                                             name=type(facts.layers[-1]).__name__,
                                                             shape=facts.shape(last)),
            _ends(facts, layer),
            (_("what follows {name} {shape} from {kernel}; the softmax is left out")
             if layer + 1 == last and isinstance(facts.layers[last], nn.Softmax)
             else _("what follows {name} {shape} from {kernel}")).format(
                 name=final.name, shape=final.value.shape, kernel=final.kernel))
    return None


def _returns_another(facts: _Facts) -> CheckFailed:
    """Say what main returns, where each of PyTorch's layers has its value in the module."""
    final, last = facts.final, len(facts.layers) - 1
    kind = type(facts.layers[-1]).__name__
    if holds(final, facts.right(last), facts.layers[-1]):
        return CheckFailed(_("PyTorch's values within the tolerance"), _("values close to them"),
                           _("the order of the axes that main returns, and the precision"))
    found = facts.bindings[facts.after]
    if final.is_given(found):
        explained = explain(facts.layers, facts.references, facts.bindings, last, facts.good)
        return _explained(facts, *explained) if explained else CheckFailed(
            _("that main returns {name}, which is layer {last}, {kind}").format(name=found.name,
                                                                                last=last,
                                                                                kind=kind),
            _("{name} {shape}, which {kernel} makes of it").format(name=final.name,
                                                                   shape=final.value.shape,
                                                                   kernel=final.kernel),
            _("{kernel}, and whether it is wanted at all").format(kernel=final.kernel))
    return CheckFailed(_("that main returns layer {last}, {kind}").format(last=last, kind=kind),
                       _("this layer is computed, but main returns another value"),
                       _("bb.emit_output and bb.emit_func_output: which variable do they get?"))


@torch.no_grad()
def diagnose(mod: tvm.IRModule, model: nn.Sequential, inputs: Sequence[np.ndarray],
             target: Any = "llvm") -> CheckFailed:
    """Return a CheckFailed with the first layer whose values are nowhere in the module, and why.

    `inputs` are float32 batches of images; for the first one the module gives another result than
    PyTorch. The module is built for `target`, for which it was checked.
    """
    found = intermediate_values(mod, inputs, target)
    if not found:
        return CheckFailed(_("operators in main"), _("no tensor that it computes"), "bb.emit_te")
    layers = list(model)
    references = [[torch.from_numpy(images)] for images in inputs]
    for values in references:
        for layer in layers:
            values.append(layer(values[-1]))
    for binding in found:
        for value in binding.values:
            if np.isnan(value).any():
                return CheckFailed(_("finite numbers"),
                                   _("NaN in {name} {shape} at {place}, which {kernel} "
                                     "computes").format(name=binding.name, shape=value.shape,
                                                        place=where(np.isnan(value)),
                                                        kernel=binding.kernel),
                                   # cause: unwritten
                                   _("{kernel}: is every element of its output written?").format(
                                       kernel=binding.kernel))
    good, after = _matched(layers, references, found)
    facts = _Facts(layers, references, found, good, after)
    last = len(layers) - 1
    inexact = inexact_constant(mod, model)
    if good == len(layers):
        return inexact[1] if inexact and holds(facts.final, facts.right(last), layers[last]) \
            else _returns_another(facts)
    if last and (half := _half_built(facts)):
        return half
    # a right layer's value may be made wrong afterwards, as by a bias that is added twice
    explained = explain(layers, references, found, max(0, good - 2), good)
    place = _in_its_place(facts)
    # unless another layer is wrong before the one that is explained
    if explained and (place is None or explained[0].layer <= place[1]):
        return _explained(facts, *explained)
    if not good and facts.final.value.shape != facts.shape(last) and place is None:
        return CheckFailed(_("an output of shape {shape}").format(shape=facts.shape(last)),
                           f"{facts.final.value.shape}",
                           _("which variable is emitted as the output, and the last layers"))
    unexplained = _unexplained(facts, place)
    if inexact and place and inexact[0] == place[1]:  # and no other layer is wrong before it
        expected, came, _look_at = unexplained.parts
        weight, constant, _look_at = inexact[1].parts
        return CheckFailed(expected, came, _("{given}: {expected}").format(
            given=weight, expected=constant))
    return unexplained
