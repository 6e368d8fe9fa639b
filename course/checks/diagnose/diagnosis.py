"""What is said of a module that is not PyTorch's: which layer, between which values, on what input.

Every value that `main` binds becomes an output, on several inputs at once; see `chain` for how they
are compared. Of the first layer that is computed otherwise, the smallest input that shows it is
looked for.
"""

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax

from course.checks.compare.tolerance import RTOL
from course.checks.diagnose.chain import Chain, Parting
from course.checks.diagnose.pieces import Piece, built
from course.checks.diagnose.steps import steps
from course.checks.observe.intermediates import intermediate_values
from course.checks.observe.primfuncs import LIGHT, lightly
from course.checks.say.messages import CheckFailed, where
from course.checks.spec.shrink import Inputs
from course.words import Sentence, _

MOST_NAMED = 4  # kernels or values in one message
_LINES = Sentence("\n")
_NEARLY, _MOST = 2e-3, 0.99  # of a weight's numbers that a constant has nearly: it is that weight
_HALF = 0.5  # of those of a layer that is known to be wrong


def _is_nearly(came: np.ndarray, weight: np.ndarray, known: bool, tolerance: float) -> bool:
    """Whether so many of a constant's numbers are a weight's that it is meant to be that one."""
    there = (came != 0) | (weight != 0)
    same, near = (np.isclose(came, weight, *within)[there] for within in (
        (RTOL, 0), (tolerance, 1e-8)))
    return bool(there.any() and (same.mean() >= (_HALF if known else _MOST)
                                 or near.mean() >= _MOST))


def inexact_constant(mod: tvm.IRModule, model: nn.Module, layers: Collection[str] | None = None
                     ) -> CheckFailed | None:
    """Return what to say of a constant that is nearly a weight of the model, and not quite.

    A number among half a million changes no output by more than the tolerance. Nothing is said of
    constants in another order, of what is computed of several weights, or of another weight that is
    as it was. `layers`: the paths of those that are known to be wrong; then half of a weight will
    do.
    """
    found: list[np.ndarray] = []

    def see(value: Any) -> None:
        if isinstance(value, tvm.ir.GenericConst) and str(value.value.dtype) == "float32":
            found.append(value.value.numpy())

    relax.analysis.post_order_visit(mod["main"], see)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    # a normalisation that was hardly trained changes the weights before it by less
    folds = any(isinstance(layer, nn.modules.batchnorm._NormBase) for layer in model.modules())
    for array, (name, weight) in itertools.product(found, weights.items()):
        if array.size != weight.size or weight.size < 2 \
                or layers is not None and name.rpartition(".")[0] not in layers:
            continue
        for came in (array, array.T):
            came = came if came.ndim == weight.ndim else came.reshape(weight.shape)  # a bias
            if came.shape != weight.shape:
                continue
            if not _is_nearly(came, weight, layers is not None, 0 if folds else _NEARLY) or any(
                    np.array_equal(array.ravel(), one.ravel()) for one in weights.values()):
                continue
            if (differ := ~np.isclose(came, weight, RTOL, 0)).any():
                at = tuple(np.argwhere(differ)[0])
                return CheckFailed(
                    _("the model's own {name}, {shape}").format(name=name, shape=weight.shape),
                    # cause: constant
                    (_("a constant with {value} instead of {right} at {place}, and {count} more "
                       "that differ") if differ.sum() > 1 else
                     _("a constant with {value} instead of {right} at {place}")).format(
                         count=f"{differ.sum() - 1:,}", place=where(differ),
                         value=f"{came[at]:.6g}", right=f"{weight[at]:.6g}"))
    return None


def _few(names: list[str]) -> list[str]:
    """Return names without the middle of a long list."""
    return [*names[:MOST_NAMED - 1], "...", names[-1]] if len(names) > MOST_NAMED else names


def _steps(chain: Chain, first: int, last: int) -> str:
    """Return steps in words: "layer 4, Linear", or the first and the last of several."""
    first = min(chain.inside(first, last), default=first) if last >= first else first
    says = chain.step(first).says
    return says if last <= first else _("{first} to {last}").format(first=says,
                                                                    last=chain.step(last).says)


def _value(chain: Chain, position: int) -> str:
    """Return a value of the module in words: its name, its shape, its kernel."""
    if position < 0:
        return f"{chain.name(position)} {chain.arrays(position)[0].shape}"
    binding = chain.bindings[position]
    return _("{name} {shape} from {kernel}").format(name=binding.name, shape=binding.value.shape,
                                                    kernel=binding.kernel)


def _kernels(chain: Chain, parting: Parting) -> str:
    """Return which kernels of the module stand between the values of a parting."""
    assert parting.end
    given = [place.position for taken in parting.takes if (place := chain.at[taken])]
    found = [chain.bindings[position].kernel
             for position in sorted(chain.behind(parting.end.position, given))
             if position > max(given, default=-1)]
    return ", ".join(_few(list(dict.fromkeys(found))))


def _place(chain: Chain, parting: Parting) -> str:
    """Return in words where a module parts from PyTorch."""
    says = _steps(chain, parting.first, parting.last)
    if parting.end is None:
        ends = _ends(chain, parting)
        return _("main ends after {layer}").format(layer=chain.step(ends).says) if ends else says
    position, taken = parting.end.position, chain.at[parting.takes[0]]
    if parting.takes_another:
        assert taken
        return _("{layer} takes {name} instead of {right}").format(
            layer=says, name=_value(chain, position), right=_value(chain, taken.position))
    if kernels := _kernels(chain, parting):
        binding = chain.bindings[position]
        return _("{layer}: {name} {shape} from {kernel}").format(
            layer=says, name=binding.name, shape=binding.value.shape, kernel=kernels)
    return _("{layer}: {name} is used without it").format(
        layer=says, name=_value(chain, position))


def _another_shape(chain: Chain, parting: Parting) -> str:
    """Say of which shape the first value is, where none of the values has a first step's."""
    start, end = chain.at[parting.takes[0]], parting.end
    come = {place.position for taken in parting.takes if (place := chain.at[taken])}
    values = []  # that come of what the steps take
    for position in range(start.after if start else 0,
                          end.position + 1 if end else len(chain.bindings)):
        if come.intersection(chain.bindings[position].of):
            come.add(position)
            values.append(position)
    shape = tuple(chain.right[parting.first].shape)
    if parting.last <= parting.first or not values or end and values[0] == end.position or any(
            sorted(chain.bindings[position].value.shape) == sorted(shape) for position in values):
        return ""
    return _("{layer} gives {shape} in PyTorch; here {value} comes first").format(
        layer=chain.step(parting.first).says, shape=shape, value=_value(chain, values[0]))


def _ends(chain: Chain, parting: Parting) -> int | None:
    """Return the step whose value main returns, though PyTorch's model goes on from there."""
    final = len(chain.bindings) - 1
    return next((taken for taken in parting.takes if taken >= chain.count
                 and not parting.takes_another and (place := chain.at[taken])
                 and place.position == final), None)


def _ends_early(chain: Chain, parting: Parting) -> CheckFailed | None:
    """Say that main returns a right value, and that PyTorch's model goes on from there."""
    if not (ends := _ends(chain, parting)):
        return None
    last = chain.count + len(chain.steps) - 1
    return CheckFailed(_("{layer}, {shape}, at the end").format(
                           layer=chain.step(last).says, shape=tuple(chain.right[last].shape)),
                       _("main ends after {layer}").format(layer=chain.step(ends).says),
                       _("what follows {name}: {layer} is missing").format(
                           name=_value(chain, len(chain.bindings) - 1),
                           layer=_steps(chain, parting.first, last)))


def _returns_another(chain: Chain, mod: tvm.IRModule, model: nn.Module) -> CheckFailed:
    """Say what main returns, where each of PyTorch's steps has its value in the module."""
    last = chain.count + len(chain.steps) - 1
    place, final = chain.at[last], len(chain.bindings) - 1
    assert place
    if not chain.steps or place.position == final:
        if inexact := inexact_constant(mod, model):
            return inexact
        right = model(*(tensor.clone() for tensor in chain.inputs[0])).numpy()
        return CheckFailed(_("PyTorch's values within the tolerance"), _differs(
            chain.bindings[final].value, right))
    return CheckFailed(_("main to return {name}, which is {layer}").format(
                           name=_value(chain, place.position), layer=chain.step(last).says),
                       _value(chain, final))


def _told(chain: Chain, parting: Parting, piece: Piece | None, said: Sequence[str],
          wide: tuple[Inputs, float] | None = None) -> CheckFailed:
    """Return the message: the smallest input of what is computed otherwise, if it can be had."""
    look_at = _LINES.join(line for line in said if line)
    example = None
    for given, atol in [wide] if wide else [(one, piece.atol) for one in piece.inputs] \
            if piece else []:
        assert piece
        if example := piece.rerun(atol).smallest(given):
            break
    steps_ = _steps(chain, parting.first, parting.last)
    if parting.end is None:
        start = chain.at[parting.takes[0]]
        after = start.after if start else 0
        came = _few([_value(chain, position) for position in range(after, len(chain.bindings))])
        values = _LINES.join(came or [_("nothing follows")])
        number = min(parting.last, len(chain.right) - 1)
        return CheckFailed(_("{layer}, {shape}, as in PyTorch").format(
            layer=steps_, shape=tuple(chain.right[number].shape)),
            _("no value like it: {values}").format(values=values), look_at)
    came_, right = chain.value(parting.end)[0].numpy(), chain.made(
        parting, {taken: chain.own[taken][0] for taken in parting.takes}).numpy()
    says = _("{layer} to take {shape}, as in PyTorch") if parting.takes_another \
        else _("{layer}, {shape}, as in PyTorch")
    return CheckFailed(says.format(layer=steps_, shape=right.shape), _differs(came_, right),
                       look_at, example=example)


def _differs(came: np.ndarray, right: np.ndarray) -> str:
    """Return in what a value differs from what is right."""
    if came.shape != right.shape:
        return _("shape {shape}").format(shape=came.shape)
    if np.isnan(came).any() and not np.isnan(right).any():
        return _("NaN or not written at {place}").format(place=where(np.isnan(came)))
    with np.errstate(all="ignore"):
        off = np.asarray(np.abs(came - right))
    off[np.isnan(off)] = np.inf  # NaN instead of a number
    off[(came == right) | np.isnan(came) & np.isnan(right)] = 0  # infinities too
    return _("max |difference| {difference} at {place}").format(
        difference=f"{off.max():.2g}", place=where(off == off.max()))


@torch.no_grad()
def diagnose(mod: tvm.IRModule, model: nn.Module,
             inputs: Sequence[np.ndarray | tuple[np.ndarray, ...]], target: Any = LIGHT
             ) -> CheckFailed:
    """Return a CheckFailed with the first layer that the module computes otherwise than PyTorch.

    An input is what main takes in one call: an array, or a tuple of several; for the first the
    module gives another result. The module is built for `target`, for which it was checked.
    """
    for level in (lightly(target), target):  # the second, if the first hides the difference
        chain = _chain(mod, model, inputs, level)
        if not chain.bindings:
            return CheckFailed(_("operators in main"), _("no tensor that it computes"),
                               "bb.emit_te")
        if partings := chain.partings():
            break
    else:
        return wrong_alone(mod, model, inputs, target) or _returns_another(chain, mod, model)
    parting = partings[0]
    if early := _ends_early(chain, parting):
        return early
    pieces = built(mod, chain, [parting], level)
    layers = [chain.step(number).path for number in chain.inside(parting.first, parting.last)]
    fact = _another_shape(chain, parting)
    if inexact := inexact_constant(mod, model, layers):
        weight, constant, _look_at = inexact.parts
        fact = _("{given}: {expected}").format(given=weight, expected=constant)
    said = [_place(chain, parting), fact,
            *(_("and {other}").format(other=_place(chain, other)) for other in partings[1:]
              if not any(value.isnan().any() for taken in other.takes  # of NaN a ReLU may make 0
                         for value in chain.own[taken]))]
    return _told(chain, parting, pieces[0] if pieces else None, said)


def _chain(mod: tvm.IRModule, model: nn.Module,
           inputs: Sequence[np.ndarray | tuple[np.ndarray, ...]], target: Any) -> Chain:
    """Return a model's steps beside the values that a module gives for inputs."""
    every = [one if isinstance(one, tuple) else (one,) for one in inputs]
    tensors = [[torch.from_numpy(array) for array in one] for one in every]
    return Chain(steps(model, tensors[0]), tensors, intermediate_values(mod, every, target),
                 [param.name for param in mod["main"].params])


@torch.no_grad()
def wrong_alone(mod: tvm.IRModule, model: nn.Module,
                inputs: Iterable[np.ndarray | tuple[np.ndarray, ...]], target: Any = LIGHT
                ) -> CheckFailed | None:
    """Return the layer of a module that is wrong by itself, on other numbers than reach it.

    So a ReLU that is cut at 6 shows where no activation is above 6, and another eps of a
    normalisation, for which numbers have to be small. The module is right on the inputs. None
    where each layer that can be run by itself gives what PyTorch's does.
    """
    level = lightly(target)
    chain = _chain(mod, model, list(inputs), level)
    chain.follow()
    alone = []
    for number, place in enumerate(chain.at[chain.count:], chain.count):
        takes = chain.between(number, number)
        given = [one.position for taken in takes if (one := chain.at[taken])]
        if place and takes and len(given) == len(takes) and place.position not in given \
                and chain.uses_all(place.position, given):  # and computes none of them anew
            alone.append(Parting(number, number, takes, place))
    for piece in built(mod, chain, alone, level):
        if wide := piece.wrong_of_wide():
            return _told(chain, piece.parting, piece, [_place(chain, piece.parting)], wide)
    return None
