"""Wrong behaviours of 0.1, softmax(X, Y) element by element: what it reads, what it leaves in Y.

The check of 0.1 offers an answer single elements, and guards the NumPy of its cell. What changes
numbers here is in another file, and takes the arrays behind the elements.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from behaviours import statistics
from behaviours.arrays import ARRAYS
from behaviours.common import NOT_FINITE, NUMBERS, Wrapped, elements, kept


def _behind(array: Any) -> Any:
    return getattr(array, "_array", array)


class _Changed:
    """X, of which each element is changed when it is read."""

    def __init__(self, x: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.x, self.change, self.shape = x, change, x.shape

    def __getitem__(self, at: Any) -> Any:
        return self.change(np.asarray(_behind(self.x[at]), "float32"))[()]


def _reads(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Callable], Callable]:
    def wrap(answer: Callable) -> Callable:
        def wrong(x: np.ndarray, y: np.ndarray) -> None:
            answer(_Changed(x, change), y)
        return wrong
    return wrap


def _writes(make: Callable[[], Callable], of_x: bool = False) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that it leaves something made of its result, or of x."""
    def wrap(answer: Callable) -> Callable:
        change = make()

        def wrong(x: np.ndarray, y: np.ndarray) -> None:
            answer(x, y)
            for (i, j), number in elements(_behind(x if of_x else y), [change]):
                y[i, j] = number
        return wrong
    return wrap


def of_loops(_: str) -> Wrapped:
    yield "its result: that of the first call", _writes(kept)
    for title in statistics.titles():
        yield title, _writes(partial(partial, statistics.softmax, title), of_x=True)
    for what, change in ARRAYS.items():
        if what != "in reversed order":
            yield f"its result: {what}", _writes(partial(partial, change))
        if what in NUMBERS | NOT_FINITE:
            yield f"its argument: {what}", _reads(change)
