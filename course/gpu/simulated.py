"""All threads of a GPU program, run on NumPy: its result, and what the threads did."""

import math
from typing import Any

import numpy as np
from tvm import tirx

from course.gpu.source import UNBOUND, last_line
from course.tir import threads
from course.tir.walk import accesses, walk
from course.words import Sentence, _
from data.store import CourseError


def run(func: tirx.PrimFunc, *arrays: np.ndarray, barriers: bool = True) -> threads.Launch:
    """Run a PrimFunc of one kernel on NumPy and return what it did; see `run_kernels`."""
    launches = run_kernels(func, *arrays, barriers=barriers)
    if len(launches) != 1:
        raise CourseError(_("{count} kernels, not one: bind the loops of every sblock to blocks "
                            "and threads, or compute it inside another one").format(
            count=len(launches)))
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
    except threads.Refused as refused:
        raise CourseError(refusal(*refused.args)) from None


def refusal(what: str, name: str, which: Any, thread: Any) -> Sentence:
    """Say why a program was refused."""
    match what:
        case "extents":
            return _("{axis} is bound to a loop of {first} and to one of {second}: in one kernel "
                     "an axis has one extent").format(axis=name, first=which[0], second=which[1])
        case "unbound":
            return _("the loop {loop} is next to kernels, and is not bound: bind it to "
                     "blocks and threads").format(loop=name)
        case "scope":
            return _("{buffer} is allocated inside a kernel, in {scope} memory: inside a kernel, "
                     "use \"shared\" or \"local\"").format(
                buffer=name, scope=which)
    who = threads.thread_name(*thread)
    if what == "outside":
        return _("{thread} is outside {buffer}: element {index}").format(
            thread=who, buffer=name, index=which)
    if what == "unwritten":
        return _("{thread} reads {buffer}[{index}], which was never written").format(
            thread=who, buffer=name, index=which)
    return _("{thread}: {count} threads of this block reach a barrier, the others do not").format(
        thread=who, count=which)


def threads_of(func: tirx.PrimFunc) -> int:
    """Return the number of threads of a block, in the kernel of a PrimFunc that has the fewest."""
    return min(math.prod(block) for _grid, block in threads.launches(lowered(func)))


def _unread(func: tirx.PrimFunc) -> list[str]:
    """Return the buffers that a PrimFunc makes and writes, and never reads: TVM may drop them."""
    every = [access for node, place in walk(func.body) for access in accesses(node, place)]
    read = {access.buffer.name for access in every if not access.writes}
    return sorted({access.buffer.name for access in every} - read
                  - {param.name for param in func.params})


def lowered(func: tirx.PrimFunc, barriers: bool = True) -> tirx.PrimFunc:
    """Return a PrimFunc as its threads run it; raises CourseError if it is not a GPU program."""
    try:
        threads.require_one_extent(func)
        low = threads.lowered(func, barriers)
    except threads.Refused as refused:
        raise CourseError(refusal(*refused.args)) from None
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
