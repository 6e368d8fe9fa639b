"""Importers: a model imported by rules, and what is required of an imported module."""

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from torch import fx, nn
from tvm import relax, topi

from course.checks.diagnose.equivalence import renamed
from course.checks.observe.spies import TorchCalls
from course.checks.say.messages import CheckFailed
from course.words import _


def linear_rule(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node, layer: nn.Linear) -> Any:
    """Emit x @ weight.T + bias and return its variable."""
    weight = relax.const(layer.weight.detach().numpy(), "float32")
    y = bb.emit_te(topi.nn.dense, node_map[node.args[0]], weight)
    bias = relax.const(layer.bias.detach().numpy(), "float32")
    return bb.emit_te(topi.add, y, bias)


def relu_rule(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node, *_: Any) -> Any:
    """Emit the ReLU of the node's argument and return its variable: for nn.ReLU and torch.relu."""
    return bb.emit_te(topi.nn.relu, node_map[node.args[0]])


IMPORTED = "the_model"  # its function's name: a rule may emit a PrimFunc that is called main
_COMPUTES = {"conv2d", "max_pool2d", "boolean_dispatch", "softmax"}  # PyTorch, while importing


def add_function(bb: relax.BlockBuilder, name: str, model: nn.Module, shape: Sequence[int],
                 functions: Mapping, modules: Mapping, answer: str) -> None:
    """Import a model of one float32 input as a function `name`, by the reader's rules and by ours.

    The model may be recorded by fx already. `functions` and `modules` have the rules for functions
    and for classes of layers; `answer` names the reader's in messages. Raises CheckFailed where a
    rule computes in PyTorch, or returns no emitted variable.
    """
    traced = model if isinstance(model, fx.GraphModule) else fx.symbolic_trace(model)
    node_map: dict[fx.Node, Any] = {}
    with bb.function(name):
        with bb.dataflow():
            for node in traced.graph.nodes:
                match node.op:
                    case "placeholder":
                        x = relax.Var(node.target, relax.TensorType(shape, "float32"))
                        node_map[node] = x
                    case "output":
                        result = bb.emit_output(node_map[node.args[0]])
                    case "call_module":
                        layer = traced.get_submodule(node.target)
                        rule = _("the rule for {layer}").format(layer=layer)
                        with TorchCalls() as calls:
                            value = modules[type(layer)](bb, node_map, node, layer)
                        if used := sorted(_COMPUTES & set(calls.names)):
                            raise CheckFailed(_("operators that compute when the module runs"),
                                              _("{rule} ran PyTorch's {used}").format(rule=rule,
                                                                                      used=used[0]),
                                              _("the layer's weights are constants; the rest is "
                                                "for TVM"))
                        node_map[node] = _emitted(value, rule)
                    case "call_function":
                        value = functions[node.target](bb, node_map, node)
                        node_map[node] = _emitted(value, answer)
        bb.emit_func_output(result, params=[x])


def import_by_rules(model: nn.Module, shape: Sequence[int], functions: Mapping, modules: Mapping,
                    answer: str) -> tvm.IRModule:
    """Return a module whose main is a model; see add_function and require_no_library."""
    bb = relax.BlockBuilder()
    add_function(bb, IMPORTED, model, shape, functions, modules, answer)
    mod = bb.get()
    require_no_library(mod, answer, IMPORTED)
    return renamed(mod, {IMPORTED: "main", "main": "main_of_a_rule"})


def _emitted(value: Any, rule: str) -> Any:
    """Return what a rule gave; raise CheckFailed, and say what it is, unless it is a variable."""
    if isinstance(value, relax.Var):
        return value
    if isinstance(value, tvm.ir.GenericConst):
        raise CheckFailed(_("operators that compute when the module runs"),
                          _("{rule} returned a constant").format(rule=rule),
                          _("what the rule calls: the input has no numbers yet, so nothing can "
                            "be computed while importing"))
    if isinstance(value, relax.Call):
        raise CheckFailed(_("the variable of an emitted line"),
                          _("{rule} returned an expression that was not emitted").format(rule=rule),
                          _("bb.emit(expression) makes a line of it and returns its variable"))
    raise CheckFailed(_("the variable that bb.emit_te or bb.emit returns"),
                      _("{rule} returned {name}").format(rule=rule, name=type(value).__name__),
                      _("the return statement of the rule"))


def minus_rule(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node) -> Any:
    """Emit the node's argument less a number and return its variable: for operator.sub."""
    less: Any = node.args[1]
    return bb.emit_te(topi.subtract, node_map[node.args[0]], float(less))


def require_no_library(mod: tvm.IRModule, answer: str, name: str = "main") -> None:
    """Raise CheckFailed where function `name` calls a library, which may be PyTorch's."""
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.ExternFunc):
            found.append(expression.global_symbol)

    relax.analysis.post_order_visit(mod[name].body, visit)
    if found:
        raise CheckFailed(_("operators that TVM computes"),
                          _("{answer} calls the library function {found}").format(answer=answer,
                                                                                  found=found[0]),
                          _("TOPI, Relax operators or an own expression"))


def require_inputs(mod: tvm.IRModule, features: Sequence[int]) -> None:
    """Raise CheckFailed unless main takes an input (n, width) for each width, of one symbolic n."""
    params = list(mod["main"].params)
    if len(params) != len(features):
        raise CheckFailed(_("main with {count} inputs").format(count=len(features)),
                          _("{count} parameters").format(count=len(params)),
                          _("one input for each number in features; weights are constants"))
    for param, width in zip(params, features, strict=True):
        shape = list(getattr(param.ty, "shape", None) or ())
        extents = [int(e) if isinstance(e, tvm.tirx.IntImm) else str(e) for e in shape]
        came, look_at = f"({', '.join(map(str, extents))})", ""
        if len(shape) != 2:
            came, look_at = f"{param.ty}", 'relax.TensorType((n, width), "float32")'
        elif isinstance(extents[0], int):
            # cause: fixed-batch
            look_at = _('the batch: tvm.tirx.Var("n", "int64") in place of a number')
        elif extents[1] != width:
            look_at = _("the second extent: a number from features")
        if look_at:
            raise CheckFailed(_("{name} of shape (n, {width})").format(name=param.name,
                                                                       width=width), came, look_at)
    if any(not param.ty.shape[0].same_as(params[0].ty.shape[0]) for param in params):
        raise CheckFailed(_("one n in the shapes of all inputs"),
                          _("{count} variables, each another unknown").format(count=len(params)),
                          _("tvm.tirx.Var: call it once, outside the loop over the inputs"))
