"""Library functions: the registry, calls by hand, and functions that note how they are called."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import tvm
import tvm_ffi

from checks.observe.memory import Fenced
from checks.run.answer import line_of_answer
from checks.run.check import while_calling
from checks.say.messages import CheckFailed, reason


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

    Raises CheckFailed where that name is not registered, or not a second time.
    """
    before = set(tvm_ffi.registry.list_global_func_names())
    register()
    found = tvm.get_global_func(name, allow_missing=True)
    if found is None:
        new = sorted(set(tvm_ffi.registry.list_global_func_names()) - before)
        raise CheckFailed(f"a function registered as {name}",
                          f"{', '.join(new) or 'nothing new'} in the registry",
                          "the name in register_global_func, letter by letter")
    try:
        register()
    except RuntimeError as error:
        raise CheckFailed("that it can run twice, as cells do", reason(error),
                          "override=True in register_global_func") from None
    return found


def run_library(function: Callable, name: str, out: tuple[int, ...],
                **inputs: np.ndarray) -> np.ndarray:
    """Call a library function by hand with an `out` full of NaN; return what is in `out` then.

    `out` is the shape of the float32 result. All arrays end where memory ends. Raises CheckFailed
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
        raise CheckFailed(f"{name} to run on {shapes}, out {out}", reason(error),
                          line_of_answer(error)) from None
    while_calling("")
    for key, item in fenced.items():
        item.require_whole(key)
    result = tensors.pop().numpy()
    written = not np.isnan(result).all()
    for (key, array), tensor in zip(inputs.items(), tensors, strict=True):
        if not np.array_equal(tensor.numpy(), array, equal_nan=True):
            if not written:
                raise CheckFailed(f"that {key} stays as it was, and out is written",
                                  f"{name} wrote into {key}, and not into out, its last argument",
                                  f"the order of the arguments: {', '.join(inputs)}, out")
            raise CheckFailed(f"that {key} stays as it was", f"{name} wrote into {key}",
                              "the destination: only out may be written")
    if not written:
        _refuse_unwritten(function, tensors, out, returned)
    if returned is not None:
        raise CheckFailed(f"that {name} returns nothing", "out was written, and a "
                          f"{type(returned).__name__} was returned",
                          "the return statement: nobody takes the value")
    return result


def _refuse_unwritten(function: Callable, tensors: list[Any], out: tuple[int, ...],
                      returned: Any) -> NoReturn:
    """Raise CheckFailed: a library function left the NaN in `out`, or read it."""
    came = "out still holds only the NaN from before the call"
    if returned is not None:
        raise CheckFailed("that out is written", f"{came}, and a value was returned",
                          "the return statement: nobody takes the value, write it into out")
    ones = tvm.runtime.tensor(np.ones(out, "float32"))
    function(*tensors, ones)
    if not (ones.numpy() == 1).all():
        raise CheckFailed("a result that does not depend on what out held before", "NaN, for "
                          "out was full of NaN", "what reads out, as += does, before anything "
                          "is written there: start with out[...] = 0")
    raise CheckFailed("that out is written", came, "`out = ...` rebinds the name, out.numpy() "
                      "is a copy; write through np.from_dlpack(out)[...] or "
                      "torch.from_dlpack(out)")


def recording(compute: Callable[..., np.ndarray], calls: list[list[np.ndarray]]) -> Callable:
    """Return a library function that notes its arguments and writes what `compute` gives."""
    def function(*tensors: Any) -> None:
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        calls.append([array.copy() for array in arrays])
        arrays[-1][...] = np.nan
        with contextlib.suppress(ValueError, RuntimeError, TypeError):  # wrong arguments: see calls
            arrays[-1][...] = compute(*arrays[:-1])
    return function


def require_call(calls: list[list[np.ndarray]], name: str, **expected: tuple[int, ...]) -> None:
    """Raise CheckFailed unless `calls` is one call, with float32 arguments of these shapes."""
    if len(calls) != 1:
        raise CheckFailed(f"one call of {name} when main runs", f"{len(calls)} calls",
                          f'bb.emit(relax.op.call_dps_packed("{name}", ...)), once')
    def text(shape: tuple[int, ...], dtype: Any = "float32") -> str:
        return f"{shape}" if dtype == "float32" else f"{dtype} {shape}"
    wanted = [text(shape) for shape in expected.values()]
    came = [text(array.shape, array.dtype) for array in calls[0]]
    if came == wanted:
        return
    if sorted(came) == sorted(wanted):
        hint = "the order of the arguments in call_dps_packed"
    elif len(came) != len(wanted):
        hint = f"the tuple of arguments: {', '.join(list(expected)[:-1])}; out is added by TVM"
    elif came[:-1] == wanted[:-1]:
        hint = "the TensorType in call_dps_packed: it is the shape and dtype of out"
    else:
        hint = "the constants: relax.const(array, \"float32\"), and the shape of each array"
    names = [f"{key} {shape}" for key, shape in zip(expected, wanted, strict=True)]
    raise CheckFailed(f"{name} with {', '.join(names)}", f"with {', '.join(came)}", hint)


def require_values(name: str, came: list[np.ndarray], **expected: np.ndarray) -> None:
    """Raise CheckFailed where a library function was given other numbers than these."""
    for (key, wanted), array in zip(expected.items(), came, strict=False):
        if not np.array_equal(array, wanted):
            raise CheckFailed(f"{name} to be given {key} as it is", "other numbers of its shape",
                              f"the constants and variables in the call of {name}")
