"""Small Relax modules, as the tests of the documents need them."""

from collections.abc import Callable

import tvm
from tvm import relax, topi


def relax_model(step: Callable[[relax.BlockBuilder, relax.Var], relax.Expr],
                *shape: object) -> tvm.IRModule:
    """A module whose main applies one step(bb, x) to a float32 tensor of this shape, (4, 5)."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape or (4, 5), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(step(bb, x))
        bb.emit_func_output(gv)
    return bb.get()


def relu(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return bb.emit_te(topi.nn.relu, x)
