"""The checks of notebook 05: an importer and its rules."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import tvm
from torch import Tensor, fx, nn
from torch.nn import functional as F
from tvm import relax, topi

from checks.answers import exercise
from checks.comparing import Mistakes, compare, random, to_numpy
from checks.equivalence import build, check_same
from checks.importers import (
    check_inputs,
    import_by_rules,
    linear_rule,
    refuse_libraries,
    relu_rule,
)
from checks.mistakes import layer_mistakes
from checks.models import INPUT, cnn, reference
from checks.primfuncs import QUICK, run_te
from checks.saying import CheckFailed, reason

# ---- tensor expressions --------------------------------------------------------------------


def _softmax_inputs() -> dict[str, tuple[np.ndarray, str]]:
    """Return logits by what they are, each with a hint."""
    steps, shift = "the four steps, one by one", "is each row's own maximum subtracted?"
    mixed = random(3, 5, seed=4)
    mixed[0] += 1000
    mixed[1] -= 1000
    far_apart = 1000 * np.array([[1, -1, 0, -1], [-1, 0, -1, 1]], "float32")
    return {"logits around 0": (3 * random(4, 7), steps),
            "another shape": (3 * random(6, 2), steps),
            "one row": (2 * random(1, 9), steps),
            "logits of 1000 and -1000 in one tensor": (mixed, shift),
            "logits of -1000 alone": (random(2, 5) - np.float32(1000), shift),
            "logits of 1000 and -1000 in one row": (far_apart, shift)}


@exercise("5.1")
def exercise_5_1(softmax: Callable) -> str:
    """a stable softmax as a tensor expression."""
    layer = nn.Softmax(dim=1)
    for name, (x, hint) in _softmax_inputs().items():
        logits = torch.from_numpy(x)
        compare(run_te(softmax, x), layer(logits).numpy(), f"{name}: {hint}",
                layer_mistakes(layer), layer, logits, atol=1e-6)
    return "equal to NumPy for three shapes, and finite for logits of 1000 and -1000"


def _run_avg_pool(avg_pool: Callable, layer: nn.AvgPool2d, x: np.ndarray) -> np.ndarray:
    return run_te(lambda a: avg_pool(a, layer.kernel_size, layer.stride), x)


@exercise("5.2")
def exercise_5_2(avg_pool: Callable) -> str:
    """average pooling as a tensor expression."""
    cases = [((2, 3, 8, 6), (2, 2), (2, 2)), ((1, 2, 9, 8), (3, 2), (1, 2)),
             ((2, 1, 7, 11), (2, 3), (3, 2)), ((1, 2, 10, 6), (2, 5), (4, 1))]
    for shape, kernel, stride in cases:
        x, layer = random(*shape), nn.AvgPool2d(kernel, stride)
        images = torch.from_numpy(x)
        compare(_run_avg_pool(avg_pool, layer, x), layer(images).numpy(),
                f"kernel {kernel}, stride {stride} on {shape}: where window (i, j) starts, and how "
                "many there are", layer_mistakes(layer), layer, images, atol=1e-6)
    return ("equal to F.avg_pool2d for square and oblong windows, overlapping and apart,\n"
            "also where they do not fill the image")


# ---- rules ---------------------------------------------------------------------------------


class _Gelu(nn.Module):
    """GELU alone, or behind other nodes, so that a rule that takes main's input is found out."""

    def __init__(self, behind: bool) -> None:
        super().__init__()
        self.behind = behind

    def forward(self, x: Tensor) -> Tensor:
        if not self.behind:
            return F.gelu(x)
        before = torch.relu(x) - 4
        torch.relu(x)  # a later value, which gelu does not take
        return F.gelu(before)


def _minus(bb: relax.BlockBuilder, node_map: Mapping, node: fx.Node) -> Any:
    less: Any = node.args[1]
    return bb.emit_te(topi.subtract, node_map[node.args[0]], float(less))


# Functions of gelu's argument, and of main's input.
_GELU: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the form: this is the approximation with tanh, not the exact one with erf":
        lambda a, _: F.gelu(a, approximate="tanh"),
    "the form: this is the approximation x * sigmoid(1.702 x)":
        lambda a, _: a * torch.sigmoid(1.702 * a),
    "erf: its argument is not divided by the root of 2": lambda a, _: a / 2 * (1 + torch.erf(a)),
    "erf: its argument is multiplied by the root of 2":
        lambda a, _: a / 2 * (1 + torch.erf(a * 2**0.5)),
    "the factor x in front: it is missing": lambda a, _: 0.5 * (1 + torch.erf(a / 2**0.5)),
    "the factor one half: it is missing": lambda a, _: 2 * F.gelu(a),
    "the argument: this is the GELU of main's input, not of the node's argument":
        lambda _, x: F.gelu(x)}


@exercise("5.3")
def exercise_5_3(map_gelu: Callable) -> str:
    """a rule for F.gelu.

    The forms: https://docs.pytorch.org/docs/stable/generated/torch.nn.GELU.html; 1.702 is from
    Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415.
    """
    rules = {F.gelu: map_gelu, torch.relu: relu_rule, operator.sub: _minus}
    for shape, behind in [((16, 25), False), ((2, 3, 4), False), ((11,), False), ((9, 7), True)]:
        mod = import_by_rules(_Gelu(behind), shape, rules, {}, "map_gelu")
        x = 6 * random(*shape)
        came = to_numpy(build(mod, QUICK)["main"](tvm.runtime.tensor(x)))
        given = torch.from_numpy(x)
        argument = torch.relu(given) - 4 if behind else given
        compare(came, F.gelu(argument).numpy(), "the formula, and which variable it is applied to",
                _GELU, argument, given, atol=1e-5)
    return "equal to F.gelu, the exact form, for two ranks and behind other nodes"


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


@exercise("5.4", seconds=90, prepare=[reference])
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
    rules = {nn.Linear: linear_rule, nn.ReLU: relu_rule} | {kind: rules[kind] for kind in wanted}
    torch.manual_seed(0)
    tried = _single_layers()
    for layer, shape in tried:
        _check_layer(layer.eval(), shape, rules)
    _, model = cnn()
    verified = check_same(import_by_rules(model, INPUT, {}, rules, "your rules"), model,
                          reference())
    return f"{len(tried)} single layers equal PyTorch's, and so does the CNN.\n{verified}"


@torch.no_grad()
def _check_layer(layer: nn.Module, shape: tuple[int, ...], rules: Mapping) -> None:
    """Import one layer with the reader's rule, run it on two inputs, compare with PyTorch."""
    text = f"{layer} on {shape}"
    try:
        machine = build(import_by_rules(nn.Sequential(layer), shape, {}, rules,
                                        f"the rule for {layer}"), QUICK)
    except NotImplementedError:
        raise
    except CheckFailed as failed:
        raise CheckFailed(f"{failed.parts[0]}; {text}", *failed.parts[1:]) from None
    except Exception as error:  # whatever the rule raises
        hint = "which attributes of the layer the rule reads, and whether each is what it expects"
        if getattr(layer, "bias", 0) is None:
            hint = "bias=False: layer.bias is None, and nothing is to be added"
        raise CheckFailed(f"a rule that imports {text}", reason(error), hint) from None
    mistakes = {f"{hint}; {text}": mistake for hint, mistake in layer_mistakes(layer).items()}
    for seed in (0, 1):
        x = random(*shape, seed=seed) - np.float32(0.3)
        if seed and isinstance(layer, nn.Softmax):
            x *= np.float32(500)
        given = torch.from_numpy(x)
        came = to_numpy(machine["main"](tvm.runtime.tensor(x)))
        compare(came, layer(given).numpy(), f"the rule for {text}", mistakes, layer, given,
                atol=1e-5)


# ---- symbolic shapes -----------------------------------------------------------------------


class _TwoInputs(nn.Module):
    """(n, 6) and (n, 4) to (n, 3), one layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(4, 5, bias=False)
        self.relu, self.last = nn.ReLU(), nn.Linear(5, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.last(self.relu(self.left(x) + self.right(y)))


class _ThreeInputs(nn.Module):
    """Three inputs of one width, a nested layer, and values that are used more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.last = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2)

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return self.last(x + self.block(y) + (x + z))


def _without_biases(model: nn.Module, *inputs: Tensor) -> Tensor:
    zeros = {name: torch.zeros_like(value) for name, value in model.named_parameters()
             if name.endswith("bias")}
    return torch.func.functional_call(model, zeros, inputs)


# Functions of the model and its inputs.
_BIASES = {"the rule for nn.Linear: the biases are left out": _without_biases}
_TWO_INPUTS: dict[str, Callable[..., Tensor]] = {
    "the rule for +: its second term is dropped":
        lambda model, x, y: model.last(model.left(x).relu()),
    "the rule for +: it adds the first term to itself":
        lambda model, x, y: model.last((2 * model.left(x)).relu()),
    "the ReLU: it is left out": lambda model, x, y: model.last(model.left(x) + model.right(y))}


@exercise("5.5")
@torch.no_grad()
def exercise_5_5(import_for_any_batch: Callable) -> str:
    """an import for any batch size."""
    torch.manual_seed(1)
    models: list[tuple[nn.Module, list[int], Mistakes]] = [
        (nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).eval(), [6], _BIASES),
        (_TwoInputs().eval(), [6, 4], _BIASES | _TWO_INPUTS),
        (_ThreeInputs().eval(), [4, 4, 4], _BIASES)]
    for model, features, mistakes in models:
        mod = import_for_any_batch(model, list(features))
        if isinstance(mod, tvm.IRModule) and any(
                variable.name_hint == "main" for variable in mod.get_global_vars()):
            check_inputs(mod, features)  # what build says of a wrong shape is harder to read
        machine = build(mod, QUICK)
        refuse_libraries(mod, "the module")
        for size in (1, 3, 7):
            arrays = [random(size, width, seed=size) for width in features]
            output = machine["main"](*map(tvm.runtime.tensor, arrays))
            if not hasattr(output, "numpy"):
                raise CheckFailed("one tensor", f"a tuple of {len(output)}",
                                  "what main returns; TVM's importer has unwrap_unit_return_tuple")
            came = output.numpy()
            inputs = list(map(torch.from_numpy, arrays))
            expected = model(*inputs).numpy()
            compare(came, expected, f"a batch of {size}: which shape belongs to which input, and "
                    "the rules", mistakes, model, *inputs, atol=1e-5)
    return "one module each for a model of one input and of two, run with batches of 1, 3 and 7"
