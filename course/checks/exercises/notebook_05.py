"""The checks of notebook 05: an importer and its rules."""

import contextlib
import copy
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import Tensor, fx, nn
from torch.nn import functional as F
from tvm import relax, tirx, topi

from course.checks.compare.tolerance import fractions, random
from course.checks.diagnose.equivalence import build, renamed, require_same
from course.checks.exercises.faulty import FAULTS, faulty_cnn, mended
from course.checks.exercises.models import INPUT, cnn, model_of, reference
from course.checks.observe.primfuncs import QUICK
from course.checks.observe.spies import TorchCalls
from course.checks.run.check import exercise, prepared
from course.checks.run.signature import require_called_as
from course.checks.say.messages import CheckFailed, require_type
from course.checks.spec.forms import Main, Mains, Misuse, compiled, expression, fenced, naming
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Cases, Spec, check, not_finite
from course.words import _

# ---- tensor expressions --------------------------------------------------------------------

_TAKES = {"lv1": "x, b", "lv3": "x"}  # as the module's bindings do
_CONV = (4, 32, 26, 26)  # of the convolution's values, before and after its bias
_mend = functools.partial(expression, topi=True)
_MENDED = {
    "lv1": Spec(_mend, lambda x, b: x + b.reshape(-1, 1, 1),
                lambda: [{"x": fractions(*_CONV), "b": fractions(_CONV[1])}],
                {"x": "n c h w", "b": "c"}, least={"c": 2, "h": 2, "w": 2}, fault=Misuse,
                atol=1e-5),
    "lv3": Spec(_mend, lambda x: F.max_pool2d(torch.from_numpy(x), 2).numpy(),
                # windows below zero, and above
                lambda: [{"x": fractions(*_CONV) - np.float32(128)}],
                {"x": "n c h w"}, least={"h": 2, "w": 2}, fault=Misuse, atol=1e-5,
                beyond=lambda: [{"x": 1e35 * (fractions(*_CONV) - 128)}],  # below any start
                fits=lambda given: not any(size % 2 for size in given["x"].shape[2:]))}


@exercise("5.1", "mend()", prepare=[faulty_cnn])
def exercise_5_1(mend: Callable) -> str:
    """two mistakes in a module."""
    operations = mend()
    require_type(operations, Mapping, _("a dictionary from names of bindings to operations"))
    found = [name for name in FAULTS if name in operations]
    for name in found:
        require_called_as(operations[name], f"operation({_TAKES[name]})",
                          _("the operation for {name}").format(name=name))
    bound = {binding.var.name for block in faulty_cnn()["main"].body.blocks
             for binding in block.bindings}
    if innocent := [name for name in operations if name in bound and name not in FAULTS]:
        raise CheckFailed(_("the operations that are wrong, and no others"),
                          _("{name} is right as it is").format(name=innocent[0]))
    mended(faulty_cnn(), operations)
    for name in found:
        check(dataclasses.replace(_MENDED[name], result=name), operations[name])
    if len(found) < len(FAULTS):
        raise CheckFailed(_("two fixed operations"),
                          _("{name} is fixed, and right; there is another mistake").format(
                              name=found[0]) if found else _("none"))
    return _("both mistakes are found, each operation is the layer's, and the others are as they "
             "were")


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
            ((1, 2, 4, 5), (4, 5), (1, 1)), ((2, 1, 6, 8), (2, 3), (2, 1)),
            ((5, 33, 30, 31), (2, 2), (2, 2))]:
        yield {"x": fractions(*shape), "kernel": kernel, "stride": stride}


_AVERAGE = Spec(
    expression, lambda x, kernel, stride: F.avg_pool2d(
        torch.from_numpy(x), kernel, stride).numpy(), _avg_pool_cases, {"x": "n c h w"},
    beyond=lambda: not_finite({"x": random(2, 3, 8, 7), "kernel": (2, 3), "stride": (3, 2)}),
    least={"h": 2, "w": 2}, fits=_windows_fit, fault=Misuse)


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


def _add_function(bb: relax.BlockBuilder, name: str, traced: fx.GraphModule, shape: Sequence[int],
                 functions: Mapping, modules: Mapping, answer: str) -> None:
    """Import a model of one float32 input as a function `name`, by the reader's rules and by ours.

    `functions` and `modules` have the rules for functions and for classes of layers; `answer` names
    the reader's in messages. Raises CheckFailed where a rule computes in PyTorch, or returns no
    emitted variable.
    """
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
                        with _kept(node_map, rule, layer), TorchCalls() as calls:
                            value = modules[type(layer)](bb, node_map, node, layer)
                        if used := sorted(_COMPUTES & set(calls.names)):
                            raise CheckFailed(_("operators that compute when the module runs"),
                                              _("{rule} ran PyTorch's {used}").format(
                                                  rule=rule, used=used[0]))
                        node_map[node] = _emitted(value, rule)
                    case "call_function":
                        with _kept(node_map, answer):
                            value = functions[node.target](bb, node_map, node)
                        node_map[node] = _emitted(value, answer)
        bb.emit_func_output(result, params=[x])


@contextlib.contextmanager
def _kept(node_map: Mapping[fx.Node, Any], rule: str, layer: nn.Module | None = None
          ) -> Iterator[None]:
    """Raise CheckFailed where a rule changes its layer, or what earlier nodes are."""
    before = dict(node_map)
    kept = copy.deepcopy(layer)
    yield
    if layer is not None and kept is not None:
        if str(layer) != str(kept):
            raise CheckFailed(_("{name} to stay as it was").format(name=kept),
                              _("{rule} made {layer} of it").format(rule=rule, layer=layer))
        now = dict(layer.named_parameters())
        for name, tensor in kept.named_parameters():
            if name not in now or now[name].dtype != tensor.dtype \
                    or not torch.equal(now[name], tensor):
                raise CheckFailed(_("{name} to stay as it was").format(name=f"layer.{name}"),
                                  _("{rule} changed it").format(rule=rule))
    for node, variable in before.items():
        if not variable.same_as(node_map.get(node)):
            raise CheckFailed(_("{name} to stay as it was").format(name=f"node_map[{node}]"),
                              _("{rule} changed it").format(rule=rule))


def _emitted(value: Any, rule: str) -> Any:
    """Return what a rule gave; raise CheckFailed, and say what it is, unless it is a variable."""
    if isinstance(value, relax.Var):
        return value
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


# ---- rules ---------------------------------------------------------------------------------


_FUNCTIONS = {torch.relu: _relu_rule, operator.sub: _minus_rule}


@exercise("5.3", "map_gelu(bb, node_map, node)")
def exercise_5_3(map_gelu: Callable) -> str:
    """a rule for F.gelu.

    The forms: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html
    """
    models = [_One.of(F.gelu, behind, shape) for behind, shape in (
        (False, (16, 25)), (False, (2, 3, 4)), (False, (11,)), (False, (2,)), (False, (2, 1)),
        (False, (2, 1, 3, 2)), (True, (9, 7)), (True, (2, 1, 3, 2, 5)))]
    mains = _mains(models, _FUNCTIONS | {F.gelu: map_gelu}, {})
    check(compiled({one.text: one for one in models},
                   lambda one, x: F.gelu(one.argument(x).double()).float(),
                   {one.text: [[scale * random(*one.shape)] for scale in (6, 300)]
                    for one in models}, 1e-5, {
                        _("the form: this is the approximation with tanh, not the exact one with "
                          "erf"): lambda one, x: F.gelu(one.argument(x), approximate="tanh")}),
          mains, mains.all)
    return _("equal to F.gelu, the exact form, for ranks 1 to 5, and after other nodes")


class _One(NamedTuple):
    """A layer or a function in a model that is imported, alone or `behind` other nodes.

    `shape`: that of the model's input.
    """

    layer: Callable
    behind: bool
    traced: fx.GraphModule
    shape: tuple[int, ...]

    @classmethod
    def of(cls, layer: Callable, behind: bool, shape: tuple[int, ...]) -> "_One":
        def forward(self: Any, x: Tensor) -> Tensor:
            if behind:  # then neither main's input nor the latest value is what the layer takes
                x = x - 0.5
                torch.relu(x)
            return self.layer(x)
        return cls(layer, behind, fx.symbolic_trace(model_of(forward, layer=layer)), shape)

    @property
    def name(self) -> str:
        return str(self.layer) if isinstance(self.layer, nn.Module) else "gelu"

    @property
    def text(self) -> str:
        program = f"y = x - 0.5; relu(y); {self.name}(y)" if self.behind else self.name
        return f"{program}, x: {self.shape}"

    def argument(self, x: Tensor) -> Tensor:
        """Return what the layer takes of main's input."""
        return x - 0.5 if self.behind else x


def _layers() -> list[tuple[nn.Module, tuple[int, ...]]]:
    """Return layers unlike those of the CNN, each with the shape of an input for it."""
    return [
        (nn.Conv2d(1, 3, 3), (2, 1, 7, 9)),
        (nn.Conv2d(3, 4, (2, 3), bias=False), (2, 3, 8, 7)),
        (nn.Conv2d(2, 6, 3, stride=(2, 3), padding=(1, 2)), (1, 2, 9, 14)),  # output is 6 wide
        (nn.Conv2d(2, 3, (3, 2), stride=2, padding=1), (3, 2, 8, 6)),
        (nn.Conv2d(2, 3, (2, 3), dilation=(2, 3)), (1, 2, 7, 11)),
        (nn.Conv2d(4, 1, 1), (2, 4, 1, 5)),
        (nn.Conv2d(1, 1, 2, dilation=2, bias=False), (1, 1, 3, 3)),
        (nn.Conv2d(1, 1, 1, stride=(1, 2), bias=False), (1, 1, 3, 3)),
        (nn.MaxPool2d((2, 1), stride=1), (1, 1, 3, 3)),
        (nn.MaxPool2d(2, stride=1, padding=1), (1, 1, 2, 2)),
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
    require_type(rules, Mapping, _("a dictionary from classes to rules"))
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
        mains = _mains(some, _FUNCTIONS, rules)
        check(compiled({one.text: one for one in some}, _applied,
                       {one.text: _numbers_for(one) for one in some}, _within), mains, mains.all)
    bb, model, answer = relax.BlockBuilder(), cnn()[1], _("your rules")
    _add_function(bb, _IMPORTED, fx.symbolic_trace(model), INPUT, {}, rules, answer)
    mod = renamed(bb.get(), {_IMPORTED: "main", "main": "main_of_a_rule"})
    _require_no_library(mod, answer)
    verified = require_same(mod, model, reference())
    single = sum(not one.behind for one in _models())
    return _("{single} single layers equal PyTorch's, and so do layers after a branch, and the "
             "CNN.\n{verified}").format(single=single, verified=verified)


@prepared
def _models() -> list[_One]:
    """Return a model of each layer, and for the first of each class one that has it behind others.

    They are recorded already, which takes a fifth of the time and needs no rule.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tried = [(layer.eval(), shape) for layer, shape in _layers()]
    with torch.no_grad():
        for layer, _shape in tried:
            if (bias := getattr(layer, "bias", None)) is not None and len(bias) > 1:
                bias[-1] = 0  # a bias may have zeros
    first = {type(layer): (layer, shape) for layer, shape in reversed(tried)}
    return [_One.of(layer, behind, shape)
            for behind, some in ((False, tried), (True, first.values())) for layer, shape in some]


def _mains(models: Sequence[_One], functions: Mapping, modules: Mapping) -> Mains:
    """Return the models' functions by their texts, to be compiled."""
    return Mains(lambda titles: _build([one for one in models if one.text in titles], functions,
                                       modules), [one.text for one in models])


@torch.no_grad()
def _build(models: Sequence[_One], functions: Mapping, modules: Mapping) -> dict[str, Main]:
    """Return all models compiled, by their texts: as one module, a third of the time of several.

    Raises CheckFailed, with the layer, where a rule raises or what it emits does not build.
    """
    bb, names = relax.BlockBuilder(), [f"{_IMPORTED}_{i}" for i in range(len(models))]
    rules = [_("the rule for {layer}").format(layer=one.name) for one in models]
    for name, one, rule in zip(names, models, rules, strict=True):
        with naming(one.text):
            _add_function(bb, name, one.traced, one.shape, functions, modules, rule)
    mod = renamed(bb.get(), {names[0]: "main", "main": "main_of_a_rule"})
    names[0] = "main"
    for name, one, rule in zip(names, models, rules, strict=True):
        with naming(one.text):
            _require_no_library(mod, rule, name)
    try:
        machine = build(mod, QUICK)
    except CheckFailed:
        for one in models if len(models) > 1 else ():
            _build([one], functions, modules)
        raise
    return {one.text: fenced(machine, mod, name) for name, one in zip(names, models, strict=True)}


def _numbers_for(one: _One) -> list[list[np.ndarray]]:
    """Return inputs of a model: large ones too, and all far below zero, for padding."""
    scales = {nn.Softmax: (1, 150, 500), nn.MaxPool2d: (300, -1e37)}.get(type(one.layer), (1, 300))
    return [[np.float32(scale) * (x if scale > 0 else np.abs(x) + np.float32(0.1))]
            for seed, scale in enumerate(scales)
            for x in [random(*one.shape, seed=seed) - np.float32(0.3)]]


def _applied(one: _One, x: Tensor) -> Tensor:
    return one.layer(one.argument(x))


def _within(given: Inputs) -> float:
    """Return how far a right number may be off: sums of large products are not exact."""
    return 3e-3 if "Conv2d(" in given["program"] and abs(given["x"]).max() > 100 else 1e-5


# ---- symbolic shapes -----------------------------------------------------------------------


def _text(shapes: Sequence[tuple[int | str, ...]]) -> str:
    return ", ".join(f"({', '.join(map(str, shape))})" for shape in shapes)


def _several() -> dict[str, tuple[nn.Module, list[int]]]:
    """Return models of one to four inputs (n, width), and these widths, by their titles.

    What a reader can work out comes first: no weights, or a 2 and a 3. One layer has no bias, one
    is used twice, one is the last as well, and one value is added to itself. Two linear layers of
    one model are of one shape, so that either may get what is the other's.
    """
    linear = nn.Linear
    once, again = (nn.Sequential(linear(6, 9), nn.ReLU(), linear(9, 4)).eval()
                   for _again in range(2))  # what is kept of one is wrong for the other
    two = model_of(
        lambda self, x, y: self.relu(self.last(self.relu(self.left(x) + self.right(y)))),
        left=linear(6, 5), right=linear(4, 5, bias=False), relu=nn.ReLU(), last=linear(5, 3))
    three = model_of(
        lambda self, x, y, z: self.last((x + self.block(self.block(y))) + (
            x + ((wide := self.third(z)) + wide))),
        block=nn.Sequential(linear(4, 4), nn.ReLU()), last=linear(4, 4), third=linear(7, 4))
    four = model_of(
        lambda self, x, y, z, w: self.relu(self.a(x) + self.b(y)) + (self.c(z) + self.d(w)),
        a=linear(2, 4), b=linear(5, 4), c=linear(3, 4), d=linear(6, 4), relu=nn.ReLU())
    added, doubled = model_of(lambda self, x, y: x + y), model_of(lambda self, x: x + x)
    twice, three_times = (linear(1, 1, bias=False) for _each in range(2))
    nn.init.constant_(twice.weight, 2)
    nn.init.constant_(three_times.weight, 3)
    relus = model_of(lambda self, x, y: self.relu(x) + self.relu(y), relu=nn.ReLU())
    return {f"{name}: {_text([('n', width) for width in features])}": (model, features)
            for name, model, features in (
                ("x + y", added, [3, 3]), ("x + x", doubled, [3]),
                ("relu(x) + relu(y)", relus, [3, 3]),
                ("3 * (2 * x)", nn.Sequential(twice, three_times), [1]),
                ("linear2(relu(linear1(x)))", once, [6]),
                ("relu(last(relu(left(x) + right(y))))", two, [6, 4]),
                ("last((x + block(block(y))) + (x + (wide + wide))), wide = third(z)", three,
                 [4, 4, 7]),
                ("relu(a(x) + b(y)) + (c(z) + d(w))", four, [2, 5, 3, 6]),
                ("linear4(relu(linear3(x)))", again, [6]))}


def _require_refusals(machine: relax.VirtualMachine, features: Sequence[int]) -> None:
    """Raise CheckFailed unless main refuses inputs whose batches differ."""
    for place, others in itertools.product(range(len(features)), (2, 1)):
        sizes = [3 if each == place else others for each in range(len(features))]
        arrays = [tvm.runtime.tensor(random(size, width))
                  for size, width in zip(sizes, features, strict=True)]
        try:
            machine["main"](*arrays)
        except (ValueError, TypeError, RuntimeError):
            continue
        raise CheckFailed(_("inputs whose batches differ to be refused"),
                          _("main ran with batches of {sizes}").format(
                              sizes=", ".join(map(str, sizes))))


def _one_tensor(main: Main) -> Main:
    """Return a compiled function that raises CheckFailed where it gives several tensors."""
    def run(*given: Any) -> Any:
        output = main(*given)
        if not hasattr(output, "numpy"):
            raise CheckFailed(_("one tensor"), _("a tuple of {count}").format(count=len(output)))
        return output
    return run


@exercise("5.5", "import_for_any_batch(model, features)",
          seconds=120)  # torch.export of the models alone takes 12 seconds of CPU
@torch.no_grad()
def exercise_5_5(import_for_any_batch: Callable) -> str:
    """an import for any batch size."""
    torch.manual_seed(1)
    models = _several()
    mains, arrays = {}, {}
    for title, (model, features) in models.items():
        with naming(title):
            mod = import_for_any_batch(copy.deepcopy(model), list(features))
            machine = build(mod, QUICK)
            taken = [param.ty for param in mod["main"].params]
            shapes = [tuple(int(extent) if isinstance(extent, tirx.IntImm) else "n"
                            for extent in getattr(type_, "shape", None) or ()) for type_ in taken]
            if shapes != (wanted := [("n", width) for width in features]):
                raise CheckFailed(_("inputs {shapes}").format(shapes=_text(wanted)),
                                  ", ".join(map(str, taken)))
            _require_no_library(mod, _("the module"))
            if len(features) > 1:
                _require_refusals(machine, features)
        mains[title] = _one_tensor(fenced(machine, mod))
        arrays[title] = [[np.float32(30 if size == 3 else 1)  # activations above 6
                          * random(size, width, seed=10 * size + i)
                          for i, width in enumerate(features)] for size in (1, 3, 7)]
    check(compiled({title: model for title, (model, _features) in models.items()},
                   lambda model, *inputs: model(*inputs), arrays,
                   lambda given: 3e-4 if len([*given.values()][1]) == 3 else 1e-5), mains)
    return _("one module each for a model of one input, of two, of three and of four, run with "
             "batches of 1, 3 and 7;\ninputs whose batches differ are refused")
