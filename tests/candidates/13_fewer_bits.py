# %% shared
import math

import numpy as np
import tvm
from tvm.script import tirx as T


def in_steps(weights, size, bits, to=np.rint, axis=2, largest=np.abs, most=None, empty=1.0, kind="int8", steps_as="float32"):
    n, k = weights.shape
    groups = weights.reshape(n, k // size, size)
    top = largest(groups).max(axis=axis, keepdims=True) / ((2 ** (bits - 1) - 1) if most is None else most)
    top = np.broadcast_to(np.where(top == 0, empty, top), (n, k // size, 1)).astype("float32")
    with np.errstate(all="ignore"):
        q = to(groups / top)
    return q.reshape(n, k).astype(kind), top[..., 0].astype(steps_as)


def lost(x, most, bits, clip=True):
    step = most / (2**bits - 1)
    q = np.rint(x / step)
    return float(((np.minimum(q, 2**bits - 1 if clip else np.inf) * step - x) ** 2).mean())


# %% 13.1 wrong: cut off, not rounded -> the nearest integer is wanted, and astype cuts off
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, to=np.trunc)


# %% 13.1 wrong: rounded down -> integers from
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, to=np.floor)


# %% 13.1 wrong: one step for all -> one step for each group: this is one for all
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, axis=None)


# %% 13.1 wrong: a step for each row -> one step for each group: this is one for each row
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, axis=(1, 2))


# %% 13.1 wrong: without abs -> input W
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, largest=lambda groups: groups)


# %% 13.1 wrong: 0 / 0 -> steps above 0 | a group of zeros: any step above 0 will do
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, empty=0.0)


# %% 13.1 wrong: all integers of the kind -> integers from -127 to 127 | from -128 to
def grouped(weights, size, bits):
    q, steps = in_steps(weights, size, bits, most=2 ** (bits - 1))
    return q.clip(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), steps


# %% 13.1 wrong: steps as float64 -> a tuple: int8 | float64
def grouped(weights, size, bits):
    return in_steps(weights, size, bits, steps_as="float64")


# %% 13.1 wrong: in place -> the given array as it was | what is changed
def grouped(weights, size, bits):
    q, steps = in_steps(weights, size, bits)
    weights /= np.repeat(steps, size, axis=1)
    return q, steps


# %% 13.1 right: in loops
def grouped(weights, size, bits):
    most = 2 ** (bits - 1) - 1
    q, steps = np.zeros(weights.shape, "int8"), np.ones((len(weights), weights.shape[1] // size), "float32")
    for i, row in enumerate(weights):
        for g in range(len(row) // size):
            part = row[g * size:(g + 1) * size]
            if part.any():
                steps[i, g] = max(abs(part.min()), abs(part.max())) / most
                q[i, g * size:(g + 1) * size] = np.floor(part / steps[i, g] + 0.5)
    return q, steps


# %% 13.2 wrong: the largest -> an rms error of at most | the largest number is the range: a smaller one may lose less
def best_range(x, bits):
    return float(x.max())


# %% 13.2 wrong: a percentile -> an rms error of at most
def best_range(x, bits):
    return float(np.percentile(x, 99.9))


# %% 13.2 wrong: the mean of the differences -> an rms error of at most
def best_range(x, bits):
    def mean(most):
        step = most / (2**bits - 1)
        return np.abs(np.rint(x.clip(0, most) / step) * step - x).mean()
    return min(np.geomspace(x.max() / 1000, x.max(), 700), key=mean)


# %% 13.2 wrong: rounding only -> an rms error of at most
def best_range(x, bits):
    return min(np.linspace(x.max() / 100, x.max(), 100), key=lambda most: lost(x.clip(0, most), most, bits))


# %% 13.2 wrong: the step -> an rms error of at most
def best_range(x, bits):
    return min(np.geomspace(x.max() / 1000, x.max(), 700), key=lambda most: lost(x, most, bits)) / (2**bits - 1)


# %% 13.2 wrong: an array -> a number above 0
def best_range(x, bits):
    return np.array([x.max()])


# %% 13.2 right: equal differences, then closer
def best_range(x, bits):
    low, high = 0.0, float(x.max())
    for _ in range(3):
        tried = np.linspace(low, high, 201)[1:]
        best = int(np.argmin([lost(x, most, bits) for most in tried]))
        low, high = float(tried[max(best - 2, 0)]) if best else low, float(tried[min(best + 2, 199)])
    return float(tried[best])


# %% 13.3 wrong: unsigned -> a sum from | products of
def longest_sum(one, other, bits):
    return (2**bits - 1) // max(abs(a * b) for a in one for b in other)


# %% 13.3 wrong: only upwards -> a sum from | products of
def longest_sum(one, other, bits):
    return (2 ** (bits - 1) - 1) // max(1, max(a * b for a in one for b in other))


# %% 13.3 wrong: a symmetric accumulator -> the largest K | products fit too
def longest_sum(one, other, bits):
    return (2 ** (bits - 1) - 1) // max(abs(a * b) for a in one for b in other)


# %% 13.3 wrong: by the highest ends alone -> a sum from | products of
def longest_sum(one, other, bits):
    return (2 ** (bits - 1) - 1) // max(1, abs(one[1] * other[1]))


# %% 13.3 wrong: one too many -> a sum from | products of
def longest_sum(one, other, bits):
    products = [a * b for a in one for b in other]
    return min(2 ** (bits - 1) // abs(product) + (product > 0) for product in products if product)


# %% 13.3 wrong: a float -> an integer
def longest_sum(one, other, bits):
    return 2 ** (bits - 1) / max(abs(a * b) for a in one for b in other)


# %% 13.3 right: by doubling
def longest_sum(one, other, bits):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    products = [a * b for a in one for b in other]
    fits = lambda k: all(low <= k * product <= high for product in products)
    k = 0
    for bit in reversed(range(bits + 1)):
        if fits(k + 2**bit):
            k += 2**bit
    return k


# %% more
