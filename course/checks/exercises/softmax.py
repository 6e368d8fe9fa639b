"""The softmax of rows, on which 0.1 and 3.1 are tried."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course.checks.compare.tolerance import grids, random
from course.checks.observe.libraries import Misused
from course.checks.spec.spec import Cases, Spec, not_finite


def softmax_of(x: np.ndarray) -> np.ndarray:
    """Return the softmax of each row of float32 (n, m)."""
    return torch.from_numpy(x).softmax(1).numpy()


def softmax_spec(form: Callable[[Any], Callable[..., Any]], name: str) -> Spec:
    """Return the softmax of each row of float32 (n, m), which the reader calls `name`."""
    def cases() -> Cases:
        yield from ({name: x} for x in grids(6, 9))

    return Spec(
        form, lambda **given: softmax_of(given[name]), cases, {name: "n m"},
        beyond=lambda: not_finite({name: random(4, 6)}, [np.nan]), least={"n": 2, "m": 2},
        fits=lambda given: not (abs(given[name]) == 100).any(),  # 1000 shows more: see 1.2
        fault=Misused, atol=1e-6)
