"""Running a reader's answer safely, and saying in three lines what is wrong with it."""

import contextlib
import functools
import io
import linecache
import multiprocessing
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi
from tvm import te

import helpers
from checks.alarm import alarmed
from data.store import ROOT, CourseError

RTOL, ATOL, ATOL_PROBABILITIES = 1e-4, 1e-4, 1e-7


class CheckFailed(CourseError):
    """What an exercise's check has to say: expected, came, look at.

    Where `came` is a message of TVM that docs/tvm_errors.md explains, a line points there.
    """

    def __init__(self, expected: str, came: str = "", look_at: str = "", title: str = "") -> None:
        self.parts = (expected, came, look_at)
        texts = (*self.parts, explained(came))
        lines = [title] if title else []
        lines += [f"  {label:9} {text}" for label, text in
                  zip(("expected:", "came:", "look at:", "read:"), texts, strict=True) if text]
        super().__init__("\n".join(lines) if came else f"{title}{expected}")


@functools.cache
def _explanations() -> dict[str, str]:
    """Return the messages that docs/tvm_errors.md quotes in its headings, each with its link."""
    document = ROOT / "docs" / "tvm_errors.md"
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    links = {}
    for heading in re.findall(r"^### (.*)$", text.partition("## Installation")[0], re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")  # as GitHub makes it
        for words in re.findall(r"`([^`]+)`", heading):
            links[words] = f"docs/tvm_errors.md#{anchor}"
    return links


def explained(message: str) -> str:
    """Return the link into docs/ that explains a message of TVM, or ""."""
    if re.search(r"(module 'tvm[\w.]*' has no attribute|import name '\w+' from 'tvm)", message):
        return "docs/rosetta.md, which has the old names and today's"
    return next((link for words, link in _explanations().items() if words in message), "")


# ---- running answers -----------------------------------------------------------------------


def reason(error: BaseException) -> str:
    """Return the one line of a TVM or Python error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    name, text = type(error).__name__, lines[-1] if lines else "no message"
    for number, line in enumerate(lines):
        if line.startswith("Error message:"):  # a ScheduleError prints the whole module first
            first, *more = line.removeprefix("Error message: ").split(" Out of bounds memory")
            return first[:300] if more or number + 1 == len(lines) or line.endswith(".") \
                else f"{first} {lines[number + 1]}"[:300]
        if line.startswith("error: ") or "Cannot find ffi::Function" in line:
            text = line.removeprefix("error: ")  # TVMScript and the VM: details follow
            for more in lines[number + 1:]:
                if more.startswith("Traceback: "):  # of the analysis: the reason itself
                    text = more.removeprefix("Traceback: ")
            break
        if explained(line):
            text = line
            break
    return f"{name}: {text.removeprefix(f'{name}: ')[:300]}"


_cells: set[str] = set()  # the cells in which the answers were defined that are being checked


def line_of_answer(error: BaseException) -> str:
    """Return the line that raised, as "look at" text: the answer's own one, if there is one."""
    frames = [frame for frame in reversed(traceback.extract_tb(error.__traceback__))
              if "ipykernel" in frame.filename]
    for frame in [frame for frame in frames if frame.filename in _cells] or frames:
        if line := linecache.getline(frame.filename, frame.lineno or 0).strip():
            return f"your line {frame.lineno}: {line}"
    return "your cell above, from its first line"


def _outcome(run: Callable[[], str]) -> tuple[bool, Any]:
    """Run a check: (True, what was verified) or (False, the parts of a CheckFailed)."""
    try:
        return True, run()
    except CheckFailed as failed:
        return False, failed.parts
    except (SystemExit, KeyboardInterrupt) as error:
        return False, ("that your code runs to its end", type(error).__name__,
                       line_of_answer(error))
    except Exception as error:  # whatever the reader's code raises is to be shown in one line
        if isinstance(error, NotImplementedError) and not str(error):  # the stub's
            name = traceback.extract_tb(error.__traceback__)[-1].name
            return False, (f"not done yet: write the code at the TODO of {name}, then run both "
                           "cells.", "", "")
        return False, ("that your code runs", reason(error), line_of_answer(error))


def _child(run: Callable[[], str], pipe: Any) -> None:
    """Run in the forked child; never returns."""
    torch.set_num_threads(1)  # without this and the next line a forked child hangs
    tvm.get_global_func("runtime.config_threadpool")(1, 1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # TVM's C++ warnings
    printed = io.StringIO()
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        outcome = _outcome(run)
    pipe.send((*outcome, printed.getvalue()))
    os._exit(0)


def isolated(run: Callable[[], str], seconds: float) -> tuple[bool, Any]:
    """Run a check so that it can neither crash nor hang the kernel; see _outcome.

    Linux: in a forked child with a time limit. Elsewhere in this process, where a timer ends loops
    in Python: fork is not safe beside macOS' frameworks, and there nothing ends compiled loops.
    """
    late = ("an answer in time", f"still running after {seconds:g} seconds",
            "your loops: does each end, and does each count what it should?")
    if sys.platform != "linux":
        try:
            return alarmed(lambda: _outcome(run), seconds)
        except TimeoutError:
            return False, late
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(run, send), daemon=True)
    with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; measured safe here
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    send.close()
    try:
        if not receive.poll(seconds):
            return False, late
        passed, parts, printed = receive.recv()
    except EOFError:
        child.join()
        code = child.exitcode
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        memory = -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
        return False, ("that your code runs to its end", f"it ended the process ({name})",
                       "reads and writes outside a buffer: every index against its shape" if memory
                       else "what your code calls: something in it ends the process")
    finally:
        child.kill()
        child.join()
        receive.close()
    if printed:
        most = 5000  # characters: a loop that prints would fill the notebook
        print(printed[:most] + "\n... cut here\n" * (len(printed) > most), end="")
    return passed, parts


def exercise(number: str, seconds: float = 30) -> Callable:
    """Make a check of a function that returns what it verified or raises CheckFailed."""
    def wrap(check: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(check)
        def run(*answers: Any) -> None:
            _cells.clear()
            _cells.update(code.co_filename for answer in answers
                          if (code := getattr(answer, "__code__", None)))
            passed, parts = isolated(lambda: check(*answers), seconds)
            if not passed:
                raise CheckFailed(*parts, title=f"Exercise {number} {'✗' if parts[1] else 'is '}")
            print(f"Exercise {number} ✓ {parts}")
        run.__doc__ = f"Check exercise {number}: {check.__doc__}"
        return run
    return wrap


def refuse_out_of_bounds(mod: tvm.IRModule) -> None:
    """Raise CheckFailed where a PrimFunc reads or writes outside a buffer (static, no run)."""
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            try:
                tvm.s_tir.analysis.OOBChecker()(tvm.IRModule({"main": func}))
            except tvm.s_tir.ScheduleError as error:
                text = reason(error)
                index = re.search(r"index (.+?) with bounds", text)
                guarded = re.search(r"if_then_else|Select|T\.where", helpers.script(func))
                if index and (re.search(r"//|%", index[1]) or guarded and " " in index[1]):
                    continue  # the checker does not follow these; the child is there for them
                raise CheckFailed("every index inside its buffer",
                                  f"PrimFunc {variable.name_hint}: {text}",
                                  "the shapes and the index expressions of this PrimFunc") from None


def run_prim_func(func: tvm.tirx.PrimFunc, arrays: Sequence[np.ndarray],
                  shape: Sequence[int]) -> np.ndarray:
    """Compile a PrimFunc and run it on float32 arrays and an output filled with NaN."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    refuse_out_of_bounds(mod)
    output = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    tvm.compile(mod, target="llvm")["main"](*map(tvm.runtime.tensor, arrays), output)
    return output.numpy()


def to_numpy(value: Any) -> np.ndarray:
    """Return what a VirtualMachine gave, a tvm or torch tensor or a tuple of one, as an array."""
    if not hasattr(value, "numpy"):
        (value,) = value
    return value.numpy()


def run_te(describe: Callable, *arrays: np.ndarray) -> np.ndarray:
    """Run a function of te.Tensors, written without TOPI, on arrays of its inputs' shapes."""
    inputs = [te.placeholder(array.shape, name=f"input{i}") for i, array in enumerate(arrays)]
    output = describe(*inputs)
    if not isinstance(output, te.Tensor):
        raise CheckFailed("a te.Tensor as the result", type(output).__name__,
                          "the return statement: return what te.compute gives")
    stages = [output]
    for tensor in stages:
        stages.extend(tensor.op.input_tensors)  # += would make another list
        if tag := getattr(tensor.op, "tag", ""):  # te.compute sets none, TOPI's functions do
            raise CheckFailed("an expression of your own", f"one by TOPI, tagged {tag}",
                              "the words of the exercise: with te, without topi")
    if output.dtype != "float32":
        raise CheckFailed("a float32 result", f"{output.dtype}",
                          "constants and casts: write 0.0, not a NumPy number of another dtype")
    func = te.create_prim_func([*inputs, output])
    return run_prim_func(func, arrays, [int(extent) for extent in output.shape])


# ---- what an answer may call ----------------------------------------------------------------


def env_names() -> list[str]:
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
    """Run an answer that registers `name`, twice as in a notebook; return what it registered."""
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
    """Call a library function by hand with an `out` full of NaN; return what is in `out` then."""
    tensors = [tvm.runtime.tensor(array) for array in inputs.values()]
    destination = tvm.runtime.tensor(np.full(out, np.nan, "float32"))
    try:
        returned = function(*tensors, destination)
    except Exception as error:  # whatever the reader's function raises
        shapes = ", ".join(f"{key} {array.shape}" for key, array in inputs.items())
        raise CheckFailed(f"{name} to run on {shapes}, out {out}", reason(error),
                          line_of_answer(error)) from None
    for (key, array), tensor in zip(inputs.items(), tensors, strict=True):
        if not np.array_equal(tensor.numpy(), array):
            raise CheckFailed(f"that {key} stays as it was", f"{name} wrote into {key}",
                              "the destination: only out may be written")
    result = destination.numpy()
    if np.isnan(result).all():
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
    return result


class TorchCalls(torch.overrides.TorchFunctionMode):
    """Notes every function of PyTorch that is called inside `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Callable, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.names.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def numpy_only(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of PyTorch was called inside."""
    with TorchCalls() as calls:
        yield
    if calls.names:
        raise CheckFailed(expected, f"PyTorch's {calls.names[0]} was called", look_at)


# ---- comparing -----------------------------------------------------------------------------


def where(mask: np.ndarray) -> str:
    """Name the first True of a mask, as [0, 3, 1]."""
    return str([int(i) for i in np.argwhere(mask)[0]])


def compare(came: Any, expected: np.ndarray, look_at: str,
            mistakes: Mapping[str, Callable[[], Any]], atol: float = ATOL) -> None:
    """Raise CheckFailed unless `came` equals `expected` in shape, dtype and value.

    `mistakes`: hints, each with a function that computes what comes of that mistake. The hint is
    given only where that equals what came; else `look_at`.
    """
    if not isinstance(came, np.ndarray | np.generic):
        came = np.asarray(came)
    hint = look_at
    for text, compute in mistakes.items():
        with contextlib.suppress(ValueError, RuntimeError), np.errstate(all="ignore"):
            wrong = np.asarray(compute())
            if wrong.shape == came.shape and np.allclose(came, wrong, RTOL, atol, equal_nan=True):
                hint = text
                break
    if came.shape != expected.shape:
        raise CheckFailed(f"shape {expected.shape}", f"shape {came.shape}", hint)
    if came.dtype != expected.dtype:
        raise CheckFailed(f"{expected.dtype} values", f"{came.dtype}", "the dtype of the result")
    unwritten = np.isnan(came) & ~np.isnan(expected)
    if unwritten.any():
        raise CheckFailed("a number in every place", f"NaN or not written at {where(unwritten)}, "
                          f"{unwritten.mean():.0%} of all", hint)
    wrong = ~np.isclose(came, expected, RTOL, atol, equal_nan=True)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        place = f" at {where(wrong)}" if expected.ndim else ""
        many = f" there; {wrong.mean():.0%} of the values differ" if expected.ndim else ""
        raise CheckFailed(f"{expected[at]:.4g}{place}", f"{came[at]:.4g}{many}", hint)


def bound(difference: float, least: int = -5) -> str:
    """Say how large a difference is, in powers of ten and with room for other machines."""
    return f"1e{max(least, int(np.ceil(np.log10(max(difference, 1e-12) * 2))))}"


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers in [-1, 1), the same ones every time."""
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype("float32")
