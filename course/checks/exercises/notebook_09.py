"""The checks of notebook 09: rewrites of a graph, an order of passes, a plan of memory, a code
generator.
"""

import contextlib
import copy
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import Tensor, nn
from torch.nn import functional as F
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard
from tvm.relax.frontend.torch import from_fx

import helpers
from course.checks.compare.tolerance import random
from course.checks.diagnose.equivalence import build, require_well_formed
from course.checks.exercises.models import INPUT, cnn, random_cnn
from course.checks.run.check import exercise, prepared
from course.checks.say.messages import CheckFailed
from course.checks.spec.compiled import compiled, naming
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Spec, check
from course.checks.spec.trials import Mistakes
from course.words import _

# ---- graphs --------------------------------------------------------------------------------


def _calls(mod: tvm.IRModule) -> list[relax.Call]:
    """Return the calls that main binds, in order."""
    return [binding.value for block in mod["main"].body.blocks for binding in block.bindings
            if isinstance(binding.value, relax.Call)]


def _count(mod: tvm.IRModule, name: str) -> int:
    """Return how often main calls an operator of Relax."""
    return sum(getattr(call.op, "name", "") == f"relax.{name}" for call in _calls(mod))


def _graph(shapes: Sequence[tuple[int, ...]], emit: Callable) -> tvm.IRModule:
    """Return a module whose main takes tensors and returns what `emit(builder, *inputs)` gives."""
    bb = relax.BlockBuilder()
    inputs = [relax.Var(f"x{place}", relax.TensorType(shape, "float32"))
              for place, shape in enumerate(shapes)]
    with bb.function("main", inputs):
        with bb.dataflow():
            result = bb.emit_output(emit(bb, *inputs))
        bb.emit_func_output(result)
    return bb.get()


_tidy = tvm.transform.Sequential([
    relax.transform.FoldConstant(), relax.transform.CanonicalizeBindings(),
    relax.transform.DeadCodeElimination()])


def _imported(model: nn.Module, shape: tuple[int, ...]) -> tvm.IRModule:
    """Return a model as 9.3 is given it: what helpers.import_operators makes of it, tidied.

    By torch.fx, fifty times as fast as torch.export; that way normalisations are left as in
    training, which is mended here, and one without gamma and beta is not known.
    """
    if any(isinstance(layer, nn.BatchNorm2d) and not layer.affine for layer in model.modules()):
        return _tidy(helpers.import_operators(model, shape))
    mod = from_fx(torch.fx.symbolic_trace(model), [(shape, "float32")],
                  unwrap_unit_return_tuple=True)
    norm = is_op("relax.nn.batch_norm")(*(wildcard() for _ in range(5)))
    return _tidy(tvm.IRModule({"main": rewrite_call(norm, _evaluating, mod["main"])}))


def _evaluating(found: relax.Call, parts: Mapping[Any, relax.Expr]) -> relax.Expr:
    attrs = {name: getattr(found.attrs, name) for name in ("axis", "epsilon", "momentum")}
    return relax.op.nn.batch_norm(*found.args, **attrs, training=False)


def _answered(answer: Callable, mods: Mapping[str, tvm.IRModule]
              ) -> dict[str, tuple[tvm.IRModule, Callable]]:
    """Return what an answer makes of modules, by their titles, and a compiled main of each.

    Where each has nothing but its main they are compiled as one module: half of the time.
    """
    came: dict[str, tvm.IRModule] = {}
    for title, mod in mods.items():
        with naming(title):
            came[title] = answer(mod)
            require_well_formed(came[title])
    if all(len(mod.functions_items()) == 1 for mod in came.values()):
        names = dict(zip(came, ["main", *(f"main_{i}" for i in range(1, len(came)))], strict=True))
        with contextlib.suppress(CheckFailed):
            machine = build(tvm.IRModule({
                name: came[title]["main"].with_attr("global_symbol", name)
                for title, name in names.items()}))
            return {title: (mod, machine[names[title]]) for title, mod in came.items()}
    built = {}
    for title, mod in came.items():
        with naming(title):
            built[title] = (mod, build(mod)["main"])
    return built


def _require_count(mod: tvm.IRModule, name: str, wanted: int, title: str) -> None:
    if (came := _count(mod, name)) != wanted:
        raise CheckFailed(_("calls of R.{name}: {wanted}; {title}").format(
            wanted=wanted, name=name, title=title), f"{came}")


# ---- a pattern -----------------------------------------------------------------------------


class _Cut(NamedTuple):
    """A graph for 9.1: how it is emitted, the same by PyTorch, and which calls have to be left.

    `torch` is a function of how a ReLU is cut, and of the inputs.
    """

    title: str
    shapes: list[tuple[int, ...]]
    emit: Callable[..., Any]
    torch: Callable[..., Tensor]
    left: dict[str, int]


def _number(value: Any) -> relax.Expr:
    return relax.const(np.array(value, "float32"))


def _minimum(a: Any, b: Any) -> relax.Expr:
    return relax.op.minimum(a, b)


def _emit_two(bb: relax.BlockBuilder, x: Any, y: Any) -> relax.Expr:
    one = bb.emit(_minimum(bb.emit(relax.op.nn.relu(x)), _number(6)))
    two = bb.emit(_minimum(_number(0.5), bb.emit(relax.op.nn.relu(bb.emit(relax.op.add(one, y))))))
    return relax.op.subtract(one, two)


def _emit_not_relu(bb: relax.BlockBuilder, x: Any) -> relax.Expr:
    low = bb.emit(_minimum(bb.emit(relax.op.tanh(x)), _number(0.25)))
    return relax.op.add(low, bb.emit(relax.op.nn.relu(x)))


def _emit_used_twice(bb: relax.BlockBuilder, x: Any) -> relax.Expr:
    positive = bb.emit(relax.op.nn.relu(x))
    return relax.op.add(bb.emit(_minimum(positive, _number(2))), positive)


_MANY = np.array([1, 4, 2, 8, 3], "float32")


def _cuts() -> list[_Cut]:
    relu = relax.op.nn.relu
    return [
        _Cut("minimum(relu(x), 6)", [(4, 5)],
             lambda bb, x: _minimum(bb.emit(relu(x)), _number(6)),
             lambda cut, x: cut(x, 6), {"clip": 1, "nn.relu": 0, "minimum": 0}),
        _Cut("minimum(6, relu(x))", [(2, 3, 4, 5)],
             lambda bb, x: _minimum(_number(6), bb.emit(relu(x))),
             lambda cut, x: cut(x, 6), {"clip": 1, "nn.relu": 0, "minimum": 0}),
        _Cut("minimum(relu(-x), 0.5)", [(7,)],
             lambda bb, x: _minimum(bb.emit(relu(bb.emit(relax.op.negative(x)))), _number(0.5)),
             lambda cut, x: cut(-x, 0.5), {"clip": 1, "nn.relu": 0, "minimum": 0}),
        _Cut("minimum(relu(x), 20)", [(3, 8)],
             lambda bb, x: _minimum(bb.emit(relu(x)), _number(20)),
             lambda cut, x: cut(x, 20), {"clip": 1, "nn.relu": 0, "minimum": 0}),
        _Cut("a - minimum(0.5, relu(a + y)), a = minimum(relu(x), 6)", [(3, 5), (3, 5)], _emit_two,
             lambda cut, x, y: cut(x, 6) - cut(cut(x, 6) + y, 0.5),
             {"clip": 2, "nn.relu": 0, "minimum": 0}),
        _Cut("minimum(relu(x), y)", [(3, 5), (3, 5)],
             lambda bb, x, y: _minimum(bb.emit(relu(x)), y),
             lambda cut, x, y: torch.minimum(x.relu(), y), {"clip": 0, "nn.relu": 1, "minimum": 1}),
        _Cut("minimum(relu(x), [1, 4, 2, 8, 3])", [(3, 5)],
             lambda bb, x: _minimum(bb.emit(relu(x)), _number(_MANY)),
             lambda cut, x: torch.minimum(x.relu(), torch.from_numpy(_MANY)),
             {"clip": 0, "nn.relu": 1, "minimum": 1}),
        _Cut("minimum(tanh(x), 0.25) + relu(x)", [(3, 5)],
             _emit_not_relu, lambda cut, x: torch.minimum(x.tanh(), torch.tensor(0.25)) + x.relu(),
             {"clip": 0, "nn.relu": 1, "minimum": 1}),
        _Cut("minimum(relu(x), 2) + relu(x)", [(3, 5)], _emit_used_twice,
             lambda cut, x: cut(x, 2) + x.relu(), {"clip": 1, "nn.relu": 1, "minimum": 0}),
    ]


@exercise("9.1", "use_clip(mod)")
def exercise_9_1(use_clip: Callable) -> str:
    """a clip for the minimum of a ReLU."""
    cuts = _cuts()
    answered = _answered(use_clip, {cut.title: _graph(cut.shapes, cut.emit) for cut in cuts})
    check(compiled({cut.title: cut.torch for cut in cuts},
                   lambda graph, *x: graph(lambda a, most: a.clamp(0, most), *x),
                   {cut.title: [[scale * random(*shape, seed=place + scale)
                                 for place, shape in enumerate(cut.shapes)]
                                for scale in (1, 10, 400)] for cut in cuts}, 1e-6),
          {title: main for title, (_mod, main) in answered.items()})
    for cut in cuts:
        came = answered[cut.title][0]
        for name in ("clip", "minimum", "nn.relu"):
            _require_count(came, name, cut.left[name], cut.title)
    return _("clips for ReLUs cut at 0.5, 2, 6 and 20, the number on either side; other minima "
             "and ReLUs\nstay as they were")


# ---- verdicts ------------------------------------------------------------------------------

_C = torch.tensor([100.0, -100.0])[:, None, None]
_REWRITES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "a": (lambda x: F.avg_pool2d(F.relu(x), 2), lambda x: F.relu(F.avg_pool2d(x, 2))),
    "b": (lambda x: F.softmax(x + _C, dim=-1), lambda x: F.softmax(x, dim=-1)),
    "c": (lambda x: F.max_pool2d(torch.exp(x), 2), lambda x: torch.exp(F.max_pool2d(x, 2))),
    "d": (lambda x: F.max_pool2d(x * x, 2), lambda x: F.max_pool2d(x, 2) ** 2),
    "e": (lambda x: F.avg_pool2d(x + 1, 2, padding=1),
          lambda x: F.avg_pool2d(x, 2, padding=1) + 1)}
_RIGHT = "bc"
_SHAPE, _MOST, _LEAST = (1, 2, 4, 4), 5, 0.1


def _require_input(letter: str, given: Any) -> None:
    """Raise CheckFailed unless this is an array that the exercise allows."""
    wanted = _("{letter}: a float32 array of shape {shape}, with numbers from {least} to "
               "{most}").format(letter=letter, shape=_SHAPE, least=-_MOST, most=_MOST)
    if not isinstance(given, np.ndarray):
        raise CheckFailed(wanted, type(given).__name__)
    if given.shape != _SHAPE or given.dtype != np.float32:
        raise CheckFailed(wanted, f"{given.dtype}, {given.shape}")
    if not (np.isfinite(given).all() and np.abs(given).max() <= _MOST):
        raise CheckFailed(wanted, _("numbers from {least} to {most}").format(
            least=f"{given.min():.4g}", most=f"{given.max():.4g}"))


@exercise("9.2", "verdicts()")
@torch.no_grad()
def exercise_9_2(verdicts: Callable) -> str:
    """which of five rewrites are right."""
    came = verdicts()
    if not isinstance(came, dict) or set(came) != set(_REWRITES):
        raise CheckFailed(_("a dictionary with the keys {keys}").format(keys=list(_REWRITES)),
                          _("keys {keys}").format(keys=list(came)) if isinstance(came, dict)
                          else type(came).__name__)
    for letter, (before, after) in _REWRITES.items():
        given = came[letter]
        if given is None:
            if letter not in _RIGHT:
                raise CheckFailed(_("an input for which rewrite {letter} is wrong").format(
                    letter=letter), _("None: right for all inputs"))
            continue
        _require_input(letter, given)
        x = torch.from_numpy(np.ascontiguousarray(given))  # it takes no negative strides
        difference = float((before(x) - after(x)).abs().max())
        if difference <= _LEAST:
            raise CheckFailed(
                _("{letter}: an input for which the two sides differ by more than {least}").format(
                    letter=letter, least=_LEAST),
                _("they differ by {difference} at most").format(difference=f"{difference:.2g}"))
    return _("two rewrites are right; for each of the other three, both sides were run on your "
             "input, and differ")


# ---- batch normalisation -------------------------------------------------------------------


class _TwoWays(nn.Module):
    """A convolution whose result is used twice: with a normalisation, and without."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return torch.relu(self.norm(y)) - y


class _Normalized(NamedTuple):
    """A model for 9.3, the shape of its input, and how many normalisations have to stay.

    `stays` is None where either is right.
    """

    title: str
    model: nn.Module
    shape: tuple[int, ...]
    stays: int | None


def _randomized(model: nn.Module) -> nn.Module:
    """Give normalisations statistics and parameters far from those of an untrained one."""
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            m = layer.num_features
            least = 1e-4 if layer.affine and layer.eps == 1e-5 else 0.05  # there epsilon counts
            layer.running_mean, layer.running_var = torch.randn(m), least + 4 * torch.rand(m) ** 3
            layer.running_var[0] = least
            if layer.affine:
                layer.weight = nn.Parameter(torch.randn(m) + 0.2)
                layer.bias = nn.Parameter(torch.randn(m))
    return model.eval().requires_grad_(False)


@prepared
def _normalized() -> list[tuple[_Normalized, tvm.IRModule]]:
    """Return models with normalisations, each with its module."""
    conv, norm = nn.Conv2d, nn.BatchNorm2d
    with torch.random.fork_rng():
        torch.manual_seed(3)
        found: list[tuple[nn.Module, tuple[int, ...], int | None]] = [
            (nn.Sequential(conv(1, 4, 3, bias=False), norm(4)), (2, 1, 6, 7), 0),
            # the same shapes, and other weights
            (nn.Sequential(conv(1, 4, 3, bias=False), norm(4)), (2, 1, 6, 7), 0),
            (nn.Sequential(conv(2, 3, (3, 2)), norm(3)), (1, 2, 7, 5), 0),
            (nn.Sequential(conv(3, 3, 1), norm(3), nn.ReLU()), (2, 3, 3, 3), 0),
            (nn.Sequential(conv(2, 5, 3, stride=(2, 1), padding=(1, 2)), norm(5, eps=0.5)),
             (1, 2, 9, 6), 0),
            (nn.Sequential(conv(4, 6, 3, groups=2, bias=False), norm(6, eps=0.1)),
             (1, 4, 5, 6), 0),
            (nn.Sequential(conv(1, 3, 2), norm(3, affine=False)), (2, 1, 4, 5), 0),
            (nn.Sequential(conv(1, 4, 3, bias=False), norm(4), nn.ReLU(), nn.MaxPool2d(2),
                           conv(4, 4, 2), norm(4, eps=0.2)), (3, 1, 10, 8), 0),
            (nn.Sequential(conv(1, 3, 3), nn.ReLU(), norm(3)), (1, 1, 6, 6), 1),
            (nn.Sequential(norm(2), conv(2, 3, 3, padding=1)), (1, 2, 5, 5), 1),
            (_TwoWays(), (2, 2, 6, 5), None)]
        every = [_Normalized(f"{number}: {_says(model)}", _randomized(model), shape, stays)
                 for number, (model, shape, stays) in enumerate(found, start=1)]
        return [(one, _imported(one.model, one.shape)) for one in every]


def _says(model: nn.Module) -> str:
    """Return a model's layers, without what is as it always is."""
    usual = r", (momentum|affine|track_running_stats|bias|stride|dilation)=(0\.1|True|\(1, 1\))"
    return re.sub(usual, "", ", ".join(map(str, model.children())))


def _with_norm(form: Callable[..., tuple[Any, Any]], one: _Normalized, x: Tensor) -> Tensor | None:
    """Return what comes of a model with a mistake: `form(norm, bias)` gives a factor and a shift.

    None of a model that is not a chain.
    """
    if not isinstance(one.model, nn.Sequential):
        return None
    layers = list(one.model)
    for place, layer in enumerate(layers):
        before = layers[place - 1] if place else None
        if isinstance(layer, nn.BatchNorm2d) and isinstance(before, nn.Conv2d):
            bias = torch.zeros(layer.num_features) if before.bias is None else before.bias
            factor, shift = form(layer, bias)
            x = (x - bias[:, None, None]) * factor[:, None, None] + shift[:, None, None]
        else:
            x = layer(x)
    return x


def _parts(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gamma, beta, mean and variance plus epsilon."""
    ones, zeros = torch.ones(norm.num_features), torch.zeros(norm.num_features)
    return (norm.weight if norm.affine else ones, norm.bias if norm.affine else zeros,
            norm.running_mean, norm.running_var + norm.eps)


def _form(formula: Callable[..., tuple[Any, Any]]) -> Callable[[_Normalized, Tensor], Any]:
    """Return a mistake: `formula(norm, b, gamma, beta, mean, variance)` gives factor and shift."""
    return functools.partial(_with_norm, lambda norm, b: formula(norm, b, *_parts(norm)))


_NORM: Mistakes = {
    _("epsilon: it is left out"): _form(lambda n, b, g, s, m, v: (
        f := g / (v - n.eps).sqrt(), f * (b - m) + s)),
    _("epsilon: it is always 1e-5; the call has it as an attribute"):
        _form(lambda n, b, g, s, m, v: (f := g / (v - n.eps + 1e-5).sqrt(), f * (b - m) + s)),
    _("the factor: divided by the variance, not by its root"):
        _form(lambda n, b, g, s, m, v: (f := g / v, f * (b - m) + s)),
    _("the factor: gamma is left out"):
        _form(lambda n, b, g, s, m, v: (f := 1 / v.sqrt(), f * (b - m) + s)),
    _("the bias: beta is left out"):
        _form(lambda n, b, g, s, m, v: (f := g / v.sqrt(), f * (b - m))),
    _("the bias: the mean is left out"):
        _form(lambda n, b, g, s, m, v: (f := g / v.sqrt(), f * b + s)),
    _("the bias: the mean is added, not subtracted"):
        _form(lambda n, b, g, s, m, v: (f := g / v.sqrt(), f * (b + m) + s)),
    _("the bias: the mean is not multiplied by the factor"):
        _form(lambda n, b, g, s, m, v: (f := g / v.sqrt(), f * b - m + s)),
    _("the bias: the convolution's own bias is left out"):
        _form(lambda n, b, g, s, m, v: (f := g / v.sqrt(), s - f * m)),
    _("the bias: the convolution's own is not multiplied by the factor"):
        _form(lambda n, b, g, s, m, v: (f := g / v.sqrt(), b - f * m + s)),
    _("the weights: they are not multiplied by the factor"):
        _form(lambda n, b, g, s, m, v: (torch.ones(len(v)), g / v.sqrt() * (b - m) + s)),
    _("gamma and beta: they are exchanged"):
        _form(lambda n, b, g, s, m, v: (f := s / v.sqrt(), f * (b - m) + g)),
    _("the normalisation: it is left out"):
        _form(lambda n, b, g, s, m, v: (torch.ones(len(v)), b))}


@exercise("9.3", "fold_batch_norm(mod)", seconds=30, prepare=[_normalized])
@torch.no_grad()
def exercise_9_3(fold_batch_norm: Callable) -> str:
    """a normalisation folded into the convolution before it."""
    answered = _answered(fold_batch_norm, {one.title: mod for one, mod in _normalized()})
    models = {one.title: one for one, _mod in _normalized()}
    check(compiled(models, lambda one, x: one.model(x), {
        title: [[random(*one.shape, seed=7)]] for title, one in models.items()}, 1e-4, _NORM),
          {title: main for title, (_mod, main) in answered.items()})
    for one, mod in _normalized():
        if one.stays is None:
            continue
        came = _tidy(answered[one.title][0])
        _require_count(came, "nn.batch_norm", one.stays, one.title)
        _require_count(came, "nn.conv2d", _count(mod, "nn.conv2d"), one.title)
        most = len(_calls(mod))
        if len(_calls(came)) > most:
            raise CheckFailed(
                _("at most {most} operators; {title}").format(most=most, title=one.title),
                ", ".join(call.op.name.removeprefix("relax.") for call in _calls(came)))
    return _("equal to PyTorch with and without a bias, with strides, padding, groups and other "
             "epsilons; nine\nnormalisations are gone, two that follow no convolution are left")


# ---- an order ------------------------------------------------------------------------------

_PASSES = {
    "CanonicalizeBindings": relax.transform.CanonicalizeBindings(),
    "DeadCodeElimination": relax.transform.DeadCodeElimination(),
    "FoldConstant": relax.transform.FoldConstant(),
    "ConvertLayout": relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})}


@prepared
def _untidy_cnn() -> tvm.IRModule:
    """Return the CNN as TVM imports it."""
    return helpers.import_operators(cnn()[1], INPUT)


class _Halves(nn.Module):
    """The sum of two convolutions whose weights are the halves of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.arange(72.0).reshape(8, 1, 3, 3) / 72)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.weights.chunk(2)
        return F.relu(F.conv2d(x, first)) + F.conv2d(x, second)


@prepared
def _untidy() -> list[tuple[str, tvm.IRModule, int]]:
    """Return the CNN and Halves as TVM imports them, and how many operators each needs.

    No two of the four passes can change places without leaving something in one of them.
    """
    return [(_("the CNN"), _untidy_cnn(), 13),
            ("halves", helpers.import_operators(_Halves(), INPUT), 9)]


@exercise("9.4", "in_order()", prepare=[_untidy])
def exercise_9_4(in_order: Callable) -> str:
    """four passes in an order."""
    order = in_order()
    if not isinstance(order, list | tuple) or not all(isinstance(name, str) for name in order):
        raise CheckFailed(_("a list of names"), type(order).__name__
                          if not isinstance(order, list | tuple)
                          else _("a list of {kinds}").format(kinds=", ".join(sorted(
                              {type(name).__name__ for name in order}))))
    if sorted(order) != sorted(_PASSES):
        raise CheckFailed(_("each of {names} once").format(names=", ".join(_PASSES)),
                          ", ".join(order) or _("none"))
    says = _("{operators} operators, {bindings} bindings")
    for title, untidy, least in _untidy():
        mod = tvm.transform.Sequential([_PASSES[name] for name in order])(untidy)
        calls = len(_calls(mod))
        bindings = sum(len(block.bindings) for block in mod["main"].body.blocks)
        if (calls, bindings) != (least, least):
            raise CheckFailed(_("{what}; {title}").format(
                                  what=says.format(operators=least, bindings=least), title=title),
                              says.format(operators=calls, bindings=bindings), _what_is_left(mod))
    return _("no binding but the operators, of the CNN and of halves, their convolutions in NHWC")


def _what_is_left(mod: tvm.IRModule) -> str:
    """Say what an order leaves that another one does not."""
    late = [call for call in _calls(mod) if call.op.name == "relax.permute_dims"
            and not isinstance(call.args[0], relax.Var)]
    if late:
        return _("{count} transposes of constants are left").format(count=len(late))
    (block,) = mod["main"].body.blocks
    users = relax.analysis.udchain(block)
    result = mod["main"].body.body
    dead = [binding.var.name for binding in block.bindings
            if not users.get(binding.var) and not binding.var.same_as(result)]
    if dead:
        return _("{name} is never used").format(name=", ".join(dead))
    named = [binding.var.name for binding in block.bindings
             if not isinstance(binding.value, relax.Call)]
    return _("{names} compute nothing").format(names=", ".join(named))


# ---- a plan --------------------------------------------------------------------------------

_Lives = list[tuple[int, int, int]]


def _lives_of(mod: tvm.IRModule) -> tuple[_Lives, int]:
    """Return (first, last, bytes) of what lies between PrimFuncs, and the bytes of TVM's plan."""
    transform = relax.transform
    lowered = tvm.transform.Sequential([
        transform.RewriteDataflowReshape(), transform.ToNonDataflow(),
        transform.RemovePurityChecking(), transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory()])(mod)
    made: dict[Any, Any] = {}
    lives: dict[Any, list[int]] = {}
    call = total = 0
    for binding in (each for block in lowered["main"].body.blocks for each in block.bindings):
        value, var = binding.value, binding.var
        name = getattr(getattr(value, "op", None), "name", "")
        if name == "relax.memory.alloc_storage":
            total += int(value.args[0].values[0])
        elif name == "relax.memory.alloc_tensor":
            count = 4 * int(np.prod([int(extent) for extent in value.args[2].values]))
            made[var], lives[var] = var, [0, 0, count]
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            call += 1
            for tensor in {made[one] for one in value.args if one in made}:
                lives[tensor] = [lives[tensor][0] or call, call, lives[tensor][2]]
        else:
            parts = [value] if isinstance(value, relax.Var) else \
                list(getattr(value, "fields", getattr(value, "args", ())))
            parts += [value.tuple_value] if isinstance(value, relax.TupleGetItem) else []
            if taken := [made[part] for part in parts if part in made]:
                made[var] = taken[0]
    return sorted((first, last, count) for first, last, count in lives.values()), total


def _chain(*sizes: int) -> tvm.IRModule:
    """Return a chain of operators whose results have so many numbers."""
    def emit(bb: relax.BlockBuilder, x: Any) -> Any:
        for size in sizes:
            x = bb.emit(relax.op.broadcast_to(bb.emit(relax.op.max(x, keepdims=True)),
                                              relax.ShapeExpr([size])))
        return relax.op.nn.relu(x)
    return relax.transform.LegalizeOps()(_graph([(8,)], emit))


@prepared
def _plans() -> list[tuple[_Lives, int]]:
    """Return lives, each with the bytes that a plan may take."""
    cnn_of = _untidy_cnn()
    found = [_lives_of(mod) for mod in (
        relax.transform.LegalizeOps()(cnn_of), relax.transform.LegalizeOps()(_tidy(cnn_of)),
        relax.get_pipeline("zero")(cnn_of), _chain(10, 20, 40, 80, 160),
        _chain(160, 80, 40, 20, 10))]
    rng = np.random.default_rng(5)
    same: list[_Lives] = [
        [], [(1, 3, 64)], [(i, i + 1, 256) for i in range(1, 11)],
        [(1, 9, 40), *((i, i + 1, 40) for i in range(2, 9))],  # one lives to the end
        [(1, 1, 8), (2, 3, 8), (3, 3, 8), (4, 5, 8)],  # one that nobody reads
        [(2, 5, 16), (4, 4, 16), (9, 12, 16), (12, 13, 16)],  # calls without a new tensor
        *([(i, i + int(rng.integers(0, 7)), 4) for i in range(1, count + 1)]
          for count in (12, 40, 300))]
    found += [
        # a small tensor, for which a large storage is free, and the other way round
        ([(1, 2, 1000), (2, 3, 10), (4, 6, 10), (5, 6, 1000)], 1010),
        ([(1, 2, 10), (2, 3, 1000), (4, 5, 1000)], 1010),
        ([(1, 2, 120), (2, 3, 70), (5, 6, 80)], 190),  # fits nearly into the smaller of two
        ([(1, 2, 10), (2, 3, 50), (5, 6, 100)], 110),  # is larger than both
        # a storage that held a small tensor after a large one
        ([(1, 3, 100), (2, 4, 50), (5, 6, 10), (7, 9, 50), (8, 9, 100)], 150)]
    return found + [(lives, _alive(lives) * (lives[0][2] if lives else 0)) for lives in same]


def _alive(lives: _Lives) -> int:
    """Return how many tensors are alive at once, at most."""
    return max((sum(first <= call <= last for first, last, _ in lives)
                for call in range(1, max((last for _, last, _ in lives), default=0) + 1)),
               default=0)


def _bytes(came: Sequence[int], lives: _Lives) -> int:
    """Return the bytes of a plan: of each storage its largest tensor."""
    largest: dict[int, int] = {}
    for number, (_first, _last, count) in zip(came, lives, strict=True):
        largest[number] = max(largest.get(number, 0), count)
    return sum(largest.values())


class _Broken(CheckFailed):
    """What a plan of memory does, and none may."""


def _most(lives: _Lives) -> int | None:
    """Return the bytes that suffice: of tensors of one size, and of some of those of _plans."""
    if len(sizes := {count for _first, _last, count in lives}) < 2:
        return _alive(lives) * sum(sizes)
    known = [(every, most) for every, most in _plans()
             if not Counter(lives) - Counter(every)]
    return min((most for every, most in known if every == lives or lives not in
                [same for same, _most in known]), default=None)


def _are_lives(given: Inputs) -> bool:
    """Whether this is what plan takes, and it is known how many bytes suffice."""
    lives = given["lives"]
    return lives == sorted(lives) and all(
        len(life) == 3 and 1 <= life[0] <= life[1] and life[2] > 0 for life in lives
    ) and _most(lives) is not None


def _planned(plan: Callable) -> Callable[..., np.ndarray]:
    """Return a plan as a function that gives nothing, or raises _Broken."""
    def run(lives: _Lives) -> np.ndarray:
        came = plan(copy.deepcopy(lives))
        if not isinstance(came, list | tuple) or not all(
                isinstance(number, int | np.integer) and number >= 0 for number in came):
            raise _Broken(_("a list of storage numbers, 0 and above"),
                          repr(came)[:80] if isinstance(came, list | tuple)
                          else type(came).__name__)
        if len(came) != len(lives):
            raise _Broken(_("{count} numbers, one for each tensor").format(count=len(lives)),
                          f"{len(came)}")
        latest: dict[int, tuple[int, int, int]] = {}
        for number, life in zip(came, lives, strict=True):
            before = latest.get(number)
            if before and life[0] <= before[1]:
                raise _Broken(_("different storages for tensors alive at the same time"),
                              _("{one} and {other} both in storage {number}").format(
                                  one=before, other=life, number=number))
            if not before or life[1] > before[1]:
                latest[number] = life
        most = _most(lives)
        if most is not None and (total := _bytes(came, lives)) > most:
            raise _Broken(_("at most {most} bytes").format(most=f"{most:,}"),
                          _("{total}, by the storages {plan}").format(
                              total=f"{total:,}", plan=str(came)[:80]))
        return np.empty(0)
    return run


_PLAN = Spec(_planned, lambda lives: np.empty(0),
             lambda: (("", {"lives": lives}) for lives, _most_of in _plans()),
             fits=_are_lives, fault=_Broken)


@exercise("9.5", "plan(lives)", prepare=[_untidy_cnn, _plans])
def exercise_9_5(plan: Callable) -> str:
    """a plan of memory."""
    check(_PLAN, plan)
    return _("no tensor overwrites another; no more bytes than TVM's plans of five modules, and no "
             "more storages\nthan tensors alive at once, for chains and for up to 300 tensors")


# ---- a code generator ----------------------------------------------------------------------


class _Layer(NamedTuple):
    """A product in a graph for 9.6, and whether what is added stands on the left of the sum.

    `axes` of what is added: 1 of a bias, which makes it a dense layer; 0 where nothing is.
    """

    width: int
    relu: bool
    left: bool
    axes: int = 1


class _Dense(NamedTuple):
    """Layers one behind the other, and the shape of the input."""

    shape: tuple[int, int]
    layers: list[_Layer]

    @property
    def title(self) -> str:
        """What is computed, as a formula: b is a bias, m a matrix."""
        text = "x"
        for number, layer in enumerate(self.layers):
            text, added = f"{text} @ w{number}", f"{' bm'[layer.axes]}{number}"
            if layer.axes:
                text = f"{added} + {text}" if layer.left else f"{text} + {added}"
            text = f"relu({text})" if layer.relu else f"({text})"
        return f"-{text}"

    def arrays(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return weight and bias of each layer."""
        widths = [self.shape[1], *(layer.width for layer in self.layers)]
        return [(random(k, layer.width, seed=place), random(
                    *(self.shape[0], layer.width)[2 - layer.axes:], seed=place + 50))
                for place, (k, layer) in enumerate(zip(widths, self.layers, strict=False))]

    def model(self, x: Tensor) -> Tensor:
        """Return what the layers give."""
        for layer, arrays in zip(self.layers, self.arrays(), strict=True):
            w, b = map(torch.from_numpy, arrays)
            x = x @ w + b if layer.axes else x @ w
            x = torch.relu(x) if layer.relu else x
        return -x


_DENSE = [
    _Dense((4, 8), [_Layer(5, False, True)]), _Dense((5, 3), [_Layer(8, True, False)]),
    _Dense((8, 8), [_Layer(8, False, True), _Layer(8, True, False)]),
    _Dense((2, 6), [_Layer(6, True, True), _Layer(6, False, False), _Layer(3, True, False)]),
    _Dense((3, 5), [_Layer(4, False, True, axes=0), _Layer(6, False, True)]),
    _Dense((3, 5), [_Layer(4, True, False, axes=2), _Layer(6, True, True)])]


def _emit_dense(case: _Dense, bb: relax.BlockBuilder, x: Any) -> Any:
    op = relax.op
    for layer, arrays in zip(case.layers, case.arrays(), strict=True):
        w, b = map(relax.const, arrays)
        x = bb.emit(op.matmul(x, w))
        if layer.axes:
            x = bb.emit(op.add(b, x) if layer.left else op.add(x, b))
        if layer.relu:
            x = bb.emit(op.nn.relu(x))
    return op.negative(x)


@prepared
def _random_dense_cnn() -> tuple[tvm.IRModule, nn.Sequential]:
    """Return the CNN with random weights, tidied, and PyTorch's model."""
    model = random_cnn()[1]
    return _imported(model, INPUT), model


@contextlib.contextmanager
def _generators() -> Iterator[Callable[[], Collection[str]]]:
    """Take back the code generators that are registered inside; yield a function of their names."""
    def names() -> set[str]:
        return {name for name in tvm_ffi.registry.list_global_func_names()
                if name.startswith("relax.ext.")}
    there = {name: tvm_ffi.get_global_func(name) for name in names()}
    yield lambda: {name for name in names()
                   if not tvm_ffi.get_global_func(name).same_as(there.get(name))}
    for name in names() - there.keys():
        tvm_ffi.registry.remove_global_func(name)
    for name, generator in there.items():
        tvm_ffi.register_global_func(name, generator, override=True)


def _require_handed_over(came: tvm.IRModule, layers: Sequence[_Layer], title: str) -> None:
    """Raise CheckFailed unless each dense layer is one call of external code."""
    dense = sum(layer.axes == 1 for layer in layers)  # TVM's add matches both ways round
    matrices = [layer for layer in layers if layer.axes == 2]
    _require_count(came, "matmul", len(layers) - dense, title)
    _require_count(came, "call_dps_packed", dense, title)
    _require_count(came, "add", len(matrices), title)
    _require_count(came, "nn.relu", sum(layer.relu for layer in matrices), title)
    modules = (came.attrs or {}).get("external_mods")
    if not modules:
        raise CheckFailed(_("compiled modules next to the IRModule; {title}").format(title=title),
                          _("none"))


def _with_code(hand_over: Callable, mod: tvm.IRModule) -> tvm.IRModule:
    """Return what an answer makes of a module; raise CheckFailed where a function has no code."""
    came = hand_over(mod)
    if isinstance(came, tvm.IRModule):
        for variable, func in came.functions_items():
            if func.attrs and "Codegen" in func.attrs:
                raise CheckFailed(_("compiled code for what was cut out"),
                                  _("{name} is a function of Relax").format(
                                      name=variable.name_hint))
    return came


@exercise("9.6", "hand_over(mod)", seconds=60, prepare=[cnn, random_cnn, _random_dense_cnn])
@torch.no_grad()
def exercise_9_6(hand_over: Callable) -> str:
    """dense layers handed over to a code generator."""
    hand_over = functools.partial(_with_code, hand_over)
    mains, right, arrays = {}, {}, {}
    with _generators():
        for case in _DENSE:
            mod = _graph([case.shape], functools.partial(_emit_dense, case))
            came, mains[case.title] = _answered(hand_over, {case.title: mod})[case.title]
            _require_handed_over(came, case.layers, case.title)
            right[case.title] = case.model
            arrays[case.title] = [[scale * random(*case.shape, seed=scale)] for scale in (1, 150)]
        mod, model = _random_dense_cnn()
        title = _("the CNN")
        came, mains[title] = _answered(hand_over, {title: mod})[title]
        _require_count(came, "call_dps_packed", 2, title)
        _require_count(came, "nn.relu", 1, title)
        right[title], arrays[title] = model, [[random(*INPUT)]]
        check(compiled(right, lambda model, x: model(x), arrays,
                       lambda given: 1e-4 * (150 if given["program"] != title
                                             and np.abs(given["x0"]).max() > 1 else 1)), mains)
    count = sum(layer.axes == 1 for case in _DENSE for layer in case.layers)
    return _("{count} dense layers, with the bias on either side, with a ReLU and without, and the "
             "CNN's two, are code\nof your generator; products without a bias stay").format(
                 count=count)
