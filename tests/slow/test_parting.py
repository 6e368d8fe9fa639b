"""check_equivalence: what it says of modules that are right, and of mistakes that look alike."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from relax_models import relax_model
from torch import Tensor, nn
from tvm import IRModule, relax, te, topi

from course import checks

torch.manual_seed(0)
ROWS = torch.randn(4, 6)
IMAGES = torch.randn(4, 1, 8, 8)


class Model(nn.Module):
    """A model of functions between two linear layers."""

    def __init__(self, forward: Callable, width: int = 6) -> None:
        super().__init__()
        self.a, self.b, self.run = nn.Linear(6, width), nn.Linear(width, width), forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def const(tensor: Tensor) -> relax.Expr:
    return relax.const(tensor.detach().numpy(), "float32")


def applied(bb: relax.BlockBuilder, value: relax.Var, layers: Sequence[object]) -> relax.Var:
    """Emit layers of PyTorch's, TOPI functions, or functions of the builder and a value."""
    for layer in layers:
        match layer:
            case nn.Linear():
                value = bb.emit_te(topi.nn.dense, value, const(layer.weight))
                value = bb.emit_te(topi.add, value, const(layer.bias))
            case nn.Conv2d():
                value = bb.emit_te(topi.nn.conv2d, value, const(layer.weight), 1, 0, 1)
                value = bb.emit_te(topi.add, value, const(layer.bias.reshape(1, -1, 1, 1)))
            case nn.Module():
                raise TypeError(layer)
            case _:
                value = layer(bb, value)
    return value


def of(*layers: object, shape: tuple[int, ...] = (4, 6)) -> IRModule:
    return relax_model(lambda bb, x: applied(bb, x, layers), *shape)


def by(function: Callable, *more: object) -> Callable:
    return lambda bb, value: bb.emit_te(function, value, *more)


def judged(mod: IRModule, model: nn.Module, given: Tensor, labels: bool = True) -> str:
    """Return what a check says: "" if nothing is wrong."""
    loader = [(given, torch.zeros(len(given), dtype=torch.int64))[:1 + labels]]
    try:
        checks.check_equivalence(mod, model.eval(), loader)
    except checks.CheckFailed as failed:
        return str(failed)
    return ""


relu, leaky, flatten = by(topi.nn.relu), by(topi.nn.leaky_relu, 0.1), by(topi.nn.flatten)
two = Model(lambda own, x: torch.relu(own.b(torch.relu(own.a(x)))))
ordered = nn.Sequential(two.a, nn.ReLU(), two.b, nn.ReLU())
shared = nn.ReLU()
convolution = nn.Conv2d(1, 4, 3)
pooled = nn.Sequential(convolution, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
average = by(topi.nn.pool2d, (2, 2), (2, 2), (1, 1), (0,) * 4, "avg")


@pytest.mark.parametrize(("mod", "model", "given", "says", "never"), [
    (of(two.a, relu, two.b), ordered, ROWS, "layer 3, ReLU is missing", "takes"),
    (of(two.a, relu, two.b), two, ROWS, "relu is missing", "takes"),
    (of(two.a, relu, two.b, leaky), ordered, ROWS, "layer 3, ReLU: lv5 (4, 6) from leaky_relu",
     "takes"),
    (of(two.a, relu, two.b, two.a),
     nn.Sequential(two.a, shared, two.b, shared, two.a), ROWS, "layer 3, ReLU: lv4", "layer 1"),
    (of(convolution, average, flatten, relu, shape=(4, 1, 8, 8)), pooled, IMAGES,
     "lv1 (4, 4, 6, 6) from add is used without it", "nothing computes"),
    (of(two.a, by(topi.nn.softmax, 0)), Model(lambda own, x: torch.softmax(own.a(x), 1)),
     ROWS, "softmax", "instead of"),
    (of(flatten, two.a), nn.Sequential(nn.Flatten(), nn.ReLU(inplace=True), two.a), ROWS,
     "layer 1, ReLU: lv (4, 6) from flatten is used without it", "layer 2"),
    (of(by(topi.identity)), nn.Sequential(nn.ReLU(inplace=True)), ROWS, "layer 0, ReLU", "max |"),
], ids=range(8))
def test_what_is_wrong_is_told_as_it_is(mod, model, given, says, never) -> None:
    said = judged(mod, model, given)
    assert says in said and never not in said, said


def _masked(own: Model, x: Tensor) -> Tensor:
    return own.a(x).masked_fill(torch.ones(4, 6).triu(1).bool(), -torch.inf)


def _with_a_hole(own: Model, x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = 0
    return torch.relu(own.a(x))


def hole(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return bb.emit_te(lambda x: te.compute(
        x.shape, lambda i, j: te.if_then_else(j == 0, 0.0, x[i, j])), x)


def masked(first: int) -> Callable:
    return by(lambda x: te.compute(x.shape, lambda i, j: te.if_then_else(
        j >= i + first, te.const(-np.inf, "float32"), x[i, j])))


def test_infinities_and_assignments_are_compared() -> None:
    hidden, with_hole = (Model(lambda own, x, run=run: run(two, x))
                         for run in (_masked, _with_a_hole))
    assert not judged(of(two.a, masked(1)), hidden, ROWS)
    assert "-inf" in judged(of(two.a, masked(2)), hidden, ROWS)
    assert not judged(of(hole, two.a, relu), with_hole, ROWS)
    said = judged(of(hole, two.a, leaky), with_hole, ROWS)
    assert "look at:   relu: " in said and "clone" not in said, said


def _scaled(own: Model, x: Tensor) -> Tensor:
    scale = x.abs().max().item()
    return own.a(torch.round(x / scale * 127) * scale / 127)


def _added(own: Model, x: Tensor) -> Tensor:
    hidden = own.a(x)
    active = torch.relu(hidden)
    return own.b(active) + (active + hidden)


def scaled(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    largest = bb.emit_te(lambda x: topi.max(topi.abs(x)), x)
    return bb.emit_te(lambda x, m: te.compute(
        x.shape, lambda *at: te.round(x[at] / m() * 127.0) * m() / 127.0), x, largest)


def added(bb: relax.BlockBuilder, hidden: relax.Var) -> relax.Var:
    """Emit a sum that computes the ReLU once more, in a kernel of its own."""
    branch = applied(bb, hidden, [relu, two.b])
    both = bb.emit_te(lambda h: te.compute(
        h.shape, lambda *at: te.max(h[at], 0.0) + h[at]), hidden)
    return bb.emit_te(topi.add, branch, both)


def _trained() -> nn.Module:
    """Return a model with two normalisations that are nearly equal."""
    model = nn.Sequential(nn.LayerNorm(6), two.a, nn.LayerNorm(6))
    optimizer = torch.optim.Adam([*model[0].parameters(), *model[2].parameters()], 1e-4)
    for _step in range(5):
        model(ROWS).square().sum().backward()
        optimizer.step()
    return model


def normalised(layer: nn.LayerNorm) -> Callable:
    return lambda bb, x: bb.emit_te(topi.nn.layer_norm, x, const(layer.weight), const(layer.bias),
                                    [1], 1e-5)


def _folded() -> tuple[IRModule, nn.Module]:
    """Return a normalisation that was never trained, in the weights of its convolution."""
    norm = nn.BatchNorm2d(4, eps=1e-3)
    folded, factor = nn.Conv2d(1, 4, 3), (1 + norm.eps) ** -0.5
    folded.load_state_dict({name: factor * value
                            for name, value in convolution.state_dict().items()})
    return of(folded, relu, shape=(4, 1, 8, 8)), nn.Sequential(convolution, norm, nn.ReLU())


trained = _trained()


@pytest.mark.parametrize(("mod", "model", "given"), [
    (of(lambda bb, x: bb.emit_te(topi.subtract, x, bb.emit_te(
        lambda x: te.compute((), lambda: topi.sum(x)() / 24.0), x)), two.a),
     Model(lambda own, x: two.a(x - x.mean())), ROWS),
    (of(scaled, two.a), Model(lambda own, x: _scaled(two, x)), ROWS),
    (of(two.a, added), Model(lambda own, x: _added(two, x)), ROWS),
    (of(normalised(trained[0]), two.a, normalised(trained[2])), trained, ROWS),
    (*_folded(), IMAGES),
], ids=["no axes", "a number taken out", "computed once more", "nearly equal", "folded"])
def test_what_is_right_passes(mod, model, given) -> None:
    assert not judged(mod, model, given)


def test_labels_are_no_inputs_and_may_be_missing(capsys) -> None:
    class Optional(Model):
        def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
            return self.a(x) if scale is None else self.a(x) * scale
    model = Optional(None)
    assert not judged(of(model.a), model, ROWS)
    assert not judged(of(two.a), nn.Sequential(two.a), ROWS, labels=False)
    assert "Right on" not in capsys.readouterr().out
    with pytest.raises(checks.CheckFailed, match="a loader of tuples"):
        checks.check_equivalence(of(two.a), nn.Sequential(two.a), [ROWS])


def test_a_model_of_random_numbers_is_refused() -> None:
    model = nn.Sequential(two.a, nn.RReLU())
    with pytest.raises(checks.CheckFailed, match="the same in each run"):
        checks.check_equivalence(of(two.a, leaky), model.train(), [(ROWS,)])
