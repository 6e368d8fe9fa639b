"""All threads of a GPU program, run on NumPy: its result, and what the threads did."""

import numpy as np
from tvm import tirx

from course.gpu.source import UNBOUND, last_line
from course.tir import threads
from course.tir.walk import accesses, walk
from course.words import _
from data.store import CourseError


def run(func: tirx.PrimFunc, *arrays: np.ndarray, barriers: bool = True) -> threads.Launch:
    """Run a PrimFunc of one kernel on NumPy and return what it did; see `run_kernels`."""
    launches = run_kernels(func, *arrays, barriers=barriers)
    if len(launches) != 1:
        raise CourseError(_("{count} kernels, not one: each outermost bound loop is a kernel, with "
                            "all that is computed inside it").format(count=len(launches)))
    return launches[0]


def run_kernels(func: tirx.PrimFunc, *arrays: np.ndarray, barriers: bool = True
                ) -> list[threads.Launch]:
    """Run the kernels of a PrimFunc on NumPy, one after the other; return what each did.

    Arrays are in the order of the parameters; outputs are written. Without `barriers`, those that
    TVM inserts are left out. Raises CourseError for an index outside its buffer, a barrier that
    not all threads of a block reach, and the like.
    """
    for param, array in zip(func.params, arrays, strict=True):
        if tuple(param.shape) != array.shape:
            raise CourseError(_("{name} has shape {wanted}, the array given for it {shape}").format(
                name=param.name, wanted=list(map(int, param.shape)), shape=list(array.shape)))
    low = lowered(func, barriers)
    try:
        return threads.run(low, *arrays)
    except threads.Unknown as unknown:
        raise CourseError(_("something is outside blocks and threads, or unknown to gpu.run: {what}"
                            ).format(what=last_line(unknown))) from None


def launches_of(func: tirx.PrimFunc, barriers: bool = True
                ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the grid of blocks and the block of threads of each kernel, x first: none is run."""
    return threads.launches(lowered(func, barriers))


def _unread(func: tirx.PrimFunc) -> list[str]:
    """Return the buffers that a PrimFunc makes and writes, and never reads: TVM may drop them."""
    every = [access for node, place in walk(func.body) for access in accesses(node, place)]
    read = {access.buffer.name for access in every if not access.writes}
    return sorted({access.buffer.name for access in every} - read
                  - {param.name for param in func.params})


def lowered(func: tirx.PrimFunc, barriers: bool = True) -> tirx.PrimFunc:
    """Return a PrimFunc as its threads run it; raises CourseError if it is not a GPU program."""
    threads.require_one_extent(func)
    try:
        low = threads.lowered(func, barriers)
    except (ValueError, RuntimeError, TypeError) as error:
        why: str = _("TVM makes no GPU program of it: {reason}").format(reason=last_line(error))
        raise CourseError(_("{why}; {buffer} is written and never read").format(
            why=why, buffer=unread[0]) if (unread := _unread(func)) else why) from None
    if not threads.launches(low):
        loop = threads.outside_of_bound(func)
        raise CourseError(UNBOUND if loop is None else _(
            "the loop {loop} is around bound ones, and is not bound itself: bind it to "
            "blocks").format(loop=loop))
    return low
