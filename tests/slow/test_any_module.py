"""check_equivalence on modules of PyTorch that are no nn.Sequential: which layer it names."""

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from tvm import relax, transform
from tvm.relax.frontend.torch import from_exported_program

import helpers
from course import checks


class Joined(nn.Module):
    """Two inputs, a residual, a layer that is used twice, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.head = nn.Linear(8, 8), nn.Linear(3, 8), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x + torch.relu(self.wide(x))
        return self.head(torch.cat([x * self.wide(x), self.narrow(y)], 1))


class Turned(Joined):
    """The same with a minus between two layers."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x - torch.relu(self.wide(x))
        return self.head(torch.cat([x * self.wide(x), self.narrow(y)], 1))


fuse_all = transform.Sequential([relax.transform.AnnotateTIROpPattern(),
                                 relax.transform.FuseOps(), relax.transform.FuseTIR()])
torch.manual_seed(0)
MODEL = Joined().eval()
INPUTS = [(torch.randn(5, 8), torch.randn(5, 3), torch.zeros(5)) for _ in range(2)]  # and labels


def _imported(model: nn.Module, inputs: tuple = INPUTS[0][:2]) -> object:
    with helpers.quiet():
        program = torch.export.export(model, inputs)
        return from_exported_program(program, unwrap_unit_return_tuple=True)


def _changed(path: str) -> nn.Module:
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        model.get_submodule(path).weight[1, 2] += 0.1
    return model


def test_equal_modules_pass(capsys) -> None:
    checks.check_equivalence(_imported(MODEL), MODEL, INPUTS)
    assert "2 calls: max |difference| to PyTorch below" in capsys.readouterr().out


def _said(mod: object, model: nn.Module, inputs: list = INPUTS) -> str:
    with pytest.raises(checks.CheckFailed, match="Not equivalent") as failed:
        checks.check_equivalence(mod, model, inputs)
    return str(failed.value)


@pytest.mark.parametrize("path", ["wide", "narrow", "head"])
def test_the_layer_with_another_weight_is_named(path: str) -> None:
    said = _said(_imported(_changed(path)), MODEL)
    assert re.search(rf"look at: +{path}, Linear: ", said), said
    assert re.search(rf"own {path}.weight, .*with .* at \[1, 2\]", said)
    # a linear layer sees that weight of one feature
    assert re.search(r"zeros but 1 at \[0, 2\]|\[0, 0, 1", said), said


def test_what_is_wrong_between_two_layers_is_said_to_be_between_them() -> None:
    turned = Turned().eval()
    turned.load_state_dict(MODEL.state_dict())
    said = _said(_imported(turned), MODEL)
    assert re.search(r"look at: +add: lv\d+ \(5, 8\) from .*subtract", said), said


def test_several_wrong_layers_are_all_named() -> None:
    wrong = copy.deepcopy(MODEL)
    with torch.no_grad():
        wrong.narrow.weight.neg_()
        wrong.head.bias.neg_()
    said = _said(_imported(wrong), MODEL)
    assert re.search(r"look at: +narrow, Linear: ", said)
    assert re.search(r"\n +and head, Linear: ", said)


def test_what_axes_of_one_length_hide_is_not_blamed() -> None:
    """Transposed, the first wrong value led on as well, and the next layers seemed to turn it."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 3),
                          nn.Flatten(), nn.Linear(18, 3), nn.Tanh()).eval()
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong[0].bias.zero_()
    wrong[6] = nn.Sigmoid()
    images = torch.randn(4, 1, 12, 12)
    said = _said(_imported(wrong, (images,)), model, [(images, torch.zeros(4))])
    assert re.findall(r"layer \d", said) == ["layer 0", "layer 6"], said


class Twice(nn.Module):
    """A residual around a convolution, and the same function twice: either has a value to offer."""

    def __init__(self, first: Callable = F.relu, second: Callable = F.relu, kept: float = 0.5,
                 eps: float = 1e-5) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4, eps=eps)
        self.two, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(64, 5)
        self.norm.running_mean, self.norm.running_var = torch.randn(4), torch.rand(4) + 0.5
        self.first, self.second, self.kept = first, second, kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.norm(self.one(x)))
        return self.head(self.second(x * self.kept + self.two(x)).flatten(1))


@pytest.mark.parametrize(("changes", "named"), [
    ({"first": F.leaky_relu}, ["relu: lv# from relax.nn.leakyrelu"]),
    ({"second": F.leaky_relu}, ["relu: lv# from relax.nn.leakyrelu"]),
    ({"eps": 1e-1}, ["norm, BatchNorm2d: lv# from relax.nn.batch_norm"]),
    ({"kept": 0.9}, ["mul: lv# from relax.multiply"]),
    ({"first": F.gelu, "kept": 0.9}, [
        "relu: lv# from relax.nn.gelu", "mul: lv# from relax.multiply"])])
def test_of_a_function_that_is_there_twice_the_one_that_is_wrong_is_named(changes, named) -> None:
    given = torch.randn(2, 1, 4, 4)
    said = _said(_imported(Twice(**changes).eval(), (given,)), Twice().eval(), [(given,)])
    lines = re.sub(r"lv\d* \([\d, ]+\)", "lv#", said.partition("look at:")[2]).splitlines()
    assert [line.strip().removeprefix("and ") for line in lines] == named, said


class Scores(nn.Module):
    """A softmax of square scores, and what it weighs."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ F.pad(y, (0, 5)).T * 2, self.axis) @ x


def test_a_softmax_along_another_axis_takes_no_other_value() -> None:
    said = _said(_imported(Scores(0).eval()), Scores(1).eval())
    assert re.search(r"look at: +softmax: ", said) and "takes" not in said, said


class Shared(Joined):
    """A layer of two inputs, whose results are added."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.wide(x) + self.wide(F.pad(y, (0, 5))) / 2


def test_a_kernel_of_several_steps_beside_others_is_tried_alone(capsys) -> None:
    model = Shared().eval()
    mod = relax.transform.LegalizeOps()(_imported(model))
    checks.check_equivalence(fuse_all(mod), model, INPUTS)
    assert "Equivalent ✓" in capsys.readouterr().out


def _mixed(function: object) -> nn.Module:
    """A residual MLP behind a normalisation, with some function where GELU or a ReLU stands."""
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.one, self.other = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.other(x + function(self.one(self.norm(x)))) + y
    torch.manual_seed(1)
    return Mixed().eval()


FUNCTIONS = {
    "relu": torch.relu, "gelu": F.gelu, "relu6": F.relu6,
    "cut at 40": lambda x: torch.clamp(x, 0, 40), "silu": F.silu,
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh")}


@pytest.mark.parametrize(("right", "wrong"), [
    ("relu", "relu6"), ("relu", "cut at 40"), ("relu6", "relu"), ("gelu", "tanh gelu"),
    ("silu", "gelu")])
def test_what_no_input_reaches_is_seen_in_the_layer_alone(right: str, wrong: str) -> None:
    model = _mixed(FUNCTIONS[right])
    said = _said(_imported(_mixed(FUNCTIONS[wrong])), model)
    # a function, and what follows where that is within the tolerance at the end: no layer alone
    assert re.search(r"look at: +\w+( to other, Linear)?: lv", said), said
    assert "input lv" in said


@pytest.mark.parametrize("eps", [0, 1e-4])
def test_another_eps_is_seen_on_small_numbers(eps: float) -> None:
    model = _mixed(F.gelu)
    wrong = copy.deepcopy(model)
    wrong.norm.eps = eps
    assert "norm, LayerNorm" in _said(_imported(wrong), model)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("fused", [False, True])
def test_equal_models_of_many_kinds_pass(name: str, fused: bool, capsys) -> None:
    model = _mixed(FUNCTIONS[name])
    mod = relax.transform.LegalizeOps()(_imported(model))
    checks.check_equivalence(fuse_all(mod) if fused else mod, model, INPUTS)
    assert "Equivalent ✓" in capsys.readouterr().out


@pytest.mark.parametrize("fused", [False, True])
def test_the_layer_that_is_wrong_is_named_in_a_fused_module_too(fused: bool) -> None:
    model = _mixed(torch.relu)
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong.other.weight[1, 2] += 0.1
    mod = relax.transform.LegalizeOps()(_imported(wrong))
    said = _said(fuse_all(mod) if fused else mod, model)
    assert re.search(r"look at: +other, Linear", said), said
    assert "norm" not in said and "one, Linear" not in said
    assert "own other.weight, (3, 8): a constant with" in said


def test_an_embedding_of_two_inputs_gets_indices_alone() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)

        def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return self.embed(ids) * x
    model, given = Words().eval(), (torch.tensor([[1, 4, 2]]), torch.ones(1, 3, 4))
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong.embed.weight[4] += 1
    said = _said(_imported(wrong, given), model, [given])
    assert re.search(r"look at: +embed, Embedding: lv.* from [\w., ]*relax.take", said), said
    assert "own embed.weight, (5, 4): a constant with" in said


def test_shapes_training_and_no_inputs_are_told() -> None:
    mod = _imported(MODEL)
    with pytest.raises(checks.CheckFailed, match=r"main to run on float32 \(2, 8\), float"):
        checks.check_equivalence(mod, MODEL, [(torch.zeros(2, 8), torch.zeros(2, 3))])
    with pytest.raises(checks.CheckFailed, match="one that is training"):
        checks.check_equivalence(mod, Joined(), INPUTS)
    with pytest.raises(checks.CheckFailed, match="inputs to compare"):
        checks.check_equivalence(mod, MODEL, [])
