"""check_equivalence's matrix: every mistake in every kind of module, and nothing false is said.

A row is a wrong CNN. Of its message every statement is held against what was done to the CNN: the
layer, the facts, which kernel computes what, which images and channels differ, and
which kernel is accused.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import tvm
from test_diagnosis import IMAGES, MODEL, WEIGHTS, fuse_all, module, steps
from torch import nn
from tvm import relax, te, topi

import helpers
from course import checks

Step = tuple[str, Callable, list]
SHAPE = (4, 1, 28, 28)

# The PyTorch layer that a step belongs to. A step that a row adds has its layer in its name: "6 x".
LAYER = {"conv": 0, "conv_bias": 0, "relu0": 1, "pool": 2, "flatten": 3, "dense0": 4, "bias0": 4,
         "relu1": 5, "dense1": 6, "bias1": 6, "softmax": 7}

# what PyTorch's layers give
SHAPES = [str(tuple(MODEL[:end](torch.zeros(SHAPE)).shape)) for end in range(1, len(MODEL) + 1)]


def _layer(name: str) -> int:
    return LAYER[name] if name in LAYER else int(name.split()[0])


@dataclass
class Row:
    """A mistake: the steps with it, and what is true of it.

    `layer` is the first that differs. `guilty`: the steps that are not as they should be. `images`
    and `places` (channels or columns) are all that differ, None: all.
    """

    title: str
    every: list[Step]
    layer: int | tuple[int, ...]
    guilty: tuple[str, ...] = ()
    images: tuple[int, ...] | None = None
    places: tuple[int, ...] | None = None

    @property
    def layers(self) -> tuple[int, ...]:
        return self.layer if isinstance(self.layer, tuple) else (self.layer,)


def _elementwise(function: Callable) -> Callable:
    """A step that computes each element of its own index and value: function(x, *indices)."""
    return lambda x, *given: te.compute(x.shape, lambda *i: function(x, *given, *i), name="step")


def _edit(changes: Mapping[str, object], weights: Mapping[str, np.ndarray] = WEIGHTS
          ) -> list[Step]:
    """The CNN's steps with some exchanged (for a function, or a step), None: left out.

    "+relu0": a list of steps that follow relu0; "-relu0": that come before it.
    """
    done: list[Step] = []
    for name, function, constants in steps(weights):
        done += changes.get(f"-{name}", [])  # type: ignore[operator]
        change = changes.get(name, function)
        if isinstance(change, tuple):
            done.append(change)
        elif change is not None:
            done.append((name, change, constants))  # type: ignore[arg-type]
        done += changes.get(f"+{name}", [])  # type: ignore[operator]
    return done


def _weights(**changed: np.ndarray) -> list[Step]:
    return _edit({}, WEIGHTS | {name: array.astype("float32") for name, array in changed.items()})


def _some_wrong(name: str, axis: int, places: list[int]) -> np.ndarray:
    """A weight or bias that is wrong in some places of an axis."""
    array = WEIGHTS[name].copy()
    array[(slice(None),) * axis + (places,)] += 0.5
    return array


NAN = te.const(float("nan"), "float32")
UNARY: dict[str, Callable] = {  # in the place of a ReLU
    "left out": lambda x: x, "|x|": te.abs, "minimum": lambda x: te.min(x, te.const(0, "float32")),
    "ReLU6": lambda x: te.max(te.min(x, te.const(6, "float32")), te.const(0, "float32")),
    "leaky": lambda x: te.if_then_else(x > 0, x, 0.01 * x), "sigmoid": te.sigmoid,
    "tanh": te.tanh, "swish": lambda x: x * te.sigmoid(x),
    "shifted": lambda x: te.max(x - 1, te.const(0, "float32")),
    "-max(x, 0)": lambda x: -te.max(x, te.const(0, "float32"))}


def _relus() -> list[Row]:
    return [Row(f"{step}: {title}", _edit({step: _elementwise(lambda x, *i, f=f: f(x(*i)))}),
                LAYER[step], (step,))
            for step in ("relu0", "relu1") for title, f in UNARY.items()
            if (step, title) != ("relu0", "ReLU6")]  # nothing there is above 6


def _linear_bias(y: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute(y.shape, lambda n, j: y[n, j] + b[j], name="add")


def _late(bias: str, after: str, shape: tuple[int, ...]) -> list[Step]:
    """The CNN with a bias added only after a later step."""
    name, function, constants = next(step for step in steps() if step[0] == bias)
    return _edit({bias: None, f"+{after}": [(f"{_layer(bias)} late", function, constants)]})


def _dense_parts(x: te.Tensor, w: te.Tensor, first: int, end: int) -> te.Tensor:
    k = te.reduce_axis((first, int(w.shape[1]) - end), name="k")
    return te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k),
                      name="dense")


def _images(order: Callable, axes: int) -> Callable:
    """A step that gives image n what image order(n) has."""
    return lambda x: te.compute(x.shape, lambda n, *i: x(order(n), *i), name="images")


def _only_image(number: int, factor: float) -> Callable:
    return _elementwise(lambda x, n, *i: te.if_then_else(n == number, factor * x(n, *i), x(n, *i)))


def _conv_rows() -> list[Row]:
    kernel = WEIGHTS["conv2d_weight"]

    def conv(stride: int = 1, padding: int = 0) -> Callable:
        return lambda x, w: topi.nn.conv2d(x, w, stride, padding, 1)

    def part(rows: int, columns: int) -> Callable:
        def step(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            p, q = te.reduce_axis((0, rows), name="p"), te.reduce_axis((0, columns), name="q")
            return te.compute((4, 32, 26, 26), lambda n, f, i, j: te.sum(
                x[n, 0, i + p, j + q] * w[f, 0, p, q], axis=[p, q]), name="conv")
        return step

    def bias(axis: int) -> Callable:
        return lambda y, b: te.compute(y.shape, lambda *i: y(*i) + b[i[axis]], name="add")

    wrong = ("conv",)
    added = ("conv_bias",)
    twice = next(step for step in steps() if step[0] == "conv_bias")
    return [
        Row("conv: kernel flipped", _weights(conv2d_weight=kernel[:, :, ::-1, ::-1]), 0, wrong),
        Row("conv: rows and columns of the kernel exchanged",
            _weights(conv2d_weight=kernel.transpose(0, 1, 3, 2)), 0, wrong),
        Row("conv: weight times 1.1", _weights(conv2d_weight=1.1 * kernel), 0, wrong),
        Row("conv: one kernel wrong", _weights(conv2d_weight=_some_wrong("conv2d_weight", 0, [5])),
            0, wrong, places=(5,)),
        Row("conv: random weights", _weights(conv2d_weight=checks.random(32, 1, 3, 3)), 0,
            wrong),
        Row("conv: last row left out", _edit({"conv": part(2, 3)}), 0, wrong),
        Row("conv: last column left out", _edit({"conv": part(3, 2)}), 0, wrong),
        Row("conv: padding", _edit({"conv": conv(padding=1)}), 0, wrong),
        Row("conv: bias left out", _edit({"conv_bias": None}), 0, added),
        Row("conv: bias twice", _edit({"+conv_bias": [("0 again", *twice[1:])]}), 0, ("0 again",)),
        Row("conv: bias along the width", _edit({"conv_bias": bias(3)}), 0, added),
        Row("conv: bias along the height", _edit({"conv_bias": bias(2)}), 0, added),
        Row("conv: bias along the batch", _edit({"conv_bias": bias(0)}), 0, added),
        Row("conv: bias wrong in two channels", _weights(
            conv2d_bias=_some_wrong("conv2d_bias", 0, [3, 7])), 0, added, places=(3, 7)),
        Row("conv: bias negative", _weights(conv2d_bias=-WEIGHTS["conv2d_bias"]), 0, added),
        Row("conv: bias after the ReLU", _late("conv_bias", "relu0", ()), 0,
            ("conv_bias", "0 late")),
        Row("conv: bias after the pooling", _late("conv_bias", "pool", ()), (0, 1),
            ("conv_bias", "0 late")),
    ]


def _pool_rows() -> list[Row]:
    def pool(kind: str = "max", stride: int = 2, size: int = 2, padding: int = 0) -> Callable:
        return lambda x: topi.nn.pool2d(x, (size, size), (stride, stride), (1, 1), (padding,) * 4,
                                        kind)

    def least(x: te.Tensor) -> te.Tensor:
        p, q = te.reduce_axis((0, 2), name="p"), te.reduce_axis((0, 2), name="q")
        return te.compute((4, 32, 13, 13), lambda n, c, i, j: te.min(
            x[n, c, 2 * i + p, 2 * j + q], axis=[p, q]), name="pool")

    def first(x: te.Tensor) -> te.Tensor:
        return te.compute((4, 32, 13, 13), lambda n, c, i, j: x[n, c, 2 * i, 2 * j], name="pool")

    def total(x: te.Tensor) -> te.Tensor:
        p, q = te.reduce_axis((0, 2), name="p"), te.reduce_axis((0, 2), name="q")
        return te.compute((4, 32, 13, 13), lambda n, c, i, j: te.sum(
            x[n, c, 2 * i + p, 2 * j + q], axis=[p, q]), name="pool")

    wrong = ("pool",)
    return [
        Row("pool: average", _edit({"pool": pool("avg")}), 2, wrong),
        Row("pool: sum", _edit({"pool": total}), 2, wrong),
        Row("pool: minimum", _edit({"pool": least}), 2, wrong),
        Row("pool: the first of each window", _edit({"pool": first}), 2, wrong),
        Row("pool: stride 1", _edit({"pool": pool(stride=1)}), 2, wrong),
        Row("pool: left out", _edit({"pool": None}), 2, wrong),
    ]


def _flatten_rows() -> list[Row]:
    def flat(*axes: int) -> Callable:
        return lambda x: topi.nn.flatten(topi.transpose(x, axes))

    wrong = ("flatten",)
    return [
        Row("flatten: NHWC", _edit({"flatten": flat(0, 2, 3, 1)}), 3,
            wrong),
        Row("flatten: height and width exchanged", _edit({"flatten": flat(0, 1, 3, 2)}), 3, wrong),
        # where no value stands between, a weight whose columns run backwards gives the same
        Row("flatten: backwards", _edit({"flatten": lambda x: topi.flip(topi.nn.flatten(x), 1)}), 3,
            wrong)]


def _linear_rows() -> list[Row]:
    rows = []
    for index, dense, bias, relu in ((4, "dense0", "bias0", "relu1"), (6, "dense1", "bias1", "")):
        weight, offset = WEIGHTS[f"linear{index // 2 - 2}_weight"], f"linear{index // 2 - 2}_bias"
        key = f"linear{index // 2 - 2}_weight"
        again = next(step for step in steps() if step[0] == bias)
        rng = np.random.default_rng(index)
        with torch.no_grad():  # where the ReLU after it lets the difference through
            column = int(MODEL[:index + 2](IMAGES).amin(0).argmax()) if relu else 2
        rows += [
            Row(f"{dense}: bias left out", _edit({bias: None}), index,
                (bias,)),
            Row(f"{dense}: bias twice", _edit({f"+{bias}": [(f"{index} again", *again[1:])]}),
                index, (f"{index} again",)),
            Row(f"{dense}: bias along the batch", _edit({bias: lambda y, b: te.compute(
                y.shape, lambda n, j: y[n, j] + b[n], name="add")}), index,
                (bias,)),
            Row(f"{dense}: bias subtracted", _edit({bias: lambda y, b: te.compute(
                y.shape, lambda n, j: y[n, j] - b[j], name="add")}), index, (bias,)),
            Row(f"{dense}: bias wrong in a column", _weights(**{
                offset: _some_wrong(offset, 0, [column])}), index,
                (bias,), places=(column,)),
            Row(f"{dense}: weight reshaped", _weights(**{
                key: weight.reshape(weight.shape[::-1]).T}), index, (dense,)),
            Row(f"{dense}: weight times 1.1", _weights(**{key: 1.1 * weight}), index, (dense,)),
            Row(f"{dense}: random weight", _weights(**{
                key: rng.uniform(-.1, .1, weight.shape)}), index, (dense,)),
            Row(f"{dense}: rows of the weight shuffled", _weights(**{
                key: weight[rng.permutation(len(weight))]}), index, (dense,)),
            Row(f"{dense}: columns backwards", _weights(**{key: weight[:, ::-1]}), index, (dense,)),
            Row(f"{dense}: one row wrong", _weights(**{key: _some_wrong(key, 0, [1])}), index,
                (dense,), places=(1,)),
            Row(f"{dense}: the first k left out", _edit({dense: functools.partial(
                _dense_parts, first=1, end=0)}), index, (dense,)),
        ]
        if relu:
            rows.append(Row(f"{dense}: bias after the ReLU", _late(bias, relu, ()), index,
                            (bias, f"{index} late")))
    return rows


def _softmax_rows() -> list[Row]:
    def softmax(axis: int = 1) -> Callable:
        return lambda x: topi.nn.softmax(x, axis=axis)

    def of(before: Callable) -> Callable:
        return lambda x: topi.nn.softmax(te.compute(x.shape, lambda *i: before(x(*i))), axis=1)

    wrong = ("softmax",)
    return [
        Row("softmax: over the batch", _edit({"softmax": softmax(0)}), 7,
            wrong),
        Row("softmax: left out", _edit({"softmax": None}), 7, wrong),
        Row("softmax: twice", _edit({"+softmax": [("7 again", softmax(), [])]}), 7, ("7 again",)),
        Row("softmax: of -x", _edit({"softmax": of(lambda x: -x)}), 7, wrong),
        Row("softmax: of x / 2", _edit({"softmax": of(lambda x: x / 2)}), 7, wrong),
        Row("softmax: logarithm", _edit({"softmax": lambda x: topi.nn.log_softmax(x)}), 7, wrong),
        Row("softmax: exponentials", _edit({"softmax": lambda x: topi.exp(x)}), 7, wrong),
        Row("softmax: constant", _edit({"softmax": _elementwise(lambda x, *i: te.const(
            0.1, "float32"))}), 7, wrong),
    ]




def _batch_rows() -> list[Row]:
    """Images mixed up, or only some of them wrong, after several of the layers."""
    rows = []
    for step, index, axes in (("conv_bias", 0, 4), ("pool", 2, 4), ("relu1", 5, 2),
                              ("bias1", 6, 2)):
        def after(function: Callable, step: str = step, index: int = index) -> list[Step]:
            return _edit({f"+{step}": [(f"{index} changed", function, [])]})

        guilty = (f"{index} changed",)
        first = (index, index + 1)  # fused with what follows, it spoils that
        rows += [
            Row(f"after {step}: all images the first", after(_images(lambda n: 0, axes)), first,
                guilty, images=(1, 2, 3)),
            Row(f"after {step}: images backwards", after(_images(lambda n: 3 - n, axes)), first,
                guilty),
            Row(f"after {step}: image 2 wrong", after(_only_image(2, 0.5)), first, guilty,
                images=(2,)),
            Row(f"after {step}: NaN in an image", after(_elementwise(
                lambda x, n, *i: te.if_then_else(n == 1, NAN, x(n, *i)))), tuple(range(index, 8)),
                guilty, images=(1,)),
        ]
    return rows


def _random_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: (rng.standard_normal(array.shape) / np.sqrt(np.prod(array.shape[1:]))).astype(
        "float32") for name, array in WEIGHTS.items()}


def _other_rows() -> list[Row]:
    def scaled(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i) * te.const(1.5, "float32"), name="scaled")

    relu, drop = topi.nn.relu, None
    avg = functools.partial(topi.nn.pool2d, kernel=(2, 2), stride=(2, 2), dilation=(1, 1),
                            padding=(0,) * 4, pool_type="avg")
    every = steps()
    rows = [
        Row("random weights everywhere", _edit({}, _random_weights()), 0, ("conv", "conv_bias")),
        Row("an input that is scaled", _edit({"-conv": [("0 scaled", scaled, [])]}), 0,
            ("0 scaled",)),
        Row("an input with its rows and columns exchanged", _edit({"-conv": [(
            "0 turned", lambda x: topi.transpose(x, (0, 1, 3, 2)), [])]}), 0, ("0 turned",)),
        Row("all images the first, from the input on", _edit({"-conv": [(
            "0 first", _images(lambda n: 0, 4), [])]}), 0, ("0 first",), images=(1, 2, 3)),
        Row("a ReLU after the last linear layer", _edit({"+bias1": [("6 relu", relu, [])]}), 6,
            ("6 relu",)),
        Row("relu and flatten: two mistakes", _edit({
            "relu0": drop, "flatten": lambda x: topi.nn.flatten(topi.transpose(x, (0, 2, 3, 1)))}),
            1,
            ("relu0", "flatten")),
        Row("bias and softmax: two mistakes", _edit({
            "conv_bias": drop, "softmax": lambda x: topi.nn.softmax(x, axis=0)}), 0,
            ("conv_bias", "softmax")),
        Row("both biases of linear layers: two mistakes", _edit({"bias0": drop, "bias1": drop}), 4,
            ("bias0", "bias1")),
        Row("pooling and a weight: two mistakes", _edit(
            {"pool": avg}, WEIGHTS | {"linear1_weight": 2 * WEIGHTS["linear1_weight"]}), 2,
            ("pool", "dense1")),
        Row("an unknown mistake and a known one", _edit(
            {"bias1": drop}, WEIGHTS | {"conv2d_weight": 2 * WEIGHTS["conv2d_weight"]}), 0,
            ("conv", "bias1")),
    ]
    for count in (2, 3, 5, 8):  # half built: everybody builds step by step
        last = _layer(every[count - 1][0])
        rows.append(Row(f"half built: {count} steps", every[:count], tuple(range(last + 1, 8)), ()))
    rows.append(Row("half built, and a bias forgotten", [s for s in every[:7] if s[0] != "bias0"],
                    4, ("bias0",)))
    return rows


ROWS = [*_conv_rows(), *_relus(), *_pool_rows(), *_flatten_rows(), *_linear_rows(),
        *_softmax_rows(), *_batch_rows(), *_other_rows()]


# ---- kinds of module -----------------------------------------------------------------------


def _grouped(every: list[Step], kind: str) -> list[list[Step]]:
    """The steps of each PrimFunc, for a kind of module."""
    if kind == "single":
        return [every]
    groups: list[list[Step]] = []
    for step in every:
        with_bias = kind == "own" and "bias" in step[0] and groups
        if with_bias:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _made(every: list[Step], kind: str) -> tuple[tvm.IRModule, dict[str, list[str]]]:
    """A module, and the steps that each of its kernels computes."""
    groups = _grouped(every, kind)
    mod = module(groups, SHAPE)
    calls = [binding.value.args[0].name_hint for block in mod["main"].body.blocks
             for binding in block.bindings
             if isinstance(binding.value, relax.Call) and binding.value.op.name == "relax.call_tir"]
    assert len(calls) == len(groups)
    kernels: dict[str, list[str]] = {}
    for name, group in zip(calls, groups, strict=True):  # one PrimFunc may be called twice
        kernels.setdefault(name, []).extend(step[0] for step in group)
    if kind == "fused":
        mod = fuse_all(mod)
        fused = {}
        for variable, _ in mod.functions_items():
            if (name := variable.name_hint) != "main":
                parts = re.findall(r"kernel\d*", name)
                fused[name] = [step for part in parts for step in kernels.get(part, [])]
        kernels = fused
    return mod, kernels


KINDS = ("emit_te", "own", "fused", "single")


def _said(mod: tvm.IRModule, model: nn.Sequential = MODEL, data: torch.Tensor = IMAGES
          ) -> tuple[dict[str, str], list[str]]:
    """What a module gets: the text of each label, and the lines that say where and why."""
    with pytest.raises(checks.CheckFailed, match="Not equivalent") as failed:
        checks.check_equivalence(mod, model, [(batch, torch.zeros(len(batch)))
                                              for batch in data.split(4)])
    _title, *lines = str(failed.value).splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("  look at:")),
                 len(lines))
    said = [re.sub(r"^  (look at:)? *", "", line) for line in lines[first:]]
    return {label: text for line in lines[:first]
            for label, text in re.findall(r"^  (\w+)[^:]*: *(.*)", line)}, said


def false_statements(row: Row, kernels: Mapping[str, list[str]], shown: Mapping[str, str],
                     said: list[str], kind: str) -> list[str]:
    """Return what is not true in the message that a row got."""
    wrong = []
    last = max(_layer(step) for group in kernels.values() for step in group)
    if ends := re.match(r"main ends after layer (\d+)", shown["got"]):
        return [] if int(ends[1]) == last else [ends[0]]
    if "main to return" in shown["expected"]:
        returned = re.search(r"from (\w+)", shown["got"])
        assert returned
        return [] if set(row.guilty) & set(kernels[returned[1]]) else [shown["got"]]
    place, *more = said
    layers = re.match(r"layer (\d+), \w+(?: to layer (\d+), \w+)?", place)
    assert layers, said
    first, end = int(layers[1]), int(layers[2] or layers[1])
    takes = re.match(r"layer \d+, \w+ takes \w+ \(.*?\)(?: from (\w+))?", place)
    made = [takes[1]] if takes else place.partition("from ")[2].split(", ")
    # the layers
    there = [*row.layers, *(number + 1 for number in row.layers if takes)]
    if not any(first <= number <= end for number in there) \
            or kind == "emit_te" and first not in there:
        wrong.append(f"{layers[0]}, which is {row.layer}")
    inside = {LAYER[step] for name in made for step in kernels.get(name, ()) if step in LAYER}
    if not takes and "is used without it" not in place \
            and not inside <= set(range(first, end + 1)):
        wrong.append(f"{made} compute {inside}, not {layers[0]}")
    # the kernels
    steps_ = [step for name in made for step in kernels.get(name, [])]
    left_out = [step for step in row.guilty
                if not any(step in group for group in kernels.values())]
    if row.guilty and not left_out and "..." not in made \
            and not any(step in steps_ for step in row.guilty):
        wrong.append(f"{made} are named, and {row.guilty} are guilty")
    # the facts
    for line in more:
        if shapes := re.fullmatch(r"layer (\d+), \w+ gives (\(.*\)) in PyTorch; "
                                  r"here \w+ (\(.*\)) from (\w+) comes first", line):
            right = SHAPES[int(shapes[1])]
            if shapes[2] != right or shapes[3] == right or shapes[4] != made[0]:
                wrong.append(line)
        elif not line.startswith(("and ", "the model's own")):
            wrong.append(line)
    # which images, and which channels or columns, are marked
    for place in re.findall(r"\*[^*]+\* at \[(.*?)\]", shown["got"]):
        at = place.split(", ")
        if row.images is not None and at[0] != ":" and int(at[0]) not in row.images:
            wrong.append(f"image {at[0]}")
        if row.places is not None and kind == "emit_te" and int(at[1]) not in row.places:
            wrong.append(f"place {at[1]}")
    return wrong


# every row as emit_te makes it, and in one of the other kinds
CASES = [(row, kind) for number, row in enumerate(ROWS)
         for kind in (KINDS[0], KINDS[1 + number % (len(KINDS) - 1)])]


@pytest.mark.parametrize(("row", "kind"), CASES, ids=lambda value: getattr(value, "title", value))
def test_nothing_false_is_said(row: Row, kind: str) -> None:
    mod, kernels = _made(row.every, kind)
    shown, said = _said(mod)
    assert not false_statements(row, kernels, shown, said, kind), (shown, said)


@pytest.mark.parametrize("dense", ["dense0", "dense1"])
def test_the_last_k_left_out(dense: str) -> None:
    """With the trained weights it is always 0, or nearly: no image of this range can show it."""
    weights = _random_weights()
    every = _edit({dense: functools.partial(_dense_parts, first=0, end=1)}, weights)
    _shown, said = _said(_made(every, "own")[0], helpers.pytorch_model(weights))
    assert said[0].startswith(f"layer {LAYER[dense]}, Linear"), said


# ---- right modules -------------------------------------------------------------------------


def _channels_last(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """The convolution in NHWC: the bias and the ReLU follow in this layout."""
    y = topi.nn.conv2d_nhwc(topi.transpose(x, (0, 2, 3, 1)), topi.transpose(w, (2, 3, 1, 0)), 1, 0,
                            1, out_dtype="float32")
    return y


def _in_halves(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """The sum of a linear layer, in two halves, the second one first."""
    half = int(w.shape[1]) // 2
    second = _dense_parts(x, w, half, 0)
    first = _dense_parts(x, w, 0, int(w.shape[1]) - half)
    return te.compute(first.shape, lambda i, j: second[i, j] + first[i, j], name="halves")


def _right_steps() -> dict[str, list[Step]]:
    last = _elementwise(lambda x, b, n, i, j, c: x[n, i, j, c] + b[c])
    return {
        "transposed inside": _edit({
            "conv": _channels_last, "conv_bias": last,
            "pool": lambda x: topi.nn.pool2d(topi.transpose(x, (0, 3, 1, 2)), (2, 2), (2, 2),
                                             (1, 1), (0,) * 4, "max")}),
        "sums in halves": _edit({"dense0": _in_halves, "dense1": _in_halves}),
        "an identity between": _edit({"+relu0": [("1 same", _elementwise(
            lambda x, *i: x(*i)), [])]}),
        "ReLU twice": _edit({"+relu1": [("5 again", topi.nn.relu, [])]}),
        "the bias in two parts": _edit({"+bias0": [("4 rest", _linear_bias, [
            WEIGHTS["linear0_bias"] / 2])]}, WEIGHTS | {
                "linear0_bias": WEIGHTS["linear0_bias"] / 2}),
    }


def _with_extra_functions() -> tvm.IRModule:
    """The CNN, called by main; beside it stands a PrimFunc that nobody calls."""
    mod = module([[step] for step in steps()], SHAPE)
    spare = te.placeholder((3,), name="spare")
    mod["spare"] = te.create_prim_func([spare, te.compute((3,), lambda i: spare[i] + 1)]) \
        .with_attr("global_symbol", "spare")
    inner = relax.utils.copy_with_new_vars(mod["main"].with_attr("global_symbol", "inner"))
    del mod["main"]
    bb = relax.BlockBuilder(mod)
    called = bb.add_func(inner, "inner")
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.Call(called, [x])))
    return bb.get()


def _tuple_of_one() -> tvm.IRModule:
    """What TVM's importer makes by default: main returns a tuple of one output."""
    from torch.export import export
    from tvm.relax.frontend.torch import from_exported_program
    return from_exported_program(export(MODEL, (IMAGES[:4],)), keep_params_as_input=False)


def _any_batch() -> tvm.IRModule:
    """The CNN for a batch of n images."""
    return module([[step] for step in steps()], (tvm.tirx.Var("n", "int64"), *SHAPE[1:]))


def _equal(mod: tvm.IRModule) -> None:
    checks.check_equivalence(mod, MODEL, [(batch, torch.zeros(len(batch), dtype=torch.int64))
                                          for batch in IMAGES.split(4)])


@pytest.mark.parametrize("kind", ["emit_te", "fused", "single"])
@pytest.mark.parametrize("title", _right_steps())
def test_other_ways_are_right(title: str, kind: str) -> None:
    _equal(_made(_right_steps()[title], kind)[0])


@pytest.mark.parametrize("make", [_with_extra_functions, _tuple_of_one, _any_batch],
                         ids=lambda make: make.__name__)
def test_other_modules_are_right(make: Callable) -> None:
    _equal(make())


# ---- dtypes, and main's own output ----------------------------------------------------------


@pytest.mark.parametrize(("dtype", "words"), [
    ("float64", "got:      float64"), ("float16", "got:      float16")])
def test_another_dtype(dtype: str, words: str) -> None:
    every = _edit({"+softmax": [("7 cast", lambda x: topi.cast(x, dtype), [])]})
    with pytest.raises(checks.CheckFailed, match=words):
        _equal(module([[step] for step in every], SHAPE))


def test_float16_on_the_way_is_a_difference_without_a_cause() -> None:
    row = Row("float16", _edit({"+dense0": [("4 cast", lambda x: topi.cast(topi.cast(
        x, "float16"), "float32"), [])]}), 4, ("4 cast",))
    mod, kernels = _made(row.every, "emit_te")
    shown, said = _said(mod)
    assert not false_statements(row, kernels, shown, said, "emit_te"), (shown, said)
