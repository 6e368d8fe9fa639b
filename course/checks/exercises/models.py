"""The course's CNN in the forms that exercises start from, and what an answer makes of weights."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax

import helpers
from course import kernels
from course.checks.diagnose import equivalence
from course.checks.observe.intermediates import is_layer, with_all_values
from course.checks.run.check import prepared
from course.checks.say.messages import CheckFailed
from course.words import _

INPUT = (4, 1, 28, 28)


@prepared
def cnn() -> tuple[dict[str, np.ndarray], nn.Sequential]:
    """Return the trained weights, float32 by name, and PyTorch's model with them."""
    weights = helpers.load_weights("cnn")
    return weights, helpers.pytorch_model(weights)


@prepared
def random_cnn() -> tuple[dict[str, np.ndarray], nn.Sequential]:
    """Return random weights, and PyTorch's model with them.

    With the trained ones 833 of the 5,408 features are 0 on all test images, and what a linear
    layer does with these cannot be seen. Here what the ReLUs get goes from below -6 to above 6, so
    that a cut at 6 shows; the last layer makes of it logits of a usual size.
    """
    rng = np.random.default_rng(0)
    shapes = {name: array.shape for name, array in cnn()[0].items()}
    scale = {"conv2d": 5, "linear0": 1, "linear1": 1 / 4}
    # sums of `fan` products with a deviation near 1 times the scale, whatever the fan
    weights = {name: (scale[name.partition("_")[0]] * rng.standard_normal(shape)
                      / np.sqrt(np.prod(shape[1:]))).astype("float32")
               for name, shape in shapes.items()}
    return weights, helpers.pytorch_model(weights)


def model_of(forward: Callable[..., torch.Tensor], **parts: Any) -> nn.Module:
    """Return a model of layers and parameters by name, and its forward(self, inputs ...)."""
    model: nn.Module = type("Model", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(model, name, part)
    return model.eval()


@prepared
def reference(count: int = helpers.N_IMAGES) -> list[equivalence.Batch]:
    """Return the first test images in batches of 4, with PyTorch's probabilities for them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the child, and several would wait for one another
    try:
        return list(equivalence.batches(cnn()[1], helpers.test_loader(count=count)))
    finally:
        torch.set_num_threads(threads)


# 50 batches of 4: schedules change no numbers but by a slip in one of the loops
reference_200 = functools.partial(reference, 200)


@prepared
def imported_cnn(images: int = INPUT[0]) -> tvm.IRModule:
    """Return the CNN by TVM's importer, with a PrimFunc for each operator."""
    return helpers.import_model(cnn()[1], (images, *INPUT[1:]))


imported_cnn_of_8 = functools.partial(imported_cnn, 8)  # what divides 4 images divides 8


@prepared
def fused_cnn() -> tuple[tvm.IRModule, dict[str, str]]:
    """Return the CNN as notebooks 06 and 07 fuse it, and the names of its PrimFuncs.

    The keys are conv_pool, for conv2d to pooling, dense and head, for the two dense layers.
    """
    return kernels.fuse_layers(helpers.import_operators(cnn()[1], INPUT))


# ---- the CNN that an answer makes -----------------------------------------------------------


class Made(NamedTuple):
    """The modules that an answer made of the trained and of random weights, and both, built."""

    mod: tvm.IRModule
    other: tvm.IRModule
    machine: relax.VirtualMachine
    other_machine: relax.VirtualMachine
    other_main: str

    def require_trained(self) -> str:
        """Return what was verified with the trained weights on the test images."""
        return equivalence.require_same(self.mod, cnn()[1], reference(), machine=self.machine)

    @torch.no_grad()
    def require_random(self) -> None:
        """Raise CheckFailed where the module of random weights differs on random images."""
        images, model = reference()[0].images, random_cnn()[1]
        try:
            equivalence.require_same_at_random(self.other, model, self.other_machine, images,
                                               main=self.other_main,
                                               given=_("with random weights, on random images"))
        except CheckFailed:
            x = equivalence.random_like(images)
            came = self.other_machine[self.other_main](tvm.runtime.tensor(x))
            trained = cnn()[1](torch.from_numpy(x)).numpy()
            if hasattr(came, "numpy") and is_layer(came.numpy(), trained, model[-1]):
                raise CheckFailed(_("a model with the weights that your function is given"),
                                  _("the trained weights again, those of the call before")
                                  ) from None
            raise


def create(answer: Callable, library: Sequence[str] = (), lowered: bool = True
           ) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Return what an answer makes of the trained weights, and of random ones.

    Raises CheckFailed where that is no module that can be built; see require_prim_funcs.
    """
    def made(weights: Mapping[str, np.ndarray]) -> tvm.IRModule:
        given = {name: array.copy() for name, array in weights.items()}
        mod = answer(given)
        _require_kept(given, weights)
        equivalence.require_well_formed(mod)
        require_prim_funcs(mod, library, lowered)  # at once: the second may register others anew
        equivalence.require_tensor(mod["main"])
        return mod
    return made(cnn()[0]), made(random_cnn()[0])


def _require_kept(given: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray]) -> None:
    """Raise CheckFailed where an answer changed the weights that it was given."""
    if gone := [name for name in weights if name not in given]:
        came = _("{name} is not in it any more").format(name=gone[0])
    elif new := [name for name in given if name not in weights]:
        came = _("{name} is new in it").format(name=new[0])
    elif others := [name for name in weights if not isinstance(given[name], np.ndarray)]:
        came = _("{name} is now of type {type}").format(
            name=others[0], type=type(given[others[0]]).__name__)
    elif kinds := [name for name, array in weights.items()
                   if (given[name].dtype, given[name].shape) != (array.dtype, array.shape)]:
        came = _("{name} is now {dtype} {shape}").format(
            name=kinds[0], dtype=given[kinds[0]].dtype, shape=given[kinds[0]].shape)
    elif other := [name for name, array in weights.items()
                   if not np.array_equal(given[name], array)]:
        came = _("other numbers in {name}").format(name=other[0])
    else:
        return
    raise CheckFailed(_("weights to stay as it was: the cells below read it too"), came)


def make(mod: tvm.IRModule, other: tvm.IRModule, values: bool = False) -> Made:
    """Build the modules that an answer gave for trained and for random weights.

    Where both have the same PrimFuncs, as they should, these are compiled once. With `values` the
    machine also has a function that returns all that main binds: see checks.observe.intermediates.
    """
    watched = with_all_values(mod) if values else mod
    if both := equivalence.beside(watched, other):
        machine = equivalence.build(both)
        return Made(mod, other, machine, machine, equivalence.OTHER_MAIN)
    return Made(mod, other, equivalence.build(watched), equivalence.build(other), "main")


def require_prim_funcs(mod: tvm.IRModule, library: Sequence[str] = (), lowered: bool = True
                       ) -> None:
    """Raise CheckFailed unless all is computed by PrimFuncs and by the functions in `library`.

    Unless `lowered`, a module may have high-level operators too, for relax.build to lower.
    """
    wanted = _("operators as PrimFuncs")
    for name in library:
        wanted = _("{what}, or {name}").format(what=wanted, name=name)
    for variable, function in mod.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            if found := re.search(r"T\.call_(packed|cpacked|extern)\w*|T\.tvm_call\w*",
                                  helpers.script(function)):
                raise CheckFailed(wanted,
                                  _("PrimFunc {name_hint} calls a library, by {found}").format(
                                      name_hint=variable.name_hint, found=found[0]))
            continue
        if not isinstance(function, relax.Function):
            continue
        for binding in (one for block in function.body.blocks for one in block.bindings):
            if not isinstance(call := binding.value, relax.Call):
                continue
            operator = getattr(call.op, "name", "")
            called = call.args[0] if operator.startswith("relax.call_") else call.op
            name = getattr(called, "global_symbol", "")  # a library function's
            if name in library or not name and (operator in ("", "relax.call_tir") or not lowered):
                continue  # with "", a function of the module, which is looked at too
            if name and tvm.get_global_func(name, allow_missing=True) is None:
                continue  # the build will say so
            came = _("a library call of {name}").format(name=name) if name else operator
            raise CheckFailed(wanted,
                              _("{name} is {came}").format(name=binding.var.name, came=came))
