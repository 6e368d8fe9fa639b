"""Memory: whether a PrimFunc stays inside its buffers, and its threads and lanes apart.

Nothing that a program declares is believed. Each sblock's axes are held against the loops that run
them; then the program is lowered until no sblock is left, and every index of every load and store
is looked at, over the loops' real extents and under the conditions that guard it. What an analyzer
of TVM cannot show is tried, for all iterations. Indices that depend on data remain: arrays between
pages that nobody may touch are there for them, in checks.observe.guard_pages.
"""

import contextlib
import ctypes
import itertools
import math
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from course.checks.say.messages import CheckFailed
from course.tir.evaluate import Unknown, iterations_of, variables
from course.tir.walk import Access, Loop, Place, accesses, constant, loads, walk
from course.words import _

_Data = Mapping[Any, np.ndarray]  # arrays of buffers that are only read, where they are known

# ---- inside the buffers --------------------------------------------------------------------


def _has_steps(func: tvm.tirx.PrimFunc) -> bool:
    return any(isinstance(node, tirx.For) and node.step is not None for node, _ in walk(func.body))


def _lowered(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The program without sblocks, as TVM's own first passes make it: real indices, real sizes.

    Where a loop has a step, each begins at 0 and counts by 1: its numbers are not the reader's.
    """
    passes = s_tir.transform
    steps = [*[passes.CanonicalizeLoop()] * _has_steps(func), passes.LowerInitBlock(),
             passes.PlanAndUpdateBufferAllocationLocation(), passes.ConvertBlocksToOpaque(),
             passes.CompactBufferAllocation(), passes.LowerMatchBuffer(), passes.LowerOpaqueBlock()]
    return tvm.transform.Sequential(steps)(tvm.IRModule({"main": func}))["main"]


def _text(buffer: Any, indices: Sequence[int]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices))}]"


def _outside(place: Place, indices: Sequence[Any], shape: Sequence[Any], data: _Data
             ) -> tuple[list[int], tuple[int, ...], str] | None:
    """The first indices outside a shape, the shape, in which iteration; None if there are none.

    Nothing is tried where the loops alone show that all are inside. Raises Unknown.
    """
    def shown(index: Any, size: Any) -> bool:
        if (most := constant(size)) is None or isinstance(index, tirx.Ramp):
            return False
        bound = place.analyzer.const_int_bound(index)
        return bool(bound.min_value >= 0 and bound.max_value < most)
    if all(map(shown, indices, shape)):
        return None
    found = iterations_of(place, [*indices, *shape], data=data)
    values, sizes = found.values(*indices), found.values(*shape)
    outside = np.zeros_like(found.runs)
    for value, size in zip(values, sizes, strict=True):
        outside |= (value < 0) | (value >= size)
    wrong = np.flatnonzero(outside & found.runs)
    if not len(wrong):
        return None
    where = ", ".join(f"{variable.name} = {numbers[wrong[0]]}"
                      for variable, numbers in found.at.items() if variable not in data)
    return ([int(value[wrong[0]]) for value in values],
            tuple(int(size[wrong[0]]) for size in sizes), where)


def _depends_on_data(access: Access) -> bool:
    """Whether an index of an access is read from a buffer."""
    return any(True for index in access.indices for _ in loads(index))


def _require_loops_for(name: str, access: Access, bound: set[Any]) -> None:
    """Raise CheckFailed where an index has a variable to which nothing gives a value."""
    if _depends_on_data(access):
        return
    known = {loop.variable for loop in access.place.loops} | bound
    for variable in variables(access.indices) - known:
        if not hasattr(variable.ty, "shape"):
            raise CheckFailed(_("a loop for every axis"),
                              _("PrimFunc {name} has {buffer} at {axis}, and no loop around it "
                                "gives that {axis} a value: variables ({axis},) are used, but are "
                                "not passed in as API arguments").format(
                                    name=name, buffer=access.buffer.name, axis=variable.name))


def _require_inside(name: str, access: Access, data: _Data, in_which: bool) -> None:
    """Raise CheckFailed where a load or a store is outside its buffer; `in_which` iteration too.

    What depends on data that are not known is left to checks.observe.guard_pages.
    """
    if len(access.indices) != len(access.buffer.shape):
        return
    with contextlib.suppress(Unknown):
        if wrong := _outside(access.place, access.indices, access.buffer.shape, data):
            indices, shape, where = wrong
            says = _("PrimFunc {name} writes {place}, outside the range of its shape {shape}: Out "
                     "of bounds memory access") if access.writes else _(
                "PrimFunc {name} reads {place}, outside the range of its shape {shape}: Out of "
                "bounds memory access")
            raise CheckFailed(_("every index inside its buffer"),
                              says.format(name=name, place=_text(access.buffer, indices),
                                          shape=shape)
                              + f"; {where}" * (in_which and bool(where)))


def _require_axes(name: str, func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed where loops run an sblock's axis beyond the range that it declares."""
    steps = _has_steps(func)  # then a loop's numbers are not known here
    for node, place in walk(func.body):
        match node:
            case tirx.Return(value=ir.Expr(ty=tirx.BufferType())):
                raise CheckFailed(_("a PrimFunc that returns nothing"),
                                  _("return {value} in {name}").format(value=node.value.name,
                                                                       name=name))
            case s_tir.SBlockRealize() if not steps:
                inside = place.inside(node)
                for axis, given in zip(node.block.iter_vars, node.iter_values, strict=True):
                    _require_axis(name, node.block.name_hint, axis, given, inside)


def _require_axis(name: str, block: str, axis: tirx.IterVar, given: Any, place: Place) -> None:
    if constant(axis.dom.min) != 0 or constant(axis.dom.extent) is None:
        return  # emit_te and FuseTIR subtract another start once more; indices are judged
    with contextlib.suppress(Unknown):
        if wrong := _outside(place, [given], [axis.dom.extent], {}):
            (came,), (extent,), where = wrong
            raise CheckFailed(_("every index inside its buffer"),
                              _("PrimFunc {name}: axis {axis} of block {block} goes from 0 to "
                                "{most}, but is {came} ({where}): outside the range").format(
                                    name=name, axis=axis.var.name, block=block, most=extent - 1,
                                    came=came, where=where))


# ---- threads and lanes apart ---------------------------------------------------------------


def _require_apart(name: str, found: Sequence[Access], homes: Mapping[Any, Sequence[Loop]],
                   data: _Data) -> None:
    """Raise CheckFailed where two threads, or two lanes, meet at one element and one writes it.

    `homes`: the loops in which buffers live.
    """
    shared = dict.fromkeys(
        (loop, access.buffer) for access in found if access.writes for loop in access.place.loops
        if loop.kind in ("parallel", "vectorized") and loop.extent != 1
        and loop not in homes.get(access.buffer, ()))
    for loop, buffer in shared:
        same = [access for access in found
                if access.buffer.same_as(buffer) and loop in access.place.loops]
        # TVM makes the program's own buffers smaller, so their indices are not the reader's
        _require_apart_in(name, loop, same, data, buffer not in homes)


def _require_apart_in(name: str, loop: Loop, same: Sequence[Access], data: _Data, at: bool
                      ) -> None:
    """Raise CheckFailed where iterations of a loop meet; `same`: accesses of one buffer in it.

    `at`: say at which element.
    """
    shape = [extent for extent in map(constant, same[0].buffer.shape) if extent is not None]
    if len(shape) < len(same[0].buffer.shape):
        return
    written = (np.zeros(0, np.int64), np.zeros(0, np.int64))  # elements' keys, and iterations
    for access in _different(same):
        try:
            keys, threads = _touched(access, loop, shape, data)
        except Unknown:
            continue
        if access.writes:
            keys, threads = (np.concatenate(both) for both in zip(written, (keys, threads),
                                                                  strict=True))
            order = np.argsort(keys, kind="stable")
            written = keys, threads = keys[order], threads[order]
            before, others = np.roll(keys, 1), np.roll(threads, 1)
        elif len(written[0]):
            spot = np.minimum(np.searchsorted(written[0], keys), len(written[0]) - 1)
            before, others = written[0][spot], written[1][spot]
        else:
            continue
        wrong = np.flatnonzero((keys == before) & (threads != others))
        if len(wrong):
            first, second, key = others[wrong[0]], threads[wrong[0]], keys[wrong[0]]
            element = [int(n) for n in np.unravel_index(key % math.prod(shape), shape)]
            who = _("threads") if loop.kind == "parallel" else _("lanes")
            verb = _("both write") if access.writes else _("write and read")
            raise CheckFailed(_("{who} that write different elements").format(who=who),
                              _("PrimFunc {name}: iterations {first} and {second} of the loop "
                                "{loop} {verb} {text}").format(name=name, first=first,
                                                               second=second, loop=loop, verb=verb,
                                                               text=_text(access.buffer, element)
                                                               if at else access.buffer.name))


def _different(same: Sequence[Access]) -> Iterator[Access]:
    """Yield accesses of one buffer, writes first, without those that touch what another does."""
    seen: list[Access] = []
    for access in sorted(same, key=lambda access: not access.writes):
        if not any(access.place.loops == other.place.loops
                   and len(access.place.guards) == len(other.place.guards) == 0
                   and tvm_ffi.structural_equal(list(access.indices), list(other.indices))
                   for other in seen):
            seen.append(access)
            yield access


def _touched(access: Access, loop: Loop, shape: Sequence[int], data: _Data
             ) -> tuple[np.ndarray, np.ndarray]:
    """Return a key of each element that an access touches, and the iteration of `loop` that does.

    Two arrays of int64. The loops around `loop` are the same for all threads: elements meet only
    within one iteration of these, and so it is part of the key. Raises Unknown.
    """
    found = iterations_of(access.place, access.indices, [loop], data)
    loops = access.place.loops[:access.place.loops.index(loop)]
    outer = [found.at[other.variable] for other in loops if other.variable in found.at]
    outer = [numbers - numbers.min() for numbers in outer]
    sizes = [*(int(numbers.max()) + 1 for numbers in outer), *shape]
    if math.prod(sizes) >= 2**63:
        raise Unknown
    indices = [values.astype(np.int64, copy=False) for values in found.values(*access.indices)]
    keys = np.ravel_multi_index([*outer, *indices], sizes, "clip")
    return keys[found.runs], found.at[loop.variable][found.runs]


# ---- all of it -----------------------------------------------------------------------------


def _accessed(lowered: tvm.tirx.PrimFunc
              ) -> tuple[list[tuple[Any, Place]], list[Access], dict[Any, Sequence[Loop]]]:
    """Return a program's nodes, what they read and write, and the loops in which buffers live."""
    nodes = list(walk(lowered.body))
    return (nodes, [access for node, place in nodes for access in accesses(node, place)],
            {node.buffer: place.loops for node, place in nodes
             if isinstance(node, tirx.AllocBuffer)})


def _with_numbers(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc | None:
    """Return a PrimFunc with small numbers for the extents that its arguments bring, if any do."""
    extents = [extent for param in func.params for extent in getattr(param.ty, "shape", ())
               if isinstance(extent, tirx.Var)]
    numbers = {variable: tirx.IntImm(str(variable.ty.dtype), 3 + place)
               for place, variable in enumerate(dict.fromkeys(extents))}
    return tvm_ffi.structural_map(func, (
        tirx.Var, lambda variable: numbers.get(variable, variable))) if numbers else None


def require_safe_access(name: str, func: tvm.tirx.PrimFunc, arrays: Sequence[Any] = ()) -> None:
    """Raise CheckFailed where a PrimFunc leaves its buffers, or its threads or lanes collide.

    Static: nothing runs. Of what depends on symbolic shapes only the threads are judged, for small
    ones; nor is judged what depends on data, unless the `arrays` are given on which it runs, one
    for each argument.
    """
    _require_axes(name, func)
    try:
        lowered = _lowered(func)
    except Exception:  # TVM raises many kinds; it will do so again, and be heard, when it compiles
        return
    nodes, found, homes = _accessed(lowered)
    written = {access.buffer for access in found if access.writes}
    data = {param: array for param, array in zip(func.params, arrays, strict=False)
            if isinstance(array, np.ndarray) and param not in written}
    bound = variables(func.params) | {node.var for node, _ in nodes if isinstance(node, tirx.Bind)}
    for access in found:
        _require_loops_for(name, access, bound)
        _require_inside(name, access, data, not _has_steps(func))
    _require_apart(name, found, homes, data)
    if small := _with_numbers(func):
        _nodes, found, homes = _accessed(_lowered(small))
        with contextlib.suppress(Unknown):
            if not any(_outside(access.place, access.indices, access.buffer.shape, {})
                       for access in found):  # the numbers fit together
                _require_apart(name, found, homes, {})


def looks_up(func: tvm.tirx.PrimFunc) -> bool:
    """Whether an index of a PrimFunc depends on data: it reads a buffer."""
    return any(_depends_on_data(access) for node, place in walk(func.body)
               for access in accesses(node, place))


# ---- arrays that notice --------------------------------------------------------------------

_ALIGNED = 64  # bytes: what TVM's kernels take for granted
_NOBODYS = np.uint32(0xFFC00000)  # fills what stands between an array and a page that nobody may
# touch: as a float it is NaN, so that what was read there shows. The lower 22 bits are another
# number at each place of each array: a sum keeps them of a NaN that was read, and writes them
_numbers = itertools.count(1, 5381)


@dataclass
class Fenced:
    """A copy of an array between two pages that nobody may touch; `tensor` shares its memory.

    It ends where the second page begins, or begins where the first ends (`at_start`), but for a
    rest of less than 64 bytes; `require_whole` looks at the rest.
    """

    tensor: Any
    array: np.ndarray
    around: list[np.ndarray]
    before: list[np.ndarray]

    @classmethod
    def of(cls, values: np.ndarray, at_start: bool = False) -> "Fenced":
        """Return a copy of an array, at the end or the start of memory between forbidden pages."""
        page = mmap.PAGESIZE
        size = max(1, values.nbytes)
        inside = -(-size // page) * page
        area = mmap.mmap(-1, inside + 2 * page)
        every = np.frombuffer(area, np.uint8)
        words = every.view(np.uint32)
        words[:] = _NOBODYS + (np.arange(len(words), dtype=np.uint32) + next(_numbers)) % 2**22
        start = page if at_start else page + inside - -(-size // _ALIGNED) * _ALIGNED
        array = every[start:start + values.nbytes].view(values.dtype).reshape(values.shape)
        array[...] = values
        around = [every[page:start], every[start + values.nbytes:page + inside]]
        if sys.platform == "linux":
            protect = ctypes.CDLL(None, use_errno=True).mprotect
            for edge in (0, page + inside):
                protect(ctypes.c_void_p(every.ctypes.data + edge), ctypes.c_size_t(page), 0)
        return cls(tvm.runtime.from_dlpack(array), array, around, list(map(np.copy, around)))

    def require_whole(self, what: str) -> None:
        """Raise CheckFailed where something was written beside the array."""
        if not all(map(np.array_equal, self.around, self.before)):
            raise CheckFailed(_("every index inside its buffer"),
                              _("a write next to {what}, outside the range of its shape").format(
                                  what=what))


def run_fenced(run: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[np.ndarray],
               title: str, at_start: bool = False) -> list[np.ndarray]:
    """Call something of tensors on fenced copies of arrays, and return what its outputs hold then.

    Those of the inputs that are no arrays it gets as they are. Raises CheckFailed where it writes
    beside an array, or into an input.
    """
    given = [Fenced.of(one, at_start) if isinstance(one, np.ndarray) else one for one in inputs]
    made = [Fenced.of(array, at_start) for array in outputs]
    run(*(one.tensor if isinstance(one, Fenced) else one for one in (*given, *made)))
    for number, (fenced, array) in enumerate(zip(given, inputs, strict=True)):
        if not isinstance(fenced, Fenced):
            continue
        fenced.require_whole(_("input {number} of {title}").format(number=number, title=title))
        if not np.array_equal(fenced.array, array, equal_nan=array.dtype.kind == "f"):
            raise CheckFailed(_("the inputs to stay as they were"),
                              _("{title} writes into its input {number} {shape}").format(
                                  title=title, number=number, shape=array.shape))
    for fenced in made:
        fenced.require_whole(_("the output of {title}").format(title=title))
    return [fenced.array.copy() for fenced in made]
