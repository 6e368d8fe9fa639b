"""Any module of PyTorch against an IRModule: whether they agree, and what differs first."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn

from course.checks.compare.tolerance import ATOL, RTOL, to_numpy
from course.checks.diagnose.diagnosis import diagnose, wrong_alone
from course.checks.diagnose.equivalence import batches, build, require_same, require_well_formed
from course.checks.observe.primfuncs import LIGHT
from course.checks.run.check import isolated
from course.checks.say.messages import CheckFailed, bound, reason
from course.checks.say.show import Example
from course.words import _, language, told


def require_same_module(mod: Any, model: nn.Module, loader: Iterable[Sequence[torch.Tensor]],
                        target: Any) -> str:
    """Return what was verified, or raise CheckFailed; `loader` gives the inputs of each call.

    What it gives beyond what the model takes, such as labels, is left out.
    """
    if any(layer.training for layer in model.modules()):
        raise CheckFailed(_("a model in evaluation mode"), _("one that is training"))
    takes = len(inspect.signature(model.forward).parameters)
    require_well_formed(mod)
    machine, count, largest = build(mod, target), 0, 0.0
    for given in loader:
        inputs = given[:takes]
        with torch.no_grad():
            expected = model(*inputs).numpy()
        shapes = ", ".join(str(tuple(one.shape)) for one in inputs)
        try:
            came = to_numpy(machine["main"](*(tvm.runtime.tensor(one.numpy()) for one in inputs)))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(_("main to take {shapes}").format(shapes=shapes),
                              reason(error)) from None
        if came.shape != expected.shape or came.dtype != expected.dtype:
            raise CheckFailed(_("{dtype} {shape} for inputs {shapes}").format(
                dtype=expected.dtype, shape=expected.shape, shapes=shapes),
                f"{came.dtype} {came.shape}")
        if not np.allclose(came, expected, RTOL, ATOL):
            refused = diagnose(mod, model, [tuple(one.numpy() for one in inputs)], target)
            expected_, came_, look_at = refused.parts
            raise CheckFailed(_("{given}: {expected}").format(
                given=_("for inputs {shapes}").format(shapes=shapes), expected=expected_),
                came_, look_at, example=refused.example)
        count, largest = count + 1, max(largest, float(np.abs(came - expected).max()))
    if not count:
        raise CheckFailed(_("inputs to compare"), _("none"))
    if alone := wrong_alone(mod, model, [tuple(one.numpy() for one in inputs)], target):
        raise alone
    return _("{count} calls: max |difference| to PyTorch below {bound}").format(
        count=count, bound=bound(largest, -4))


def check_equivalence(mod: tvm.IRModule, torch_model: nn.Module, test_loader: Iterable,
                      target: Any = LIGHT) -> None:
    """Compare an IRModule with a PyTorch model on every batch, and say where they part.

    `main` takes a batch as the loader gives it and returns what the model returns: rtol 1e-4, and
    atol 1e-7 for probabilities, 1e-4 for logits. A model that is no nn.Sequential may have several
    inputs: then the loader gives all of them. Raises CheckFailed with the first layer that
    differs, its shape, its kernel, the largest error and, where it can be verified, the cause.
    """
    passed, parts = isolated(lambda: require_same(
        mod, torch_model, batches(torch_model, test_loader), target, alone=True)
        if isinstance(torch_model, nn.Sequential) or not isinstance(torch_model, nn.Module)
        else require_same_module(mod, torch_model, test_loader, target), 120)
    if not passed:
        expected, came, look_at, *example = parts
        raise CheckFailed(expected, came, look_at, _("Not equivalent ✗"),
                          Example.again(*example) if example else None)
    print(_("Equivalent ✓"), told(parts, language()))
