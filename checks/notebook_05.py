"""The checks of notebook 05: an importer and its rules."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch import fx, nn
from torch.nn import functional as F
from tvm import relax, topi

import helpers
from checks.answers import (
    CheckFailed,
    TorchCalls,
    compare,
    exercise,
    random,
    reason,
    run_te,
    to_numpy,
)
from checks.equivalence import build, check_same, cnn

# ---- tensor expressions --------------------------------------------------------------------


def _exp_quotient(x: np.ndarray, shift: Any = 0, axis: int = 1) -> np.ndarray:
    powers = np.exp(x - np.float32(shift))
    return powers / powers.sum(axis=axis, keepdims=True)


@exercise("5.1")
def exercise_5_1(softmax: Callable) -> str:
    """a stable softmax as a tensor expression."""
    mixed = random(3, 5, seed=4)
    mixed[0] += 1000
    mixed[1] -= 1000
    far_apart = 1000 * np.float32([[1, -1, 0, -1], [-1, 0, -1, 1]])
    inputs = {"logits around 0": 3 * random(4, 7), "another shape": 3 * random(6, 2),
              "one row": 2 * random(1, 9), "logits of 1000 and -1000 in one tensor": mixed,
              "logits of -1000 alone": random(2, 5) - np.float32(1000),
              "logits of 1000 and -1000 in one row": far_apart}
    for name, x in inputs.items():
        rows = x.max(axis=1, keepdims=True)
        look_at = f"{name}: " + ("is each row's own maximum subtracted?" if "1000" in name
                                 else "the four steps, one by one")
        compare(run_te(softmax, x), _exp_quotient(x, rows), look_at, {
            "the axis: it runs over axis 0, the rows":
                lambda x=x: _exp_quotient(x, x.max(0, keepdims=True), 0),
            "the exponentials overflow or vanish: is each row's own maximum subtracted?":
                lambda x=x: _exp_quotient(x),
            "the maximum: it is that of the whole tensor, not of each row":
                lambda x=x: _exp_quotient(x, x.max()),
            "the maximum: for rows below 0 it is too large (does it start from 0?)":
                lambda x=x, rows=rows: _exp_quotient(x, np.maximum(rows, 0)),
            "the maximum: each column's is subtracted, not each row's":
                lambda x=x: _exp_quotient(x, x.max(0, keepdims=True)),
            "the quotient: the exponentials are not divided by their sum":
                lambda x=x, rows=rows: np.exp(x - rows),
            "the quotient: they are divided by the sum over everything":
                lambda x=x, rows=rows: np.exp(x - rows) / np.exp(x - rows).sum(),
            "the result: this is the logarithm of the softmax":
                lambda x=x, rows=rows: np.log(_exp_quotient(x, rows))}, atol=1e-6)
    return "equal to NumPy for three shapes, and finite for logits of 1000 and -1000"


def _shift_pool(a: torch.Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> torch.Tensor:
    """Windows of the right number, one step apart whatever the stride says."""
    right = F.avg_pool2d(a, kernel, stride)
    return F.avg_pool2d(a, kernel, 1)[..., :right.shape[2], :right.shape[3]]


@exercise("5.2")
def exercise_5_2(avg_pool: Callable) -> str:
    """average pooling as a tensor expression."""
    cases = [((2, 3, 8, 6), (2, 2), (2, 2)), ((1, 2, 9, 8), (3, 2), (1, 2)),
             ((2, 1, 7, 11), (2, 3), (3, 2)), ((1, 2, 10, 6), (2, 5), (4, 1))]
    for shape, kernel, stride in cases:
        x = random(*shape)
        a, size = torch.from_numpy(x), kernel[0] * kernel[1]
        right = F.avg_pool2d(a, kernel, stride)
        text = f"kernel {kernel}, stride {stride} on {shape}"
        compare(run_te(lambda t, k=kernel, s=stride: avg_pool(t, k, s), x), right.numpy(),
                f"{text}: where window (i, j) starts, and how many there are", {
                    "the division: this is the sum": lambda r=right, n=size: r * n,
                    "the division: it is by the stride's product, not the window's size":
                        lambda r=right, n=size, s=stride: r * n / (s[0] * s[1]),
                    "the division: it is always by 4": lambda r=right, n=size: r * n / 4,
                    "the division: it is by the rows of the window, not by its elements":
                        lambda r=right, n=size, k=kernel: r * n / k[0],
                    "the division: it is by the columns of the window, not by its elements":
                        lambda r=right, n=size, k=kernel: r * n / k[1],
                    "the division: it is by rows plus columns, not by rows times columns":
                        lambda r=right, n=size, k=kernel: r * n / sum(k),
                    "the reduction: this is the maximum":
                        lambda a=a, k=kernel, s=stride: F.max_pool2d(a, k, s),
                    "the stride: it is ignored, windows are as far apart as they are large":
                        lambda a=a, k=kernel: F.avg_pool2d(a, k),
                    "the stride: it is ignored, the windows are one step apart":
                        lambda a=a, k=kernel, s=stride: _shift_pool(a, k, s),
                    "the stride: down and across are exchanged":
                        lambda a=a, k=kernel, s=stride: F.avg_pool2d(a, k, s[::-1]),
                    "the window: rows and columns are exchanged":
                        lambda a=a, k=kernel, s=stride: F.avg_pool2d(a, k[::-1], s),
                    "the window and the stride: they are exchanged":
                        lambda a=a, k=kernel, s=stride: F.avg_pool2d(a, s, k),
                    "the window: it is always 2x2 with stride 2":
                        lambda a=a: F.avg_pool2d(a, 2),
                    "the number of windows: one is missing in each direction; see + 1":
                        lambda r=right: r[..., :-1, :-1]}, atol=1e-6)
    return ("equal to F.avg_pool2d for square and oblong windows, overlapping and apart,\n"
            "also where they do not fill the image")


# ---- rules ---------------------------------------------------------------------------------


def _linear(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node, layer: nn.Linear) -> Any:
    weight = relax.const(layer.weight.detach().numpy(), "float32")
    y = bb.emit_te(topi.nn.dense, node_map[node.args[0]], weight)
    bias = relax.const(layer.bias.detach().numpy(), "float32")
    return bb.emit_te(topi.add, y, bias)


def _relu(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node, *_: Any) -> Any:
    return bb.emit_te(topi.nn.relu, node_map[node.args[0]])


_COMPUTES = {"conv2d", "max_pool2d", "boolean_dispatch", "softmax"}  # PyTorch, while importing


def _import(model: nn.Module, shape: Sequence[int], functions: Mapping, modules: Mapping,
            answer: str) -> tvm.IRModule:
    """Import a model of one input with rules of the reader's and of ours; `answer` names theirs."""
    traced = fx.symbolic_trace(model)
    node_map: dict[fx.Node, Any] = {}
    bb = relax.BlockBuilder()
    with bb.function("main"):
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
                        rule = f"the rule for {layer}"
                        with TorchCalls() as calls:
                            value = modules[type(layer)](bb, node_map, node, layer)
                        if used := sorted(_COMPUTES & set(calls.names)):
                            raise CheckFailed("operators that compute when the module runs",
                                              f"{rule} ran PyTorch's {used[0]}", "the layer's "
                                              "weights are constants; the rest is for TVM")
                        node_map[node] = _emitted(value, rule)
                    case "call_function":
                        value = functions[node.target](bb, node_map, node)
                        node_map[node] = _emitted(value, answer)
        bb.emit_func_output(result, params=[x])
    mod = bb.get()
    _refuse_libraries(mod, answer)
    return mod


def _emitted(value: Any, rule: str) -> Any:
    """Return what a rule gave if it is a variable; say what it is where it is not."""
    if isinstance(value, relax.Var):
        return value
    if isinstance(value, tvm.ir.GenericConst):
        raise CheckFailed("operators that compute when the module runs",
                          f"{rule} returned a constant",
                          "what the rule calls: the input has no numbers yet, so nothing can be "
                          "computed while importing")
    if isinstance(value, relax.Call):
        raise CheckFailed("the variable of an emitted line", f"{rule} returned an expression that "
                          "was not emitted", "bb.emit(expression) makes a line of it and returns "
                          "its variable")
    raise CheckFailed("the variable that bb.emit_te or bb.emit returns",
                      f"{rule} returned {type(value).__name__}", "the return statement of the rule")


def _refuse_libraries(mod: tvm.IRModule, answer: str) -> None:
    """Raise CheckFailed where main calls a library function: PyTorch could be behind it."""
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.ExternFunc):
            found.append(expression.global_symbol)

    relax.analysis.post_order_visit(mod["main"].body, visit)
    if found:
        raise CheckFailed("operators that TVM computes", f"{answer} calls the library function "
                          f"{found[0]}", "TOPI, Relax operators or an own expression")


class _Gelu(nn.Module):
    """GELU alone, or behind other nodes, so that a rule that takes main's input is found out."""

    def __init__(self, behind: bool) -> None:
        super().__init__()
        self.behind = behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.behind:
            return F.gelu(x)
        before = torch.relu(x) - 4
        torch.relu(x)  # a later value, which gelu does not take
        return F.gelu(before)


def _minus(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node) -> Any:
    return bb.emit_te(topi.subtract, node_map[node.args[0]], float(node.args[1]))


@exercise("5.3")
def exercise_5_3(map_gelu: Callable) -> str:
    """a rule for F.gelu."""
    rules = {F.gelu: map_gelu, torch.relu: _relu, operator.sub: _minus}
    for shape, behind in [((16, 25), False), ((2, 3, 4), False), ((11,), False), ((9, 7), True)]:
        mod = _import(_Gelu(behind), shape, rules, {}, "map_gelu")
        x = 6 * random(*shape)
        came = to_numpy(build(mod)["main"](tvm.runtime.tensor(x)))
        a = torch.from_numpy(np.maximum(x, 0) - 4 if behind else x)
        compare(came, F.gelu(a).numpy(), "the formula, and which variable it is applied to", {
            "the form: this is the approximation with tanh, not the exact one with erf":
                lambda a=a: F.gelu(a, approximate="tanh"),
            "the form: this is the approximation x * sigmoid(1.702 x)":
                lambda a=a: a * torch.sigmoid(1.702 * a),
            "erf: its argument is not divided by the root of 2":
                lambda a=a: a / 2 * (1 + torch.erf(a)),
            "erf: its argument is multiplied by the root of 2":
                lambda a=a: a / 2 * (1 + torch.erf(a * 2**0.5)),
            "the factor x in front: it is missing":
                lambda a=a: 0.5 * (1 + torch.erf(a / 2**0.5)),
            "the factor one half: it is missing": lambda a=a: 2 * F.gelu(a),
            "the argument: this is the GELU of main's input, not of the node's argument":
                lambda x=x: F.gelu(torch.from_numpy(x))}, atol=1e-5)
    return "equal to F.gelu, the exact form, for two ranks and behind other nodes"


def _conv(layer: nn.Conv2d, **changes: Any) -> Callable:
    given = {name: getattr(layer, name) for name in ("weight", "bias", "stride", "padding",
                                                     "dilation")} | changes
    return lambda x: F.conv2d(x, **given)


def _pool(layer: nn.MaxPool2d, **changes: Any) -> Callable:
    given = {name: getattr(layer, name) for name in ("kernel_size", "stride", "padding")} | changes
    return lambda x: F.max_pool2d(x, **given)


def _along_width(layer: nn.Conv2d) -> Callable:
    def compute(x: torch.Tensor) -> torch.Tensor:
        plain = _conv(layer, bias=None)(x)
        return plain + layer.bias  # raises where the width does not fit
    return compute


def _pool_zeros(layer: nn.MaxPool2d) -> Callable:
    (down, across) = layer.padding if isinstance(layer.padding, tuple) else (layer.padding,) * 2
    return lambda x: F.max_pool2d(F.pad(x, (across, across, down, down)), layer.kernel_size,
                                  layer.stride)


def _mistakes(layer: nn.Module) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """For each usual mistake in a rule, a function that computes what comes of it."""
    match layer:
        case nn.Conv2d(weight=w, stride=s, padding=p, dilation=d, bias=b):
            bias = {} if b is None else {
                "the bias: it is left out": _conv(layer, bias=None),
                "the bias: it is added along the width, not the channels": _along_width(layer)}
            return bias | {
                "the stride: the layer's is ignored, 1 is used": _conv(layer, stride=1),
                "the padding: the layer's is ignored, 0 is used": _conv(layer, padding=0),
                "the dilation: the layer's is ignored, 1 is used": _conv(layer, dilation=1),
                "stride, padding and dilation: the layer's are ignored":
                    _conv(layer, stride=1, padding=0, dilation=1),
                "the stride: down and across are exchanged": _conv(layer, stride=s[::-1]),
                "the padding: rows and columns are exchanged": _conv(layer, padding=p[::-1]),
                "the stride: only its first number is used": _conv(layer, stride=s[0]),
                "the padding: only its first number is used": _conv(layer, padding=p[0]),
                "the dilation: only its first number is used": _conv(layer, dilation=d[0]),
                "only the first number of each pair is used":
                    _conv(layer, stride=s[0], padding=p[0], dilation=d[0]),
                "the kernel is flipped (a deep-learning conv2d does not)":
                    _conv(layer, weight=w.flip(2, 3)),
                "the kernel's height and width are exchanged":
                    _conv(layer, weight=w.transpose(2, 3))}
        case nn.MaxPool2d(kernel_size=k, stride=s):
            return {
                "the stride: the layer's is ignored, the window's size is used":
                    _pool(layer, stride=k),
                "the padding: the layer's is ignored, 0 is used": _pool(layer, padding=0),
                "stride and padding: the layer's are ignored": _pool(layer, stride=k, padding=0),
                "the window and the stride: 2 is used for any layer":
                    _pool(layer, kernel_size=2, stride=2),
                "the window, the stride and the padding: 2, 2 and 0 are used for any layer":
                    _pool(layer, kernel_size=2, stride=2, padding=0),
                "the padding: its four numbers are top, left, bottom, right":
                    lambda x: F.max_pool2d(F.pad(x, _wrong_sides(layer), value=-np.inf), k, s),
                "the padding: it must never win, and zeros do among negative values":
                    _pool_zeros(layer),
                "the pooling: this is the average":
                    lambda x: F.avg_pool2d(x, k, s, layer.padding)}
        case nn.Flatten():
            return {"the order: NCHW, channels are not moved to the end":
                        lambda x: x.permute(0, 2, 3, 1).flatten(1),
                    "the batch: it is flattened too": lambda x: x.flatten(0)}
        case nn.Softmax(dim=dim):
            return {f"the axis: axis {axis} is used, the layer says dim={dim}":
                    _softmax_over(axis) for axis in (0, 1, 2, -1) if axis != dim} | {
                    "the maximum: it is not subtracted, so large exponentials overflow":
                        lambda x: x.exp() / x.exp().sum(dim, keepdim=True),
                    "the result: this is the logarithm": lambda x: x.log_softmax(dim),
                    "softmax: it is left out": lambda x: x}
    return {}


def _softmax_over(axis: int) -> Callable:
    def compute(x: torch.Tensor) -> torch.Tensor:
        if axis >= x.ndim:
            raise ValueError("no such axis")
        return x.softmax(axis)
    return compute


def _wrong_sides(layer: nn.MaxPool2d) -> tuple[int, int, int, int]:
    """F.pad's (left, right, top, bottom) for padding given as (top, top, left, left)."""
    down, across = layer.padding if isinstance(layer.padding, tuple) else (layer.padding,) * 2
    return down, across, down, across


def _single_layers() -> list[tuple[nn.Module, tuple[int, ...]]]:
    """Layers unlike those of the CNN, each with the shape of an input for it."""
    return [
        (nn.Conv2d(1, 3, 3), (2, 1, 7, 9)),
        (nn.Conv2d(3, 4, (2, 3), bias=False), (2, 3, 8, 7)),
        (nn.Conv2d(2, 6, 3, stride=(2, 3), padding=(1, 2)), (1, 2, 9, 14)),  # output is 6 wide
        (nn.Conv2d(2, 3, (3, 2), stride=2, padding=1), (3, 2, 8, 6)),
        (nn.Conv2d(2, 3, (2, 3), dilation=(2, 3)), (1, 2, 7, 11)),
        (nn.MaxPool2d(2), (2, 3, 7, 8)),
        (nn.MaxPool2d(3, stride=1), (1, 2, 6, 5)),
        (nn.MaxPool2d((3, 5), stride=(2, 3), padding=(1, 2)), (2, 1, 6, 9)),
        (nn.MaxPool2d(3, stride=2, padding=1), (1, 2, 7, 9)),
        (nn.Flatten(), (3, 2, 4, 5)), (nn.Flatten(), (2, 3, 4)),
        (nn.Softmax(dim=1), (3, 5)), (nn.Softmax(dim=-1), (2, 3, 4)), (nn.Softmax(dim=0), (4, 3)),
        (nn.Softmax(dim=1), (2, 3, 4)),
    ]


@exercise("5.4", seconds=90)
def exercise_5_4(cnn_rules: Callable) -> str:
    """rules for the layers of a CNN."""
    rules = cnn_rules()
    if not isinstance(rules, Mapping):
        raise CheckFailed("a dictionary from classes to rules", type(rules).__name__,
                          "what cnn_rules returns")
    wanted = (nn.Conv2d, nn.MaxPool2d, nn.Flatten, nn.Softmax)
    if lacking := [kind.__name__ for kind in wanted if kind not in rules]:
        keys = ", ".join(getattr(key, "__name__", repr(key)) for key in rules)
        raise CheckFailed("rules for nn.Conv2d, nn.MaxPool2d, nn.Flatten and nn.Softmax",
                          f"no rule for {', '.join(lacking)}; keys: {keys or 'none'}",
                          "the keys of the dictionary: the classes themselves")
    rules = {nn.Linear: _linear, nn.ReLU: _relu} | {kind: rules[kind] for kind in wanted}
    torch.manual_seed(0)
    tried = _single_layers()
    for layer, shape in tried:
        _check_layer(layer.eval(), shape, rules)
    _, model = cnn()
    mod = _import(model, (4, 1, 28, 28), {}, rules, "your rules")
    verified = check_same(mod, model, helpers.test_loader())
    return f"{len(tried)} single layers equal PyTorch's, and so does the CNN.\n{verified}"


@torch.no_grad()
def _check_layer(layer: nn.Module, shape: tuple[int, ...], rules: Mapping) -> None:
    """Import one layer with the reader's rule, run it on two inputs, compare with PyTorch."""
    text = f"{layer} on {shape}"
    try:
        machine = build(_import(nn.Sequential(layer), shape, {}, rules, f"the rule for {layer}"))
    except NotImplementedError:
        raise
    except CheckFailed as failed:
        expected, came, look_at = failed.parts
        raise CheckFailed(f"{expected}; {text}", came, look_at) from None
    except Exception as error:  # whatever the rule raises
        hint = "which attributes of the layer the rule reads, and whether each is what it expects"
        if getattr(layer, "bias", 0) is None:
            hint = "bias=False: layer.bias is None, and nothing is to be added"
        raise CheckFailed(f"a rule that imports {text}", reason(error), hint) from None
    for seed in (0, 1):
        x = random(*shape, seed=seed) - np.float32(0.3)
        if seed and isinstance(layer, nn.Softmax):
            x *= np.float32(500)
        a = torch.from_numpy(x)
        came = to_numpy(machine["main"](tvm.runtime.tensor(x)))
        hints = {f"{hint}; {text}": lambda a=a, compute=compute: compute(a)
                 for hint, compute in _mistakes(layer).items()}
        compare(came, layer(a).numpy(), f"the rule for {text}", hints, atol=1e-5)


# ---- symbolic shapes -----------------------------------------------------------------------


class _TwoInputs(nn.Module):
    """(n, 6) and (n, 4) to (n, 3), one layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5, bias=False)
        self.relu, self.last = nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.last(self.relu(self.left(x) + self.right(y)))


def _check_parameters(mod: tvm.IRModule, features: Sequence[int]) -> None:
    params = list(mod["main"].params)
    if len(params) != len(features):
        raise CheckFailed(f"main with {len(features)} inputs", f"{len(params)} parameters",
                          "one input for each number in features; weights are constants")
    for param, width in zip(params, features, strict=True):
        shape = getattr(param.ty, "shape", None)
        if shape is None or len(list(shape)) != 2:
            raise CheckFailed(f"{param.name} of shape (n, {width})", f"{param.ty}",
                              "relax.TensorType((n, width), \"float32\")")
        first, second = shape
        text = ", ".join(str(int(e)) if isinstance(e, tvm.tirx.IntImm) else str(e) for e in shape)
        if isinstance(first, tvm.tirx.IntImm):
            raise CheckFailed(f"{param.name} of shape (n, {width})", f"({text})",
                              'the batch: tvm.tirx.Var("n", "int64") in place of a number')
        if not isinstance(second, tvm.tirx.IntImm) or int(second) != width:
            raise CheckFailed(f"{param.name} of shape (n, {width})", f"({text})",
                              "the second extent: a number from features")
    if any(not param.ty.shape[0].same_as(params[0].ty.shape[0]) for param in params):
        raise CheckFailed("one n in the shapes of all inputs",
                          f"{len(params)} variables, each another unknown",
                          "tvm.tirx.Var: call it once, outside the loop over the inputs")


class _ThreeInputs(nn.Module):
    """Three inputs of one width, a nested layer, and values that are used more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.last = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.last(x + self.block(y) + (x + z))


@exercise("5.5")
@torch.no_grad()
def exercise_5_5(import_for_any_batch: Callable) -> str:
    """an import for any batch size."""
    torch.manual_seed(1)
    models = [(nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).eval(), [6]),
              (_TwoInputs().eval(), [6, 4]),
              (_ThreeInputs().eval(), [4, 4, 4])]
    for model, features in models:
        mod = import_for_any_batch(model, list(features))
        if isinstance(mod, tvm.IRModule) and any(
                variable.name_hint == "main" for variable in mod.get_global_vars()):
            _check_parameters(mod, features)  # what build says of a wrong shape is harder to read
        machine = build(mod)
        _refuse_libraries(mod, "the module")
        for size in (1, 3, 7):
            arrays = [random(size, width, seed=size) for width in features]
            output = machine["main"](*map(tvm.runtime.tensor, arrays))
            if not hasattr(output, "numpy"):
                raise CheckFailed("one tensor", f"a tuple of {len(output)}",
                                  "what main returns; TVM's importer has unwrap_unit_return_tuple")
            came = output.numpy()
            expected = model(*map(torch.from_numpy, arrays)).numpy()
            compare(came, expected, f"a batch of {size}: which shape belongs to which input, and "
                    "the rules", _batch_mistakes(model, arrays), atol=1e-5)
    return "one module each for a model of one input and of two, run with batches of 1, 3 and 7"


def _batch_mistakes(model: nn.Module, arrays: Sequence[np.ndarray]) -> dict[str, Callable]:
    """What comes of the usual mistakes in the rules."""
    inputs = tuple(map(torch.from_numpy, arrays))
    zeros = {name: torch.zeros_like(value) for name, value in model.named_parameters()
             if name.endswith("bias")}
    mistakes = {"the rule for nn.Linear: the biases are left out":
                lambda: torch.func.functional_call(model, zeros, inputs)}
    if not isinstance(model, _TwoInputs):
        return mistakes
    left, right = model.left(inputs[0]), model.right(inputs[1])
    return mistakes | {
        "the rule for +: its second term is dropped": lambda: model.last(left.relu()),
        "the rule for +: it adds the first term to itself": lambda: model.last((2 * left).relu()),
        "the ReLU: it is left out": lambda: model.last(left + right)}
