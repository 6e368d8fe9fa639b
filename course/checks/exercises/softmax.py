"""The softmax of rows, on which 0.1 and 3.1 are tried: its inputs, and mistakes by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from course.checks.compare.inputs import grids
from course.checks.compare.mistakes import layer_mistakes
from course.checks.compare.tolerance import random
from course.checks.spec.spec import Cases, Spec, not_finite
from course.checks.spec.trials import Mistakes
from course.words import _

SOFTMAX = nn.Softmax(dim=1)


def softmax_of(x: np.ndarray) -> np.ndarray:
    """Return the softmax of each row of float32 (n, m)."""
    return SOFTMAX(torch.from_numpy(x)).numpy()


def _softmax_with(subtracted: Callable[[torch.Tensor], Any], powers: Callable = torch.exp,
                  summed: Callable[[torch.Tensor], torch.Tensor] = lambda e: e) -> tuple:
    """Return a softmax that subtracts another number, in float32 and in float64: two forms.

    The result is right whatever is subtracted, until an exponential overflows or all of a row are
    0; in float64 that happens at larger numbers.
    """
    def form(dtype: torch.dtype) -> Callable:
        def wrong(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
            x = x.to(dtype)
            e = powers(x - subtracted(x))
            return (e / summed(e).sum(1, keepdim=True)).float()
        return wrong
    return form(torch.float32), form(torch.float64)


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(1, keepdim=True)


def _largest_from(start: float) -> Callable:
    return lambda x: _largest(x).clamp(start)


# Functions of the layer and its input, as the mistakes of layers are.
_SOFTMAX_MISTAKES: Mistakes = {
    _("the exponentials overflow or vanish: no maximum is subtracted"):
        _softmax_with(lambda x: 0),
    # cause: last-column
    _("the search for the largest leaves out the last column"):
        _softmax_with(lambda x: _largest(x[:, :max(x.shape[1] - 1, 1)]))
        + _softmax_with(lambda x: _largest(x[:, :-1])),
    _("the search for the largest starts from a number above some rows; start from the row's "
      "first"):
        _softmax_with(_largest_from(-999)) + _softmax_with(_largest_from(-1e4))
        + _softmax_with(_largest_from(-1e5)),
    _("the exponential: this is 2 to the power of x, not e"): _softmax_with(_largest, torch.exp2)}


def softmax_spec(form: Callable[[Any], Callable[..., Any]], name: str) -> Spec:
    """Return the softmax of each row of float32 (n, m), which the reader calls `name`."""
    def cases() -> Cases:
        yield from (("", {name: x}) for x in grids(6, 9))

    return Spec(
        form, lambda **given: softmax_of(given[name]), cases, {name: "n m"},
        layer_mistakes(SOFTMAX) | _SOFTMAX_MISTAKES,
        beyond=lambda: not_finite({name: random(4, 6)}, (-np.inf, np.nan)),
        least={"n": 2, "m": 2},
        formula=lambda given: (SOFTMAX, torch.from_numpy(given[name])), atol=1e-6)
