"""Schedules: how the blocks of a PrimFunc move, what they keep, and what is required of them."""

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import te

from course.checks.compare.tolerance import ATOL, fractions
from course.checks.diagnose.equivalence import require_same
from course.checks.exercises.models import cnn, reference_200
from course.checks.observe.primfuncs import Uncompiled, require_inside_buffers, run_prim_func
from course.checks.run.answer import line_of_answer
from course.checks.run.check import while_running
from course.checks.say.messages import CheckFailed, reason, require_type
from course.checks.spec.forms import naming
from course.checks.spec.spec import Spec, check
from course.tir.evaluate import every
from course.tir.loops import Nest, is_reduction, lives, nests
from course.tir.walk import Loop
from course.words import Sentence, _

# ---- how blocks move -----------------------------------------------------------------------


def places(nest: Nest, expressions: Sequence[Any], loops: Sequence[Loop]) -> np.ndarray:
    """Return values of expressions of a block's axes, (iterations, expressions), as loops run.

    The variables of all other loops are 0.
    """
    found = every({loop.variable: np.arange(_most(loop)) for loop in loops})
    found.at.update((loop.variable, np.int64(0)) for loop in nest.loops if loop not in loops)
    for axis, given in nest.place.inside(nest.realize).axes:
        found.at[axis], = found.values(given)
    return np.stack(found.values(*expressions), axis=1)


def _most(loop: Loop) -> int:
    """Return the number of a loop's iterations; where compute_at made it vary, the largest."""
    if isinstance(loop.extent, int):
        return loop.extent
    return int(tvm.sym.Analyzer().const_int_bound(loop.node.extent).max_value)


def moves(nest: Nest, loop: Loop, expressions: Sequence[Any] | None = None
          ) -> list[tuple[int, ...]]:
    """Return how a block's axes move from one iteration of a loop to the next, each way once.

    With `expressions`: how these move, as the indices at which the block reads or writes.
    """
    if expressions is None:
        expressions = [axis.var for axis in nest.realize.block.iter_vars]
    steps = np.diff(places(nest, expressions, [loop]), axis=0)
    return sorted({tuple(map(int, step)) for step in steps})


def moving(nest: Nest, loops: Sequence[Loop], expressions: Sequence[Any]) -> list[Loop]:
    """Return those of some loops of a nest that move expressions of a block's axes."""
    return [loop for loop in loops if expressions and any(map(any, moves(nest, loop, expressions)))]


def reducing_loops(nest: Nest) -> list[Loop]:
    """Return the loops of a nest that move a reduction axis."""
    return moving(nest, nest.loops, [axis.var for axis in nest.realize.block.iter_vars
                                     if is_reduction(axis)])


def told(found: Sequence[Nest]) -> str:
    """Return the loops around each block, in words."""
    return _("; ").join(_("{block} in {loops}").format(
        block=nest.block, loops=" > ".join(str(loop) for loop in nest.loops)) for nest in found)


def product(n: int, m: int, depth: int) -> tvm.tirx.PrimFunc:
    """Return C = A @ B in float32: A is (n, depth), B is (depth, m)."""
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    return te.create_prim_func([a, b, te.compute(
        (n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


# ---- what a schedule keeps in a buffer -----------------------------------------------------


def summing(func: tvm.tirx.PrimFunc) -> list[Nest]:
    """Return the loop nests with a reduction axis; raise CheckFailed where there is none."""
    found = [nest for nest in nests(func) if nest.reduces]
    if not found:
        raise CheckFailed(_("a block that adds up"), _("no block with a reduction axis"))
    return found


def adds_up(func: tvm.tirx.PrimFunc) -> Nest:
    """Return the loop nest of the block that does most of the additions."""
    return max(summing(func), key=lambda nest: np.prod([float(loop.extent) for loop in nest.loops
                                                  if isinstance(loop.extent, int)]))


def base_name(nest: Nest) -> str:
    """Return the block's name before decompose_reduction."""
    return nest.block.removesuffix("_update")


def written(nest: Nest) -> Any:
    """Return the buffer that a block writes."""
    return nest.realize.block.writes[0].source


def indices(region: Any) -> list[Any]:
    """Return the index expressions at which a block reads or writes a region of a buffer."""
    return [part.min for part in region.region]


def stored(nest: Nest) -> list[Any]:
    """Return the index expressions at which a block writes."""
    return indices(nest.realize.block.writes[0])


def touches(nest: Nest, buffer: Any) -> bool:
    """Whether a block reads or writes a buffer."""
    block = nest.realize.block
    return any(region.source.same_as(buffer) for region in [*block.reads, *block.writes])


def tile(nest: Nest, outer: int, expressions: Sequence[Any]) -> int:
    """Count the different values of expressions inside the outer loops of a nest."""
    inner = moving(nest, nest.loops[outer:], expressions)
    found = places(nest, [*expressions, nest.realize.predicate], inner)
    return len(np.unique(found[found[:, -1] != 0], axis=0))


def kept_in(func: tvm.tirx.PrimFunc, nest: Nest) -> int:
    """Count the outer loops inside which a block's buffer is allocated.

    These are the loops that all blocks that use it have in common.
    """
    levels = zip(*(other.loops for other in nests(func) if touches(other, written(nest))),
                 strict=False)
    return len(list(itertools.takewhile(lambda loops: len(set(loops)) == 1, levels)))


# ---- what is required ----------------------------------------------------------------------


def _shapes(func: tvm.tirx.PrimFunc) -> str:
    return ", ".join(str(tuple(map(int, param.shape))) for param in func.params)


def _scheduled(answer: Callable, func: tvm.tirx.PrimFunc, *more: Any) -> tvm.tirx.PrimFunc:
    """Let an answer change a schedule of a PrimFunc, and return the PrimFunc that results."""
    schedule = tvm.s_tir.Schedule(func)
    while_running("")  # what it says of another program
    answer(schedule, *more)
    after = schedule.mod["main"]
    warn_of_copies(after)
    return after


def applied(answer: Callable, make: Callable[..., tvm.tirx.PrimFunc], *cases: tuple[int, ...],
            more: Mapping[tuple[int, ...], tuple[int, ...]] = MappingProxyType({})
            ) -> Iterator[tuple[tuple[int, ...], tvm.tirx.PrimFunc]]:
    """Yield the sizes of each case, and the PrimFunc that an answer makes of make(*sizes).

    The answer gets a schedule, and what `more` has for the case. Raises CheckFailed where it
    changes nothing in the first, as later ones may need nothing; where it stops at other sizes than
    the first; where it changes the buffers' shapes; and where the results, which are compared after
    what the caller does with the PrimFunc, are others.
    """
    for number, sizes in enumerate(cases):
        before = make(*sizes)
        with for_more(before, _("a schedule for any shape")) if number \
                else contextlib.nullcontext():
            after = _scheduled(answer, before, *more.get(sizes, ()))
        if not number and tvm_ffi.structural_equal(before, after):
            raise CheckFailed(
                _("a change of the schedule that is given, for buffers {shapes}").format(
                    shapes=_shapes(before)), _("the program is as it was"))
        _require_shapes(before, after)
        yield sizes, after
        require_same_results(before, after)


def sized(func: tvm.tirx.PrimFunc) -> contextlib.AbstractContextManager[None]:
    """Raise CheckFailed with the shapes of a PrimFunc's buffers, where what is asked needs them."""
    return naming(_("for buffers {shapes}").format(shapes=_shapes(func)), runs=False)


@contextlib.contextmanager
def for_more(func: tvm.tirx.PrimFunc, expected: Sentence) -> Iterator[None]:
    """Raise CheckFailed where an answer raises for a PrimFunc, and did not for another."""
    try:
        yield
    except (CheckFailed, NotImplementedError):
        raise
    except Exception as error:  # whatever the answer raises
        if not (line := line_of_answer(error)):
            raise
        raise CheckFailed(_("{expected}: here for buffers {shapes}").format(
            expected=expected, shapes=_shapes(func)), reason(error), line) from None


_MANY = 500  # copies of a statement: they compile in a few seconds
_TOO_MANY = 6000  # compiling more may take longer than a check may run


def warn_of_copies(func: tvm.tirx.PrimFunc) -> None:
    """Note that unrolled loops are the cause, should the time run out while a PrimFunc compiles.

    Raises CheckFailed where they make too many copies.
    """
    for nest in nests(func):
        unrolled = [loop for loop in nest.loops if loop.kind == "unrolled"]
        copies = int(np.prod([_most(loop) for loop in unrolled], dtype=float))
        if copies > _MANY:
            came = _("{unrolled} make {copies} copies of block {block}, all of which are compiled"
                     ).format(unrolled=", ".join(map(str, unrolled)), copies=f"{copies:,}",
                              block=nest.block)
            if copies > _TOO_MANY:
                raise CheckFailed(_("at most {most} copies of a block").format(
                    most=f"{_TOO_MANY:,}"), came)
            while_running(came)


def returned(answer: Callable, original: tvm.IRModule, *more: Any) -> tvm.IRModule:
    """Return the module that an answer makes of a copy of `original`.

    Raises CheckFailed where that is no module, or is the same whatever is given.
    """
    while_running("")
    mod = answer(original.clone(), *more)
    require_type(mod, tvm.IRModule, _("an IRModule"))
    own = False
    with contextlib.suppress(Exception):  # an answer that uses what it is given needs it
        again = answer(tvm.IRModule(), *more)
        own = isinstance(again, tvm.IRModule) and tvm_ffi.structural_equal(again, mod)
    if own:
        raise CheckFailed(_("the module that is given, scheduled"),
                          _("the same module where an empty one is given"))
    for func in mod.functions.values():
        if isinstance(func, tvm.tirx.PrimFunc):
            warn_of_copies(func)
    return mod


def only_changed(mod: tvm.IRModule, original: tvm.IRModule, names: Collection[str], called: str
                 ) -> dict[str, Any]:
    """Return a module's functions; raise CheckFailed where others than `names` have changed.

    `called` is what those of `names` are called in messages.
    """
    before, after = ({variable.name_hint: func for variable, func in m.functions_items()}
                     for m in (original, mod))
    for some, says in ((before.keys() - after.keys(), _("missing: {names}")),
                        (after.keys() - before.keys(), _("new: {names}"))):
        if some:
            raise CheckFailed(_("the functions that are given, and no others"),
                              says.format(names=", ".join(sorted(some))))
    for other in before:
        if other not in names and not tvm_ffi.structural_equal(before[other], after[other]):
            raise CheckFailed(_("no change besides {called}").format(called=called),
                              _("{other} has changed").format(other=other))
    return after


@contextlib.contextmanager
def changed(mod: tvm.IRModule, original: tvm.IRModule, name: str, called: str = ""
            ) -> Iterator[tvm.tirx.PrimFunc]:
    """Yield function `name` of a module, the only one that may differ from `original`.

    Raises CheckFailed where another one does. Where it has not changed at all, a CheckFailed that
    is raised inside the `with` also says so. `called` is the function's name in messages.
    """
    func = only_changed(mod, original, [name], called or name)[name]
    try:
        yield func
    except CheckFailed as failed:
        if not tvm_ffi.structural_equal(func, original[name]):
            raise
        expected, came, _look_at = failed.parts
        raise CheckFailed(expected, _("{came}; {name} is as it was").format(came=came,
                                                                           name=called or name)
                          ) from None


def require_same_results(before: tvm.tirx.PrimFunc, after: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed unless both PrimFuncs (inputs, output) give the same, on large numbers."""
    _require_shapes(before, after)
    shapes = {param.name: tuple(map(int, param.shape)) for param in before.params}
    *inputs, output = shapes

    def of(func: tvm.tirx.PrimFunc) -> Callable[..., np.ndarray]:
        return lambda **given: run_prim_func(func, [*given.values()], shapes[output])
    right = of(before)
    # fine ones all: none of them, read by way of half precision, is what it was
    given = {name: fractions(*shapes[name], seed=i) for i, name in enumerate(inputs)}
    try:
        check(Spec(of, right, lambda: [given], result=_("the PrimFunc as it was"),
                   atol=lambda given: max(ATOL, 1e-6 * float(np.abs(right(**given)).max()))),
              after)  # a sum's order is free
    except Uncompiled as failed:
        raise CheckFailed(*failed.parts[:2], told(nests(after))) from None


def _require_shapes(before: tvm.tirx.PrimFunc, after: tvm.tirx.PrimFunc) -> None:
    taken, wanted = map(_shapes, (after, before))
    if taken != wanted:
        raise CheckFailed(_("a PrimFunc of buffers {shapes}, as the one that is given").format(
            shapes=wanted), taken)


def require_same_model(mod: tvm.IRModule, original: tvm.IRModule, name: str) -> str:
    """Compare a PrimFunc with the original's, then do as require_same for the CNN.

    The model's own activations are small and hide a cut.
    """
    require_inside_buffers(tvm.IRModule({name: mod[name]}))  # by its own name
    require_same_results(original[name], mod[name])
    return require_same(mod, cnn()[1], reference_200())


def after_sums(found: Sequence[Nest], update: Nest) -> list[Nest]:
    """Return the nests that read what a block adds up, or what becomes of that, in their order."""
    buffers, later = [written(update)], []
    for nest in found[found.index(update) + 1:]:
        reads = [region.source for region in nest.realize.block.reads]
        if any(read.same_as(buffer) for read in reads for buffer in buffers) \
                and not written(nest).same_as(written(update)):
            later.append(nest)
            buffers.append(written(nest))
    return later


def require_few_at_once(func: tvm.tirx.PrimFunc, nest: Nest, most: int) -> int:
    """Return how many numbers a block writes inside the loops that its buffer's users share.

    Raises CheckFailed where they are more than `most`.
    """
    if (held := tile(nest, kept_in(func, nest), stored(nest))) > most:
        raise CheckFailed(_("at most {wanted} numbers of {buffer} at a time").format(
                              wanted=most, buffer=nest.buffer), f"{held:,}", told(nests(func)))
    return held


def require_few_kept(func: tvm.tirx.PrimFunc, buffers: Sequence[Any], most: int) -> None:
    """Raise CheckFailed where a buffer keeps more numbers than `most` at a time."""
    require_inside_buffers(tvm.IRModule({"main": func}))
    for life in lives(func) if buffers else ():
        if life.most > most and any(life.buffer.same_as(buffer) for buffer in buffers):
            raise CheckFailed(_("at most {wanted} numbers of {buffer} at a time").format(
                                  wanted=most, buffer=life.buffer.name),
                              str(life.most), told(nests(func)))


def require_few_sums(func: tvm.tirx.PrimFunc, update: Nest, most: int) -> None:
    """Do as require_few_kept for a block's sums, and for copies on their way to the output."""
    require_few_kept(func, [written(nest) for nest in
                            [update, *after_sums(nests(func), update)]], most)


def require_threads(least: int, *nests: Nest) -> None:
    """Raise CheckFailed unless the outermost loop of each nest is parallel.

    It has to have at least `least` iterations, which write different elements.
    """
    for nest in nests:
        outer = _loops(nest)[0]
        if outer.kind != "parallel" or _most(outer) < least:
            wanted = _("a parallel outermost loop, with {least} iterations or more").format(
                least=least) if least > 1 else _("a parallel outermost loop")
            raise CheckFailed(wanted,
                              _("{outer}, around block {block}").format(outer=outer,
                                                                        block=nest.block),
                              told([nest]))
        if outer in reducing_loops(nest):
            raise CheckFailed(_("threads that write different elements"),
                              _("the parallel loop {outer} moves a reduction axis of "
                                "{block}").format(outer=outer, block=nest.block),
                              told([nest]))


def _loops(nest: Nest) -> list[Loop]:
    """Return the loops around a block; raise CheckFailed if there are none."""
    if not nest.loops:
        raise CheckFailed(_("loops around block {block}").format(block=nest.block), _("none"))
    return list(nest.loops)


def require_lanes(nest: Nest, what: str, *counts: int) -> Loop:
    """Return the innermost loop; raise CheckFailed unless it is a vector of so many lanes.

    Of one of some counts, if they are given, else of two or more.
    """
    inner = _loops(nest)[-1]
    if inner.kind != "vectorized" or (inner.extent not in counts if counts else _most(inner) < 2):
        raise CheckFailed(_("a vectorised innermost loop around {what}, of {count} lanes").format(
            what=what, count=_(" or ").join(map(str, counts)) if counts else _("at least two")),
            f"{inner}", told([nest]))
    return inner


def require_neighbours(nest: Nest, loop: Loop, *regions: Any, what: str = _("lanes")) -> None:
    """Raise CheckFailed unless a loop goes over neighbours in the last axis of one of some regions.

    They are what a block reads or writes; in the others the loop moves nothing. `what` its
    iterations are called in messages.
    """
    few = replace(nest, place=replace(nest.place, loops=tuple(
        one if one == loop else replace(one, extent=min(_most(one), 16)) for one in nest.loops)))
    steps = [sorted({tuple(map(int, way)) for other in few.loops  # each in turn, the others at 0
                     for row in places(few, indices(region), [other, loop]).reshape(
                         -1, _most(loop), len(region.region)) for way in np.diff(row, axis=0)})
             for region in regions]
    last = sorted((any(way[:-1]), way[-1]) for step in steps for way in step)
    if last != [(False, 0)] * (len(steps) - 1) + [(False, 1)]:
        names = [region.source.name for region in regions]
        raise CheckFailed(
            _("{what} that are neighbours in {buffer}").format(what=what, buffer=names[-1]),
            _("; ").join([_("steps in {buffer} of {steps}, with {loop}").format(
                buffer=name, steps=step, loop=loop)
                for name, step in zip(names, steps, strict=True)]), told([nest]))


def require_complete(func: tvm.tirx.PrimFunc, nest: Nest, what: str) -> None:
    """Raise CheckFailed where a block's sums are read inside the loops that compute them."""
    buffer = written(nest)
    reducing = reducing_loops(nest)
    for reader in nests(func):
        if written(reader).same_as(buffer) or not touches(reader, buffer):
            continue
        if inside := [loop for loop in reader.loops if loop in reducing]:
            times = int(np.prod([_most(loop) for loop in inside]))
            raise CheckFailed(_("{what} to leave {buffer} once, when they are complete").format(
                                  what=what, buffer=nest.buffer),
                              _("block {base_name} takes them out {times} times, under {inside}"
                                ).format(base_name=base_name(reader), times=times,
                                         inside=", ".join(map(str, inside))),
                              told([nest, reader]))


def require_decomposed(func: tvm.tirx.PrimFunc, *only: Nest) -> None:
    """Raise CheckFailed where T.init is still in a block, of all or of some."""
    for nest in only or nests(func):
        if nest.has_init:
            raise CheckFailed(_("a decomposed reduction"),
                              _("block {block} still has its T.init").format(block=nest.block))


def require_lanes_along_x(nest: Nest, what: str) -> None:
    """Raise CheckFailed unless lanes of two or more write neighbours of a row: of (n, c, y, x)."""
    require_neighbours(nest, require_lanes(nest, what), nest.realize.block.writes[0])


def require_unrolled_window(conv: Nest) -> None:
    """Raise CheckFailed unless all loops over a convolution's window are unrolled."""
    for loop in reducing_loops(conv):
        if loop.kind != "unrolled":
            raise CheckFailed(_("an unrolled window of 3 by 3"),
                              _("{loop}, around block {base_name}").format(
                                  loop=loop, base_name=base_name(conv)))


def require_no_blocks(func: tvm.tirx.PrimFunc, names: Sequence[str]) -> None:
    """Raise CheckFailed where a block has one of these names: it was not inlined."""
    for nest in nests(func):
        if nest.block in names:
            raise CheckFailed(_("no block {block}").format(block=nest.block),
                              _("block {block} still writes {buffer}").format(block=nest.block,
                                                                              buffer=nest.buffer),
                              "compute_inline")


def require_local(nest: Nest) -> None:
    """Raise CheckFailed unless the buffer that a block writes has the scope "local"."""
    if (scope := written(nest).scope()) != "local":
        raise CheckFailed(_('the sums of block {block} in a buffer of scope "local"').format(
            block=nest.block), _('{buffer}, of scope "{scope}"').format(buffer=nest.buffer,
                                                                       scope=scope))


def require_scheduled(func: tvm.tirx.PrimFunc) -> list[Nest]:
    """Return the loop nests of a convolution, or raise CheckFailed with the step that it lacks.

    The convolution may be TOPI's or an own expression, with or without a block for the bias.
    """
    found, update = nests(func), summing(func)[0]
    require_no_blocks(func, ["pad_temp"])
    require_threads(2, update)
    require_threads(2, *found)
    require_lanes(update, _("the convolution"))
    if not any(loop.kind == "unrolled" and _most(loop) > 1 for loop in update.loops):
        raise CheckFailed(_("an unrolled loop, of two iterations or more, around the lanes"),
                          ", ".join(map(str, update.loops)))
    require_decomposed(func)
    return found
