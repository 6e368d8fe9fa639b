"""Constants that are nearly a model's weights: what no tolerance on its outputs shows."""

import itertools
from collections.abc import Collection
from typing import Any

import numpy as np
import tvm
from torch import nn
from tvm import relax

from course.checks.compare.tolerance import RTOL
from course.checks.say.messages import CheckFailed, where
from course.words import _

_NEARLY, _MOST = 2e-3, 0.99  # of a weight's numbers that a constant has nearly: it is that weight
_HALF = 0.5  # of those of a layer that is known to be wrong


def _is_nearly(came: np.ndarray, weight: np.ndarray, known: bool) -> bool:
    """Whether so many of a constant's numbers are a weight's that it is meant to be that one."""
    return bool(np.isclose(came, weight, RTOL, 0).mean() >= _HALF if known
                else np.isclose(came, weight, _NEARLY).mean() >= _MOST)


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
    for array, (name, weight) in itertools.product(found, weights.items()):
        if array.size != weight.size or weight.size < 2 \
                or layers is not None and name.rpartition(".")[0] not in layers:
            continue
        for came in (array, array.T):
            came = came if came.ndim == weight.ndim else came.reshape(weight.shape)  # a bias
            if came.shape != weight.shape:
                continue
            if not _is_nearly(came, weight, layers is not None) or layers is not None and any(
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
