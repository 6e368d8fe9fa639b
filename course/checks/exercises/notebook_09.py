"""The checks of notebook 09: rewrites of a graph, an order of passes, a plan of memory, a code
generator.
"""

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import Tensor, nn
from torch.nn import functional as F
from tvm import relax

import helpers
from course.checks.compare.tolerance import random
from course.checks.diagnose.equivalence import build, require_well_formed
from course.checks.exercises.models import INPUT, cnn, model_of, random_cnn
from course.checks.run.check import exercise, prepared
from course.checks.say.messages import CheckFailed
from course.checks.say.show import shown
from course.checks.spec.forms import Mains, compiled, naming, result
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Spec, check
from course.words import _

# ---- graphs --------------------------------------------------------------------------------


def _calls(mod: tvm.IRModule) -> list[relax.Call]:
    """Return the calls that main binds, in order."""
    return [binding.value for block in mod["main"].body.blocks for binding in block.bindings
            if isinstance(binding.value, relax.Call)]


class _Formula(NamedTuple):
    """A graph as a formula of inputs and of constant arrays, each with its shape.

    Read with Relax's operators it is a module, with PyTorch's a function of the inputs. `left`:
    the operators that a right answer leaves.
    """

    text: str
    inputs: Mapping[str, tuple[int, ...]]
    left: str
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    dtype: str = "float32"

    def constants(self) -> dict[str, np.ndarray]:
        """Return the constant arrays by their names."""
        return {name: random(*shape, seed=place)
                for place, (name, shape) in enumerate(self.shapes.items())}

    def module(self) -> tvm.IRModule:
        """Return a module whose main takes the inputs and returns the formula's value."""
        bb = relax.BlockBuilder()

        def emitting(operator: Callable) -> Callable:
            return lambda *given: bb.emit(operator(*(
                one if isinstance(one, relax.Expr)
                else relax.const(np.array(one, self.dtype), self.dtype) for one in given)))
        names: dict[str, Any] = {
            "relu": emitting(relax.op.nn.relu), "minimum": emitting(relax.op.minimum),
            "maximum": emitting(relax.op.maximum),
            "tanh": emitting(relax.op.tanh), "leaky": emitting(relax.op.nn.leakyrelu),
            "matmul": emitting(relax.op.matmul)}
        names |= {name: relax.const(array) for name, array in self.constants().items()}
        inputs = {name: relax.Var(name, relax.TensorType(shape, self.dtype))
                  for name, shape in self.inputs.items()}
        with bb.function("main", [*inputs.values()]):
            with bb.dataflow():
                value = bb.emit_output(eval(self.text, names | inputs))
            bb.emit_func_output(value)
        return bb.get()

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the formula's value by PyTorch."""
        names: dict[str, Any] = {
            "relu": torch.relu, "tanh": torch.tanh, "leaky": F.leaky_relu, "matmul": torch.matmul,
            "minimum": lambda *both: torch.minimum(*map(torch.as_tensor, both)),
            "maximum": lambda *both: torch.maximum(*map(torch.as_tensor, both))}
        names |= {name: torch.from_numpy(array) for name, array in self.constants().items()}
        return eval(self.text, names | dict(zip(self.inputs, inputs, strict=True)))


_clean = tvm.transform.Sequential([
    relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()])
_tidy = tvm.transform.Sequential([relax.transform.FoldConstant(), _clean])


def _imported(model: nn.Module, shape: tuple[int, ...]) -> tvm.IRModule:
    """Return a model as 9.3 is given it: what helpers.import_operators makes of it, tidied."""
    own = copy.deepcopy(model)  # a module's constants are the model's own arrays
    return _tidy(helpers.import_operators(own, shape))


def _mains(answer: Callable, mods: Mapping[str, tvm.IRModule], left: Mapping[str, str],
           tidy: Callable = lambda mod: mod) -> Mains:
    """Return the mains of what an answer makes of each module, to be compiled; see _answered."""
    return Mains(lambda titles: _answered(answer, {one: mods[one] for one in titles}, left, tidy),
                 [*mods])


def _answered(answer: Callable, mods: Mapping[str, tvm.IRModule], left: Mapping[str, str],
              tidy: Callable) -> dict[str, Callable]:
    """Return a compiled main of what an answer makes of each module, by their titles.

    Raises CheckFailed unless the operators of main are those that are to be `left`, if any are
    given; `tidy` is what may still be done before they are counted.
    """
    mains = {}
    for title, mod in mods.items():
        with naming(title):
            require_well_formed(came := answer(mod))
            found = [getattr(call.op, "name_hint", getattr(call.op, "name", ""))
                     .removeprefix("relax.") for call in _calls(tidy(came))]
            if left[title] and sorted(found) != sorted(left[title].split()):
                raise CheckFailed(_("operators {operators}").format(
                    operators=left[title].replace(" ", ", ")), ", ".join(found))
            mains[title] = build(came)["main"]
    return mains


# ---- a pattern -----------------------------------------------------------------------------


_ROWS = {"x": (3, 5)}
_CUTS = [
    _Formula("minimum(relu(x), 6)", {"x": (2,)}, "clip"),
    _Formula("minimum(6, relu(x))", {"x": (2, 3, 4, 5)}, "clip"),
    _Formula("minimum(relu(-x), 0.5)", {"x": (7,)}, "negative clip"),
    _Formula("minimum(relu(x), 20.125)", {"x": (3, 8)}, "clip"),
    _Formula("minimum(relu(x), 0)", {"x": (3, 8)}, "clip"),
    _Formula("(a := minimum(relu(x), 6)) - minimum(0.5, relu(a + y))", _ROWS | {"y": (3, 5)},
             "clip add clip subtract"),
    _Formula("minimum(relu(x), y)", _ROWS | {"y": (3, 5)}, "nn.relu minimum"),
    _Formula("minimum(relu(x), [1, 4, 2, 8, 3])", _ROWS, "nn.relu minimum"),
    _Formula("minimum(relu(x), [3])", _ROWS, "nn.relu minimum"),  # it has an axis
    _Formula("maximum(relu(x), 0.5)", _ROWS, "nn.relu maximum"),
    _Formula("minimum(maximum(x, 0), 6)", _ROWS, "maximum minimum"),
    _Formula("relu(minimum(x, 6))", _ROWS, "minimum nn.relu"),
    _Formula("minimum(tanh(x), 0.25) + relu(x)", _ROWS, "tanh minimum nn.relu add"),
    _Formula("(a := relu(x)) + minimum(a, 2)", _ROWS, "nn.relu clip add"),
    _Formula("minimum(minimum(relu(x), 6), 4)", _ROWS, "clip minimum"),
    _Formula("minimum(leaky(x), 6)", _ROWS, "nn.leakyrelu minimum"),
    _Formula("minimum(relu(x), 6) # float64", _ROWS, "clip", dtype="float64")]


@exercise("9.1", "use_clip(mod)")
def exercise_9_1(use_clip: Callable) -> str:
    """a clip for the minimum of a ReLU."""
    cuts = {cut.text: cut for cut in _CUTS}
    mains = _mains(use_clip, {text: cut.module() for text, cut in cuts.items()},
                   {text: cut.left for text, cut in cuts.items()}, _clean)
    check(compiled(cuts, _Formula.__call__, {
        text: [[(scale * random(*shape, seed=place + scale)).astype(cut.dtype)
                for place, shape in enumerate(cut.inputs.values())] for scale in (1, 10, 400)]
        for text, cut in cuts.items()}, 1e-6), mains, mains.all)
    return _("clips for ReLUs cut at 0, 0.5, 2, 6 and 20.125, the number on either side; other "
             "minima and ReLUs\nstay as they were")


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


def _not_allowed(given: Any) -> str:
    """Return what keeps an input from being one that the exercise allows, or ""."""
    if not isinstance(given, np.ndarray):
        return type(given).__name__
    if given.shape != _SHAPE or given.dtype != np.float32:
        return f"{given.dtype}, {given.shape}"
    return "" if np.abs(given).max() <= _MOST else _("numbers from {least} to {most}").format(
        least=f"{given.min():.9g}", most=f"{given.max():.9g}")


@exercise("9.2", "verdicts()")
@torch.no_grad()
def exercise_9_2(verdicts: Callable) -> str:
    """which of five rewrites are right."""
    came = verdicts()
    if not isinstance(came, dict) or set(came) != set(_REWRITES):
        raise CheckFailed(_("a dictionary with the keys {keys}").format(keys=list(_REWRITES)),
                          str(list(came)) if isinstance(came, dict) else type(came).__name__)
    for letter, (before, after) in _REWRITES.items():
        given = came[letter]
        if given is None and letter in _RIGHT:
            continue
        if given is not None and (says := _not_allowed(given)):
            raise CheckFailed(_("{letter}: a float32 array of shape {shape}, with numbers from "
                                "{least} to {most}, or None").format(
                                    letter=letter, shape=_SHAPE, least=-_MOST, most=_MOST), says)
        says = _("{letter}: an input for which the two sides differ by more than {least}").format(
            letter=letter, least=_LEAST)
        if given is None:
            raise CheckFailed(_("{what}: there is one").format(what=says), "None")
        says = _("{what}, or None if there is none").format(what=says)
        x = torch.from_numpy(np.ascontiguousarray(given))  # it takes no negative strides
        difference = float((before(x) - after(x)).abs().max())
        if difference <= _LEAST:
            raise CheckFailed(says, _("they differ by {difference} at most for {numbers}").format(
                difference=f"{difference:.2g}", numbers=shown(given)))
    return _("two rewrites are right; for each of the other three, both sides were run on your "
             "input, and differ")


# ---- batch normalisation -------------------------------------------------------------------


class _Normalized(NamedTuple):
    """A model for 9.3, the shape of its input, and the operators that are left.

    `left` is "" where folding is right, and leaving as it is too.
    """

    title: str
    model: nn.Module
    shape: tuple[int, ...]
    left: str


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
        one = "nn.conv2d add"
        found: list[tuple[nn.Module, tuple[int, ...], str]] = [
            (nn.Sequential(conv(1, 4, 3, bias=False), norm(4)), (2, 1, 6, 7), one),
            # the same shapes, and other weights
            (nn.Sequential(conv(1, 4, 3, bias=False), norm(4)), (2, 1, 6, 7), one),
            (nn.Sequential(conv(2, 3, (3, 2), dilation=(1, 2)), norm(3)), (1, 2, 7, 5), one),
            (nn.Sequential(conv(3, 3, 1), norm(3), nn.ReLU()), (2, 3, 3, 3), one + " nn.relu"),
            (nn.Sequential(conv(2, 5, 3, stride=(2, 1), padding=(1, 2)), norm(5, eps=0.5)),
             (1, 2, 9, 6), one),
            (nn.Sequential(conv(4, 6, 3, groups=2, bias=False), norm(6, eps=0.1)),
             (1, 4, 5, 6), one),
            (nn.Sequential(conv(1, 3, 2), norm(3, affine=False)), (2, 1, 4, 5), one),
            (nn.Sequential(conv(1, 4, 3, bias=False), norm(4), nn.ReLU(), nn.MaxPool2d(2),
                           conv(4, 4, 2), norm(4, eps=0.2)), (3, 1, 10, 8),
             f"{one} nn.relu nn.max_pool2d {one}"),
            (nn.Sequential(conv(1, 3, 3), nn.ReLU(), norm(3)), (1, 1, 6, 6),
             one + " nn.relu nn.batch_norm"),
            (nn.Sequential(norm(2), conv(2, 3, 3, padding=1)), (1, 2, 5, 5),
             "nn.batch_norm " + one),
            (model_of(lambda self, x: self.norm(self.conv(x) + x), formula="norm(conv(x) + x): ",
                      conv=conv(2, 2, 3, padding=1, bias=False), norm=norm(2)), (1, 2, 5, 4),
             one + " nn.batch_norm"),
            (model_of(lambda self, x: self.norm(F.conv2d(x, x[:, :, :3, :3])), norm=norm(2),
                      formula="norm(conv2d(x, x[:, :, :3, :3])): "), (2, 2, 5, 4),
             "strided_slice strided_slice nn.conv2d nn.batch_norm"),
            (model_of(lambda self, x: torch.relu(self.norm(y := self.conv(x))) - y,
                      formula="relu(norm(conv(x))) - conv(x): ", conv=conv(2, 3, 3), norm=norm(3)),
             (2, 2, 6, 5), "")]
        every = [_Normalized(f"{number}: {_says(model)}", _randomized(model), shape, left)
                 for number, (model, shape, left) in enumerate(found, start=1)]
        every.append(_Normalized(_CHANNELS, _of_channels(), (2, 1, 1, 1), one))
        return [(each, _imported(each.model, each.shape)) for each in every]


def _says(model: nn.Module) -> str:
    """Return a model's layers, without what is as it always is."""
    usual = r", (momentum|affine|track_running_stats|bias|stride|dilation)=(0\.1|True|\(1, 1\))"
    return getattr(model, "formula", "") + re.sub(usual, "", ", ".join(map(str, model.children())))


_CHANNELS, _EPSILON = "y = batch_norm(w * x + b)", 0.75
_NAMES = ("w", "b", "gamma", "beta", "mean", "variance", "epsilon")
_EACH = [(*each, _EPSILON) for each in [  # of a channel's numbers few are other than usual
    (3, 0, 1, 0, 0, 0.25), (3, 1, 1, 0, 0, 0.25), (3, 0, 1, 1, 0, 0.25), (3, 0, 1, 0, 1, 0.25),
    (3, 1, 2, 0, 0, 0.25), (3, 0, 2, 0, 1, 0.25), (3, 0, 1, 0, 0, 3.25), (3, 0, 2, 1, 5, 3.25),
    (3, 0, 2, 1, 0, 0.25), (3, 0, -1, 0, 0, 0.25)]]


def _of_channels() -> nn.Module:
    """Return a convolution of 1 by 1 and its normalisation, with the numbers of _EACH."""
    model = nn.Sequential(nn.Conv2d(1, len(_EACH), 1), nn.BatchNorm2d(len(_EACH), eps=_EPSILON))
    w, *others, _epsilon = torch.tensor(_EACH).T
    names = ("0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var")
    model.load_state_dict({"0.weight": w[:, None, None, None]}
                          | dict(zip(names, others, strict=True)), strict=False)
    return model.eval().requires_grad_(False)


def _folded(main: Callable[[np.ndarray], Any]) -> Callable[..., np.ndarray]:
    """Return the factor of x and what is added to it, as a function of one channel's numbers."""
    added, both = np.asarray(main(np.arange(2, dtype="float32").reshape(2, 1, 1, 1)))[..., 0, 0]
    return lambda **channel: np.stack([both - added, added], 1)[_EACH.index((*channel.values(),))]


def _weight_and_bias(w: float, b: float, gamma: float, beta: float, mean: float, variance: float,
                     epsilon: float) -> np.ndarray:
    factor = gamma / (variance + epsilon) ** 0.5
    return np.array([w * factor, (b - mean) * factor + beta], "float32")


_FOLDED = Spec(
    _folded, _weight_and_bias,
    lambda: (dict(zip(_NAMES, each, strict=True)) for each in _EACH),
    fits=lambda channel: (*channel.values(),) in _EACH,
    result=_("the new weight and the new bias"), atol=1e-4)


@exercise("9.3", "fold_batch_norm(mod)", seconds=30, prepare=[_normalized])
@torch.no_grad()
def exercise_9_3(fold_batch_norm: Callable) -> str:
    """a normalisation folded into the convolution before it."""
    models = {one.title: one for one, _mod in _normalized()}
    mains = _mains(fold_batch_norm, {one.title: mod for one, mod in _normalized()},
                   {title: one.left for title, one in models.items()}, _clean)
    try:
        check(compiled(models, lambda one, x: one.model(x), {
            title: [[random(*one.shape, seed=7)]] for title, one in models.items()}, 1e-4),
            mains, mains.all)
    except CheckFailed as failed:
        if failed.example and not failed.parts[2]:  # a channel's numbers say more
            check(_FOLDED, functools.partial(result, mains[_CHANNELS], title=_CHANNELS))
        raise
    return _("equal to PyTorch with and without a bias, with strides, padding, dilation, groups, "
             "other\nepsilons; ten normalisations are gone, four that follow no such convolution "
             "are left")


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


@prepared
def _untidy() -> list[tuple[str, tvm.IRModule, int]]:
    """Return the CNN and halves as TVM imports them, and how many operators each needs.

    The sum of two convolutions whose weights are the halves of one tensor. No two of the four
    passes can change places without leaving something in one of the two.
    """
    def forward(self: Any, x: Tensor) -> Tensor:
        first, second = self.weights.chunk(2)
        return F.relu(F.conv2d(x, first)) + F.conv2d(x, second)

    halves = model_of(forward, weights=nn.Parameter(torch.arange(72.0).reshape(8, 1, 3, 3) / 72))
    return [(_("the CNN"), _untidy_cnn(), 13),
            ("halves", helpers.import_operators(halves, INPUT), 9)]


@exercise("9.4", "in_order()", seconds=30, prepare=[_untidy])
def exercise_9_4(in_order: Callable) -> str:
    """four passes in an order."""
    order = in_order()
    names = [one if isinstance(one, str) else type(one).__name__ for one in order] \
        if isinstance(order, list | tuple) else [type(order).__name__]
    if sorted(names) != sorted(_PASSES):
        raise CheckFailed(_("a list with each of these strings once: {names}").format(
            names=", ".join(map(repr, _PASSES))), ", ".join(map(repr, names)) or _("none"))
    says = _("{operators} operators, {bindings} bindings")
    for title, untidy, least in _untidy():
        mod = tvm.transform.Sequential([_PASSES[name] for name in order])(untidy)
        calls = len(_calls(mod))
        bindings = sum(len(block.bindings) for block in mod["main"].body.blocks)
        if (calls, bindings) != (least, least):
            raise CheckFailed(
                _("{what}; {title}").format(
                    what=says.format(operators=least, bindings=least), title=title),
                says.format(operators=calls, bindings=bindings),
                "\n".join(line.strip() for line in helpers.bindings(mod).text.splitlines()
                          if " = " in line and "= R." not in line
                          or calls > least and "= R.permute_dims(metadata" in line))
    return _("no binding but the operators, of the CNN and of halves, their convolutions in NHWC")


# ---- a plan --------------------------------------------------------------------------------

_Lives = list[tuple[int, int, int]]


# of the CNN as imported, folded and tidied, and fused, and of two chains, with the bytes that TVM
# plans for each: tests/slow/test_diagnosis.py asks it
OF_TVM: list[tuple[_Lives, int]] = [
    ([(1, 2, 346112), (2, 3, 346112), (3, 4, 346112), (4, 7, 86528), (5, 5, 86528),
      (6, 7, 2163200), (7, 8, 1600), (8, 9, 1600), (9, 11, 1600), (10, 11, 4000), (11, 12, 160),
      (12, 13, 160)], 2515072),
    ([(1, 2, 346112), (2, 3, 346112), (3, 4, 346112), (4, 5, 86528), (5, 6, 1600), (6, 7, 1600),
      (7, 8, 1600), (8, 9, 160), (9, 10, 160)], 695424),
    ([(1, 2, 346112), (2, 3, 86528), (3, 4, 1600), (4, 5, 160)], 434400),
    *(([(call, call + 1, 4 if call % 2 else sizes[call // 2 - 1]) for call in range(1, 11)], 644)
      for sizes in ((40, 80, 160, 320, 640), (640, 320, 160, 80, 40)))]
_OF_SIZES: list[_Lives] = [
    # a small tensor, for which a large storage is free, and the other way round
    [(1, 2, 1000), (2, 3, 10), (4, 6, 10), (5, 6, 1000)],
    [(1, 2, 10), (2, 3, 1000), (4, 5, 1000)],
    [(1, 2, 10), (2, 3, 1000), (5, 6, 20)], [(1, 2, 10), (3, 4, 20)],
    [(1, 2, 120), (2, 3, 70), (5, 6, 80)],  # fits nearly into the smaller of two
    [(1, 2, 10), (2, 3, 50), (5, 6, 100)],  # is larger than both
    [(1, 2, 50), (2, 3, 10), (5, 6, 100)],
    # a storage that held a small tensor after a large one
    [(1, 3, 100), (2, 4, 50), (5, 6, 10), (7, 9, 50), (8, 9, 100)],
    # one that grew, and now is large enough
    [(1, 2, 10), (3, 5, 100), (4, 5, 50), (7, 8, 80)]]


def _every() -> list[_Lives]:
    """Return the lives to plan for, the shortest first."""
    rng = np.random.default_rng(5)

    def drawn(count: int, sizes: tuple[int, int]) -> _Lives:
        return [(i, i + int(rng.integers(0, 7)), int(rng.integers(*sizes)))
                for i in range(1, count + 1)]
    same: list[_Lives] = [
        [], [(1, 3, 64)], [(i, i + 1, 256) for i in range(1, 11)],
        [(1, 9, 40), *((i, i + 1, 40) for i in range(2, 9))],  # one lives to the end
        [(1, 1, 8), (2, 3, 8), (3, 3, 8), (4, 5, 8)],  # one that nobody reads
        [(2, 5, 16), (4, 4, 16), (9, 12, 16), (12, 13, 16)],  # calls without a new tensor
        *(drawn(count, (4, 5)) for count in (12, 40, 300))]
    return sorted([*same, *_OF_SIZES, *(lives for lives, _bytes in OF_TVM),
                   *(drawn(count % 12 + 2, (1, 100)) for count in range(240))], key=len)


def _most(lives: _Lives) -> int:
    """Return the bytes that the text allows: by its rule, or TVM's where those are more."""
    storages: list[list[int]] = []  # of each its bytes, and the last call that needs it
    for begin, end, size in lives:
        idle = sorted(one for one in storages if one[1] < begin)
        if not idle:
            storages.append([size, end])
            continue
        taken = next((one for one in idle if one[0] >= size), idle[-1])
        taken[:] = max(taken[0], size), end
    return max([sum(size for size, _end in storages),
                *(size for of_tvm, size in OF_TVM if of_tvm == lives)])


def _planned(plan: Callable) -> Callable[..., np.ndarray]:
    """Return a plan as a function that gives nothing, or raises CheckFailed."""
    def run(lives: _Lives) -> np.ndarray:
        came = plan(copy.copy(lives))
        came = came.tolist() if isinstance(came, np.ndarray) else came
        if not isinstance(came, list | tuple) or len(came) != len(lives) or not all(
                isinstance(number, int | np.integer) and number >= 0 for number in came):
            raise CheckFailed(_("a list of ints, 0 and above, one for each of {count} "
                                "tensors").format(count=len(lives)), repr(came)[:80])
        latest: dict[int, tuple[int, int, int]] = {}
        largest: dict[int, int] = {}
        for number, life in zip(came, lives, strict=True):
            before = latest.get(number)
            if before and life[0] <= before[1]:
                raise CheckFailed(_("different storages for tensors alive at the same time"),
                                  _("{one} and {other} both in storage {number}").format(
                                      one=before, other=life, number=number))
            if not before or life[1] > before[1]:
                latest[number] = life
            largest[number] = max(largest.get(number, 0), life[2])
        most, total = _most(lives), sum(largest.values())
        if total > most:
            raise CheckFailed(_("at most {most} bytes").format(most=f"{most:,}"),
                              _("{total}, by the storages {plan}").format(
                                  total=f"{total:,}", plan=str(came)[:80]))
        return np.empty(0)
    return run


def _are_lives(given: Inputs) -> bool:
    """Whether this is what plan takes."""
    lives = given["lives"]
    return all(len(life) == 3 and 1 <= life[0] <= life[1] and life[2] > 0 for life in lives) \
        and lives == sorted(lives) and len({life[0] for life in lives}) == len(lives)


_PLAN = Spec(
    _planned, lambda lives: np.empty(0), lambda: ({"lives": lives} for lives in _every()),
    fits=_are_lives, fault=CheckFailed)


@exercise("9.5", "plan(lives)")
def exercise_9_5(plan: Callable) -> str:
    """a plan of memory."""
    return _("no tensor overwrites another, in {count} lists of lives; no more bytes than by the "
             "rule,\nor than TVM's plans of five modules").format(count=check(_PLAN, plan))


# ---- a code generator ----------------------------------------------------------------------


_DENSE = [
    _Formula("-(b + matmul(x, w))", {"x": (2, 3), "w": (3, 2), "b": (2,)},
             "call_dps_packed negative"),
    _Formula("-(b0 + matmul(x, w0))", {"x": (4, 8)}, "call_dps_packed negative",
             {"w0": (8, 5), "b0": (5,)}),
    _Formula("-relu(matmul(x, w) + b)", {"x": (1, 2), "w": (2, 2), "b": (2,)},
             "call_dps_packed negative"),
    _Formula("-relu(matmul(x, w0) + b0)", {"x": (5, 3)}, "call_dps_packed negative",
             {"w0": (3, 8), "b0": (8,)}),
    _Formula("-relu(matmul(b0 + matmul(x, w0), w1) + b1)", {"x": (8, 8)},
             "call_dps_packed call_dps_packed negative",
             {"w0": (8, 8), "b0": (8,), "w1": (8, 8), "b1": (8,)}),
    _Formula("-(b1 + matmul(matmul(x, w0) + b0, w1))", {"x": (2, 6)},
             "call_dps_packed call_dps_packed negative",
             {"w0": (6, 6), "b0": (6,), "w1": (6, 6), "b1": (6,)}),
    _Formula("-relu(matmul(matmul(relu(b0 + matmul(x, w0)), w1) + b1, w2) + b2)", {"x": (2, 6)},
             "call_dps_packed call_dps_packed call_dps_packed negative",
             {"w0": (6, 6), "b0": (6,), "w1": (6, 6), "b1": (6,), "w2": (6, 3), "b2": (3,)}),
    _Formula("-(b1 + matmul(matmul(x, w0), w1))", {"x": (3, 5)}, "matmul call_dps_packed negative",
             {"w0": (5, 4), "w1": (4, 6), "b1": (6,)}),
    _Formula("-relu(b1 + matmul(relu(matmul(x, w0) + m0), w1))", {"x": (3, 5)},
             "matmul add nn.relu call_dps_packed negative",
             {"w0": (5, 4), "m0": (3, 4), "w1": (4, 6), "b1": (6,)}),
    _Formula("leaky(matmul(x, w0) + b0)", {"x": (5, 3)}, "call_dps_packed nn.leakyrelu",
             {"w0": (3, 8), "b0": (8,)})]


@prepared
def _random_dense_cnn() -> tuple[tvm.IRModule, nn.Sequential]:
    """Return the CNN with random weights, tidied, and PyTorch's model."""
    model = random_cnn()[1]
    return _imported(model, INPUT), model


_COURSES = "relax.ext.course"  # the notebook's own code generator


@contextlib.contextmanager
def _another_generator() -> Iterator[None]:
    """Raise CheckFailed where an answer registers the course's generator anew, or calls it."""
    before = tvm_ffi.get_global_func(_COURSES, allow_missing=True)
    called: list[Any] = []

    @tvm_ffi.register_global_func(_COURSES, override=True)
    def compile_nothing(*given: Any) -> list[Any]:
        called.append(given)
        return []

    ours = tvm_ffi.get_global_func(_COURSES)
    failed: CheckFailed | None = None
    try:
        yield
    except CheckFailed as error:
        failed = error
    finally:
        now = tvm_ffi.get_global_func(_COURSES, allow_missing=True)
        same = now is not None and now.same_as(ours)
        if now is not None:
            tvm_ffi.registry.remove_global_func(_COURSES)
        if before:
            tvm_ffi.register_global_func(_COURSES, before)
    if called or not same:
        raise CheckFailed(_("a code generator under another name than the course's"), _COURSES)
    if failed:
        raise failed


@exercise("9.6", "hand_over(mod)", seconds=60, prepare=[cnn, random_cnn, _random_dense_cnn])
@torch.no_grad()
def exercise_9_6(hand_over: Callable) -> str:
    """dense layers handed over to a code generator."""
    dense = {case.text: case for case in _DENSE}
    mod, model = _random_dense_cnn()
    cnn_of = _("the CNN")
    left = "nn.conv2d add nn.relu nn.max_pool2d reshape call_dps_packed call_dps_packed nn.softmax"
    mains = _mains(hand_over, {text: case.module() for text, case in dense.items()}
                   | {cnn_of: mod},
                   {text: case.left for text, case in dense.items()} | {cnn_of: left})

    def ready() -> None:
        with _another_generator():
            mains.all()
        if not (hand_over(_DENSE[0].module()).attrs or {}).get("external_mods"):
            raise CheckFailed(_("code of your generator in the module, by RunCodegen"), _("none"))
    arrays = {text: [[scale * random(*shape, seed=scale) for shape in case.inputs.values()]
                     for scale in (1, 150)] for text, case in dense.items()}
    check(compiled(
        dense | {cnn_of: model}, lambda right, *given: right(*given),
        arrays | {cnn_of: [[random(*INPUT)]]},
        lambda given: 1e-4 * (150 if given["program"] != cnn_of
                              and np.abs(given["x"]).max() > 1 else 1)), mains, ready)
    count = sum(case.left.count("call_dps_packed") for case in _DENSE)
    return _("{count} dense layers, with the bias on either side, with a ReLU and without, and the "
             "CNN's two, are code\nof your generator; products without a bias stay").format(
                 count=count)
