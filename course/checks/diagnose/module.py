"""Any module of PyTorch against an IRModule: whether they agree, and the first layer that differs.

Its layers are looked for among the values that main binds: each by its output, in the order in
which PyTorch calls them. So residuals, several inputs and layers that are used twice need no rule.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax

from course.checks.compare.tolerance import ATOL, RTOL, to_numpy
from course.checks.diagnose.constants import inexact_constant
from course.checks.diagnose.equivalence import batches, build, require_same, require_well_formed
from course.checks.observe.intermediates import values_of, with_all_values
from course.checks.run.check import isolated
from course.checks.say.messages import CheckFailed, bound, reason
from course.words import _, language, told


class _Call(NamedTuple):
    """A layer that PyTorch called: its path in the model, what it was given, what it returned."""

    path: str
    given: list[np.ndarray]
    returned: np.ndarray


def _calls(model: nn.Module, inputs: Sequence[torch.Tensor]) -> list[_Call]:
    """Return the calls of the model's innermost layers, in PyTorch's order."""
    found: list[_Call] = []

    def hook(path: str) -> Any:
        def called(_layer: nn.Module, given: tuple, returned: Any) -> None:
            if isinstance(returned, torch.Tensor):
                again = sum(call.path == path for call in found)
                found.append(_Call(path if not again else f"{path} ({again + 1})", [
                    one.numpy().copy() for one in given if isinstance(one, torch.Tensor)],
                    returned.numpy().copy()))
        return called

    hooks = [layer.register_forward_hook(hook(path)) for path, layer in model.named_modules()
             if path and not any(layer.children())]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for each in hooks:
            each.remove()
    return found


def _is_among(wanted: np.ndarray, values: Sequence[np.ndarray]) -> bool:
    """Whether one of the values has these numbers, in this order; reshaped or not."""
    return any(value.size == wanted.size and value.dtype.kind == wanted.dtype.kind
               and np.allclose(value.ravel(), wanted.ravel(), RTOL, ATOL) for value in values)


def _is_fused(mod: tvm.IRModule) -> bool:
    """Whether TVM fused operators in it: the functions that it makes of several are called so."""
    return any(variable.name_hint.startswith("fused_") for variable in mod.get_global_vars())


def _first_that_differs(mod: tvm.IRModule, machine: relax.VirtualMachine, model: nn.Module,
                        inputs: Sequence[torch.Tensor]) -> tuple[str, str]:
    """Return what is known of where they part, and where to look."""
    arrays = tuple(one.numpy() for one in inputs)
    values = [binding.value for binding in values_of(mod, machine, [arrays])]
    calls, before, right = _calls(model, inputs), "", [*arrays]
    # where nothing is fused, a first layer that is wrong makes all that follow wrong
    if _is_fused(mod) and not any(_is_among(call.returned, values) for call in calls):
        return (_("no layer's output is among the {count} tensors that main binds").format(
            count=len(values)), _("a module before it was fused shows more"))
    for call in calls:
        if not _is_among(call.returned, values):
            shape = tuple(call.returned.shape)
            if all(_is_among(one, [*right, *values]) for one in call.given):
                return (_("the first layer that differs: {layer}, {shape}; what it takes is there, "
                          "what it returns is not").format(layer=call.path, shape=shape),
                        _("what computes {layer}: its weights, their order, its arguments").format(
                            layer=call.path))
            return (_("the first layer that differs: {layer}, {shape}; what it takes is not there "
                      "either").format(layer=call.path, shape=shape),
                    _("what is computed between {before} and {layer}").format(
                        before=before or _("the inputs"), layer=call.path))
        before = call.path
    return (_("every layer's output is there, up to {layer}").format(layer=before),
            _("what is computed after {layer}, and what main returns").format(layer=before))


def _weight_that_is_off(mod: tvm.IRModule, model: nn.Module) -> str:
    """Return which number of a weight is off in a constant, or ""."""
    if inexact := inexact_constant(mod, model, 1):
        weight, constant, _look_at = inexact[1].parts
        return _("{given}: {expected}").format(given=weight, expected=constant)
    return ""


def require_same_module(mod: Any, model: nn.Module, loader: Iterable[Sequence[torch.Tensor]],
                        target: Any) -> str:
    """Return what was verified, or raise CheckFailed; `loader` gives the inputs of each call.

    What it gives beyond what the model takes, such as labels, is left out.
    """
    if any(layer.training for layer in model.modules()):
        raise CheckFailed(_("a model in evaluation mode"), _("one that is training"),
                          _("torch_model.eval() before the comparison"))
    takes = len(inspect.signature(model.forward).parameters)
    require_well_formed(mod)
    machine, count, largest = build(with_all_values(mod), target), 0, 0.0
    for given in loader:
        inputs = given[:takes]
        with torch.no_grad():
            expected = model(*inputs).numpy()
        shapes = ", ".join(str(tuple(one.shape)) for one in inputs)
        try:
            came = to_numpy(machine["main"](*(tvm.runtime.tensor(one.numpy()) for one in inputs)))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(_("main to take {shapes}").format(shapes=shapes), reason(error),
                              _("the shapes and dtypes of main's parameters, and which of their "
                                "axes may vary")) from None
        if came.shape != expected.shape or came.dtype != expected.dtype:
            raise CheckFailed(_("{dtype} {shape} for inputs {shapes}").format(
                dtype=expected.dtype, shape=expected.shape, shapes=shapes),
                f"{came.dtype} {came.shape}", _("what main returns"))
        if not np.allclose(came, expected, RTOL, ATOL):
            where, look_at = _first_that_differs(mod, machine, model, inputs)
            look_at = _weight_that_is_off(mod, model) or look_at
            raise CheckFailed(_("PyTorch's result for inputs {shapes}").format(shapes=shapes),
                              _("|difference| up to {largest}; {where}").format(
                                  largest=f"{np.abs(came - expected).max():.2g}", where=where),
                              look_at)
        count, largest = count + 1, max(largest, float(np.abs(came - expected).max()))
    if not count:
        raise CheckFailed(_("inputs to compare"), _("none"), _("the third argument"))
    return _("{count} calls: max |difference| to PyTorch below {bound}").format(
        count=count, bound=bound(largest, -4))


def check_equivalence(mod: tvm.IRModule, torch_model: nn.Module, test_loader: Iterable,
                      target: Any = "llvm") -> None:
    """Compare an IRModule with a PyTorch model on every batch, and say where they part.

    `main` takes a batch as the loader gives it and returns what the model returns: rtol 1e-4, and
    atol 1e-7 for probabilities, 1e-4 for logits. A model that is no nn.Sequential may have several
    inputs: then the loader gives all of them. Raises CheckFailed with the first layer that
    differs, its shape, its kernel, the largest error and, where it can be verified, the cause.
    """
    passed, parts = isolated(lambda: require_same(
        mod, torch_model, batches(torch_model, test_loader), target)
        if isinstance(torch_model, nn.Sequential) or not isinstance(torch_model, nn.Module)
        else require_same_module(mod, torch_model, test_loader, target), 120)
    if not passed:
        expected, came, look_at = parts
        raise CheckFailed(expected, came, look_at, _("Not equivalent ✗"))
    print(_("Equivalent ✓"), told(parts, language()))
