"""What stands behind the exercises' check cells.

A check prints one line with a tick, or raises CheckFailed: what was expected, what came, what to
look at. It tests properties, never equality with our solution, so that every right answer passes.
A named cause is verified: the check recomputes the result with that mistake and names it only if
that gives what came. Checks run in a forked child where the system allows it, so that an answer
that crashes or never ends costs the reader's kernel nothing.
"""

import contextlib
import functools
import io
import itertools
import linecache
import multiprocessing
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import nn
from torch.nn import functional as F
from tvm import relax, te, topi

import helpers

RTOL, ATOL, ATOL_PROBABILITIES = 1e-4, 1e-4, 1e-7


class CheckFailed(helpers.CourseError):
    """What an exercise's check has to say: expected, came, look at."""

    def __init__(self, expected: str, came: str = "", look_at: str = "", title: str = "") -> None:
        self.parts = (expected, came, look_at)
        lines = [title] if title else []
        lines += [f"  {label:9} {text}" for label, text in
                  zip(("expected:", "came:", "look at:"), self.parts, strict=True) if text]
        super().__init__("\n".join(lines) if came else f"{title}{expected}")


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
            break
    return f"{name}: {text.removeprefix(f'{name}: ')[:300]}"


def _line_of_answer(error: BaseException) -> str:
    """Return the reader's line that raised, as "look at" text."""
    own = {helpers.__file__, __file__}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename not in own and "ipykernel" in frame.filename \
                and (line := linecache.getline(frame.filename, frame.lineno or 0).strip()):
            return f"your line {frame.lineno}: {line}"
    return "your cell above, from its first line"


def _outcome(run: Callable[[], str]) -> tuple[bool, Any]:
    """Run a check: (True, what was verified) or (False, the parts of a CheckFailed)."""
    try:
        return True, run()
    except CheckFailed as failed:
        return False, failed.parts
    except NotImplementedError as error:
        name = traceback.extract_tb(error.__traceback__)[-1].name
        return False, (f"not done yet: write the code at the TODO of {name}, then run both cells.",
                       "", "")
    except (SystemExit, KeyboardInterrupt) as error:
        return False, ("that your code runs to its end", type(error).__name__,
                       _line_of_answer(error))
    except Exception as error:  # whatever the reader's code raises is to be shown in one line
        return False, ("that your code runs", reason(error), _line_of_answer(error))


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

    Linux: in a forked child with a time limit. Elsewhere in this process: fork is not safe beside
    macOS' frameworks, and there the static checks stand alone.
    """
    if sys.platform != "linux":
        return _outcome(run)
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(run, send), daemon=True)
    with warnings.catch_warnings():  # Python 3.12 warns of fork beside threads; measured safe here
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    send.close()
    try:
        if not receive.poll(seconds):
            return False, ("an answer in time", f"still running after {seconds:g} seconds",
                           "your loops: does each end, and does each count what it should?")
        passed, parts, printed = receive.recv()
    except EOFError:
        child.join()
        name = signal.Signals(-child.exitcode).name if child.exitcode < 0 else child.exitcode
        return False, ("that your code runs to its end", f"it ended the process ({name})",
                       "reads and writes outside a buffer: every index against its shape")
    finally:
        child.kill()
        child.join()
        receive.close()
    if printed:
        print(printed, end="")
    return passed, parts


def exercise(number: str, seconds: float = 30) -> Callable:
    """Make a check of a function that returns what it verified or raises CheckFailed."""
    def wrap(check: Callable[..., str]) -> Callable[..., None]:
        @functools.wraps(check)
        def run(*answers: Any) -> None:
            passed, parts = isolated(lambda: check(*answers), seconds)
            if not passed:
                mark = f"Exercise {number} ✗\n" if parts[1] else f"Exercise {number} is "
                raise CheckFailed(*parts, title=mark.rstrip("\n") if parts[1] else mark)
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


# ---- a whole model against PyTorch ---------------------------------------------------------


def _kernel(value: Any) -> str:
    """Name what computes a binding: the PrimFunc or library function that is called."""
    if not isinstance(value, relax.Call):
        return type(value).__name__
    called = [value.args[0]] if len(value.args) else []
    for callee in [*called, value.op]:  # call_tir and call_dps_packed have it as first argument
        for attribute in ("name_hint", "global_symbol", "name"):
            if isinstance(name := getattr(callee, attribute, None), str) \
                    and not isinstance(callee, relax.Var):
                return name
    return "Call"


def intermediate_values(mod: tvm.IRModule, images: np.ndarray) -> list[tuple[str, str, np.ndarray]]:
    """Run `main` and return (variable, kernel, value) of every tensor that it binds, in order."""
    plain = relax.transform.ToNonDataflow()(mod)
    main = plain["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings
                if isinstance(binding.var.ty, relax.TensorType)]
    # what main returns goes last, also where something else was bound after it
    bindings += [binding for binding in bindings[:-1] if binding.var.same_as(main.body.body)]
    outputs = relax.Tuple([binding.var for binding in bindings])
    every = relax.Function(main.params, relax.SeqExpr(main.body.blocks, outputs),
                           relax.TupleType([binding.var.ty for binding in bindings]),
                           is_pure=main.is_pure).with_attr("global_symbol", "main")
    functions = {variable: func for variable, func in plain.functions_items()
                 if variable.name_hint != "main"}
    everything = tvm.IRModule({**functions, plain.get_global_var("main"): every})
    values = helpers.build(everything)["main"](tvm.runtime.tensor(images))
    return [(binding.var.name, _kernel(binding.value), value.numpy())
            for binding, value in zip(bindings, values, strict=True)]


def _is_layer(a: np.ndarray, b: np.ndarray, layer: nn.Module) -> bool:
    """Whether `a` holds the layer's values `b`, up to a permutation of the axes.

    Probabilities are compared by their logarithms: they are nearly one-hot, so that unequal ones
    pass an absolute tolerance. A flattened tensor has to have its exact order.
    """
    if isinstance(layer, nn.Softmax):
        with np.errstate(all="ignore"):
            return a.shape == b.shape and np.allclose(np.log(np.maximum(a, 1e-30)),
                                                      np.log(np.maximum(b, 1e-30)), 0, 1e-3)
    if a.shape == b.shape and np.allclose(a, b, RTOL, ATOL):
        return True
    if isinstance(layer, nn.Flatten) or a.ndim != b.ndim or sorted(a.shape) != sorted(b.shape):
        return False
    return any(np.allclose(a.transpose(axes), b, RTOL, ATOL)
               for axes in itertools.permutations(range(a.ndim))
               if tuple(a.shape[i] for i in axes) == b.shape
               and not (a.ndim == 4 and axes[2] > axes[3]))  # height and width exchanged: wrong


def _layer_mistakes(layer: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], torch.Tensor]]:
    """For each usual mistake, a function that computes what this layer gives with it."""
    match layer:
        case nn.Conv2d(weight=w, bias=b):
            def conv(w=w, b=b, **changes) -> torch.Tensor:
                given = {name: getattr(layer, name) for name in
                         ("stride", "padding", "dilation", "groups")}
                return F.conv2d(x, w, b, **given | changes)

            def along_width() -> torch.Tensor:
                plain = conv(b=None)
                return plain + b.repeat(plain.shape[3] // len(b) + 1)[:plain.shape[3]]

            bias = {} if b is None else {
                "the bias of the convolution is left out": lambda: conv(b=None),
                "the bias of the convolution is added twice": lambda: conv(b=2 * b),
                "the bias is added along the width instead of the channels": along_width}
            return bias | {
                "the kernel is flipped (a deep-learning conv2d does not)":
                    lambda: conv(w.flip(2, 3)),
                "the kernel's height and width are exchanged": lambda: conv(w.transpose(2, 3)),
                "padding is 1": lambda: conv(padding=1), "padding is 0": lambda: conv(padding=0),
                "the stride is 2": lambda: conv(stride=2),
                "the stride is 1": lambda: conv(stride=1)}
        case nn.ReLU():
            return {"the ReLU is left out": lambda: x}
        case nn.MaxPool2d(kernel_size=size, stride=stride):
            return {"average pooling instead of max pooling": lambda: F.avg_pool2d(x, size, stride)}
        case nn.Flatten():
            return {"flattened as NHWC instead of NCHW": lambda: x.permute(0, 2, 3, 1).flatten(1)}
        case nn.Linear(weight=w, bias=b):
            bias = {} if b is None else {
                "the bias of the linear layer is left out": lambda: F.linear(x, w),
                "the bias of the linear layer is added twice": lambda: F.linear(x, w, 2 * b)}
            return bias | {"the weight is reshaped where it should be transposed":
                           lambda: F.linear(x, w.reshape(w.shape[::-1]).T, b)}
        case nn.Softmax():
            return {"the softmax is left out": lambda: x,
                    "softmax runs over axis 0 (the batch) instead of axis 1": lambda: x.softmax(0),
                    "log_softmax instead of softmax": lambda: x.log_softmax(1)}
    return {}


def diagnose(mod: tvm.IRModule, model: nn.Sequential, images: np.ndarray) -> CheckFailed:
    """Find the first layer whose values are nowhere in the module, and why.

    A layer that is not found is excused if a later one is: a fused kernel, or a convolution whose
    bias is added afterwards, has no binding of its own. A cause is named only if recomputing with
    it gives the module's final values, or values that the next layer goes on with.
    """
    found = intermediate_values(mod, images)
    if not found:
        return CheckFailed("operators in main", "no tensor that it computes", "bb.emit_te")
    layers, reference = list(model), [torch.from_numpy(images)]
    with torch.no_grad():
        for layer in layers:
            reference.append(layer(reference[-1]))
    for name, kernel, value in found:
        if np.isnan(value).any():
            return CheckFailed("finite numbers", f"NaN in {name} {value.shape}, which {kernel} "
                               "computes", f"{kernel}: is every element of its output written?")
    good, after = 0, 0  # layers matched, bindings used up
    for number, (layer, values) in enumerate(zip(layers, reference[1:], strict=True), start=1):
        for position, (_, _, value) in enumerate(found):
            if position >= after and _is_layer(value, values.numpy(), layer):
                good, after = number, position
                break
    if good == len(layers) and _is_layer(found[-1][2], reference[-1].numpy(), layers[-1]):
        return CheckFailed("PyTorch's values within the tolerance", "values close to them",
                           "the order of the axes that main returns, and the precision")
    if good == len(layers):  # every layer is there, so main returns something else
        return CheckFailed(f"that main returns layer {good - 1}, {type(layers[-1]).__name__}",
                           "this layer is computed, but main returns another value",
                           "bb.emit_output and bb.emit_func_output: which variable do they get?")
    later = [value for _, _, value in found[after + 1 if good else 0:]] + [found[-1][2]]
    cause, index, mistaken = _cause(layers, reference, good, later, found[-1][2])
    layer, values = layers[index], reference[index + 1].numpy()
    rest = found[after + (good > 0):] or found[-1:]
    near = [item for item in rest if mistaken is not None
            and _is_layer(item[2], mistaken.numpy(), layer)] or \
        [item for item in rest if item[2].shape == values.shape]
    name, kernel, value = min(near or found[-1:], key=lambda item: float(
        np.abs(item[2] - values).max()) if item[2].shape == values.shape else np.inf)
    came = f"no value like it; nearest is {name} {value.shape} from {kernel}"
    if value.shape == values.shape:
        difference = np.abs(value - values)
        came += f": max |difference| {difference.max():.2g}"
        wrong = sorted({int(i) for i in np.argwhere(~np.isclose(value, values, RTOL, ATOL))[:, 0]})
        if wrong:
            came += f" in image{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))} of the batch"
    expected = f"layer {index}, {type(layer).__name__}, {values.shape}, as in PyTorch"
    return CheckFailed(expected, came, cause or f"{kernel}: its arguments and its output shape")


def _cause(layers: list[nn.Module], reference: list[torch.Tensor], good: int,
           later: list[np.ndarray], final: np.ndarray) -> tuple[str, int, torch.Tensor | None]:
    """Return the verified cause ("" if unknown), its layer's index, and the mistaken value."""
    partly, half = "", None
    with torch.no_grad():
        for index in range(good, len(layers)):
            for mistake, compute in _layer_mistakes(layers[index], reference[index]).items():
                try:
                    value = compute()
                    rest = [value]
                    for layer in layers[index + 1:]:
                        rest.append(layer(rest[-1]))
                except (RuntimeError, IndexError):  # with this mistake the shapes no longer fit
                    continue
                if _is_layer(final, rest[-1].numpy(), layers[-1]):
                    return mistake, index, value
                if index == good and len(rest) > 1 and not partly \
                        and not torch.equal(rest[0], rest[1]) and all(
                        any(_is_layer(seen, wanted.numpy(), layer) for seen in later)
                        for wanted, layer in zip(rest[:2], layers[index:], strict=False)):
                    partly, half = f"{mistake}; and something after it differs too", value
    return partly, good, half


def _build(mod: Any) -> relax.VirtualMachine:
    """Check an IRModule and build it, with a message in words where that fails."""
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed("an IRModule", type(mod).__name__, "what your function returns: bb.get()")
    names = [variable.name_hint for variable in mod.get_global_vars()]
    if "main" not in names:
        raise CheckFailed("a function named main", f"functions {names}", 'bb.function("main", [x])')
    refuse_out_of_bounds(mod)
    try:
        relax.analysis.well_formed(mod)  # builds may pass without it: a forgotten emit_output does
    except Exception as error:  # TVM raises many kinds here
        raise CheckFailed("a well-formed IRModule", reason(error),
                          "the shapes of the calls, and bb.emit_output for what leaves the block"
                          ) from None
    try:
        return helpers.build(mod)
    except Exception as error:  # TVM raises many kinds here
        if "Cannot find ffi::Function" in str(error):
            raise CheckFailed("that every library function is registered", reason(error),
                              "the name in register_global_func and the name that is called"
                              ) from None
        raise CheckFailed("a module that builds", reason(error),
                          "the call that this message speaks of") from None


def check_same(mod: Any, model: nn.Sequential, loader: Iterable) -> str:
    """Return what was verified about a module against PyTorch, or raise CheckFailed."""
    if not isinstance(model, nn.Sequential):
        raise CheckFailed("a nn.Sequential as the second argument", type(model).__name__,
                          "the order of the arguments: mod, torch_model, test_loader")
    random_in_training = nn.modules.dropout._DropoutNd | nn.modules.batchnorm._NormBase
    if any(isinstance(layer, random_in_training) and layer.training for layer in model.modules()):
        raise CheckFailed("a model in evaluation mode", "one that is training",
                          "torch_model.eval() before the comparison")
    machine = _build(mod)
    atol = ATOL_PROBABILITIES if isinstance(model[-1], nn.Softmax) else ATOL
    images_seen = batches = right = right_torch = 0
    largest = 0.0
    for images, labels in loader:
        with torch.no_grad():
            expected = model(images).numpy()
        try:
            output = machine["main"](tvm.runtime.tensor(images.numpy()))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(f"main to take float32 {tuple(images.shape)}", reason(error),
                              "the shape and dtype of x, how many parameters main has, and whether "
                              "the batches of the loader have the module's size") from None
        if not hasattr(output, "numpy") and len(output) != 1:
            raise CheckFailed("one output", f"a tuple of {len(output)}", "what main returns")
        came = helpers.to_numpy(output)
        if came.shape != expected.shape or came.dtype != expected.dtype:
            raise CheckFailed(f"an output of {expected.dtype} {expected.shape}",
                              f"{came.dtype} {came.shape}",
                              "which variable is emitted as the output, and the last layers")
        if not np.allclose(came, expected, RTOL, atol):
            raise diagnose(mod, model, images.numpy())
        largest = max(largest, float(np.abs(came - expected).max()))
        images_seen, batches = images_seen + len(labels), batches + 1
        if came.ndim == 2:
            right += int((came.argmax(1) == labels.numpy()).sum())
            right_torch += int((expected.argmax(1) == labels.numpy()).sum())
    if not batches:
        raise CheckFailed("images to compare", "a loader without batches", "the loader")
    verified = (f"{images_seen:,} images in {batches:,} batches: max |difference| to PyTorch below "
                f"{bound(largest, -5 if atol == ATOL_PROBABILITIES else -4)}")
    if came.ndim != 2:  # a layer and no classifier
        return verified
    return verified + (f"\nRight on {right} of {images_seen:,} images; PyTorch on {right_torch}")


def check_equivalence(mod: tvm.IRModule, torch_model: nn.Sequential, test_loader: Iterable) -> None:
    """Compare an IRModule with a PyTorch model on every batch, and say where they part.

    `main` takes a batch as the loader gives it and returns what the model returns: rtol 1e-4, and
    atol 1e-7 for probabilities, 1e-4 for logits. Raises CheckFailed with the first layer that
    differs, its shape, its kernel, the largest error and, where it can be verified, the cause.
    """
    passed, parts = isolated(lambda: check_same(mod, torch_model, test_loader), 120)
    if not passed:
        raise CheckFailed(*parts, title="Not equivalent ✗")
    print(f"Equivalent ✓ {parts}")


# ---- notebook 02: emit_te -------------------------------------------------------------------


@exercise("2.1")
def exercise_2_1(leaky_relu: Callable) -> str:
    """a leaky ReLU as a tensor expression."""
    for shape, slope in [((4, 6), 0.1), ((7, 3), 2.0), ((128, 128), 0.0)]:
        x = random(*shape)
        compare(run_te(lambda a, slope=slope: leaky_relu(a, slope), x),
                np.where(x > 0, x, x * np.float32(slope)), "which of x and slope * x is chosen",
                {"the slope: a plain ReLU ignores it": lambda x=x: np.maximum(x, 0),
                 "the slope, which is applied everywhere": lambda x=x, s=slope: x * s,
                 "the larger of x and slope * x: wrong where the slope is above 1":
                     lambda x=x, s=slope: np.maximum(x, s * x),
                 "the condition, which is the wrong way round":
                     lambda x=x, s=slope: np.where(x > 0, x * s, x)})
    return "equal to NumPy for three shapes and slopes"


@exercise("2.2")
def exercise_2_2(linear: Callable) -> str:
    """a linear layer as a tensor expression."""
    for n, m, k in [(4, 5, 5), (1, 3, 8), (6, 10, 7)]:
        x, w, b = random(n, k), random(m, k, seed=1), random(m, seed=2)
        compare(run_te(linear, x, w, b), x @ w.T + b, "the index of w that runs over k",
                {"the bias: it is left out": lambda x=x, w=w: x @ w.T,
                 "the weight: it is not transposed": lambda x=x, w=w, b=b: x @ w + b,
                 "the bias: it is inside the sum, so it is added k times":
                     lambda x=x, w=w, b=b, k=k: x @ w.T + k * b,
                 "the weight: it is reshaped, not transposed":
                     lambda x=x, w=w, b=b, k=k, m=m: x @ w.reshape(k, m) + b})
    return "x W^T + b for three shapes, equal to NumPy"


@exercise("2.3")
def exercise_2_3(conv2d: Callable) -> str:
    """a convolution as a tensor expression."""
    for shape, kernel in [((4, 1, 28, 28), (32, 1, 3, 3)), ((2, 3, 9, 7), (4, 3, 2, 3))]:
        x, w = random(*shape), random(*kernel, seed=1)
        a, b = torch.from_numpy(x), torch.from_numpy(w)
        compare(run_te(conv2d, x, w), F.conv2d(a, b).numpy(), "the indices of x and of w",
                {"the kernel: it is flipped": lambda a=a, b=b: F.conv2d(a, b.flip(2, 3)),
                 "the kernel: its rows and columns are exchanged":
                     lambda a=a, b=b: F.conv2d(a, b.transpose(2, 3)),
                 "the input channels: only the first is summed":
                     lambda a=a, b=b: F.conv2d(a[:, :1], b[:, :1]),
                 "the output's shape: it is the input's height and width, padded":
                     lambda a=a, b=b: F.conv2d(
                         F.pad(a, [0, b.shape[3] - 1, 0, b.shape[2] - 1]), b)})
    return "equal to PyTorch for one and for three input channels, square and not"


@exercise("2.4")
def exercise_2_4(max_pool: Callable) -> str:
    """max pooling as a tensor expression."""
    for shape in [(4, 32, 26, 26), (2, 3, 4, 6)]:
        x = random(*shape) - np.float32(0.5)  # many windows with nothing above zero
        a = torch.from_numpy(x)
        compare(run_te(max_pool, x), F.max_pool2d(a, 2).numpy(), "where window (i, j) starts",
                {"the reduction: this is the average": lambda a=a: F.avg_pool2d(a, 2),
                 "the reduction: this is the sum": lambda a=a: 4 * F.avg_pool2d(a, 2),
                 "the windows: they overlap, their stride is 1": lambda a=a: F.max_pool2d(
                     a, 2, 1)[..., :a.shape[2] // 2, :a.shape[3] // 2],
                 "what the maximum starts from: windows below zero give 0":
                     lambda a=a: F.max_pool2d(a, 2).clamp(min=0)})
    return "equal to PyTorch for two shapes, negative windows too"


def _cnn() -> tuple[dict[str, np.ndarray], nn.Sequential]:
    weights = helpers.load_weights("cnn")
    return weights, helpers.pytorch_model(weights)


@exercise("2.5")
def exercise_2_5(create_model: Callable) -> str:
    """the CNN by emit_te."""
    weights, model = _cnn()
    mod = create_model(weights)
    verified = check_same(mod, model, helpers.test_loader())
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            operator = getattr(getattr(binding.value, "op", None), "name", "")
            if operator.startswith("relax.") and not operator.startswith("relax.call_"):
                raise CheckFailed("operators as PrimFuncs", f"{binding.var.name} is {operator}",
                                  "bb.emit_te(topi...), not bb.emit(relax.op...)")
    return f"operators as PrimFuncs. {verified}"


_SAYS = {nn.Conv2d: "convolution", nn.Linear: "linear layer"}


@exercise("2.6")
def exercise_2_6(create_model: Callable) -> str:
    """the CNN by own tensor expressions."""
    weights, model = _cnn()
    mod = create_model(weights)
    verified = check_same(mod, model, helpers.test_loader())
    images = next(iter(helpers.test_loader()))[0]
    found, value = intermediate_values(mod, images.numpy()), images
    for layer in model:
        with torch.no_grad():
            before, value = value, layer(value)
            without = _layer_mistakes(layer, before).get(
                f"the bias of the {_SAYS.get(type(layer))} is left out")
            plain = without().numpy() if without else None
        for name, kernel, came in found:
            if plain is not None and _is_layer(came, plain, layer):
                raise CheckFailed(f"the {_SAYS[type(layer)]} as one PrimFunc that takes its bias",
                                  f"{kernel} computes {name}, without the bias",
                                  "the tensor expression of this layer: x, w and b go in")
    return f"convolution and linear layers take their bias. {verified}"


# ---- notebook 01: model preparation --------------------------------------------------------


def _counted(seed: int, absent: int = -1, never: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Return a confusion matrix, and each class's recall as counted from labels and predictions.

    No image has the label `absent`, and no prediction is the class `never`.
    """
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, 500)
    labels = labels[labels != absent]
    guesses = draw.integers(0, 10, len(labels))
    predictions = np.where(draw.random(len(labels)) < 0.6, labels, guesses)
    predictions[predictions == never] = (never + 1) % 10
    confusion = np.zeros((10, 10), dtype=np.int64)
    np.add.at(confusion, (labels, predictions), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mean of nothing is NaN
        recall = [np.mean(predictions[labels == i] == i) for i in range(10)]
    return confusion, np.array(recall)


@exercise("1.1")
def exercise_1_1(per_class_recall: Callable) -> str:
    """the recall of each class."""
    for options in ({}, {"never": 6}, {"absent": 3}, {"absent": 9, "never": 0},
                    {"absent": 3, "never": 3}):
        confusion, expected = _counted(1, **options)
        diagonal, rows, columns = np.diag(confusion), confusion.sum(1), confusion.sum(0)
        look_at = "the diagonal has the right answers of each class, its row all its images"
        if not rows.all():
            look_at += "; a row of zeros: NaN"
        came = per_class_recall(confusion.copy())
        if type(came) is not np.ndarray or came.dtype == object:
            raise CheckFailed("an array of ten numbers", f"{type(came).__name__}",
                              "the return statement; np.array makes an array of a list of numbers")
        compare(came, expected, look_at, {
            "the sums: rows are labels; the column sums give the precision, not the recall":
                lambda d=diagonal, c=columns: d / c,
            "the sums: one for each row, not one for the whole matrix":
                lambda d=diagonal, r=rows: d / r.sum(),
            "a class without images: its recall is not 0 but unknown, NaN":
                lambda e=expected: np.nan_to_num(e),
            "a class that is never predicted has recall 0; NaN is for a row of zeros only":
                lambda e=expected, c=columns: np.where(c == 0, np.nan, e),
            "the largest number of a row need not be the one on the diagonal":
                lambda m=confusion, r=rows: m.max(1) / r,
            "a share between 0 and 1 is wanted, not per cent": lambda e=expected: 100 * e,
            "this is the share that is missed, 1 - recall": lambda e=expected: 1 - e,
            "the whole matrix is divided; take its diagonal":
                lambda m=confusion, r=rows: m / r[:, None],
            "keepdims makes the sums a column, so that all pairs are divided":
                lambda d=diagonal, r=rows: d / r[:, None],
        }, atol=1e-6)
    return "5 confusion matrices; NaN for a class without images, 0 for one never predicted"


def _loss_mistakes(logits: np.ndarray, labels: np.ndarray, loss: float) -> dict[str, Callable]:
    """What comes of the usual mistakes in a cross-entropy, each with a hint."""
    scores, rows, n = logits.astype(np.float64), np.arange(len(labels)), len(labels)

    def log_softmax(axis: int) -> np.ndarray:
        return torch.from_numpy(scores).log_softmax(axis).numpy()

    def with_epsilon(epsilon: float) -> float:
        return -np.log(np.exp(log_softmax(1))[rows, labels] + epsilon).mean()

    small = {f"log(probability + {e:g}): the {e:g} caps the loss; take the logarithm apart instead":
             functools.partial(with_epsilon, e)
             for e in [10.0 ** -k for k in range(5, 17)] + [float(np.finfo("float32").eps)]}
    return small | {
        "the mean over the images, not their sum": lambda: n * loss,
        "the mean is over the n images, not over all n * c logits": lambda: loss / logits.shape[1],
        "the mean over the images is left out": lambda: -log_softmax(1)[rows, labels],
        "the sign: the loss is minus the logarithm": lambda: -loss,
        "the logarithm is left out (this is what F.nll_loss made of probabilities)":
            lambda: -np.exp(log_softmax(1))[rows, labels].mean(),
        "the softmax runs over the classes, axis 1": lambda: -log_softmax(0)[rows, labels].mean(),
        "[:, labels] takes every label in every row; wanted is one logit of each row":
            lambda: -log_softmax(1)[:, labels].mean(),
        "the logarithm of the sum of exponentials is left out":
            lambda: -scores[rows, labels].mean(),
        "the logarithm to base e (np.log)": lambda: loss / np.log(2),
    }


@exercise("1.2")
def exercise_1_2(cross_entropy: Callable) -> str:
    """the cross-entropy from logits."""
    general = "minus the logit of the label plus the logarithm of the sum of exponentials, averaged"
    shift = "subtract the largest logit of a row from that row first: the loss stays the same"
    mixed = np.array([[1000], [-1000], [0], [500], [1000], [-1000]])
    lost = np.eye(10)[[2, 2, 3, 4, 5, 9]] * 1000  # the first row's label, 2, wins; others lose
    cases = [("", (6, 10), 0, general), ("", (1, 7), 0, general), ("", (5, 3), 0, general),
             (" around 1000", (6, 10), 1000, f"exp(1000) is inf: {shift}"),
             (" around -1000", (6, 10), -1000, f"exp(-1000) is 0, and log(0) is -inf: {shift}"),
             (" around 1000 in some rows, -1000 in others", (6, 10), mixed,
              "the largest logit has to be each row's own, not that of the whole batch"),
             (" where a wrong class is 1000 ahead", (6, 10), lost,
              "the probability has become 0, its logarithm -inf: simplify log(softmax) first")]
    for number, (words, (n, c), offset, hint) in enumerate(cases):
        logits = (3 * random(n, c, seed=number) + offset).astype("float32")
        labels = np.array([2, 1, 0, 2, 1, 2])[:n]
        loss = F.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(labels)).item()
        with np.errstate(all="ignore"), \
                _numpy_only("NumPy alone", "np.exp, np.log and sums along axis 1"):
            answer = cross_entropy(logits, labels)  # overflow shows in the result
        what = f"logits of shape {(n, c)}{words}"
        came = np.asarray(answer, dtype=np.float64)
        if came.ndim == 0 and not np.isfinite(came):
            raise CheckFailed(f"{loss:.4g} for {what}", str(answer),
                              "the return statement" if answer is None else hint)
        try:
            compare(came, np.float64(loss), hint,
                    _loss_mistakes(logits, labels, loss), atol=1e-3 if words else 1e-5)
        except CheckFailed as failed:
            raise CheckFailed(f"{failed.parts[0]} for {what}", *failed.parts[1:]) from None
    return f"{len(cases)} batches, with logits up to 1000 and down to -1000: every loss finite"


def _conv2d_mistakes(b: int, i: int, o: int, s: int, k: int, stride: int, p: int,
                     side: int) -> list[dict[str, int]]:
    """What comes of the usual mistakes in a conv2d's parameters, FLOPs and bytes, with hints."""
    one, parameters, out, taken = i * k * k, o * (i * k * k + 1), b * o * side**2, b * i * s * s
    sides = {"the padding is left out of the output's size": (s - k) // stride + 1,
             "the padding is added on both sides of the image": (s + p - k) // stride + 1,
             "the output's size: the kernel's first place counts too (+ 1)":
                 (s + 2 * p - k) // stride,
             "the output's size is rounded down: a place that sticks out is left out":
                 -(-(s + 2 * p - k) // stride) + 1,
             "the stride is left out of the output's size": s + 2 * p - k + 1}
    return [{"the bias is left out: one number for each output channel": o * one,
             "the bias has one number for each output channel, not a single one": o * one + 1,
             "every output channel has a kernel for each input channel": o * (k * k + 1),
             "the kernel has kernel * kernel numbers": o * (i * k + 1)},
            {"one multiplication and one addition are two FLOPs, not one": one * out,
             "the addition of the bias is left out: K multiplications, K - 1 + 1 additions":
                 (2 * one - 1) * out,
             "K - 1 additions join K products; the bias is one more: 2K": (2 * one + 1) * out,
             "K counts the numbers of every input channel, not of one": 2 * k * k * out,
             "every image of the batch is convolved": 2 * one * out // b,
             "the output has size * size places": 2 * one * b * o * side}
            | {hint: 2 * one * b * o * wrong**2 for hint, wrong in sides.items()},
            {"a float32 has 4 bytes": taken + parameters + out,
             "the padding is not in memory: count the image as it is":
                 4 * (b * i * (s + 2 * p)**2 + parameters + out),
             "the output is left out: it has to be written": 4 * (taken + parameters),
             "the input is left out": 4 * (parameters + out),
             "the parameters are left out": 4 * (taken + out),
             "the images of a batch share one set of parameters":
                 4 * (taken + b * parameters + out),
             "the input has a batch of images": 4 * (taken // b + parameters + out)}
            | {hint: 4 * (taken + parameters + b * o * wrong**2) for hint, wrong in sides.items()}]


@exercise("1.3")
def exercise_1_3(conv2d_cost: Callable) -> str:
    """what a convolution costs."""
    names = ("batch", "in_channels", "out_channels", "size", "kernel", "stride", "padding")
    cases = [(4, 1, 32, 28, 3, 1, 0), (2, 3, 8, 32, 5, 1, 2), (2, 3, 64, 224, 7, 2, 3),
             (3, 4, 6, 10, 3, 2, 0), (5, 6, 7, 9, 1, 1, 0), (2, 8, 4, 11, 4, 3, 1)]
    for case in cases:
        batch, inner, outer, size, kernel, stride, padding = case
        layer = nn.Conv2d(inner, outer, kernel, stride, padding, device="meta")  # shapes, no data
        outputs = layer(torch.empty(batch, inner, size, size, device="meta"))
        numbers = sum(parameter.numel() for parameter in layer.parameters())
        expected = (numbers, 2 * inner * kernel**2 * outputs.numel(),
                    4 * (batch * inner * size**2 + numbers + outputs.numel()))
        came = conv2d_cost(*case)
        if not isinstance(came, tuple | list) or len(came) != 3:
            raise CheckFailed("a tuple of three ints: parameters, FLOPs, bytes", repr(came)[:80],
                              "the return statement")
        if tuple(came) != expected and all(isinstance(value, int | np.integer) for value in came) \
                and sorted(came) == sorted(expected):
            raise CheckFailed("(parameters, FLOPs, bytes)", str(tuple(came)),
                              "the order of the three")
        mistakes = _conv2d_mistakes(*case, side=outputs.shape[-1])
        for what, value, right, known in zip(("parameters", "FLOPs", "bytes"), came, expected,
                                             mistakes, strict=True):
            if not isinstance(value, int | np.integer):
                raise CheckFailed(f"an int for {what}", f"{value!r}, a {type(value).__name__}",
                                  "division: / gives a float, // an int")
            if value != right:
                hint = next((text for text, wrong in known.items() if wrong == value),
                            f"what this sum for the {what} leaves out or counts twice")
                given = ", ".join(f"{n}={v}" for n, v in zip(names, case, strict=True))
                raise CheckFailed(f"{right:,} {what} for {given}", f"{value:,}", hint)
    return f"{len(cases)} convolutions with stride 1 to 3 and padding 0 to 3, every number exact"


# ---- notebook 03: library functions --------------------------------------------------------


def _env_names() -> list[str]:
    return [name for name in tvm_ffi.registry.list_global_func_names() if name.startswith("env.")]


@contextlib.contextmanager
def _registry(keep: bool = False, **functions: Callable) -> Iterator[None]:
    """Put functions into the registry (conv2d=f is env.conv2d); afterwards it is as it was.

    Every other env.* is taken out meanwhile unless `keep`, so that nothing stale can pass.
    """
    before = {name: tvm.get_global_func(name) for name in _env_names()}
    try:
        for name in () if keep else before:
            tvm_ffi.registry.remove_global_func(name)
        for name, function in functions.items():
            tvm.register_global_func(f"env.{name}", function, override=True)
        yield
    finally:
        for name in _env_names():
            tvm_ffi.registry.remove_global_func(name)
        for name, function in before.items():
            tvm.register_global_func(name, function)


def _registered(register: Callable, name: str) -> Callable:
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


def _run_library(function: Callable, name: str, out: tuple[int, ...],
                 **inputs: np.ndarray) -> np.ndarray:
    """Call a library function by hand with an `out` full of NaN; return what is in `out` then."""
    tensors = [tvm.runtime.tensor(array) for array in inputs.values()]
    destination = tvm.runtime.tensor(np.full(out, np.nan, "float32"))
    try:
        returned = function(*tensors, destination)
    except Exception as error:  # whatever the reader's function raises
        shapes = ", ".join(f"{key} {array.shape}" for key, array in inputs.items())
        raise CheckFailed(f"{name} to run on {shapes}, out {out}", reason(error),
                          _line_of_answer(error)) from None
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


def _recording(compute: Callable[..., np.ndarray], calls: list[list[np.ndarray]]) -> Callable:
    """Return a library function that notes its arguments and writes what `compute` gives."""
    def function(*tensors: Any) -> None:
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        calls.append([array.copy() for array in arrays])
        arrays[-1][...] = np.nan
        with contextlib.suppress(ValueError, RuntimeError, TypeError):  # wrong arguments: see calls
            arrays[-1][...] = compute(*arrays[:-1])
    return function


def _check_call(calls: list[list[np.ndarray]], name: str, **expected: tuple[int, ...]) -> None:
    """Check that a recording function was called once, with float32 arguments of these shapes."""
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


def _check_values(name: str, came: list[np.ndarray], **expected: np.ndarray) -> None:
    """Check that a library function was given these numbers, and not others of their shape."""
    for (key, wanted), array in zip(expected.items(), came, strict=False):
        if not np.array_equal(array, wanted):
            raise CheckFailed(f"{name} to be given {key} as it is", "other numbers of its shape",
                              f"the constants and variables in the call of {name}")


def _linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return x @ w.T + b


def _conv2d(x: np.ndarray, w: np.ndarray, b: np.ndarray | float = 0.0) -> np.ndarray:
    return F.conv2d(torch.from_numpy(x), torch.from_numpy(w.copy())).numpy() + np.float32(b)


@exercise("3.1")
def exercise_3_1(register_relu: Callable) -> str:
    """env.relu writes max(x, 0) into out."""
    shapes = [(1, 128), (4, 3, 5, 5), (7,)]
    with _registry():
        function = _registered(register_relu, "env.relu")
        for shape in shapes:
            x = random(*shape)
            with _numpy_only("NumPy in env.relu", "np.from_dlpack and np.maximum"):
                came = _run_library(function, "env.relu", shape, x=x)
            compare(came, np.maximum(x, 0),
                    "the formula: max(x, 0), element by element", {
                        "the negative numbers: they must become 0": lambda x=x: x,
                        "the sign: this is |x|": lambda x=x: np.abs(x),
                        "np.minimum where np.maximum is meant": lambda x=x: np.minimum(x, 0)})
    return ("env.relu is registered, can be registered again, and writes max(x, 0) into out;\n"
            f"tried with shapes {', '.join(map(str, shapes))}")


@exercise("3.2")
def exercise_3_2(create_linear_module: Callable) -> str:
    """main(x) calls env.linear with the weight and the bias as constants."""
    for m, k in [(128, 784), (5, 3)]:
        weight, bias, x = random(m, k), random(m), random(1, k)
        calls: list[list[np.ndarray]] = []
        mod = create_linear_module(weight.copy(), bias.copy())
        with _registry(linear=_recording(_linear, calls)):
            machine = _build(mod)
            if len(mod["main"].params) != 1:
                names = ", ".join(param.name for param in mod["main"].params)
                raise CheckFailed("main with one parameter, x", f"parameters {names}",
                                  'the weight and the bias: relax.const(weight, "float32")')
            came = helpers.to_numpy(machine["main"](tvm.runtime.tensor(x)))
        _check_call(calls, "env.linear", x=(1, k), w=(m, k), b=(m,), out=(1, m))
        _check_values("env.linear", calls[0], x=x, w=weight, b=bias)
        compare(came, _linear(x, weight, bias), "which variable main returns", {
            "the bias: it is 0 in the call, or taken off again":
                lambda x=x, w=weight: x @ w.T,
            "the bias: env.linear adds it already":
                lambda x=x, w=weight, b=bias: x @ w.T + 2 * b})
    return ("main(x) calls env.linear once with x, w, b as given, and returns x @ w.T + b;\n"
            "tried with weights (128, 784) and (5, 3)")


class _TorchCalls(torch.overrides.TorchFunctionMode):
    """Notes every function of PyTorch that is called inside `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Callable, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.names.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def _numpy_only(expected: str, look_at: str) -> Iterator[None]:
    """Raise CheckFailed after the `with` if a function of PyTorch was called inside."""
    with _TorchCalls() as calls:
        yield
    if calls.names:
        raise CheckFailed(expected, f"PyTorch's {calls.names[0]} was called", look_at)


def _check_conv2d(register: Callable, watch: Callable) -> str:
    """Run env.conv2d on several shapes, inside the context `watch()`, against PyTorch."""
    cases = [((1, 1, 28, 28), (32, 1, 3, 3)), ((3, 2, 6, 6), (4, 2, 3, 3)),
             ((2, 3, 9, 7), (5, 3, 2, 4))]
    with _registry():
        function = _registered(register, "env.conv2d")
        for x_shape, w_shape in cases:
            x, w, b = random(*x_shape), random(*w_shape), random(1, w_shape[0], 1, 1)
            expected = _conv2d(x, w, b)
            with watch():
                came = _run_library(function, "env.conv2d", expected.shape, x=x, w=w, b=b)
            compare(came, expected, "the sum: over input channels, kernel rows, kernel columns", {
                "the bias: it is left out": lambda x=x, w=w: _conv2d(x, w),
                "the bias: it is added twice": lambda x=x, w=w, b=b: _conv2d(x, w, 2 * b),
                "the bias: it runs along the width, not the channels":
                    lambda x=x, w=w, b=b: _conv2d(x, w, b.reshape(1, 1, 1, -1)),
                "the bias: it runs along the height, not the channels":
                    lambda x=x, w=w, b=b: _conv2d(x, w, b.reshape(1, 1, -1, 1)),
                "the kernel is flipped (a deep-learning conv2d does not)":
                    lambda x=x, w=w, b=b: _conv2d(x, w[:, :, ::-1, ::-1], b),
                "the kernel's height and width are exchanged":
                    lambda x=x, w=w, b=b: _conv2d(x, w.swapaxes(2, 3), b),
                "the batch: every image gets the result of image 0": lambda x=x, w=w, b=b:
                    np.broadcast_to(_conv2d(x[:1], w, b), (len(x), *_conv2d(x, w, b).shape[1:])),
                "the batch: only image 0 is written": lambda x=x, w=w, b=b: np.concatenate([
                    _conv2d(x[:1], w, b), np.full_like(_conv2d(x[1:], w, b), np.nan)])})
    return "env.conv2d equals PyTorch's convolution with bias;\ntried with " + ",\n".join(
        f"x {x_shape} and w {w_shape}" for x_shape, w_shape in cases)


@exercise("3.3")
def exercise_3_3(register_conv2d: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out."""
    return _check_conv2d(register_conv2d, contextlib.nullcontext)


@exercise("3.4")
def exercise_3_4(register_conv2d_numpy: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out, without PyTorch."""
    watch = functools.partial(_numpy_only, "NumPy alone in env.conv2d",
                              "np.lib.stride_tricks.sliding_window_view, np.einsum")
    return _check_conv2d(register_conv2d_numpy, watch) + ";\nno function of PyTorch was called"


def _convolving(mod: tvm.IRModule) -> list[str]:
    """Name the PrimFuncs with a reduction in seven loops: four of the output, three of the sum."""
    return [variable.name_hint for variable, func in mod.functions_items()
            if isinstance(func, tvm.tirx.PrimFunc)
            and any(nest.reduces and len(nest.loops) >= 7 for nest in helpers.nests(func))]


def _check_library_conv2d(mod: tvm.IRModule, machine: Any, calls: list[list[np.ndarray]],
                          weights: Mapping[str, np.ndarray], images: torch.Tensor) -> None:
    """Run the CNN on one batch and check how it calls env.conv2d; `calls` is what that noted."""
    came = images.numpy()
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # check_same will tell
        came = helpers.to_numpy(machine["main"](tvm.runtime.tensor(images.numpy())))
    if not calls and (names := _convolving(mod)):
        raise CheckFailed("the convolution by env.conv2d", "env.conv2d is not called, PrimFunc "
                          f"{names[0]} convolves", "bb.emit(relax.op.call_dps_packed(...)) in "
                          "place of bb.emit_te for the convolution")
    if calls:
        _check_call(calls, "env.conv2d", x=(4, 1, 28, 28), w=(32, 1, 3, 3), b=(1, 32, 1, 1),
                    out=(4, 32, 26, 26))
        _check_values("env.conv2d", calls[0], x=images.numpy(), w=weights["conv2d_weight"],
                      b=weights["conv2d_bias"].reshape(1, 32, 1, 1))
    twice = helpers.pytorch_model({**weights, "conv2d_bias": 2 * weights["conv2d_bias"]})
    with torch.no_grad():
        if _is_layer(came, twice(images).numpy(), twice[-1]):
            raise CheckFailed("the bias of the convolution, once", "twice the bias",
                              "what follows env.conv2d, which adds the bias already")


@exercise("3.5", seconds=90)
def exercise_3_5(create_model_with_library_conv2d: Callable) -> str:
    """The CNN is equivalent to PyTorch and its convolution is env.conv2d."""
    (weights, model), loader = _cnn(), helpers.test_loader()
    images = next(iter(loader))[0]
    try:
        mod = create_model_with_library_conv2d({name: w.copy() for name, w in weights.items()})
    except AssertionError as error:  # TOPI's own: shapes that do not fit
        raise CheckFailed("layers whose shapes fit", reason(error), "the output type of "
                          "env.conv2d (4, 32, 26, 26), pooled (4, 32, 13, 13), flattened (4, 5408);"
                          f" it failed at {_line_of_answer(error)}") from None
    calls: list[list[np.ndarray]] = []
    factor = 1.0
    functions = {"conv2d": _recording(lambda x, w, b: factor * _conv2d(x, w, b), calls),
                 "linear": _recording(_linear, []),
                 "relu": _recording(lambda x: np.maximum(x, 0), [])}
    with _registry(keep=True, **functions):
        machine = _build(mod)
        _check_library_conv2d(mod, machine, calls, weights, images)
        verified = check_same(mod, model, loader)
        count, factor = len(calls) - 1, 0.0  # the layers after it must feel the 0
        came = helpers.to_numpy(machine["main"](tvm.runtime.tensor(images.numpy())))
    with torch.no_grad():
        expected = model[1:](torch.zeros(4, 32, 26, 26)).numpy()
    others = ", ".join(_convolving(mod)) or "none"
    if count != len(loader) or others != "none" or not np.allclose(came, expected, RTOL, ATOL):
        raise CheckFailed("that all comes from env.conv2d, called once a batch",
                          f"{count} calls in {len(loader)} batches; PrimFuncs that convolve: "
                          f"{others}",
                          "which variable the first ReLU takes")
    return ("env.conv2d is called once a batch, with x (4, 1, 28, 28), w (32, 1, 3, 3), "
            "b (1, 32, 1, 1);\nno PrimFunc convolves, and the other layers work with what it "
            f"writes\n{verified}")


# ---- notebook 04: schedules ------------------------------------------------------------------


def _same_results(before: tvm.tirx.PrimFunc, after: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed unless both PrimFuncs (inputs, output) give the same on random numbers."""
    *inputs, output = [tuple(map(int, p.shape)) for p in before.params]
    arrays = [random(*shape, seed=i) for i, shape in enumerate(inputs)]
    compare(run_prim_func(after, arrays, output), run_prim_func(before, arrays, output),
            "the results: a schedule must not change them", {})


def _moves(nest: helpers.Nest, loop: helpers.Loop) -> list[tuple[int, ...]]:
    """How the axes of a block move from one iteration of a loop to the next, each way once."""
    import plots
    steps = {other.name: np.zeros(loop.extent, np.int64) for other in nest.loops}
    steps[loop.name] = np.arange(loop.extent)
    values = np.array([np.broadcast_to(plots.index_value(value, steps), loop.extent)
                       for value in nest.realize.iter_values])
    return sorted({tuple(map(int, move)) for move in np.diff(values).T})


def _require_threads(nest: helpers.Nest, least: int) -> None:
    outer = nest.loops[0]
    if outer.kind != "parallel":
        raise CheckFailed("a parallel outermost loop", f"{outer}, around block {nest.block}",
                          "schedule.parallel: which loop does it get?")
    reductions = [int(axis.iter_type) == 2 for axis in nest.realize.block.iter_vars]
    if any(step and reduces for move in _moves(nest, outer)
           for step, reduces in zip(move, reductions, strict=True)):
        raise CheckFailed("threads that write different elements", f"the parallel loop {outer} "
                          f"moves a reduction axis of {nest.block}", "which loop is made parallel")
    if outer.extent < least:
        raise CheckFailed(f"at least {least} iterations to share", f"{outer}",
                          "the factors of the split, or fuse before parallel")


def _require_lanes(nest: helpers.Nest, what: str) -> helpers.Loop:
    inner = nest.loops[-1]
    if inner.kind != "vectorized":
        found = [str(loop) for loop in nest.loops if loop.kind == "vectorized"]
        raise CheckFailed(f"a vectorised innermost loop around {what}",
                          f"innermost is {inner}" + (f"; vectorised: {found[0]}" if found else ""),
                          "schedule.vectorize, and the order of the loops")
    return inner


def _require_decomposed(func: tvm.tirx.PrimFunc) -> None:
    for nest in helpers.nests(func):
        if nest.has_init:
            raise CheckFailed("a decomposed reduction", f"block {nest.block} still has its T.init",
                              "schedule.decompose_reduction, as the last step")


def _scheduled(apply: Callable, func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """Let an answer change a schedule of a PrimFunc, and return the PrimFunc it makes."""
    schedule = tvm.s_tir.Schedule(func, error_render_level="fast")
    apply(schedule)
    return schedule.mod["main"]


def _three_steps(shape: tuple[int, int]) -> tvm.tirx.PrimFunc:
    x = te.placeholder(shape, name="x")
    doubled = te.compute(shape, lambda i, j: x[i, j] * 2.0, name="doubled")
    shifted = te.compute(shape, lambda i, j: doubled[i, j] + 1.0, name="shifted")
    result = te.compute(shape, lambda i, j: te.max(shifted[i, j], 0.0), name="result")
    return te.create_prim_func([x, result])


def _addition(shape: tuple[int, int]) -> tvm.tirx.PrimFunc:
    a, b = (te.placeholder(shape, name=name) for name in "AB")
    return te.create_prim_func([a, b, te.compute(shape, lambda i, j: a[i, j] + b[i, j], name="C")])


def _product(n: int, m: int, depth: int) -> tvm.tirx.PrimFunc:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((depth, m), name="B")
    k = te.reduce_axis((0, depth), name="k")
    return te.create_prim_func([a, b, te.compute(
        (n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


@exercise("4.1")
def exercise_4_1(inline_all: Callable) -> str:
    """inlining two steps."""
    for shape in [(16, 16), (5, 33)]:
        before = _three_steps(shape)
        after = _scheduled(inline_all, before)
        blocks = [nest.block for nest in helpers.nests(after)]
        if len(blocks) != 1:
            raise CheckFailed("one sblock", f"{len(blocks)}: {', '.join(blocks)}",
                              f"compute_inline for {' and '.join(blocks[:-1])}")
        _same_results(before, after)
    return "one sblock, no buffer between, the same results for two shapes"


@exercise("4.2")
def exercise_4_2(schedule_add: Callable) -> str:
    """threads and lanes of an addition."""
    for shape in [(64, 128), (16, 24)]:
        before = _addition(shape)
        after = _scheduled(schedule_add, before)
        nest = next(nest for nest in helpers.nests(after) if nest.block == "C")
        for other in helpers.nests(after):
            _require_threads(other, 4)
        lanes = _require_lanes(nest, "block C")
        if lanes.extent != 8:
            raise CheckFailed("8 lanes", f"{lanes}", "the factor of the split")
        if _moves(nest, lanes) != [(0, 1)]:
            raise CheckFailed("lanes along a row, each one column on", "steps in (i, j) of "
                              f"{_moves(nest, lanes)}", "which loop is split into lanes: i or j?")
        _same_results(before, after)
    return "a parallel outermost loop, 8 lanes along a row, the same results for two shapes"


@exercise("4.3")
def exercise_4_3(schedule_matmul: Callable) -> str:
    """a matrix product with lanes and a decomposed reduction."""
    for sizes in [(32, 32, 32), (16, 64, 24)]:
        before = _product(*sizes)
        after = _scheduled(schedule_matmul, before)
        _require_decomposed(after)
        update = next(nest for nest in helpers.nests(after) if nest.reduces)
        for nest in helpers.nests(after):
            _require_threads(nest, 2)
        lanes = _require_lanes(update, "the update")
        if _moves(update, lanes) != [(0, 1, 0)]:
            raise CheckFailed("lanes along j", f"steps in (i, j, k) of {_moves(update, lanes)}",
                              "which loop is innermost and vectorised")
        _same_results(before, after)
    return "a parallel outermost loop, lanes along j, T.init apart, the same results for two shapes"


def _require_conv2d(mod: Any, original: tvm.IRModule) -> list[helpers.Nest]:
    """Raise CheckFailed with the first step that the schedule of conv2d lacks."""
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed("an IRModule", type(mod).__name__, "the return value: schedule.mod")
    before = {variable.name_hint: func for variable, func in original.functions_items()}
    after = {variable.name_hint: func for variable, func in mod.functions_items()}
    if set(before) != set(after):
        raise CheckFailed(f"functions {sorted(before)}", f"{sorted(after)}", "what you return")
    for name in before:
        if name != "conv2d" and not tvm_ffi.structural_equal(before[name], after[name]):
            raise CheckFailed("no change besides conv2d", f"{name} has changed",
                              "func_name of the blocks that you schedule")
    nests = helpers.nests(after["conv2d"])
    reducing = next(i for i, nest in enumerate(nests) if nest.reduces)
    update = nests[reducing]
    for nest in nests[:reducing]:
        if nest.block == "pad_temp":
            raise CheckFailed("no padding block", f"block {nest.block} still writes {nest.buffer}",
                              "step 2: compute_inline")
    _require_threads(update, 2)
    for nest in nests:
        _require_threads(nest, 2)
    _require_lanes(update, "the convolution")
    if not any(loop.kind == "unrolled" for loop in update.loops):
        raise CheckFailed("an unrolled loop around the lanes",
                          ", ".join(map(str, update.loops)), "step 5: unroll")
    _require_decomposed(after["conv2d"])
    return nests


@exercise("4.4")
def exercise_4_4(schedule_conv2d: Callable) -> str:
    """the conv2d inside the model, scheduled."""
    _, model = _cnn()
    original = helpers.import_model(model, (4, 1, 28, 28))
    mod = schedule_conv2d(tvm.IRModule(dict(original.functions_items())))
    _require_conv2d(mod, original)
    verified = check_same(mod, model, helpers.test_loader(count=200))
    return f"padding inlined, parallel, unrolled, vectorised, decomposed. {verified}"


@exercise("4.5")
def exercise_4_5(schedule_conv2d_with_bias: Callable) -> str:
    """the conv2d with a bias block, scheduled."""
    weights, model = _cnn()
    bias = weights["conv2d_bias"].reshape(1, 32, 1, 1)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(bb.emit_te(
                lambda x, w, b: topi.add(topi.nn.conv2d(x, w, 1, 0, 1), b), x,
                relax.const(weights["conv2d_weight"], "float32"), relax.const(bias, "float32"),
                primfunc_name_hint="conv2d"))
        bb.emit_func_output(gv)
    original = bb.get()
    mod = schedule_conv2d_with_bias(tvm.IRModule(dict(original.functions_items())))
    nests = _require_conv2d(mod, original)
    _require_lanes(nests[-1], f"block {nests[-1].block}")
    check_same(mod, nn.Sequential(model[0]), helpers.test_loader(count=40))
    return "convolution and bias block scheduled, values equal to PyTorch's on 40 images"
