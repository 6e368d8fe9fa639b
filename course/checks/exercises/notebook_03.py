"""The checks of notebook 03: library functions."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import tvm
from torch.nn import functional as F
from tvm import relax

import helpers
from course.checks.compare.mistakes import CONV2D, conv2d
from course.checks.compare.tolerance import ATOL, RTOL, random, to_numpy
from course.checks.diagnose.equivalence import build
from course.checks.exercises.models import INPUT, cnn, create, make, random_cnn, reference
from course.checks.exercises.softmax import softmax_of, softmax_spec
from course.checks.observe import libraries
from course.checks.observe.primfuncs import QUICK
from course.checks.observe.spies import require_no_tvm, require_numpy_only, require_torch
from course.checks.run.check import exercise, prepared
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.forms import is_float32, number
from course.checks.spec.spec import Cases, Spec, check, window_fits
from course.words import _


def _linear(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    # by PyTorch, which has one thread in the child; NumPy's library has several, which may wait
    return F.linear(*map(torch.from_numpy, (x, w.copy(), b.copy()))).numpy()


def _registered_softmax(function: Callable) -> Callable[..., np.ndarray]:
    written: list[np.ndarray] = []

    def run(x: np.ndarray) -> np.ndarray:
        try:
            written.append(libraries.run_library(function, "env.softmax", x.shape, x=x))
        except CheckFailed as failed:
            if not written or "NaN" not in failed.parts[1]:
                raise
            return np.full(x.shape, np.nan, "float32")  # it was written before, so it is here
        return written[-1]
    return run


@exercise("3.1", "register_softmax()", seconds=10)
def exercise_3_1(register_softmax: Callable) -> str:
    """env.softmax writes the softmax of each row into out."""
    with libraries.registry():
        count = check(softmax_spec(_registered_softmax, "x"),
                      libraries.registered(register_softmax, "env.softmax"))
    return _("env.softmax is registered, can be registered again, and writes the softmax of each\n"
             "row into out; tried with {count} arrays, scores of 1000 among them").format(
        count=count)


_Reads = list[list[int]]


@prepared
def _chains() -> list[tuple[_Reads, int]]:
    """Return what calls read, short chains first, and how many storages TVM's plan has."""
    rng = np.random.default_rng(3)
    chains: list[_Reads] = [
        [[0]], [[0], [1]], [[0], [1, 1]], [[0], [0, 1]], [[0], [1], [2]], [[0], [0, 1], [0, 2]],
        [[0], [1], [1, 2]], [[0], [0], [2, 1]], [[0], [1], [2], [3]], [[0], [1], [2], [1, 3]],
        [[0], [1], [1, 2], [3]], [[0], [1, 1], [2], [2, 3], [4]],
        [[0], [1], [1, 2], [3], [4], [3, 5]],
        [[0], [1], [2], [1], [3, 4]], [[0], [0], [1, 2], [0], [3, 4]],
        [[0], [1], [2], [3], [1, 4]],
        [[0], [1], [2], [3], [3, 2, 1, 4]], [[0], [1], [2], [1, 3], [4], [5], [4, 6]],
        [[call] for call in range(12)], [*([call] for call in range(11)), [1, 11]]]
    for length in (6, 8, 9, 10, 13, 14, 20, 25):
        reads = [[call, *(number for number in range(call) if rng.random() < 0.1)]
                 for call in range(length)]
        for later in rng.choice(np.arange(1, length - 1), length // 2, replace=False):
            reads[later].remove(later)  # the next call does not read it, a later one does
            reads[rng.integers(later + 1, length)].append(int(later))
            reads[later] = reads[later] or [0]
        chains.append(reads)
    return [(reads, _storages(reads)) for reads in sorted(chains, key=len)]


def _storages(reads: _Reads) -> int:
    """Return how many storages TVM's plan has for calls that read these tensors."""
    bb = relax.BlockBuilder()
    kind = relax.TensorType((1, 128), "float32")
    tensors: list[relax.Expr] = [relax.Var("x", kind)]
    with bb.function("main", tensors[:1]):
        with bb.dataflow():
            for numbers in reads:
                inputs = [tensors[number] for number in numbers]
                tensors.append(bb.emit(relax.op.call_dps_packed("env.any", inputs, kind)))
            result = bb.emit_output(tensors[-1])
        bb.emit_func_output(result)
    planned = tvm.transform.Sequential([
        relax.transform.ToNonDataflow(), relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory()])(bb.get())
    return helpers.script(planned).count("R.memory.alloc_storage(")


# the shortest chains come first, so that the first that is wrong is the smallest
_STORAGES = Spec(
    functools.partial(number, kind=int),
    lambda reads: next(count for chain, count in _chains() if chain == reads),
    lambda: ({"reads": reads} for reads, _n in _chains()), fits=lambda _: False)


@exercise("3.2", "storages_needed(reads)", prepare=[_chains])
def exercise_3_2(storages_needed: Callable) -> str:
    """the storages of a plan, predicted."""
    with require_no_tvm(_("a prediction, from `reads` alone"), ("StaticPlanBlockMemory",)):
        count = check(_STORAGES, storages_needed)
    return _("as many storages as in TVM's plans of {count} chains, of 1 to {most} calls, with and "
             "without\nskip connections").format(count=count, most=len(_chains()[-1][0]))


def _with_constants(answer: Callable) -> Callable[..., np.ndarray]:
    """Return a function that makes a module as a function of its input, weight and bias.

    Raises CheckFailed unless main(x) calls env.linear once, with all three, and gives a tensor.
    """
    def of(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        calls: list[list[np.ndarray]] = []
        out, failed = (1, len(weight)), None
        given = {"x": x, "w": weight.copy(), "b": bias.copy()}  # an answer may change them
        mod = answer(weight, bias)
        with libraries.registry(linear=libraries.recording(_linear, calls)):
            machine = build(mod, QUICK)
            taken = [param.ty for param in mod["main"].params]
            if len(taken) == 1 and not is_float32(taken[0], *x.shape):
                raise libraries.Misused(_("main to take x: {type}").format(
                    type=relax.TensorType(x.shape, "float32")), str(taken[0]))
            try:
                output = machine["main"](tvm.runtime.tensor(x))
            except (ValueError, TypeError, RuntimeError) as error:
                failed = libraries.Misused(_("main to run on x {shape}").format(
                    shape=f"float32 {x.shape}"), reason(error))
        if calls or not failed:
            libraries.require_call(calls, "env.linear", x=x.shape, w=weight.shape, b=bias.shape,
                                   out=out)
        if failed:
            raise failed
        if not hasattr(output, "numpy"):
            came = _("a tuple of {count}").format(count=len(output)) \
                if hasattr(output, "__len__") else type(output).__name__
            raise CheckFailed(_("one tensor {out}").format(out=out), came,
                              "bb.emit_func_output(gv)")
        libraries.require_values("env.linear", calls[0], **given)
        return output.numpy()
    return of


def _constants() -> Cases:
    sizes = [(128, 784), (5, 3), (150, 900), (1, 4), (6, 1)]
    for seed, (m, k) in enumerate([*sizes, sizes[1]]):  # with other numbers
        weight, bias, x = (random(*shape, seed=seed) for shape in [(m, k), (m,), (1, k)])
        yield {"x": x, "weight": weight, "bias": bias}


_LINEAR = Spec(_with_constants, lambda x, weight, bias: _linear(x, weight, bias), _constants,
               {"x": "1 k", "weight": "m k", "bias": "m"}, fault=libraries.Misused)


@exercise("3.3", "create_linear_module(weight, bias)")
def exercise_3_3(create_linear_module: Callable) -> str:
    """main(x) calls env.linear with the weight and the bias as constants."""
    check(_LINEAR, create_linear_module)
    return _("main(x) calls env.linear once with x, w, b as given, and returns x @ w.T + b;\n"
             "tried with weights (128, 784), (5, 3), (150, 900), (1, 4) and (6, 1)")


_CONVOLVED = [((1, 1, 28, 28), (32, 1, 3, 3)), ((3, 2, 6, 6), (4, 2, 3, 3)),
              ((2, 3, 9, 7), (5, 3, 2, 4)), ((2, 2, 30, 31), (1, 2, 5, 1)),
              ((2, 40, 4, 3), (2, 40, 4, 3)), ((1, 2, 1, 5), (3, 2, 1, 1)),
              ((34, 2, 4, 3), (35, 2, 3, 2))]


def _conv2d_cases() -> Cases:
    # the second again, with other numbers: what was kept of the first call is wrong then
    for seed, (x, w) in enumerate([*_CONVOLVED, _CONVOLVED[1]]):
        scales = ((1, 1, 1), (200, 1, 9), (1, 200, 1))[seed % 3]  # small and large ones
        given = {name: np.float32(scale) * random(*shape, seed=seed) for name, scale, shape in
                 zip("xwb", scales, (x, w, (1, w[0], 1, 1)), strict=True)}
        given["w"].flat[::5] = 0  # a kernel may have zeros, and numbers behind them
        yield given


def _require_conv2d(register: Callable, watch: Callable) -> str:
    """Compare env.conv2d with PyTorch on several shapes; it runs inside the context `watch()`."""
    def form(function: Callable) -> Callable[..., np.ndarray]:
        def run(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
            out = (len(x), len(w), *(n - k + 1 for n, k in zip(x.shape[2:], w.shape[2:],
                                                               strict=True)))
            # a simpler input, in which all is one number, shows no tensor that PyTorch multiplies
            with watch() if np.ptp(x) and np.ptp(w) else contextlib.nullcontext():
                return libraries.run_library(function, "env.conv2d", out, x=x, w=w, b=b)
        return run

    spec = Spec(form, conv2d, _conv2d_cases, {"x": "n c h v", "w": "o c p q", "b": "1 o 1 1"},
                CONV2D, least={"h": 2, "v": 2, "p": 2, "q": 2}, fits=window_fits,
                fault=libraries.Misused,
                atol=lambda given: 1e-4 * max(1, *(abs(array).max() for array in given.values())))
    with libraries.registry():
        check(spec, libraries.registered(register, "env.conv2d"))
    return _("env.conv2d equals PyTorch's convolution with bias, and returns nothing;\ntried with "
             "{shapes}").format(shapes=",\n".join(f"x {x} and w {w}" for x, w in _CONVOLVED))


@exercise("3.4", "register_conv2d()")
def exercise_3_4(register_conv2d: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out."""
    watch = functools.partial(require_torch, _("the convolution by means of PyTorch"))
    return _('{require_conv2d};\nPyTorch did the products').format(
        require_conv2d=_require_conv2d(register_conv2d, watch))


@exercise("3.5", "register_conv2d_numpy()")
def exercise_3_5(register_conv2d_numpy: Callable) -> str:
    """env.conv2d writes the convolution with its bias into out, without PyTorch."""
    alone = _("NumPy alone in env.conv2d")
    with require_no_tvm(alone):
        verified = _require_conv2d(register_conv2d_numpy,
                                   functools.partial(require_numpy_only, alone))
    return _('{verified};\nno function of PyTorch was called').format(verified=verified)


def _require_library_conv2d(machine: Any, calls: list[list[np.ndarray]],
                            weights: Mapping[str, np.ndarray], images: np.ndarray) -> None:
    """Run the CNN on one batch and check how it calls env.conv2d, which notes that in `calls`."""
    with contextlib.suppress(ValueError, TypeError, RuntimeError):  # require_same will tell
        machine["main"](tvm.runtime.tensor(images))
    if calls:
        libraries.require_call(calls, "env.conv2d", x=INPUT, w=(32, 1, 3, 3), b=(1, 32, 1, 1),
                               out=(4, 32, 26, 26))
        libraries.require_values("env.conv2d", calls[0], x=images, w=weights["conv2d_weight"],
                                 b=weights["conv2d_bias"].reshape(1, 32, 1, 1))


def _require_none_refused(refused: Mapping[str, list[list[np.ndarray]]]) -> None:
    """Raise CheckFailed where one of the other library functions could not work."""
    forms = {"linear": "x (n, k), w (m, k), b (m,), out (n, m)",
             "softmax": "x (n, m), out (n, m)"}
    for name, (first, *_more) in ((name, found) for name, found in refused.items() if found):
        raise CheckFailed(_("{name} with {names}").format(name=f"env.{name}", names=forms[name]),
                          _("with {came}").format(came=", ".join(
                              f"{array.dtype} {array.shape}".removeprefix("float32 ")
                              for array in first)))


_LIBRARY = ("env.conv2d", "env.linear", "env.softmax")


@exercise("3.6", "create_model_with_library_conv2d(weights)",
          seconds=90, prepare=[reference, random_cnn])
def exercise_3_6(create_model_with_library_conv2d: Callable) -> str:
    """The CNN is equivalent to PyTorch and its convolution is env.conv2d."""
    (weights, model), batches = cnn(), reference()
    images = batches[0].images
    mod, other = create(create_model_with_library_conv2d, _LIBRARY, lowered=False)
    calls: list[list[np.ndarray]] = []
    refused: dict[str, list[list[np.ndarray]]] = {"linear": [], "softmax": []}
    factor = 1.0
    functions = {"conv2d": libraries.recording(lambda x, w, b: factor * conv2d(x, w, b), calls),
                 "linear": libraries.recording(_linear, [], refused["linear"]),
                 "softmax": libraries.recording(softmax_of, [], refused["softmax"])}
    with libraries.registry(keep=True, **functions):
        made = make(mod, other)
        machine = made.machine
        _require_library_conv2d(machine, calls, weights, images)
        _require_none_refused(refused)
        before, verified = len(calls), made.require_trained()
        count = max(0, len(calls) - before - 1)  # one batch was of random images
        made.require_random()
        factor = 0.0  # the layers after it must feel the 0
        came = to_numpy(machine["main"](tvm.runtime.tensor(images)))
    with torch.no_grad():
        expected = model[1:](torch.zeros(4, 32, 26, 26)).numpy()
    wanted = _("all of it to come from env.conv2d, called once a batch")
    if count != len(batches):
        raise CheckFailed(wanted, _("{count} calls in {batches} batches").format(
            count=count, batches=len(batches)),
            _("bb.emit(relax.op.call_dps_packed(...)) in place of bb.emit_te for the convolution"))
    if not np.allclose(came, expected, RTOL, ATOL):
        raise CheckFailed(wanted, _("where env.conv2d writes zeros, main does not give what the "
                                    "other layers make of zeros"))
    return _("env.conv2d is called once a batch, with x (4, 1, 28, 28), w (32, 1, 3, 3), b (1, "
             "32, 1, 1);\nthe other layers work with what it writes, with random weights too\n"
             "{verified}").format(verified=verified)
