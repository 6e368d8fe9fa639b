"""Library functions: the registry, calls by hand, and functions that note how they are called."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from course.checks.observe.memory import Fenced
from course.checks.run.answer import line_of_answer
from course.checks.run.check import while_calling
from course.checks.say.messages import CheckFailed, reason, where
from course.words import _


class Misused(CheckFailed):
    """What a library function does, or is given, on some input, that must not be."""


def env_names() -> list[str]:
    """Return the names of all functions in the registry that begin with env."""
    return [name for name in tvm_ffi.registry.list_global_func_names() if name.startswith("env.")]


@contextlib.contextmanager
def registry(keep: bool = False, **functions: Callable) -> Iterator[None]:
    """Put functions into the registry (conv2d=f is env.conv2d); afterwards it is as it was.

    Every other env.* is taken out meanwhile unless `keep`, so that nothing stale can pass.
    """
    before = {name: tvm.get_global_func(name) for name in env_names()}
    try:
        for name in () if keep else before:
            tvm_ffi.registry.remove_global_func(name)
        for name, function in functions.items():
            tvm.register_global_func(f"env.{name}", function, override=True)
        yield
    finally:
        for name in env_names():
            tvm_ffi.registry.remove_global_func(name)
        for name, function in before.items():
            tvm.register_global_func(name, function)


def registered(register: Callable, name: str) -> Callable:
    """Return what an answer registers as `name`; it runs twice, as cells of a notebook do.

    Raises CheckFailed where that name is not registered, or not a second time, when another
    function has it: an earlier version of the answer's, say.
    """
    before = set(tvm_ffi.registry.list_global_func_names())
    register()
    found = tvm.get_global_func(name, allow_missing=True)
    if found is None:
        new = sorted(set(tvm_ffi.registry.list_global_func_names()) - before)
        raise CheckFailed(_("a function registered as {name}").format(name=name),
                          _("no such name; new names: {names}").format(
                              names=", ".join(new) or _("none")))
    earlier = tvm.register_global_func(name, lambda *_arrays: None, override=True)
    try:
        register()
    except RuntimeError as error:
        raise CheckFailed(_("a function that can run twice, as cells do"), reason(error)) from None
    if (found := tvm.get_global_func(name)).same_as(earlier):
        raise CheckFailed(_("the new function registered as {name}, where another has the name"
                            ).format(name=name), _("the other one still has it"))
    return found


def run_library(function: Callable, name: str, out: tuple[int, ...],
                **inputs: np.ndarray) -> np.ndarray:
    """Call a library function by hand with an `out` full of NaN; return what is in `out` then.

    `out` is the shape of the float32 result. All arrays end where memory ends. Raises Misused
    where the function raises, changes an input, leaves `out` as it was or returns a value.
    """
    fenced = {key: Fenced.of(array) for key, array in inputs.items()}
    fenced["out"] = Fenced.of(np.full(out, np.nan, "float32"))
    tensors = [item.tensor for item in fenced.values()]
    while_calling(name)
    try:
        returned = function(*tensors)
    except Exception as error:  # whatever the reader's function raises
        shapes = ", ".join(f"{key} {array.shape}" for key, array in inputs.items())
        raise Misused(_("{name} to run on {shapes}, out {out}").format(
            name=name, shapes=shapes, out=out), reason(error), line_of_answer(error)) from None
    while_calling("")
    for key, item in fenced.items():
        item.require_whole(key)
    result = tensors.pop().numpy()
    for (key, array), tensor in zip(inputs.items(), tensors, strict=True):
        if not np.array_equal(tensor.numpy(), array, equal_nan=True):
            raise Misused(_("{key} to stay as it was").format(key=key),
                          _("{name} wrote into {key}").format(name=name, key=key))
    if np.isnan(result).all():
        _require_written(function, tensors, out, returned)
    if returned is not None:
        raise CheckFailed(_("{name} to return nothing").format(name=name),
                          _("out was written, and a {name} was returned").format(
                              name=type(returned).__name__))
    return result


def _require_written(function: Callable, tensors: list[Any], out: tuple[int, ...],
                     returned: Any) -> None:
    """Raise Misused where a library function left the NaN in `out`, or read it.

    If it writes NaN into an `out` full of ones too, NaN is its result.
    """
    ones = tvm.runtime.tensor(np.ones(out, "float32"))
    function(*tensors, ones)
    if np.isnan(ones.numpy()).all():
        return
    if not (ones.numpy() == 1).all():
        raise Misused(_("a result that does not depend on what out held before"),
                      _("NaN, because out was full of NaN"))
    came = _("out still holds only the NaN from before the call")
    if returned is not None:
        raise Misused(_("out to be written"),
                      _("{came}, and a value was returned").format(came=came))
    raise Misused(_("the memory of out to be written, as by np.from_dlpack(out)[...] = ..."), came)


def recording(compute: Callable[..., np.ndarray], calls: list[list[np.ndarray]],
              refused: list[list[np.ndarray]] | None = None) -> Callable:
    """Return a library function that notes its arguments and writes what `compute` gives.

    Arguments with which that raises are noted in `refused` too.
    """
    def function(*tensors: Any) -> None:
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        calls.append([array.copy() for array in arrays])
        arrays[-1][...] = np.nan
        try:
            arrays[-1][...] = compute(*arrays[:-1])
        except (ValueError, RuntimeError, TypeError):  # wrong arguments
            if refused is not None:
                refused.append(calls[-1])
    return function


def require_call(calls: list[list[np.ndarray]], name: str, **expected: tuple[int, ...]) -> None:
    """Raise CheckFailed unless `calls` is one call, with float32 arguments of these shapes."""
    if len(calls) != 1:
        raise CheckFailed(_("one call of {name} when main runs").format(name=name),
                          _("{count} calls").format(count=len(calls)),
                          f'bb.emit(relax.op.call_dps_packed("{name}", ...)), once')
    def text(shape: tuple[int, ...], dtype: Any = "float32") -> str:
        return f"{shape}" if dtype == "float32" else f"{dtype} {shape}"
    wanted = [text(shape) for shape in expected.values()]
    came = [text(array.shape, array.dtype) for array in calls[0]]
    if came == wanted:
        return
    names = [f"{key} {shape}" for key, shape in zip(expected, wanted, strict=True)]
    raise CheckFailed(_("{name} with {names}").format(name=name, names=", ".join(names)),
                      _("with {came}").format(came=", ".join(came)),
                      f'relax.op.call_dps_packed("{name}", ...)')


def require_values(name: str, came: list[np.ndarray], **expected: np.ndarray) -> None:
    """Raise Misused where a library function was given other numbers than these."""
    for (key, wanted), array in zip(expected.items(), came, strict=False):
        if (differ := array != wanted).any():
            at = tuple(np.argwhere(differ)[0])
            texts = next(both for digits in (4, 9, 17) if len(set(both := [
                f"{one[at]:.{digits}g}" for one in (array, wanted)])) > 1)
            said = (_("{value} instead of {right} at {place}, and {count} more that differ")
                    if differ.sum() > 1 else _("{value} instead of {right} at {place}"))
            raise Misused(_("{name} to be given {key} as it is").format(name=name, key=key),
                          said.format(value=texts[0], right=texts[1], place=where(differ),
                                      count=int(differ.sum()) - 1))
