"""Softmax by another statistic than each row's own, in NumPy and as a tensor expression.

A maximum that is not the row's own shows only where an exponential overflows or all of a row
vanish, so it cannot be made of a right result: these compute it themselves.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te

# The row of which the statistic is taken (None: all of them), and the column; of (index, extent).
OF: dict[str, tuple[Callable[[Any, Any], Any] | None, Callable[[Any, Any], Any]]] = {
    "of all rows": (None, lambda k, m: k),
    "of the next row": (lambda i, n: (i + 1) % n, lambda k, m: k),
    "of the first row": (lambda i, n: 0 * i, lambda k, m: k),
    "the last one from its neighbour": (lambda i, n: i, lambda k, m: k - k // max(m - 1, 1))}
_WHICH = ("its largest", "its sum")


def titles() -> list[str]:
    """Return what each of them has else."""
    return [f"{which}: {of}" for which in _WHICH for of in OF]


def _taken(title: str, which: str) -> tuple:
    return OF[title.partition(": ")[2]] if title.startswith(which) else \
        OF["the last one from its neighbour"][:1] + (lambda k, m: k,)


def of_array(title: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest and the sum of the exponentials, each (n, 1), one of them wrong."""
    def taken(which: str, reduce: Callable, values: np.ndarray) -> np.ndarray:
        row, column = _taken(title, which)
        n, m = values.shape
        if row is None:
            return np.full((n, 1), reduce(values))
        return reduce(values[row(np.arange(n), n)][:, column(np.arange(m), m)], axis=1)[:, None]
    largest = taken("its largest", np.max, x)
    return largest, taken("its sum", np.sum, np.exp(x - largest))


def softmax(title: str, x: np.ndarray) -> np.ndarray:
    """Return the softmax of each row with the largest or the sum of other numbers."""
    with np.errstate(all="ignore"):
        largest, total = of_array(title, x)
        return np.exp(x - largest) / total


def te_softmax(title: str, x: te.Tensor) -> te.Tensor:
    """Return the same as a tensor expression; n and m are numbers."""
    n, m = map(int, x.shape)

    def taken(which: str, reduce: Callable, value: Callable) -> te.Tensor:
        row, column = _taken(title, which)
        r, k = te.reduce_axis((0, n if row is None else 1)), te.reduce_axis((0, m))
        return te.compute((n,), lambda i: reduce(
            value(r if row is None else row(i, n), column(k, m)), axis=[r, k]), name="taken")
    largest = taken("its largest", te.max, lambda i, k: x[i, k])
    power = te.compute((n, m), lambda i, j: te.exp(x[i, j] - largest[i]), name="power")
    total = taken("its sum", te.sum, lambda i, k: power[i, k])
    return te.compute((n, m), lambda i, j: power[i, j] / total[i], name="softmax")
