"""PrimFuncs: what their statements say, whether they stay inside their buffers, what they give."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import tvm
from tvm import tirx
from tvm_ffi import structural_equal

from course.checks.observe.memory import require_safe_access, run_fenced
from course.checks.run.check import several_threads
from course.checks.say.messages import CheckFailed, reason, require_type
from course.tir.evaluate import variables
from course.tir.loops import is_reduction
from course.tir.walk import accesses, constant, loads, stores, walk
from course.words import _

# Small programs are compiled longer than they run: most of that time goes into optimising them
# (notebook 08's drawn schedules: 0.2 to 2.3 s at LLVM's usual level, and 0.1 s without).
QUICK = tvm.target.Target({"kind": "llvm", "opt-level": 0})
# Whole models run on many images: LLVM's first level takes 0.6 of the time that "llvm" takes to
# compile one, and it runs as fast (0.36 and 0.22 s, 2.3 and 2.5 ms a batch of 4).
LIGHT = tvm.target.Target({"kind": "llvm", "opt-level": 1})


def lightly(target: Any) -> tvm.target.Target:
    """Return a target of kind llvm at LLVM's first level, for what runs on a few inputs."""
    target = tvm.target.Target(target)
    return tvm.target.Target({**target.export(), "opt-level": 1}) if target.kind.name == "llvm" \
        else target


# ---- what it is ----------------------------------------------------------------------------


def require_tvmscript(func: tvm.tirx.PrimFunc) -> None:
    """Refuse a PrimFunc that is not written in TVMScript.

    TVMScript's parser notes for each statement where in the source it stands; schedules keep that,
    and what is made of a tensor expression has none.
    """
    if any(getattr(store, "span", None) is None for store, _ in stores(func)):
        raise CheckFailed(_("a PrimFunc in TVMScript"),
                          _("a store in it has no line in TVMScript, as if te.create_prim_func "
                            "or a schedule had made it"))


def with_buffers(func: Any, *shapes: tuple[int, ...], dtypes: Sequence[str] = (),
                 sizes: str = "") -> tvm.tirx.PrimFunc:
    """Check that an answer is a PrimFunc with buffers of these shapes, and return it.

    They are float32, if `dtypes` does not say otherwise. `sizes`: for which it was made.
    """
    dtypes = dtypes or ["float32"] * len(shapes)
    require_type(func, tvm.tirx.PrimFunc, _("a PrimFunc as the result"))
    types = [param.ty for param in func.params]
    if any(not hasattr(buffer, "shape") for buffer in types):
        raise CheckFailed(_("{count} buffers as arguments").format(count=len(shapes)),
                          _("one that is no buffer"), 'X: T.Buffer(shape, "float32")')

    def text(shape: Any, dtype: Any) -> str:
        return f"{dtype} ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
    came = [text(buffer.shape, buffer.dtype) for buffer in types]
    wanted = [text(*buffer) for buffer in zip(shapes, dtypes, strict=True)]
    fits = len(types) == len(shapes) and all(
        buffer.dtype == dtype and len(buffer.shape) == len(shape)
        and all(constant(extent) in (None, size)
                for extent, size in zip(buffer.shape, shape, strict=True))
        for buffer, shape, dtype in zip(types, shapes, dtypes, strict=True))
    if not fits:
        buffers = _("buffers {wanted}").format(wanted=", ".join(wanted))
        raise CheckFailed(_("{what} for {input}").format(what=buffers, input=sizes) if sizes
                          else buffers, ", ".join(came) or _("none"))
    if has_while(func):
        raise CheckFailed(_("loops by T.grid or range"), _("a while loop"),
                          _("the loop: a compiled while that never ends cannot be stopped"))
    if any(isinstance(node, tirx.Return) for node, _ in walk(func.body)):
        raise CheckFailed(_("a PrimFunc without a return statement"), _("it has one"))
    return func


def has_while(func: tvm.tirx.PrimFunc) -> bool:
    """Whether a PrimFunc has a while loop."""
    return any(isinstance(node, tirx.While) for node, _ in walk(func.body))


# ---- what it reads and writes --------------------------------------------------------------


def require_order(func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed where the first argument is written and the last one is not."""
    written = {store.buffer.name for store, _ in stores(func)}
    one, other = func.params[0].name, func.params[-1].name
    if one in written and other not in written:
        raise CheckFailed(_("the arguments in the order X, Y"),
                          _("the first argument, {one}, is written, and the last, {other}, is "
                            "not").format(one=one, other=other))


def require_first_values(func: tvm.tirx.PrimFunc, name: str) -> None:
    """Raise CheckFailed where a store reads the element it writes before any store that does not.

    In program order; a T.init comes before its sblock's body, an `if vk == 0` before what follows.
    Of elements at other indices a run says more: it starts from NaN.
    """
    written = {param.name for param in func.params[:-1]}
    earlier, last = set(written), None  # what other sblocks wrote before this one
    for store, place in walk(func.body):
        if not isinstance(store, tirx.BufferStore):
            continue
        buffer, block = store.buffer.name, place.block
        if block is None or last is None or not block.same_as(last):
            earlier, last = set(written), block
        # what is done under a condition may have been done before under another
        adds = not place.guards and any(
            access.buffer.name == buffer and not access.place.guards
            and structural_equal(access.indices, store.indices) for access in loads(store.value))
        for axis in block.iter_vars if adds and block and block.init else ():
            if is_reduction(axis) and constant(axis.dom.extent) != 1 \
                    and buffer not in earlier and axis.var in variables(store.indices) \
                    and all(structural_equal(first.indices, store.indices)
                            for first, _place in walk(block.init)
                            if isinstance(first, tirx.BufferStore)):
                raise CheckFailed(_("every element to have an initial value"),
                                  _("{axis} is a reduction axis of sblock {place} of {name}: "
                                    "T.init runs only where it is 0, and {buffer} is written at "
                                    "each {axis}").format(axis=axis.var.name, place=block.name_hint,
                                                          name=name, buffer=buffer))
        if adds and buffer not in written:
            says = _("T.init of sblock {place} of {name} reads {buffer} itself, and nothing was "
                     "written into {buffer} before") if place.init else _(
                "{name} computes {buffer} of {buffer} itself in sblock {place}, and nothing was "
                "written into {buffer} before")
            raise CheckFailed(_("every element to have an initial value"),
                              says.format(name=name, buffer=buffer,
                                          place=block.name_hint if block else "root"))
        written.add(buffer)


# ---- running -------------------------------------------------------------------------------


def require_inside_buffers(mod: tvm.IRModule) -> None:
    """Raise CheckFailed where a PrimFunc leaves a buffer or its threads race (static, no run)."""
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            require_safe_access(variable.name_hint, func)


class Uncompiled(CheckFailed):
    """What TVM says of a PrimFunc that it does not compile."""


@functools.lru_cache(2)
def _compiled(func: tvm.tirx.PrimFunc) -> Callable:
    """Compile a PrimFunc, the same two only once: a search runs them on many inputs."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    require_inside_buffers(mod)
    try:
        return tvm.compile(mod, target=QUICK)["main"]
    except Exception as error:  # TVM raises many kinds here
        raise Uncompiled(_("a program that compiles"), reason(error)) from None


class Misuse(CheckFailed):
    """What a program did that none may do: an index outside, a read of what nobody wrote."""

    @classmethod
    def unwritten(cls, buffer: str, index: Iterable[int], others: int) -> Self:
        """Return what to say of the first element that is not written, and of so many others."""
        place = f"{buffer}{list(map(int, index))}"
        return cls(_("every element of {buffer} to be written").format(buffer=buffer),
                   (_("{place} is not written, nor {count} others") if others
                    else _("{place} is not written")).format(place=place, count=others))


def run_prim_func(func: tvm.tirx.PrimFunc, arrays: Sequence[np.ndarray],
                  shape: Sequence[int]) -> np.ndarray:
    """Compile a PrimFunc and run it on float32 arrays and an output filled with NaN.

    It runs twice: with one thread on arrays that end where memory ends, and with several threads
    on arrays that begin where it begins. Raises CheckFailed where that gives different numbers,
    where an input changes, or where something is written beside an array; Uncompiled where TVM
    refuses it; Misuse where something is left out.
    """
    main, title = _compiled(func), _("the PrimFunc")
    (once,), (again,) = (
        run_fenced(main, arrays, [np.full(shape, np.nan, "float32")], title),
        run_fenced(lambda *given: several_threads(functools.partial(main, *given)), arrays,
                   [np.full(shape, 1e30, "float32")], title, at_start=True))
    if len(left := np.argwhere(np.isnan(once) & (again == np.float32(1e30)))):
        output = func.params[-1]
        if not any(access.buffer.name == output.name and not access.writes
                   for node, place in walk(func.body) for access in accesses(node, place)):
            raise Misuse.unwritten(output.name, left[0], len(left) - 1)
        raise Misuse(_("every element to have an initial value"),
                     _("{place} holds what it held before, and {count} others too").format(
                         place=f"{output.name}{list(map(int, left[0]))}", count=len(left) - 1))
    if not np.isnan(once).any() and not np.allclose(once, again, 1e-4, 1e-4, equal_nan=True):
        at = tuple(np.argwhere(~np.isclose(once, again, 1e-4, 1e-4))[0])
        raise CheckFailed(_("the same numbers from every run"), _("{once}, then {again}").format(
            once=f"{once[at]:.9g}", again=f"{again[at]:.9g}"))
    return once
