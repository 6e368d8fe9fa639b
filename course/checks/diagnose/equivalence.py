"""A whole model against PyTorch: whether an IRModule computes the same, on every batch."""

import contextlib
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax

import helpers
from course.checks.compare.tolerance import ATOL, ATOL_PROBABILITIES, RTOL, to_numpy
from course.checks.diagnose.diagnosis import diagnose, inexact_constant, wrong_alone
from course.checks.diagnose.steps import is_pytorchs
from course.checks.observe.guard_pages import guarded
from course.checks.observe.intermediates import is_layer
from course.checks.observe.primfuncs import LIGHT, require_inside_buffers
from course.checks.run.check import isolated, several_threads
from course.checks.say.messages import CheckFailed, bound, reason, require_type
from course.checks.say.show import Example
from course.words import _, language, told


class Batch(NamedTuple):
    """What a model takes in one call, its labels (n,), and what PyTorch's model gives for it."""

    inputs: tuple[np.ndarray, ...]
    labels: np.ndarray | None
    expected: np.ndarray

    @property
    def images(self) -> np.ndarray:
        """The input of a model that takes one, float32 (n, ...)."""
        return self.inputs[0]


@torch.no_grad()
def batches(model: nn.Module, loader: Iterable) -> Iterator[Batch]:
    """Yield what a loader gives, with the results of PyTorch's model, a batch at a time.

    Behind the inputs it may give labels, and more, which is left out.
    """
    count = sum(one.default is one.empty
                for one in inspect.signature(model.forward).parameters.values())
    for number, given in enumerate(loader):
        require_type(given, tuple | list, _("a loader of tuples: inputs, then labels"))
        inputs, labels = given[:count], [*given[count:], None][0]
        expected, *again = (model(*(one.clone() for one in inputs))  # a layer may work in place
                            for _run in range(1 if number else 2))
        if any(not torch.allclose(one, expected, equal_nan=True) for one in again):
            raise CheckFailed(_("a model that gives the same in each run"),
                              _("other numbers in a second run of PyTorch's model"))
        yield Batch(tuple(one.numpy() for one in inputs),
                    None if labels is None else np.asarray(labels), expected.numpy())


def require_well_formed(mod: Any) -> None:
    """Raise CheckFailed unless this is an IRModule with a main, well formed, inside its buffers."""
    require_type(mod, tvm.IRModule, _("an IRModule"))
    names = [variable.name_hint for variable in mod.get_global_vars()]
    if "main" not in names:
        raise CheckFailed(_("a function named main"), _("functions {names}").format(names=names),
                          'def main(...), or bb.function("main", [x])')
    symbols = {variable.name_hint: str(func.attrs["global_symbol"])
               for variable, func in mod.functions_items()
               if func.attrs and "global_symbol" in func.attrs}
    for symbol, count in Counter(symbols.values()).items():
        if count > 1:  # of a builder that was used before
            raise CheckFailed(_("one function named {name}").format(name=symbol), _(
                "{names} have this name, as their global_symbol").format(names=", ".join(
                    sorted(name for name, named in symbols.items() if named == symbol))))
    require_inside_buffers(mod)
    try:
        relax.analysis.well_formed(mod)  # builds may pass without it: a forgotten emit_output does
    except Exception as error:  # TVM raises many kinds here
        raise CheckFailed(_("a well-formed IRModule"), reason(error)) from None


def require_tensor(main: relax.Function) -> None:
    """Raise CheckFailed unless a function returns one tensor."""
    if not isinstance(main.ret_ty, relax.TensorType):
        raise CheckFailed(_("main to return a tensor"), str(main.ret_ty))


def build(mod: Any, target: Any = LIGHT) -> relax.VirtualMachine:
    """Return the VirtualMachine of an IRModule; raise CheckFailed where it cannot be built."""
    require_well_formed(mod)
    try:
        return helpers.build(mod, target)
    except Exception as error:  # TVM raises many kinds here
        if "Cannot find ffi::Function" in str(error):
            raise CheckFailed(
                _("a function under each name that main calls: registered, or in a module that a "
                  "code generator returns"), reason(error)) from None
        raise CheckFailed(_("a module that builds"), reason(error)) from None


def _require_model(model: Any) -> None:
    """Raise CheckFailed unless this is a module of PyTorch's in evaluation mode."""
    require_type(model, nn.Module, _("an nn.Module as the second argument"))
    random = nn.modules.dropout._DropoutNd | nn.modules.batchnorm._NormBase
    if any(layer.training and (isinstance(layer, random) or not is_pytorchs(layer))
           for layer in model.modules()):  # of the others it may depend
        raise CheckFailed(_("a model in evaluation mode"), _("one that is training"))


def random_like(images: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return images of random numbers, with the shape, dtype and range of others.

    The corners of photographs are dark, and what a model computes of them is always 0. Every other
    image consists of the two extremes: such contrasts show features that noise leaves at 0.
    """
    rng = np.random.default_rng([seed, *images.shape])
    low, high = images.min(), images.max()
    noise = rng.uniform(low, high, images.shape)
    noise[1::2] = np.where(rng.random(noise[1::2].shape) < 0.3, high, low)
    return noise.astype(images.dtype)


def _output(machine: relax.VirtualMachine, batch: Batch, main: str = "main") -> np.ndarray:
    """Return what main gives for a batch, of the expected dtype, or raise CheckFailed."""
    try:
        output = machine[main](*map(tvm.runtime.tensor, batch.inputs))
    except (ValueError, TypeError, RuntimeError) as error:
        raise CheckFailed(_("main to run on {inputs}").format(inputs=", ".join(
            f"{one.dtype} {one.shape}" for one in batch.inputs)), reason(error)) from None
    if not hasattr(output, "numpy") and len(output) != 1:
        raise CheckFailed(_("one output"), _("a tuple of {count}").format(count=len(output)))
    came = to_numpy(output)
    if came.dtype != batch.expected.dtype:
        raise CheckFailed(_("an output of {dtype}").format(dtype=batch.expected.dtype),
                          f"{came.dtype}")
    return came


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of an nn.Sequential; of another module nobody knows their order."""
    return list(model) if isinstance(model, nn.Sequential) else [model]


def _equal(came: np.ndarray, expected: np.ndarray, model: nn.Module) -> bool:
    atol = ATOL_PROBABILITIES if isinstance(_layers(model)[-1], nn.Softmax) else ATOL
    return came.shape == expected.shape and np.allclose(came, expected, RTOL, atol)


def _require_same_alone(mod: tvm.IRModule, model: nn.Module, machine: relax.VirtualMachine,
                        batch: Batch, target: Any) -> None:
    """Raise CheckFailed unless a module is right for both signs, and each layer by itself."""
    if isinstance(model, nn.Sequential) and isinstance(_layers(model)[0], nn.Conv2d | nn.Linear):
        # another may count on what it is given; a ReLU may keep a channel at 0 on every image
        require_same_at_random(mod, model, machine, 2 * batch.images - batch.images.max(),
                               target, given=_("on random images of both signs"))
    if refused := wrong_alone(mod, model, [batch.inputs], target):
        raise refused


def require_same(mod: Any, model: nn.Module, reference: Iterable[Batch], target: Any = LIGHT,
                 machine: relax.VirtualMachine | None = None, alone: bool = False) -> str:
    """Return what was verified about a module against PyTorch, or raise CheckFailed.

    They are compared on every batch, and an nn.Sequential on one of random images too; with `alone`
    on one of both signs and each layer by itself. The first batch and the random ones run on
    guarded arrays. `machine` is the module, if it was built for the target already.
    """
    machine, layers = machine or build(mod, target), _layers(model)
    in_order = isinstance(model, nn.Sequential)
    images = count = right = right_torch = largest = 0
    for batch in reference:
        with contextlib.nullcontext() if count else guarded(machine, mod):
            came = _output(machine, batch)
        if not _equal(came, expected := batch.expected, model):
            raise diagnose(mod, model, [batch.inputs, *[(random_like(batch.images),)] * in_order],
                           target)
        largest = max(largest, np.abs(came - expected).max())
        images, count = images + len(expected), count + 1
        judged = in_order and _are_labels(batch.labels, expected)
        if judged:
            right += (came.argmax(1) == batch.labels).sum()
            right_torch += (expected.argmax(1) == batch.labels).sum()
    if not count:
        raise CheckFailed(_("inputs to compare"), _("a loader without batches"))
    if in_order:
        require_same_at_random(mod, model, machine, batch.images, target)
    if alone:
        _require_same_alone(mod, model, machine, batch, target)
    below = bound(float(largest), -5 if isinstance(layers[-1], nn.Softmax) else -4)
    if not in_order:
        return _("{count} calls: max |difference| to PyTorch below {bound}").format(
            count=count, bound=below)
    says = _("{images} images in {count} batches: max |difference| to PyTorch below {bound}") \
        if count > 1 else _("{images} images in one batch: max |difference| to PyTorch below "
                            "{bound}")
    verified = says.format(images=f"{images:,}", count=f"{count:,}", bound=below)
    return verified if not judged else _(  # a layer and no classifier
        '{verified}\nRight on {right} of {images} images; PyTorch on {right_torch}').format(
            verified=verified, right=right, images=f"{images:,}", right_torch=right_torch)


def _are_labels(labels: np.ndarray | None, scores: np.ndarray) -> bool:
    """Whether these are labels of classes that have scores."""
    return labels is not None and labels.dtype.kind in "iu" and scores.ndim == 2 \
        and labels.shape == scores.shape[:1] and scores.shape[1] > 1 \
        and set(labels.flat) <= set(range(scores.shape[1]))


def check_equivalence(mod: tvm.IRModule, torch_model: nn.Module, test_loader: Iterable,
                      target: Any = LIGHT) -> None:
    """Compare an IRModule with a PyTorch model on every batch, and say where they part.

    `main` takes a batch as the loader gives it and returns what the model returns: rtol 1e-4, and
    atol 1e-7 for probabilities, 1e-4 for logits. A model that is no nn.Sequential may have several
    inputs: then the loader gives all of them. Raises CheckFailed with the first layer that
    differs, its shape, its kernel, the largest error and, where it can be verified, the cause.
    """
    def compared() -> str:
        _require_model(torch_model)
        return require_same(mod, torch_model, batches(torch_model, test_loader), target, alone=True)

    passed, parts = isolated(compared, 120)
    if not passed:
        expected, came, look_at, *example = parts
        raise CheckFailed(expected, came, look_at, _("Not equivalent ✗"),
                          Example.again(*example) if example else None)
    print(_("Equivalent ✓"), told(parts, language()))


@torch.no_grad()
def require_same_at_random(mod: tvm.IRModule, model: nn.Sequential, machine: relax.VirtualMachine,
                           like: np.ndarray, target: Any = LIGHT, main: str = "main",
                           given: str = "") -> None:
    """Raise CheckFailed where a module differs from PyTorch on random images like `like`.

    Or where the constants in it are not quite the model's weights.

    `machine` has the module's main as function `main`. `given` says in the message what is random.
    """
    images = random_like(like)
    batch = Batch((images,), None, model(torch.from_numpy(images.copy())).numpy())
    with guarded(machine, mod, filling=1e30, at_start=True):
        came = several_threads(lambda: _output(machine, batch, main))
    # the softmax of noise may be nearly one-hot: by logarithms, or as on the test images
    if is_layer(came, batch.expected, model[-1]) or _equal(came, batch.expected, model):
        if inexact := inexact_constant(mod, model):
            raise inexact
        return
    once = _output(machine, batch, main)
    if _equal(once, batch.expected, model):
        raise CheckFailed(_("the same numbers from every run"),
                          _("PyTorch's in one run; different ones in a run with several threads, "
                            "on arrays full of other numbers"))
    raise refusal(given or _("on random images"), mod, model, [images, random_like(like, 1)],
                  target)


def refusal(given: str, mod: tvm.IRModule, model: nn.Sequential, inputs: Sequence[np.ndarray],
            target: Any = LIGHT) -> CheckFailed:
    """Return what `diagnose` finds, which says too on which inputs, or with which weights."""
    refused = diagnose(mod, model, inputs, target)
    expected, says, look_at = refused.parts
    said = _("{given}: {expected}")
    if refused.example:  # it stands in the place of what is expected
        look_at = said.format(given=given, expected=look_at) if look_at else given
    return CheckFailed(said.format(given=given, expected=expected), says, look_at,
                       example=refused.example)


# ---- two modules of one function ------------------------------------------------------------

OTHER_MAIN = "main_of_the_other"


def renamed(mod: tvm.IRModule, names: Mapping[str, str]) -> tvm.IRModule:
    """Return a module in which some functions have other names."""
    new = {variable.name_hint: variable for variable in mod.get_global_vars()}
    for old in names.keys() & new.keys():
        known, new[old] = new[old], tvm.ir.GlobalVar(names[old])
        relax.expr._update_type(new[old], known.ty)
    functions = {}
    for variable, function in mod.functions_items():
        name = variable.name_hint
        if isinstance(function, relax.Function):
            function = tvm_ffi.structural_map(
                function, (tvm.ir.GlobalVar, lambda one: new[one.name_hint]))
        if name in names and function.attrs and "global_symbol" in function.attrs:
            function = function.with_attr("global_symbol", names[name])
        functions[new[name]] = function
    return tvm.IRModule(functions)


def beside(mod: tvm.IRModule, other: tvm.IRModule) -> tvm.IRModule | None:
    """Return a module with the main of another one beside its own; None where their kernels differ.

    Modules that one function makes of different weights have the same PrimFuncs, and compiling
    these takes most of the time.
    """
    mine, theirs = ({variable.name_hint: function for variable, function in m.functions_items()
                     if variable.name_hint != "main"} for m in (mod, other))
    if any(name not in mine or not isinstance(function, tvm.tirx.PrimFunc)
           or not tvm_ffi.structural_equal(function, mine[name])
           for name, function in theirs.items()):
        return None
    names = {variable.name_hint: variable for variable in mod.get_global_vars()}
    # with parameters of its own: both mains may have those of the cell above, or be one
    main = relax.utils.copy_with_new_vars(tvm_ffi.structural_map(
        other["main"], (tvm.ir.GlobalVar, lambda one: names[one.name_hint]))).with_attr(
            "global_symbol", OTHER_MAIN)
    return tvm.IRModule({**dict(mod.functions_items()), tvm.ir.GlobalVar(OTHER_MAIN): main})
