"""check_equivalence on modules of PyTorch that are no nn.Sequential: which layer it names."""

import copy
import re

import pytest
import torch
from torch import nn
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


torch.manual_seed(0)
MODEL = Joined().eval()
INPUTS = [(torch.randn(5, 8), torch.randn(5, 3), torch.zeros(5)) for _ in range(2)]  # and labels


def _imported(model: nn.Module) -> object:
    with helpers.quiet():
        program = torch.export.export(model, INPUTS[0][:2])
        return from_exported_program(program, unwrap_unit_return_tuple=True)


def _changed(path: str) -> nn.Module:
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        model.get_submodule(path).weight[1, 2] += 0.1
    return model


def test_equal_modules_pass(capsys) -> None:
    checks.check_equivalence(_imported(MODEL), MODEL, INPUTS)
    assert "2 calls: max |difference| to PyTorch below" in capsys.readouterr().out


@pytest.mark.parametrize(("path", "says"), [
    ("wide", "differs: wide, (5, 8); what it takes is there"),
    ("narrow", "differs: narrow, (5, 8); what it takes is there"),
    ("head", "differs: head, (5, 4); what it takes is there")])
def test_the_layer_with_another_weight_is_named(path: str, says: str) -> None:
    with pytest.raises(checks.CheckFailed, match="first layer that differs") as failed:
        checks.check_equivalence(_imported(_changed(path)), MODEL, INPUTS)
    assert says in str(failed.value)
    assert re.search(rf"own {path}.weight, .*with .* at \[1, 2\]",
                     str(failed.value))


def test_what_is_wrong_between_two_layers_is_said_to_be_between_them() -> None:
    turned = Turned().eval()
    turned.load_state_dict(MODEL.state_dict())
    with pytest.raises(checks.CheckFailed, match=r"differs: wide \(2\)") as failed:
        checks.check_equivalence(_imported(turned), MODEL, INPUTS)
    assert "what it takes is not there either" in str(failed.value)
    assert "what is computed between wide and wide (2)" in str(failed.value)


def test_fusion_is_not_blamed_where_nothing_is_fused() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor, _y: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.first(x)))

    model = Chain().eval()
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong.first.weight.copy_(model.first.weight.flip(0))
    with pytest.raises(checks.CheckFailed, match="differs: first, ") as failed:
        checks.check_equivalence(_imported(wrong), model, INPUTS)
    assert "fused" not in str(failed.value)


def test_shapes_training_and_no_inputs_are_told() -> None:
    mod = _imported(MODEL)
    with pytest.raises(checks.CheckFailed, match=r"main to take \(2, 8\), \(2, 3\)"):
        checks.check_equivalence(mod, MODEL, [(torch.zeros(2, 8), torch.zeros(2, 3))])
    with pytest.raises(checks.CheckFailed, match="one that is training"):
        checks.check_equivalence(mod, Joined(), INPUTS)
    with pytest.raises(checks.CheckFailed, match="inputs to compare"):
        checks.check_equivalence(mod, MODEL, [])
