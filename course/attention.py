"""Attention as one kernel, as notebook 12 builds it: a running softmax in tiles; and a library's.

The notebook shows this code and explains it. Arrays are float32: queries (heads * group, n, size),
keys and values (heads, n, size); heads and n come with the arrays.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.script import tirx as T

from course.kernels import wide_vectors

LOG2E = 1.4426950408889634
LOWEST = -1e30  # below every score, and finite: LOWEST - LOWEST is 0, where -inf - -inf is NaN
# 2**f for f from -1/2 to 1/2, by rising powers: what exercise 12.3 fits
POLYNOMIAL = (1.000000072, 0.6931469671, 0.2402211972, 0.05550713279, 0.00967554132, 0.001327647012)


def polynomial_exp2(x: Any) -> Any:
    """2**x for x <= 0, of a number or of lanes: 2**n by the bits of the exponent, the rest fitted.

    Below -126 it gives 2**-126, the smallest float32 of full precision.
    """
    x = T.max(x, T.float32(-126))
    whole = T.nearbyint(x)
    power = T.float32(POLYNOMIAL[-1])
    for coefficient in POLYNOMIAL[-2::-1]:
        power = power * (x - whole) + T.float32(coefficient)
    return power * T.reinterpret("float32", T.shift_left(T.Cast("int32", whole) + 127, 23))


@dataclass(frozen=True)
class Tile:
    """How a kernel is tiled: queries and keys per tile, and rows x columns of vectors of sums."""

    queries: int
    keys: int
    rows: int
    columns: int
    lanes: int

    @classmethod
    def of(cls, target: tvm.target.Target, size: int) -> "Tile":
        """Return a good tile for a CPU and heads of `size` numbers, a multiple of 16."""
        if wide_vectors(target) and size % 32 == 0:
            return cls(96, 128, 12, 2, 16)
        return cls(80, 128, 5, 2, 8)


def tiled(size: int, tile: Tile, exp2: Callable[[Any], Any] = polynomial_exp2, panels: bool = True,
          causal: bool = False, skip: bool = True, group: int = 1) -> tvm.tirx.PrimFunc:
    """Return the kernel: Q, K, V to Y.

    `panels`: the keys of a tile's columns side by side; else rows as long as there are keys.
    `skip`: tiles that are all masked are left out. `group`: so many heads share keys and values.
    """
    queries, keys, rows, columns, lanes = (
        tile.queries, tile.keys, tile.rows, tile.columns, tile.lanes)
    width, scale = columns * lanes, LOG2E / math.sqrt(size)

    def padded(n: Any) -> Any:
        return T.ceildiv(n, keys) * keys

    def place(n: Any, h: Any, d: Any, key: Any) -> tuple:
        """Where number d of a key lies among the keys that are laid out anew."""
        return (h, key // width, d, key % width) if panels else (h, 0, d, key)

    def shape(h: Any, n: Any) -> tuple:
        return (h, padded(n) // width, size, width) if panels else (h, 1, size, padded(n))

    def seen(score: Any, query: Any, key: Any, n: Any) -> Any:
        there = T.And(key < n, key <= query) if causal else key < n
        return T.Select(there, score, T.float32(LOWEST))

    def tiles(q: Any, n: Any) -> Any:
        """How many tiles of keys a tile of queries goes through."""
        return T.ceildiv(T.min((q + 1) * queries, n) if causal and skip else n, keys)

    def groups(q: Any, n: Any) -> Any:
        """How many groups of `rows` queries a tile has: the last tile is not always full."""
        return T.ceildiv(T.min(queries, n - q * queries), rows)

    @T.prim_func(s_tir=True)
    def attention(q_handle: T.handle, k_handle: T.handle, v_handle: T.handle, y_handle: T.handle):
        T.func_attr({"tirx.noalias": True})
        n, heads = T.int64(), T.int64()
        Q = T.match_buffer(q_handle, (heads * group, n, size), "float32")
        K = T.match_buffer(k_handle, (heads, n, size), "float32")
        V = T.match_buffer(v_handle, (heads, n, size), "float32")
        Y = T.match_buffer(y_handle, (heads * group, n, size), "float32")
        laid = T.alloc_buffer(shape(heads, n), "float32")
        for fused in T.parallel(heads * (padded(n) // 16)):
            with T.sblock("keys"):
                h = T.axis.spatial(heads, fused // (padded(n) // 16))
                few = T.axis.spatial(padded(n) // 16, fused % (padded(n) // 16))
                for d in range(size):
                    for j in T.vectorized(16):
                        laid[place(n, h, d, few * 16 + j)] = K[h, T.min(few * 16 + j, n - 1), d]
        for fused in T.parallel(heads * group * T.ceildiv(n, queries)):
            with T.sblock("tile"):
                h = T.axis.spatial(heads * group, fused // T.ceildiv(n, queries))
                q = T.axis.spatial(T.ceildiv(n, queries), fused % T.ceildiv(n, queries))
                query = T.sblock_alloc_buffer((queries, size), "float32")
                score = T.sblock_alloc_buffer((queries, keys), "float32")
                largest = T.sblock_alloc_buffer((queries,), "float32")
                shrink = T.sblock_alloc_buffer((queries,), "float32")
                total = T.sblock_alloc_buffer((queries, lanes), "float32")
                output = T.sblock_alloc_buffer((queries, size), "float32")
                sums = T.sblock_alloc_buffer((rows, columns, lanes), "float32", scope="local")
                across = T.sblock_alloc_buffer((lanes,), "float32", scope="local")
                one = T.sblock_alloc_buffer((1,), "float32", scope="local")
                for i in range(queries):
                    largest[i] = T.float32(LOWEST)
                    for j in T.vectorized(lanes):
                        total[i, j] = T.float32(0)
                    for d in range(size // lanes):
                        for j in T.vectorized(lanes):
                            query[i, d * lanes + j] = T.float32(scale) * Q[
                                h, T.min(q * queries + i, n - 1), d * lanes + j]
                            output[i, d * lanes + j] = T.float32(0)
                for k in range(tiles(q, n)):
                    # scores
                    for k1, i1 in T.grid(keys // width, groups(q, n)):
                        for r, c in T.grid(rows, columns):
                            for j in T.vectorized(lanes):
                                sums[r, c, j] = T.float32(0)
                        for d in range(size):
                            for r in T.unroll(rows):
                                for c in T.unroll(columns):
                                    for j in T.vectorized(lanes):
                                        sums[r, c, j] = sums[r, c, j] + query[
                                            i1 * rows + r, d] * laid[place(
                                                n, h // group, d,
                                                (k * (keys // width) + k1) * width + c * lanes + j)]
                        for r in T.unroll(rows):
                            for c in T.unroll(columns):
                                for j in T.vectorized(lanes):
                                    score[i1 * rows + r, k1 * width + c * lanes + j] = seen(
                                        sums[r, c, j], q * queries + i1 * rows + r,
                                        k * keys + k1 * width + c * lanes + j, n)
                    # the softmax of what came so far
                    for i in range(rows * groups(q, n)):
                        for j in T.vectorized(lanes):
                            across[j] = score[i, j]
                        for k1 in range(keys // lanes - 1):
                            for j in T.vectorized(lanes):
                                across[j] = T.max(across[j], score[i, (k1 + 1) * lanes + j])
                        one[0] = largest[i]
                        for j in T.unroll(lanes):
                            one[0] = T.max(one[0], across[j])
                        shrink[i] = exp2(largest[i] - one[0])
                        largest[i] = one[0]
                        for j in T.vectorized(lanes):
                            across[j] = total[i, j] * shrink[i]
                        for k1 in range(keys // lanes):
                            for j in T.vectorized(lanes):
                                score[i, k1 * lanes + j] = exp2(score[i, k1 * lanes + j] - one[0])
                            for j in T.vectorized(lanes):
                                across[j] = across[j] + score[i, k1 * lanes + j]
                        for j in T.vectorized(lanes):
                            total[i, j] = across[j]
                    # times the values
                    for d1, i1 in T.grid(size // width, groups(q, n)):
                        for r in T.unroll(rows):
                            for c in T.unroll(columns):
                                for j in T.vectorized(lanes):
                                    sums[r, c, j] = shrink[i1 * rows + r] * output[
                                        i1 * rows + r, d1 * width + c * lanes + j]
                        for k1 in range(T.min(keys, n - k * keys)):
                            for r in T.unroll(rows):
                                for c in T.unroll(columns):
                                    for j in T.vectorized(lanes):
                                        sums[r, c, j] = sums[r, c, j] + score[
                                            i1 * rows + r, k1] * V[
                                                h // group, k * keys + k1,
                                                d1 * width + c * lanes + j]
                        for r in T.unroll(rows):
                            for c in T.unroll(columns):
                                for j in T.vectorized(lanes):
                                    output[i1 * rows + r, d1 * width + c * lanes + j] = sums[
                                        r, c, j]
                for i in range(T.min(queries, n - q * queries)):
                    one[0] = T.float32(0)
                    for j in T.unroll(lanes):
                        one[0] = one[0] + total[i, j]
                    one[0] = T.float32(1) / one[0]
                    for d in range(size // lanes):
                        for j in T.vectorized(lanes):
                            Y[h, q * queries + i, d * lanes + j] = output[i, d * lanes + j] * one[0]
    return attention


PANEL, AT_ONCE = 16, 64  # keys side by side in a cache, and keys handled at a time


def one_query(size: int, parts: int, lanes: int, group: int = 1) -> tvm.tirx.PrimFunc:
    """Return attention of one query a head to the keys in a cache, cut into parts: flash decoding.

    Q (heads * group, size), K (heads, panels, size, PANEL), V (heads, panels * PANEL, size), length
    (1,) int64, to Y (heads * group, size). The cache has room for panels * PANEL keys, a multiple
    of AT_ONCE, and holds `length`. A part is read once for all the queries of its group.
    """
    scale, vectors = LOG2E / math.sqrt(size), AT_ONCE // lanes

    def key(b: Any, v: Any, j: Any) -> tuple:
        """The panel of a key, and its place in it."""
        return b * (AT_ONCE // PANEL) + v * lanes // PANEL, v * lanes % PANEL + j

    @T.prim_func(s_tir=True)
    def attention(q_handle: T.handle, k_handle: T.handle, v_handle: T.handle,
                  length_handle: T.handle, y_handle: T.handle):
        T.func_attr({"tirx.noalias": True})
        heads, panels = T.int64(), T.int64()
        Q = T.match_buffer(q_handle, (heads * group, size), "float32")
        K = T.match_buffer(k_handle, (heads, panels, size, PANEL), "float32")
        V = T.match_buffer(v_handle, (heads, panels * PANEL, size), "float32")
        length = T.match_buffer(length_handle, (1,), "int64")
        Y = T.match_buffer(y_handle, (heads * group, size), "float32")
        M = T.alloc_buffer((heads * group, parts), "float32")
        L = T.alloc_buffer((heads * group, parts), "float32")
        A = T.alloc_buffer((heads * group, parts, size), "float32")
        for fused in T.parallel(heads * parts):
            with T.sblock("part"):
                h = T.axis.spatial(heads, fused // parts)
                p = T.axis.spatial(parts, fused % parts)
                score = T.sblock_alloc_buffer((vectors, lanes), "float32", scope="local")
                weight = T.sblock_alloc_buffer((AT_ONCE,), "float32")
                output = T.sblock_alloc_buffer((size // lanes, lanes), "float32", scope="local")
                across = T.sblock_alloc_buffer((lanes,), "float32", scope="local")
                new = T.sblock_alloc_buffer((2,), "float32", scope="local")
                for g in range(group):
                    M[h * group + g, p] = T.float32(LOWEST)
                    L[h * group + g, p] = T.float32(0)
                    for d in range(size):
                        A[h * group + g, p, d] = T.float32(0)
                for b in range(p * T.ceildiv(length[0], AT_ONCE) // parts,
                               (p + 1) * T.ceildiv(length[0], AT_ONCE) // parts):
                    for g in range(group):
                        for v in T.unroll(vectors):
                            for j in T.vectorized(lanes):
                                score[v, j] = T.float32(0)
                        for d in range(size):
                            for v in T.unroll(vectors):
                                for j in T.vectorized(lanes):
                                    score[v, j] = score[v, j] + Q[h * group + g, d] * K[
                                        h, key(b, v, j)[0], d, key(b, v, j)[1]]
                        for j in T.vectorized(lanes):
                            across[j] = T.float32(LOWEST)
                        for v in T.unroll(vectors):
                            for j in T.vectorized(lanes):
                                score[v, j] = T.Select(
                                    b * AT_ONCE + v * lanes + j < length[0],
                                    score[v, j] * T.float32(scale), T.float32(LOWEST))
                            for j in T.vectorized(lanes):
                                across[j] = T.max(across[j], score[v, j])
                        new[0] = M[h * group + g, p]
                        for j in T.unroll(lanes):
                            new[0] = T.max(new[0], across[j])
                        new[1] = polynomial_exp2(M[h * group + g, p] - new[0])
                        M[h * group + g, p] = new[0]
                        for j in T.vectorized(lanes):
                            across[j] = T.float32(0)
                        for v in T.unroll(vectors):
                            for j in T.vectorized(lanes):
                                weight[v * lanes + j] = polynomial_exp2(score[v, j] - new[0])
                            for j in T.vectorized(lanes):
                                across[j] = across[j] + weight[v * lanes + j]
                        L[h * group + g, p] = L[h * group + g, p] * new[1]
                        for j in T.unroll(lanes):
                            L[h * group + g, p] = L[h * group + g, p] + across[j]
                        for v in T.unroll(size // lanes):
                            for j in T.vectorized(lanes):
                                output[v, j] = A[h * group + g, p, v * lanes + j] * new[1]
                        for k in range(T.min(AT_ONCE, length[0] - b * AT_ONCE)):
                            for v in T.unroll(size // lanes):
                                for j in T.vectorized(lanes):
                                    output[v, j] = output[v, j] + weight[k] * V[
                                        h, b * AT_ONCE + k, v * lanes + j]
                        for v in T.unroll(size // lanes):
                            for j in T.vectorized(lanes):
                                A[h * group + g, p, v * lanes + j] = output[v, j]
        for row in range(heads * group):
            with T.sblock("merge"):
                h = T.axis.spatial(heads * group, row)
                most = T.sblock_alloc_buffer((2,), "float32", scope="local")
                most[0] = T.float32(LOWEST)
                most[1] = T.float32(0)
                for part in range(parts):
                    most[0] = T.max(most[0], M[h, part])
                for d in range(size):
                    Y[h, d] = T.float32(0)
                for part in range(parts):
                    M[h, part] = polynomial_exp2(M[h, part] - most[0])
                    most[1] = most[1] + L[h, part] * M[h, part]
                    for d in range(size):
                        Y[h, d] = Y[h, d] + A[h, part, d] * M[h, part]
                for d in range(size):
                    Y[h, d] = Y[h, d] / most[1]
    return attention


def in_panels(keys: Any) -> Any:
    """Return NumPy's keys (heads, n, size), n a multiple of PANEL, in the layout of a cache."""
    heads, n, size = keys.shape
    return keys.reshape(heads, n // PANEL, PANEL, size).swapaxes(2, 3).copy()
