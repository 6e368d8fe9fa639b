"""Constants that are nearly a model's weights: what no tolerance on its outputs shows."""

import itertools
from typing import Any

import numpy as np
import tvm
from torch import nn
from tvm import relax

from course.checks.compare.tolerance import RTOL
from course.checks.say.messages import CheckFailed, where
from course.words import _

_NEARLY, _MOST = 2e-3, 0.99  # of a weight's numbers that a constant has nearly: it is that weight


def _is_nearly(came: np.ndarray, weight: np.ndarray, off: int) -> bool:
    """Whether all but a few numbers are nearly a weight's; `off`: so many in a small one too."""
    nearly = np.isclose(came, weight, _NEARLY)
    return bool(nearly.mean() >= _MOST or (~nearly).sum() <= min(off, weight.size // 8))


def inexact_constant(mod: tvm.IRModule, model: nn.Module, off: int = 0
                     ) -> tuple[int, CheckFailed] | None:
    """Return the layer whose weight a constant is nearly, and not quite, and what to say of it.

    A number among half a million changes no output by more than the tolerance. Nothing is said of
    constants in another order, of what is computed of several weights, or of another weight that is
    as it was. So many numbers may be `off` in a small weight too, where the module is known to be
    wrong. The layer is -1 where the model has no numbers for its layers.
    """
    found: list[np.ndarray] = []

    def see(value: Any) -> None:
        if isinstance(value, tvm.ir.GenericConst) and str(value.value.dtype) == "float32":
            found.append(value.value.numpy())

    relax.analysis.post_order_visit(mod["main"], see)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    for array, (name, weight) in itertools.product(found, weights.items()):
        if array.size != weight.size or weight.size < 2:
            continue
        for came in (array, array.T):
            came = came if came.ndim == weight.ndim else came.reshape(weight.shape)  # a bias
            if came.shape != weight.shape:
                continue
            if not _is_nearly(came, weight, off) or off and any(
                    np.array_equal(array.ravel(), one.ravel()) for one in weights.values()):
                continue
            if (differ := ~np.isclose(came, weight, RTOL, 0)).any():
                at = tuple(np.argwhere(differ)[0])
                number = name.partition(".")[0]
                return int(number) if number.isdigit() else -1, CheckFailed(
                    _("the model's own {name}, {shape}").format(name=name, shape=weight.shape),
                    # cause: constant
                    (_("a constant with {value} for {right} at {place}, and {count} more that "
                       "differ") if differ.sum() > 1 else
                     _("a constant with {value} for {right} at {place}")).format(
                         count=f"{differ.sum() - 1:,}", place=where(differ),
                         value=f"{came[at]:.6g}", right=f"{weight[at]:.6g}"),
                    _("what becomes of this weight before it is a constant"))
    return None
