"""Programs for a GPU, run without one: what the checks of 10 and of 12.5 ask of each."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm

from course import gpu
from course.checks.compare.tolerance import random
from course.checks.observe.primfuncs import with_buffers
from course.checks.say.messages import CheckFailed, require_type
from course.checks.say.show import shown
from course.checks.spec.forms import naming
from course.gpu.simulated import lowered
from course.tir.threads import MOST_THREADS, Launch, thread_name
from course.tir.walk import walk
from course.words import Sentence, _
from data.store import CourseError

MOST_SHARED = 48 * 1024
SIMPLE = (np.ones, np.arange)  # what makes arrays of numbers that a reader can work out


def _made(answer: Callable, given: Iterable[Any], title: str) -> tvm.tirx.PrimFunc:
    with naming(title):
        func = answer(*given)
    require_type(func, tvm.tirx.PrimFunc, _("a PrimFunc; {title}").format(title=title))
    return func


@contextlib.contextmanager
def _runs(title: str) -> Iterator[None]:
    """Raise CheckFailed where something is no program for a GPU."""
    try:
        yield
    except CourseError as error:
        # form: no-gpu-program
        raise CheckFailed(_("a program for a GPU that runs; {title}").format(title=title),
                          error.args[0]) from None


def require_launch(answer: Callable, given: Iterable[Any], title: str, grid: tuple[int, ...],
                   block: tuple[int, ...] = (), barriers: bool = True) -> None:
    """Raise CheckFailed unless a kernel has these blocks, each of these threads; nothing is run.

    x, y, z; any threads will do if `block` is empty.
    """
    func = _made(answer, given, title)
    with _runs(title):
        kernels = gpu.launches_of(func, barriers)
    blocks, threads = kernels[0]
    if len(kernels) == 1 and kernels[0] != (grid, block or threads):
        says = _("blocks {grid}, threads {block}")
        raise CheckFailed(_("; ").join([says.format(grid=grid, block=block or threads), title]),
                          says.format(grid=blocks, block=threads))


def require_shared(answer: Callable, given: Iterable[Any], title: str) -> None:
    """Raise CheckFailed where a block needs too much shared memory; nothing is run."""
    func = _made(answer, given, title)
    with _runs(title):
        held = [node.buffer for node, _place in walk(lowered(func).body)
                if isinstance(node, tvm.tirx.AllocBuffer)
                and node.buffer.scope().startswith("shared")]
    sizes = [one.dtype.itemsize * math.prod(
        map(int, (one.strides[0], one.shape[0]) if one.strides else one.shape)) for one in held]
    require_at_most(MOST_SHARED, sum(sizes), _("bytes of shared memory a block"), title)


def inputs(simple: Iterable[np.ndarray], drawn: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays X that a reader can work out, with what they are, then one of many numbers."""
    for array in simple:
        yield Sentence("X: {numbers}").format(numbers=shown(array)), array
    yield f"X {drawn.shape}", drawn


def alone(value: float, place: tuple[int, ...], *shape: int) -> np.ndarray:
    """Return float32 zeros with one other number."""
    found = np.zeros(shape, "float32")
    found[place] = value
    return found


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers below 1 and, in every other column, below 400."""
    found = random(*shape, seed=seed)
    found[..., 1::2] *= 400
    return found


def _require_result(came: np.ndarray, right: np.ndarray, title: str, launch: Launch) -> None:
    """Raise CheckFailed where a result is wrong; say which thread wrote the worst place."""
    wrong = ~np.isclose(came, right, 1e-4, 1e-5 * float(np.abs(right).max()))
    if wrong.any():
        far = np.nan_to_num(np.where(wrong, np.abs(came - right), 0), nan=np.inf)
        at = tuple(int(i) for i in np.unravel_index(far.argmax(), far.shape))
        wrote = launch.writer.get(launch.params[-1])
        writer = -1 if wrote is None else wrote.reshape(right.shape)[at]
        raise CheckFailed(_("{right} at {place}; {title}").format(
            right=f"{right[at]:.6g}", place=list(at), title=title),
            _("{came} there, by {thread}; {count} of {all} values differ").format(
                came=f"{came[at]:.6g}", count=f"{wrong.sum():,}", all=f"{wrong.size:,}",
                thread=thread_name(*launch.names(writer)))
            if writer >= 0 else _("no thread writes it"))


def ran_right(answer: Callable, given: tuple[Any, ...], arrays: Sequence[np.ndarray],
              right: Callable[..., np.ndarray], title: str, simpler: Sequence[Callable] = (),
              barriers: bool = True, least: int = 1) -> Launch:
    """Run what an answer makes of what is given: one kernel, every index inside, no race.

    Its result has to be right(*arrays); where it is wrong for simpler arrays too, show that. With
    at least so many threads a block: with fewer NumPy would take long.
    """
    func, wanted = _made(answer, given, title), right(*arrays)
    with naming(title):
        with_buffers(func, *(array.shape for array in arrays), wanted.shape)
    came = np.full_like(wanted, np.nan)
    with _runs(title):
        threads = min(math.prod(block) for _grid, block in gpu.launches_of(func, barriers))
        launch = gpu.run(func, *arrays, came, barriers=barriers) if threads >= least else None
    if not launch:
        raise CheckFailed(_("at least {least} threads a block; {title}").format(
            least=least, title=title), f"{threads}")
    if launch.races:
        raise CheckFailed(_("no race; {title}").format(title=title), launch.races[0].says)
    require_at_most(MOST_THREADS, launch.threads, _("threads a block"), title)
    try:
        _require_result(came, wanted, title, launch)
    except CheckFailed:
        for make in simpler:
            simple = [make(one.size).astype(one.dtype).reshape(one.shape) for one in arrays]
            says = _("inputs of {numbers}, ...").format(
                numbers=", ".join(f"{number:g}" for number in make(3)))
            ran_right(answer, given, simple, right, _("; ").join([title, says]), (), barriers,
                      least)
        raise
    return launch


def require_at_most(most: int, came: int, what: str, title: str, look_at: str = "") -> None:
    """Raise CheckFailed where there are more of something than `most`."""
    if came > most:
        raise CheckFailed(
            _("at most {most} {what}; {title}").format(most=f"{most:,}", what=what, title=title)
            if most else _("no {what}; {title}").format(what=what, title=title), f"{came:,}",
            look_at)


def require_few(found: Mapping[str, int], buffers: Iterable[str], most: int, what: str, title: str,
                look_at: str = "") -> None:
    """Raise CheckFailed where more was counted for some buffers than `most`."""
    made = {name: found[name] for name in buffers}
    require_at_most(most, sum(made.values()), what, title, look_at or (_(", ").join(
        _("{name} {count}").format(name=name, count=f"{count:,}")
        for name, count in made.items()) if len(made) > 1 else ""))


def require_no_conflicts(launch: Launch, title: str) -> None:
    """Raise CheckFailed where a warp wants several words of one bank of shared memory at once."""
    worst = max(launch.conflicts, key=lambda name: launch.conflicts[name], default="")
    require_few(launch.conflicts, list(launch.rounds), 0, _("rounds for bank conflicts"), title,
                _("one warp accesses {elements} of {name} at once, all in one bank; the lowered "
                  "program lays it out as {shape}").format(
                    elements=_elements(launch.together[worst]), name=worst,
                    shape=launch.shapes[worst])
                if launch.conflicts[worst] else "")


def at_once(launch: Launch, names: Iterable[str]) -> str:
    """Say which elements the worst access of a warp reaches, of the buffer that takes most."""
    name = max((one for one in names if one in launch.together),
               key=lambda one: launch.transactions[one] / launch.loads[one], default="")
    return _("one warp accesses {elements} of {name} at once").format(
        elements=_elements(launch.together[name]), name=name) if name else ""


def _elements(places: np.ndarray) -> str:
    """Return places of elements as text, neighbours as one stretch: 0–3, 32, 64, ..."""
    places = np.unique(places)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}"
                     for run in runs[:4]) + ", ..." * (len(runs) > 4)
