"""The module of exercise 5.1, with two mistakes in it that no shape gives away, and mending it."""

from collections.abc import Callable, Mapping

import tvm
from tvm import relax, te, topi

from course.checks.exercises.models import INPUT, cnn
from course.checks.run.check import prepared
from course.checks.say.messages import CheckFailed, require_type
from course.checks.spec.forms import naming
from course.words import _


def _conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    return topi.nn.conv2d(x, w, 1, 0, 1)


def _add_bias(x: te.Tensor, b: te.Tensor) -> te.Tensor:
    """Add one number of b to each row, where each channel has its own: there are enough of them."""
    return te.compute(x.shape, lambda n, f, i, j: x[n, f, i, j] + b[i], name="add_bias")


def _max_pool(x: te.Tensor) -> te.Tensor:
    """Take the larger of two numbers of each window, those on its diagonal: p stands twice."""
    images, channels, rows, columns = x.shape
    p, q = (te.reduce_axis((0, 2), name=name) for name in "pq")
    return te.compute((images, channels, rows // 2, columns // 2), lambda n, c, i, j: te.max(
        x[n, c, i * 2 + p, j * 2 + p], axis=[p, q]), name="max_pool")


FAULTS = ("lv1", "lv3")  # the bindings of these two
# what each binding of main computes, and the constants that it takes after the one before it
_STEPS: tuple[tuple[str, Callable, str], ...] = (
    ("conv2d", _conv2d, "conv2d_weight"), ("add_bias", _add_bias, "conv2d_bias"),
    ("relu", topi.nn.relu, ""), ("max_pool", _max_pool, ""), ("flatten", topi.nn.flatten, ""),
    ("dense", topi.nn.dense, "linear0_weight"), ("add", topi.add, "linear0_bias"),
    ("relu", topi.nn.relu, ""), ("dense", topi.nn.dense, "linear1_weight"),
    ("add", topi.add, "linear1_bias"), ("softmax", topi.nn.softmax, ""))


@prepared
def faulty_cnn() -> tvm.IRModule:
    """Return the CNN with its trained weights and two mistakes: what exercise 5.1 gives."""
    weights = cnn()[0]
    bb = relax.BlockBuilder()
    x = value = relax.Var("x", relax.TensorType(INPUT, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            for name, step, constant in _STEPS:
                given = [relax.const(weights[constant])] if constant else []
                value = bb.emit_te(step, value, *given, primfunc_name_hint=name)
            output = bb.emit_output(value)
        bb.emit_func_output(output)
    return bb.get()


def mended(mod: tvm.IRModule, operations: Mapping[str, Callable]) -> tvm.IRModule:
    """Return a module in which some bindings of main compute something else of what they take.

    The keys are names of bindings, each of which calls a PrimFunc of its own. Each operation gets
    the tensors that the call takes as te.Tensors, and returns one of the same shape and dtype.
    Raises CheckFailed where main has no such binding, or the operation gives something else.
    """
    bindings = {binding.var.name: binding for block in mod["main"].body.blocks
                for binding in block.bindings if isinstance(binding.value, relax.Call)}
    new = mod.clone()
    for name, operation in operations.items():
        if name not in bindings:
            raise CheckFailed(_("names of calls in main: {names}").format(
                names=", ".join(map(repr, bindings))),
                repr(name) if isinstance(name, str) else f"{name}, {type(name).__name__}")
        kernel, arguments = bindings[name].value.args[:2]
        taken = [te.placeholder(tuple(argument.ty.shape), argument.ty.dtype)
                 for argument in arguments.fields]
        with naming(_("the operation for {name}, which gets {shapes}").format(
                name=name, shapes=", ".join(str(tuple(map(int, one.shape))) for one in taken))):
            output = operation(*taken)
        require_type(output, te.Tensor, _("a te.Tensor as the result"))
        came, expected = (f"{one.dtype} {tuple(map(int, one.shape))}"
                          for one in (output, bindings[name].var.ty))
        if came != expected:
            raise CheckFailed(_("{expected} for {name}").format(expected=expected, name=name), came)
        new[kernel] = te.create_prim_func([*taken, output]).with_attr(
            "global_symbol", kernel.name_hint)
    return new
