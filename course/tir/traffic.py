"""The bytes that a PrimFunc moves into a cache: counted, not measured."""

from collections import Counter, OrderedDict

import numpy as np
import tvm
from tvm import tirx

from course.tir.evaluate import iterations_of
from course.tir.loops import is_reduction
from course.tir.walk import accesses, walk

LINE = 64  # bytes that a cache takes in at a time: of x86-64, and of most Arm CPUs


def lines_touched(func: tvm.tirx.PrimFunc) -> tuple[list[str], np.ndarray]:
    """Return a PrimFunc's buffers by name, and the cache line that each load and store touches.

    The second is an int array (loads and stores, 2), in their order on one thread: the number of
    the buffer, and of the line in it. Buffers of scope "local" are in registers and left out.
    Raises course.tir.evaluate.Unknown if an index depends on data.
    """
    ranks: dict[object, int] = {}  # of loops and statements, in program order
    buffers: dict[tirx.Buffer, int] = {}
    found: list[tuple[list[np.ndarray], np.ndarray]] = []  # when, and what
    for node, place in walk(func.body):
        path = [ranks.setdefault(step, len(ranks)) for step in (*place.loops, node)]
        if not isinstance(node, tirx.BufferStore):
            continue
        for axis in place.block.iter_vars if place.init else ():  # at the start of a reduction
            if is_reduction(axis):
                place = place.under(axis.var.equal(axis.dom.min))
        for number, access in enumerate(accesses(node, place)):
            if access.buffer.scope() == "local":
                continue
            runs = iterations_of(place, access.indices, place.loops)
            strides = np.cumprod([1, *map(int, access.buffer.shape[:0:-1])])[::-1]
            places = sum(stride * index for stride, index in zip(
                strides, runs.values(*access.indices), strict=True))
            lines = places * np.dtype(str(access.buffer.dtype)).itemsize // LINE
            when = [column for step, loop in zip(path, place.loops, strict=False)
                    for column in (np.full_like(lines, step), *runs.values(loop.variable))]
            when += [np.full_like(lines, path[-1]), np.full_like(lines, number)]
            what = np.stack([np.full_like(lines, buffers.setdefault(access.buffer, len(buffers))),
                             lines], axis=1)
            found.append(([column[runs.runs] for column in when], what[runs.runs]))
    deepest = max(len(when) for when, _what in found)
    moments = np.concatenate([np.stack(when + [np.zeros_like(when[0])] * (deepest - len(when)))
                              for when, _what in found], axis=1)
    order = np.lexsort(moments[::-1])
    return [buffer.name for buffer in buffers], np.concatenate([what for _, what in found])[order]


def bytes_into_cache(func: tvm.tirx.PrimFunc, size: int) -> dict[str, int]:
    """Return for each buffer the bytes that come into a cache of `size` bytes, which begins empty.

    It takes in whole lines and drops the one that was not used for longest; every line may stand
    anywhere in it. Raises as `lines_touched`.
    """
    names, lines = lines_touched(func)
    most = int(lines[:, 1].max()) + 1
    touched = lines @ (most, 1)  # one number for each line of each buffer
    again = np.concatenate([[False], touched[1:] == touched[:-1]])
    cache: OrderedDict[int, None] = OrderedDict()
    came: Counter[str] = Counter()
    for line in touched[~again].tolist():
        if line in cache:
            cache.move_to_end(line)
            continue
        came[names[line // most]] += LINE
        cache[line] = None
        if len(cache) > size // LINE:
            cache.popitem(last=False)
    return dict(came)
