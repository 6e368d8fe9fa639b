"""How far a right result may be off, and the numbers that answers are tried on.

The numbers are the same ones every time, chosen so that mistakes show: those of loops and searches
at the first and the last place, in one row, in one column, where nothing is above zero, and where
numbers are so large that an exponential overflows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import default_rng  # NumPy loads it when used: in each forked check anew

# Measured on the course's model over its 1,000 images: correct programs add up in another order,
# and their logits near 0 differ by up to 2e-5. Probabilities are nearly one-hot: a wrong one of
# 1e-6 would pass with the tolerance for logits.
RTOL, ATOL, ATOL_PROBABILITIES = 1e-4, 1e-4, 1e-7


def to_numpy(value: Any) -> np.ndarray:
    """Return what a VirtualMachine gave as an array: it is a tensor, or a tuple of one."""
    if not hasattr(value, "numpy"):
        (value,) = value
    return value.numpy()


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers in [-1, 1), the same ones every time."""
    return default_rng([seed, *shape]).uniform(-1, 1, shape).astype("float32")


def shapes(*notebooks: int) -> Iterator[tuple[int, ...]]:
    """Yield the notebook's shape and others of its rank, none of which divides the other.

    All axes are 1, or one is, or each is smaller, or larger.
    """
    rank = len(notebooks)
    sizes = [7, 3, 5, 11][:rank]
    larger = [n + 29 for n in notebooks]
    found = [tuple(notebooks), *map(tuple, ([1] * rank, sizes, sizes[::-1], larger))]
    for axis in range(rank):
        shape = sizes.copy()
        shape[axis] = 1
        found.append(tuple(shape))
    yield from dict.fromkeys(found)


def rows(n: int, m: int) -> Iterator[np.ndarray]:
    """Yield float32 arrays of shape (n, m) for functions of each row."""
    base = random(n, m)
    yield base
    for scale in (6, 40):
        yield (scale * random(n, m, seed=scale)).astype("float32")
    # Among large numbers float32 has few between: these are 20 apart, and one wins.
    draw = default_rng([n, m])
    apart = 20 * draw.permuted(np.tile(np.arange(m, dtype="float32"), (n, 1)), axis=1)
    for least in (200, 9000):  # exp overflows at 89 in float32, at 710 in float64
        yield np.sign(base) * (least + apart)
    # of all places between the first and the last, each row has another one
    own = 1 + np.arange(n) % max(m - 2, 1) if m > 1 else 0
    for extreme in (1000, -1000):
        for place in (0, own, m - 1):
            array = base.copy()
            array[np.arange(n), place] = extreme
            yield array
    yield -1e5 - 20 - apart
    yield 1e5 + apart
    below = [-60, -5e5, -2500, -400, -200]  # a search that starts from too high a number finds none
    yield np.array([[below[i % 5]] for i in range(n)], "float32") - apart
    yield np.array(  # rows of very different size, neither the first nor the last the largest
        [[1000 * (n // 2 - (i - 1) % n)] for i in range(n)], "float32") + apart
    yield np.full((n, m), 2.5, "float32")
    yield np.zeros((n, m), "float32")


def grids(*notebooks: int) -> Iterator[np.ndarray]:
    """Yield all of `rows` in the notebook's shape, and some of them in each of the other shapes."""
    first, *others = shapes(*notebooks)
    yield from rows(*first)
    for number, shape in enumerate(others):
        kinds = list(rows(*shape))
        for turn in (0, 2 + 3 * number, 5 + number, 11 + number):
            yield kinds[turn % len(kinds)]


def fractions(*shape: int, seed: int = 0, fine: bool = True) -> np.ndarray:
    """Return numbers from -8 to 8 in quarters; or fine ones, from -256 to 256 in 32nds.

    As float32; sums of products of a fine number and another are exact. Hardly any fine one
    survives a rounding to float16, or a cut at 100. None is 0, so that every term of a sum counts.
    """
    draw = default_rng([seed, *shape])
    parts, largest = (32, 256) if fine else (4, 8)
    numbers = draw.integers(1, parts * largest, shape) * draw.choice([-1, 1], shape)
    return (numbers / parts).astype("float32")
