"""The checks of notebook 05: an importer and its rules."""

import contextlib
import copy
import functools
import operator
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import tvm
from torch import Tensor, fx, nn
from torch.nn import functional as F
from tvm import relax, topi

from course.checks.compare.inputs import fractions
from course.checks.compare.mistakes import layer_mistakes, pair
from course.checks.compare.tolerance import random, to_numpy
from course.checks.diagnose.equivalence import build, renamed, require_same
from course.checks.exercises.faulty import FAULTS, faulty_cnn, mended
from course.checks.exercises.models import INPUT, cnn, reference
from course.checks.observe.guard_pages import guarded
from course.checks.observe.primfuncs import QUICK
from course.checks.observe.spies import TorchCalls
from course.checks.run.answer import line_of_answer
from course.checks.run.check import exercise, prepared
from course.checks.run.signature import require_called_as
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.evidence import Rerun
from course.checks.spec.forms import Misuse, expression
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Cases, Spec, check, not_finite
from course.checks.spec.trials import Mistakes, judged
from course.words import _

# ---- tensor expressions --------------------------------------------------------------------

_TAKES = {"lv1": "x, b", "lv3": "x"}  # as the module's bindings do
_CONV = (4, 32, 26, 26)  # of the convolution's values, before and after its bias


# Functions of what the binding takes, the convolution's values and its bias.
_BIAS: Mistakes = {
    # cause: no-conv-bias
    _("the bias of the convolution is left out"): lambda _, x, b: x,
    _("the bias of the convolution is added twice"): lambda _, x, b: x + 2 * b.reshape(-1, 1, 1),
    _("the bias is added along the height instead of the channels"):
        lambda _, x, b: x + b[:x.shape[2]].reshape(-1, 1),
    _("the bias is added along the width instead of the channels"):
        lambda _, x, b: x + b[:x.shape[3]]}


def _require_mended(name: str, operation: Callable) -> None:
    """Raise CheckFailed unless an operation is that of PyTorch's layer in a binding's place."""
    x, b = fractions(*_CONV), fractions(_CONV[1])
    layer, mistakes, arrays = None, _BIAS, [x, b]

    def right(x: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        return nn.MaxPool2d(2)(torch.from_numpy(x)).numpy() if b is None \
            else x + b.reshape(-1, 1, 1)
    if name == "lv3":
        layer, arrays = nn.MaxPool2d(2), [x - np.float32(128)]  # windows below zero, and above
        mistakes = layer_mistakes(layer) | {
            _("the reduction: this is the minimum"):
                lambda layer, x: -F.max_pool2d(-x, layer.kernel_size)}
    given = dict(zip("xb", arrays, strict=False))
    with judged(mistakes, 1e-5) as note:
        run = expression(operation, topi=True)
        note(run(**given), right(**given), layer, *map(torch.from_numpy, arrays),
             words=_("your operation for {name}").format(name=name), given=given,
             rerun=Rerun(run, right, {"x": "n f h w", "b": "f"} if layer is None
                         else {"x": "n f h w"}, {"h": 2, "w": 2},
                         shown=lambda given: {"binding": name} | given))


@exercise("5.1", "mend()", prepare=[faulty_cnn])
def exercise_5_1(mend: Callable) -> str:
    """two mistakes in a module."""
    operations = mend()
    if not isinstance(operations, Mapping):
        raise CheckFailed(_("a dictionary from names of bindings to operations"),
                          type(operations).__name__)
    for name, operation in operations.items():
        if not callable(operation):
            raise CheckFailed(_("a function of tensor expressions for {name}").format(name=name),
                              type(operation).__name__)
        if name in FAULTS:
            require_called_as(operation, f"operation({_TAKES[name]})",
                              _("the operation for {name}").format(name=name))
    mended(faulty_cnn(), operations)
    found = [name for name in FAULTS if name in operations]
    for name in found:
        _require_mended(name, operations[name])
    if innocent := [name for name in operations if name not in FAULTS]:
        raise CheckFailed(_("the operations that are wrong, and no others"),
                          _("{name} is right as it is").format(name=innocent[0]))
    if len(found) < len(FAULTS):
        raise CheckFailed(_("two mended operations"),
                          _("{name} is mended, and right; there is another mistake").format(
                              name=found[0]) if found else _("none"))
    return _("both mistakes are found, each operation is the layer's, and the others are as they "
             "were")


_AVG_POOL: Mistakes = {
    hint: mistake for hint, mistake in layer_mistakes(nn.AvgPool2d(1)).items()
    if "padding" not in hint} | {
    _("the stride: the step across is used for both"):
        lambda layer, x: F.avg_pool2d(x, layer.kernel_size, pair(layer.stride)[1]),
    _("the stride: the step down is used for both"):
        lambda layer, x: F.avg_pool2d(x, layer.kernel_size, pair(layer.stride)[0])}


def _windows_fit(given: Inputs) -> bool:
    kernel, stride = given["kernel"], given["stride"]
    return len(kernel) == len(stride) == 2 and min(*kernel, *stride) > 0 and all(
        size <= inside for size, inside in zip(kernel, given["x"].shape[2:], strict=True))


def _avg_pool_cases() -> Cases:
    for shape, kernel, stride in [
            ((2, 3, 8, 6), (2, 2), (2, 2)), ((1, 2, 9, 8), (3, 2), (1, 2)),
            ((2, 1, 7, 11), (2, 3), (3, 2)), ((1, 2, 10, 6), (2, 5), (4, 1)),
            ((3, 1, 5, 7), (1, 4), (5, 1)), ((1, 1, 9, 30), (9, 1), (1, 7)),
            ((2, 2, 8, 8), (1, 1), (2, 3)), ((1, 2, 8, 5), (3, 5), (2, 2)),
            ((5, 33, 30, 31), (2, 2), (2, 2))]:
        yield (_("kernel {kernel}, stride {stride} on {shape}").format(
            kernel=kernel, stride=stride, shape=shape),
            {"x": fractions(*shape), "kernel": kernel, "stride": stride})


_AVERAGE = Spec(
    expression, lambda x, kernel, stride: F.avg_pool2d(
        torch.from_numpy(x), kernel, stride).numpy(), _avg_pool_cases, {"x": "n c h w"}, _AVG_POOL,
    beyond=lambda: not_finite({"x": random(2, 3, 8, 7), "kernel": (2, 3), "stride": (3, 2)}),
    least={"h": 2, "w": 2}, fits=_windows_fit,
    formula=lambda given: (nn.AvgPool2d(given["kernel"], given["stride"]),
                           torch.from_numpy(given["x"])),
    fault=Misuse)  # numbers up to 256, added in any order: within the usual tolerance


@exercise("5.2", "avg_pool(x, kernel, stride)")
def exercise_5_2(avg_pool: Callable) -> str:
    """average pooling as a tensor expression."""
    check(_AVERAGE, avg_pool)
    return _("equal to F.avg_pool2d for square and oblong windows, overlapping and apart, as "
             "large as the\nimage and of one element, also where they do not fill the image")


# ---- importing by rules --------------------------------------------------------------------


def _linear_rule(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node, layer: nn.Linear) -> Any:
    """Emit x @ weight.T + bias and return its variable."""
    weight = relax.const(layer.weight.detach().numpy(), "float32")
    y = bb.emit_te(topi.nn.dense, node_map[node.args[0]], weight)
    bias = relax.const(layer.bias.detach().numpy(), "float32")
    return bb.emit_te(topi.add, y, bias)


def _relu_rule(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node, *_: Any) -> Any:
    """Emit the ReLU of the node's argument and return its variable: for nn.ReLU and torch.relu."""
    return bb.emit_te(topi.nn.relu, node_map[node.args[0]])


_IMPORTED = "the_model"  # its function's name: a rule may emit a PrimFunc that is called main
_COMPUTES = {"conv2d", "max_pool2d", "boolean_dispatch", "softmax"}  # PyTorch, while importing


def _add_function(bb: relax.BlockBuilder, name: str, model: nn.Module, shape: Sequence[int],
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


def _import_by_rules(model: nn.Module, shape: Sequence[int], functions: Mapping, modules: Mapping,
                    answer: str) -> tvm.IRModule:
    """Return a module whose main is a model; see _add_function and _require_no_library."""
    bb = relax.BlockBuilder()
    _add_function(bb, _IMPORTED, model, shape, functions, modules, answer)
    mod = bb.get()
    _require_no_library(mod, answer, _IMPORTED)
    return renamed(mod, {_IMPORTED: "main", "main": "main_of_a_rule"})


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
                      _("{rule} returned {name}").format(rule=rule, name=type(value).__name__))


def _minus_rule(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node) -> Any:
    """Emit the node's argument less a number and return its variable: for operator.sub."""
    less: Any = node.args[1]
    return bb.emit_te(topi.subtract, node_map[node.args[0]], float(less))


def _require_no_library(mod: tvm.IRModule, answer: str, name: str = "main") -> None:
    """Raise CheckFailed where function `name` calls a library, which may be PyTorch's."""
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.ExternFunc):
            found.append(expression.global_symbol)

    relax.analysis.post_order_visit(mod[name].body, visit)
    if found:
        raise CheckFailed(_("operators that TVM computes"),
                          _("{answer} calls the library function {found}").format(answer=answer,
                                                                                  found=found[0]))


def _require_inputs(mod: tvm.IRModule, features: Sequence[int]) -> None:
    """Raise CheckFailed unless main takes an input (n, width) for each width, of one symbolic n."""
    params = list(mod["main"].params)
    if len(params) != len(features):
        raise CheckFailed(_("main with {count} inputs").format(count=len(features)),
                          _("{count} parameters").format(count=len(params)))
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


# ---- rules ---------------------------------------------------------------------------------


_FUNCTIONS = {torch.relu: _relu_rule, operator.sub: _minus_rule}


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def _gelu_behind(x: Tensor) -> Tensor:
    """GELU behind other nodes: a rule that takes main's input is wrong here."""
    before = torch.relu(x) - 4
    torch.relu(x)  # a later value, which gelu does not take
    return F.gelu(before)


# Functions of gelu's argument, and of main's input.
_GELU: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    _("the form: this is the approximation with tanh, not the exact one with erf"):
        lambda a, _: F.gelu(a, approximate="tanh"),
    _("the form: this is the approximation x * sigmoid(1.702 x)"):
        lambda a, _: a * torch.sigmoid(1.702 * a),
    _("erf: its argument is not divided by the root of 2"): lambda a, _: a / 2 * (1 + torch.erf(a)),
    _("erf: its argument is multiplied by the root of 2"):
        lambda a, _: a / 2 * (1 + torch.erf(a * 2**0.5)),
    _("the factor x in front: it is missing"): lambda a, _: 0.5 * (1 + torch.erf(a / 2**0.5)),
    _("the factor one half: it is missing"): lambda a, _: 2 * F.gelu(a),
    _("the argument: this is the GELU of main's input, not of the node's argument"):
        lambda _, x: F.gelu(x)}


def _on_others(machine: relax.VirtualMachine, model: Callable[..., Tensor], layer: str = "",
               name: str = "main", axes: Mapping[str, str] = types.MappingProxyType({})) -> Rerun:
    """Return how what was imported runs on other inputs, with PyTorch's model beside it."""
    def right(**given: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(*map(torch.from_numpy, given.values())).numpy()
    return Rerun(lambda **given: to_numpy(machine[name](*map(tvm.runtime.tensor, given.values()))),
                 right, axes, shown=lambda given: {"layer": layer} | given if layer else given)


@exercise("5.3", "map_gelu(bb, node_map, node)")
def exercise_5_3(map_gelu: Callable) -> str:
    """a rule for F.gelu.

    The forms: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html; 1.702 is from
    Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415.
    """
    models = [((16, 25), _gelu), ((2, 3, 4), _gelu), ((11,), _gelu), ((2, 1, 3, 2), _gelu),
              ((9, 7), _gelu_behind), ((2, 1, 3, 2, 5), _gelu_behind)]
    with judged(_GELU, 1e-5) as note:
        for shape, model in models:
            mod = _import_by_rules(
                model, shape, _FUNCTIONS | {F.gelu: map_gelu}, {}, "map_gelu")
            machine = build(mod, QUICK)
            rerun = _on_others(machine, model)
            for scale in (6, 300):
                x = scale * random(*shape)
                given = torch.from_numpy(x)
                argument = given if model is _gelu else torch.relu(given) - 4
                with guarded(machine, mod):
                    came = to_numpy(machine["main"](tvm.runtime.tensor(x)))
                note(came, F.gelu(argument).numpy(), argument, given, given={"x": x},
                     rerun=rerun)
    return _("equal to F.gelu, the exact form, for ranks 1 to 5, and behind other nodes")


class _Behind(nn.Module):
    """A layer behind other nodes: neither main's input nor the latest value is its argument."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        before = x - 0.5
        torch.relu(before)  # a later value, which the layer does not take
        return self.layer(before)


def _layers() -> list[tuple[nn.Module, tuple[int, ...]]]:
    """Return layers unlike those of the CNN, each with the shape of an input for it."""
    return [
        (nn.Conv2d(1, 3, 3), (2, 1, 7, 9)),
        (nn.Conv2d(3, 4, (2, 3), bias=False), (2, 3, 8, 7)),
        (nn.Conv2d(2, 6, 3, stride=(2, 3), padding=(1, 2)), (1, 2, 9, 14)),  # output is 6 wide
        (nn.Conv2d(2, 3, (3, 2), stride=2, padding=1), (3, 2, 8, 6)),
        (nn.Conv2d(2, 3, (2, 3), dilation=(2, 3)), (1, 2, 7, 11)),
        (nn.Conv2d(4, 1, 1), (2, 4, 1, 5)),
        # what may be wrong only together; and the first one's shape again, with other weights
        (nn.Conv2d(1, 3, 3, stride=(1, 2), dilation=(2, 1)), (2, 1, 7, 9)),
        (nn.Conv2d(2, 2, (3, 2), padding=(2, 1), dilation=(1, 2), bias=False), (1, 2, 6, 8)),
        (nn.Conv2d(2, 3, 2, stride=3, padding=1, dilation=2), (1, 2, 9, 10)),
        (nn.Conv2d(2, 3, (2, 3), stride=(2, 1), bias=False), (2, 2, 7, 6)),
        (nn.MaxPool2d(2), (3, 3, 7, 8)),
        (nn.MaxPool2d(3, stride=1), (1, 2, 6, 5)),
        (nn.MaxPool2d((3, 5), stride=(2, 3), padding=(1, 2)), (2, 1, 6, 9)),
        (nn.MaxPool2d(3, stride=2, padding=1), (1, 2, 7, 9)),
        (nn.MaxPool2d((3, 5), stride=2), (1, 2, 7, 9)),
        (nn.MaxPool2d(3, stride=(2, 1), padding=1), (1, 2, 7, 6)),
        (nn.MaxPool2d((2, 3), padding=(0, 1)), (1, 2, 7, 8)),
        (nn.MaxPool2d((4, 2), stride=(1, 3), padding=1), (1, 1, 5, 8)),
        (nn.Flatten(), (3, 2, 4, 5)), (nn.Flatten(), (2, 3, 4)), (nn.Flatten(), (3, 5)),
        (nn.Flatten(), (1, 2, 1, 3, 2)),
        (nn.Softmax(dim=1), (3, 5)), (nn.Softmax(dim=-1), (2, 3, 4)), (nn.Softmax(dim=0), (4, 3)),
        (nn.Softmax(dim=1), (2, 3, 4)), (nn.Softmax(dim=-2), (4, 3, 2)),
        (nn.Softmax(dim=-3), (3, 4, 2, 3)), (nn.Softmax(dim=2), (1, 3, 5)),
    ]


@exercise("5.4", "cnn_rules()", seconds=90, prepare=[reference, lambda: _models()])
def exercise_5_4(cnn_rules: Callable) -> str:
    """rules for the layers of a CNN."""
    rules = cnn_rules()
    if not isinstance(rules, Mapping):
        raise CheckFailed(_("a dictionary from classes to rules"), type(rules).__name__)
    wanted = (nn.Conv2d, nn.MaxPool2d, nn.Flatten, nn.Softmax)
    if lacking := [kind.__name__ for kind in wanted if kind not in rules]:
        keys = ", ".join(getattr(key, "__name__", repr(key)) for key in rules)
        raise CheckFailed(_("rules for nn.Conv2d, nn.MaxPool2d, nn.Flatten and nn.Softmax"),
                          _("no rule for {lacking}; keys: {keys}").format(
                              lacking=", ".join(lacking), keys=keys or _("none")))
    for kind in wanted:
        require_called_as(rules[kind], "rule(bb, node_map, node, layer)",
                          _("the rule for nn.{kind}").format(kind=kind.__name__))
    rules = {nn.Linear: _linear_rule, nn.ReLU: _relu_rule} \
        | {kind: rules[kind] for kind in wanted}
    for kind in wanted:
        some = [one for one in _models() if isinstance(one.layer, kind)]
        with judged(_mistakes(some), 1e-5) as note:
            # a rule may change the layer that it is given
            right = [one._replace(layer=copy.deepcopy(one.layer)) for one in some]
            mod, machine, names = _build_layers(some, rules)
            _run_layers(mod, machine, names, right, note)
    model = cnn()[1]
    mod = _import_by_rules(model, INPUT, {}, rules, _("your rules"))
    verified = require_same(mod, model, reference())
    single = sum(not one.behind for one in _models())
    return _("{single} single layers equal PyTorch's, and so do layers behind a branch, and the "
             "CNN.\n{verified}").format(single=single, verified=verified)


class _One(NamedTuple):
    """A layer in a model that is imported, alone or behind others, and the shape of its input."""

    layer: nn.Module
    behind: bool
    traced: fx.GraphModule
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        says = _("{layer} behind other layers on {shape}") if self.behind \
            else _("{layer} on {shape}")
        return says.format(layer=self.layer, shape=self.shape)


@prepared
def _models() -> list[_One]:
    """Return a model of each layer, and for the first of each class one that has it behind others.

    They are recorded already, which takes a fifth of the time and needs no rule.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tried = [(layer.eval(), shape) for layer, shape in _layers()]
    first = {type(layer): (layer, shape) for layer, shape in reversed(tried)}
    return [_One(layer, behind, fx.symbolic_trace(model(layer)), shape)
            for behind, model, some in [(False, nn.Sequential, tried),
                                        (True, _Behind, first.values())]
            for layer, shape in some]


@torch.no_grad()
def _build_layers(models: Sequence[_One], rules: Mapping
                  ) -> tuple[tvm.IRModule, relax.VirtualMachine, list[str]]:
    """Build all models as functions of one module, a third of the time of several; with names.

    Raises CheckFailed, with the layer, where a rule raises or what it emits does not build.
    """
    bb, names = relax.BlockBuilder(), [f"{_IMPORTED}_{i}" for i in range(len(models))]
    for name, one in zip(names, models, strict=True):
        with _naming(one):
            _add_function(bb, name, one.traced, one.shape, _FUNCTIONS, rules,
                                   _("the rule for {layer}").format(layer=one.layer))
    mod = renamed(bb.get(), {names[0]: "main", "main": "main_of_a_rule"})
    names[0] = "main"
    for name, one in zip(names, models, strict=True):
        with _naming(one):
            _require_no_library(mod, _("the rule for {layer}").format(layer=one.layer),
                                         name)
    try:
        return mod, build(mod, QUICK), names
    except CheckFailed:
        for one in models:
            with _naming(one):
                build(_import_by_rules(one.traced, one.shape, _FUNCTIONS, rules, one.text),
                      QUICK)
        raise


@contextlib.contextmanager
def _naming(one: _One) -> Iterator[None]:
    """Raise CheckFailed with the layer's name where importing or building it raises."""
    try:
        yield
    except NotImplementedError:
        raise
    except CheckFailed as failed:
        raise CheckFailed(_("; ").join([failed.parts[0], one.text]), *failed.parts[1:]) from None
    except Exception as error:  # whatever the rule raises
        hint = ""
        if getattr(one.layer, "bias", 0) is None and "None" in str(error):
            hint = _("bias=False: layer.bias is None, and nothing is to be added")
        raise CheckFailed(_("a rule that imports {text}").format(text=one.text), reason(error),
                          _("; ").join(filter(None, [line_of_answer(error), hint]))) from None


def _run_layers(mod: tvm.IRModule, machine: relax.VirtualMachine, names: Sequence[str],
                models: Sequence[_One], note: Callable) -> None:
    for name, one in zip(names, models, strict=True):
        scales = {nn.Softmax: (1, 150, 500), nn.MaxPool2d: (300, -1e37)}.get(
            type(one.layer), (1, 300))
        rerun = _on_others(machine, functools.partial(_alone, one), one.text, name)
        for seed, scale in enumerate(scales):
            x = random(*one.shape, seed=seed) - np.float32(0.3)
            if scale == -1e37:  # padding must not win: all below zero, and far
                x = np.abs(x) + np.float32(0.1)
            given = torch.from_numpy(x * np.float32(scale))
            argument = given - 0.5 if one.behind else given
            latest = torch.relu(argument) if one.behind else argument
            with torch.no_grad():
                expected = _alone(one, given).numpy()
            with _naming(one), contextlib.nullcontext() if seed else guarded(machine, mod):
                came = to_numpy(machine[name](tvm.runtime.tensor(given.numpy())))
            note(came, expected, one.layer, argument, given, latest,
                 words=one.text, given={"x": given.numpy()}, rerun=rerun,
                 atol=3e-3 if scale == 300 else None)


def _alone(one: _One, given: Tensor) -> Tensor:
    """Return what a model of one layer gives of main's input."""
    return one.layer(given - 0.5 if one.behind else given)


def _mistaken(hint: str, layer: nn.Module, x: Tensor, *_: Tensor) -> Tensor:
    """Return what a usual mistake gives for a layer, or the right result: the layer has it not."""
    mistake = layer_mistakes(layer).get(hint)
    return mistake(layer, x) if mistake else layer(x)


def _always_2x2(layer: nn.MaxPool2d, x: Tensor, *_: Tensor) -> Tensor:
    down, across = pair(layer.padding)  # which PyTorch wants smaller than the window
    return F.max_pool2d(F.pad(x, (across, across, down, down),
                              value=torch.finfo(torch.float32).min), 2, 2)


# Functions of the layer, its argument, main's input and the latest value before it.
_RULES: Mistakes = {
    _("the argument: this is the layer of main's input, not of node.args[0]"):
        lambda layer, x, given, latest: layer(given),
    _("the argument: this is the layer of the latest value, not of node.args[0]"):
        lambda layer, x, given, latest: layer(latest)}
_RULE: dict[type, Mistakes] = {
    nn.MaxPool2d: {_("the window and the stride: it is always 2x2 with stride 2"): _always_2x2},
    nn.Flatten: {
        _("flattened as NHWC instead of NCHW: the channels are not moved to the end"):
            lambda _, x, *more: (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).flatten(1)},
    nn.Softmax: {
        _("softmax always runs over the last axis; layer.dim says which"):
            lambda layer, x, *_: x.softmax(-1),
        _("softmax always runs over axis 1; layer.dim says which"):
            lambda layer, x, *_: x.softmax(1),
        _("softmax always runs over axis 0 (down the batch); layer.dim says which"):
            lambda layer, x, *_: x.softmax(0),
        _("a negative layer.dim is taken for the last axis"):
            lambda layer, x, *_: x.softmax(max(layer.dim, -1))}}


def _mistakes(models: Sequence[_One]) -> Mistakes:
    """Return the usual mistakes of a rule for the class of layers that all these models have.

    A mistake is made for every layer of the class.
    """
    hints = dict.fromkeys(hint for one in models for hint in layer_mistakes(one.layer))
    return {hint: functools.partial(_mistaken, hint) for hint in hints} | _RULES \
        | _RULE.get(type(models[0].layer), {})


# ---- symbolic shapes -----------------------------------------------------------------------


class _TwoInputs(nn.Module):
    """(n, 6) and (n, 4) to (n, 3), one layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5, bias=False)
        self.relu, self.last, self.add = nn.ReLU(), nn.Linear(5, 3), operator.add

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.last(self.relu(self.add(self.left(x), self.right(y))))


class _ThreeInputs(nn.Module):
    """Inputs (n, 4), (n, 4) and (n, 7), of which one is added to itself; a nested layer, twice.

    Both linear layers of (4, 4) are of one shape, so that either may get what is the other's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.block, self.last = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)
        self.third, self.add = nn.Linear(7, 4), operator.add

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        deep, wide = self.block(self.block(y)), self.third(z)
        return self.last(self.add(self.add(x, deep), self.add(x, self.add(wide, wide))))


class _FourInputs(nn.Module):
    """Inputs of four widths: (n, 2), (n, 5), (n, 3) and (n, 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(width, 4) for width in (2, 5, 3, 6))
        self.relu, self.add = nn.ReLU(), operator.add

    def forward(self, x: Tensor, y: Tensor, z: Tensor, w: Tensor) -> Tensor:
        left, right = self.add(self.a(x), self.b(y)), self.add(self.c(z), self.d(w))
        return self.add(self.relu(left), right)


def _with_add(add: Callable, model: nn.Module, *inputs: Tensor) -> Tensor:
    with mock.patch.object(model, "add", add, create=True):
        return model(*inputs)


def _without_biases(model: nn.Module, *inputs: Tensor) -> Tensor:
    zeros = {name: torch.zeros_like(value) for name, value in model.named_parameters()
             if name.endswith("bias")}
    return torch.func.functional_call(model, zeros, inputs)


def _without_relu(model: nn.Module, *inputs: Tensor) -> Tensor:
    with mock.patch.object(nn.ReLU, "forward", lambda _, x: x):
        return model(*inputs)


# Functions of the model and its inputs.
_ANY_BATCH: Mistakes = {
    # cause: no-linear-biases
    _("the rule for nn.Linear: the biases are left out"): _without_biases,
    _("the rule for +: its second term is dropped"): functools.partial(_with_add, lambda a, b: a),
    _("the rule for +: it adds the first term to itself"):
        functools.partial(_with_add, lambda a, b: a + a),
    _("the rule for +: it adds the second term to itself"):
        functools.partial(_with_add, lambda a, b: b + b),
    _("the rule for +: a value that is added to itself counts once"):
        functools.partial(_with_add, lambda a, b: a if a is b else a + b),
    # cause: no-relus
    _("the ReLU: it is left out"): _without_relu}


def _require_refusals(machine: relax.VirtualMachine, features: Sequence[int]) -> None:
    """Raise CheckFailed unless main refuses inputs whose batches differ."""
    for sizes in ([3] + [2] * (len(features) - 1), [3] + [1] * (len(features) - 1)):
        arrays = [tvm.runtime.tensor(random(size, width))
                  for size, width in zip(sizes, features, strict=True)]
        try:
            machine["main"](*arrays)
        except (ValueError, TypeError, RuntimeError):
            continue
        raise CheckFailed(_("that inputs whose batches differ are refused"),
                          _("main ran with batches of {sizes}").format(
                              sizes=", ".join(map(str, sizes))))


@exercise("5.5", "import_for_any_batch(model, features)",
          seconds=120)  # torch.export of the models alone takes 12 seconds of CPU
@torch.no_grad()
def exercise_5_5(import_for_any_batch: Callable) -> str:
    """an import for any batch size."""
    torch.manual_seed(1)
    once, again = (nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).eval()
                   for _again in range(2))  # what is kept of one is wrong for the other
    models: list[tuple[nn.Module, list[int]]] = [
        (once, [6]), (_TwoInputs().eval(), [6, 4]), (_ThreeInputs().eval(), [4, 4, 7]),
        (_FourInputs().eval(), [2, 5, 3, 6]), (again, [6])]
    with judged(_ANY_BATCH, 1e-5) as note:
        for model, features in models:
            mod = import_for_any_batch(copy.deepcopy(model), list(features))
            if isinstance(mod, tvm.IRModule) and any(
                    variable.name_hint == "main" for variable in mod.get_global_vars()):
                # what build says of a wrong shape is harder to read
                _require_inputs(mod, features)
            machine = build(mod, QUICK)
            _require_no_library(mod, _("the module"))
            for size in (1, 3, 7):
                scale = np.float32(30 if size == 3 else 1)  # activations above 6
                arrays = [scale * random(size, width, seed=10 * size + i)
                          for i, width in enumerate(features)]
                with guarded(machine, mod):
                    output = machine["main"](*map(tvm.runtime.tensor, arrays))
                if not hasattr(output, "numpy"):
                    raise CheckFailed(_("one tensor"),
                                      _("a tuple of {count}").format(count=len(output)),
                                      _("what main returns; TVM's importer has "
                                        "unwrap_unit_return_tuple"))
                inputs = list(map(torch.from_numpy, arrays))
                names = [param.name for param in mod["main"].params]
                note(output.numpy(), model(*inputs).numpy(), model, *inputs,
                     given=dict(zip(names, arrays, strict=True)), rerun=_on_others(
                         machine, model, axes={name: f"n {width}" for name, width
                                               in zip(names, features, strict=True)}),
                     words=_("a batch of {size}").format(size=size), atol=1e-5 * float(scale))
            if len(features) > 1:
                _require_refusals(machine, features)
    return _("one module each for a model of one input, of two, of three and of four, run with "
             "batches of 1, 3 and 7;\ninputs whose batches differ are refused")
