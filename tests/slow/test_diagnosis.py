"""check_equivalence over every kind of module: no false alarm, and the layer of each mistake."""

import functools
import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax, te, topi

import helpers
from course import checks
from course.checks.exercises import notebook_09

WEIGHTS = helpers.load_weights("cnn")
MODEL = helpers.pytorch_model(WEIGHTS)
IMAGES = torch.stack([image for image, _ in helpers.test_data(8)])

torch.manual_seed(0)
SQUARE = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)).eval()
ROWS = torch.from_numpy(checks.random(8, 16))

Step = Callable[[te.Tensor], te.Tensor]


# ---- the CNN in tensor expressions, with room for one mistake ------------------------------


def _bias(axis: int = 1) -> Callable:
    """A function that adds a bias along an axis; right is 1."""
    def add(y: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute(y.shape, lambda *i: y(*i) + b[i[axis]], name="add")
    return add


def _linear(x: te.Tensor, w: te.Tensor, transposed: bool = True) -> te.Tensor:
    """A product that takes its depth from w, as a careless one does."""
    m, depth = (int(n) for n in (w.shape if transposed else w.shape[::-1]))
    k = te.reduce_axis((0, depth), name="k")
    return te.compute((x.shape[0], m), lambda i, j: te.sum(
        x[i, k] * (w[j, k] if transposed else w[k, j]), axis=k), name="linear")


def _first_only(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda n, j: x[n, j] * te.if_then_else(n == 0, 1.0, 0.5),
                      name="rows")


def _hole(x: te.Tensor) -> te.Tensor:
    nan = te.const(float("nan"), "float32")
    return te.compute(x.shape, lambda n, j: te.if_then_else(n == 2, nan, x[n, j]), name="hole")


def steps(weights: Mapping[str, np.ndarray] = WEIGHTS, **wrong) -> list[tuple[str, Callable, list]]:
    """The CNN as (name, function of the value and its constants, constants)."""
    pool = [(2, 2), (wrong.get("pool_stride", 2),) * 2, (1, 1), wrong.get("pool_padding", (0,) * 4)]
    reshaped = weights["linear0_weight"].reshape(5408, 100)
    turned = wrong.get("reshaped")
    every = [
        ("conv", lambda x, w: topi.nn.conv2d(x, w, wrong.get("stride", 1),
                                             wrong.get("padding", 0), 1),
         [weights["conv2d_weight"]]),
        ("conv_bias", _bias(wrong.get("conv_bias", 1)), [weights["conv2d_bias"]]),
        ("relu0", topi.nn.relu, []),
        ("pool", lambda x: topi.nn.pool2d(x, *pool, wrong.get("pool", "max")), []),
        ("flatten", lambda x: topi.nn.flatten(
            topi.transpose(x, (0, 2, 3, 1)) if wrong.get("nhwc") else x), []),
        ("dense0", functools.partial(_linear, transposed=not turned),
         [reshaped if turned else weights["linear0_weight"]]),
        ("bias0", _bias(wrong.get("bias0", 1)), [weights["linear0_bias"]]),
        ("relu1", topi.nn.relu, []),
        *([("rows", wrong["rows"], [])] if "rows" in wrong else []),
        ("dense1", _linear, [weights["linear1_weight"]]),
        ("bias1", _bias(wrong.get("bias1", 1)), [weights["linear1_bias"]]),
        ("softmax", lambda x: topi.nn.softmax(x, axis=wrong.get("axis", 1)), []),
    ]
    return [step for step in every if step[0] not in wrong.get("without", ())]


def square_steps(model: nn.Sequential = SQUARE, transposed: bool = True,
                 swapped: str = "") -> list[tuple[str, Callable, list]]:
    """The square model; `swapped` weights or biases are exchanged between its two layers."""
    first, second = ({name: value.numpy() for name, value in layer.state_dict().items()}
                     for layer in (model[0], model[2]))
    for name in [swapped] if swapped else []:
        first[name], second[name] = second[name], first[name]
    return [("dense0", functools.partial(_linear, transposed=transposed), [first["weight"]]),
            ("bias0", _bias(), [first["bias"]]), ("relu", topi.nn.relu, []),
            ("dense1", _linear, [second["weight"]]), ("bias1", _bias(), [second["bias"]])]


def module(kernels: list[list[tuple[str, Callable, list]]], shape: tuple[int, ...]
           ) -> tvm.IRModule:
    """An IRModule with one PrimFunc for each list of steps."""
    bb = relax.BlockBuilder()
    value = relax.Var("x", relax.TensorType(shape, "float32"))
    with bb.function("main", [value]):
        with bb.dataflow():
            for kernel in kernels:
                def run(x: te.Tensor, *constants: te.Tensor, kernel=kernel) -> te.Tensor:
                    constants = list(constants)
                    for _, function, given in kernel:
                        x = function(x, *[constants.pop(0) for _ in given])
                    return x
                given = [relax.const(array, "float32") for _, _, arrays in kernel
                         for array in arrays]
                value = bb.emit_te(run, value, *given, primfunc_name_hint="kernel")
            value = bb.emit_output(value)
        bb.emit_func_output(value)
    return bb.get()


def emit_te(every: list, shape: tuple[int, ...]) -> tvm.IRModule:
    return module([[step] for step in every], shape)


def own(every: list, shape: tuple[int, ...]) -> tvm.IRModule:
    """Convolution and linear layers take their bias: no binding without it."""
    kernels: list[list] = []
    for step in every:
        if "bias" in step[0]:
            kernels[-1].append(step)
        else:
            kernels.append([step])
    return module(kernels, shape)


def single(every: list, shape: tuple[int, ...]) -> tvm.IRModule:
    return module([every], shape)


fuse_all = tvm.transform.Sequential([relax.transform.AnnotateTIROpPattern(),
                                     relax.transform.FuseOps(), relax.transform.FuseTIR()])


def fused(every: list, shape: tuple[int, ...]) -> tvm.IRModule:
    return fuse_all(emit_te(every, shape))


def scheduled(every: list, shape: tuple[int, ...]) -> tvm.IRModule:
    """Every PrimFunc with its outermost loops fused and run in parallel."""
    mod = emit_te(every, shape)
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            schedule = tvm.s_tir.Schedule(func.with_attr("global_symbol", "main"))
            for block in schedule.get_child_blocks(schedule.get_sblock("root")):
                schedule.parallel(schedule.get_loops(block)[0])
            mod[variable] = schedule.mod["main"].with_attr("global_symbol", variable.name_hint)
    return mod


def library(every: list, shape: tuple[int, ...]) -> tvm.IRModule:
    """The first step is a library function, which runs what its PrimFunc computes."""
    name, function, (array,) = every[0]
    x, w = te.placeholder(shape, name="x"), te.placeholder(array.shape, name="w")
    y = function(x, w)
    compiled = tvm.compile(te.create_prim_func([x, w, y]), target="llvm")["main"]
    tvm.register_global_func("env.diagnosis_first", compiled, override=True)
    bb = relax.BlockBuilder()
    value = relax.Var("x", relax.TensorType(shape, "float32"))
    with bb.function("main", [value]):
        with bb.dataflow():
            value = bb.emit(relax.op.call_dps_packed(
                "env.diagnosis_first", (value, relax.const(array, "float32")),
                relax.TensorType([int(n) for n in y.shape], "float32")))
            for _, function, arrays in every[1:]:
                given = [relax.const(a, "float32") for a in arrays]
                value = bb.emit_te(function, value, *given, primfunc_name_hint="kernel")
            value = bb.emit_output(value)
        bb.emit_func_output(value)
    return bb.get()


KINDS = {kind.__name__: kind for kind in (emit_te, own, single, fused, scheduled, library)}


class _FlattenNHWC(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


def imported(**layers: nn.Module | None) -> tvm.IRModule:
    """The CNN by TVM's importer, with layers exchanged: imported(_1=None) leaves the ReLU out."""
    changed = dict(enumerate(helpers.pytorch_model(WEIGHTS)))
    changed |= {int(name[1:]): layer for name, layer in layers.items()}
    model = nn.Sequential(*[layer for layer in changed.values() if layer is not None]).eval()
    return helpers.import_model(model, (4, 1, 28, 28))


def _without_bias(layer: nn.Module) -> nn.Module:
    """A convolution or linear layer of the CNN, without its bias."""
    new = nn.Conv2d(1, 32, 3, bias=False) if isinstance(layer, nn.Conv2d) else \
        nn.Linear(layer.in_features, layer.out_features, bias=False)
    new.load_state_dict({"weight": layer.weight})
    return new


def _message(mod: tvm.IRModule, model: nn.Sequential = MODEL, data: torch.Tensor = IMAGES) -> str:
    batches = [(batch, torch.zeros(len(batch))) for batch in data.split(4)]
    with pytest.raises(checks.CheckFailed, match="Not equivalent") as failed:
        checks.check_equivalence(mod, model, batches)
    message = str(failed.value)
    assert len(message.splitlines()) <= 8 and len(message) < 1200
    return message


@pytest.mark.parametrize("kind", KINDS)
def test_no_false_alarm(kind: str, capsys) -> None:
    checks.check_equivalence(KINDS[kind](steps(), (4, 1, 28, 28)), MODEL, helpers.test_loader())
    assert "1,000 images in 250 batches" in capsys.readouterr().out


def test_no_false_alarm_where_relu_and_pooling_change_places(capsys) -> None:
    every = steps()
    every[2], every[3] = every[3], every[2]
    checks.check_equivalence(emit_te(every, (4, 1, 28, 28)), MODEL, helpers.test_loader(count=8))


MISTAKES: dict[str, tuple[int, str, dict]] = {  # the layer that differs, other words, changes
    "a bias is left out": (0, "", {"without": ("conv_bias",)}),
    "a bias along the width": (0, "", {"conv_bias": 3}),
    "another bias is left out": (4, "", {"without": ("bias0",)}),
    "a bias along the batch": (4, "", {"bias0": 0}),
    "a weight reshaped": (4, "", {"reshaped": True}),
    "padding": (0, "gives (4, 32, 26, 26) in PyTorch; here ", {"padding": 1}),
    "stride": (0, "gives (4, 32, 26, 26) in PyTorch; here ", {
        "stride": 2, "without": ("pool",)}),
    "the stride of the pooling": (2, "gives (4, 32, 13, 13) in PyTorch; here ", {
        "pool_stride": 1}),
    "average pooling": (2, "", {"pool": "avg"}),
    "the ReLU is left out": (1, "", {"without": ("relu0",)}),
    "NHWC": (3, "", {"nhwc": True}), "softmax over the batch": (7, "", {"axis": 0}),
    "no softmax": (7, "main ends after layer 6, Linear", {"without": ("softmax",)}),
    "a row": (6, " at [1, ", {"rows": _first_only}), "a hole": (6, "*nan* at [2, ", {
        "rows": _hole})}


@pytest.mark.parametrize(("kind", "title"), [(kind, title) for kind in KINDS for title in MISTAKES])
def test_the_layer_is_named(kind: str, title: str) -> None:
    layer, words, changes = MISTAKES[title]
    message = _message(KINDS[kind](steps(**changes), (4, 1, 28, 28)))
    found = re.search(r"look at: +(?:what .*: )?layer (\d), \w+(?: to layer (\d))?", message)
    assert found, message
    first, last = int(found[1]), int(found[2] or found[1])
    # a kernel may compute several layers: then all of them are named
    assert first <= layer <= last + (words.endswith(", "))
    # and where its result has another shape, the next layers cannot tell where it ends
    assert last == first or kind in ("fused", "single") or words.startswith("gives"), message
    assert words in message or kind in ("fused", "single"), message


def test_the_weights_of_another_model() -> None:
    """No known mistake: the layer and the figures are named, and no cause is guessed."""
    other = WEIGHTS | {"linear0_weight": WEIGHTS["linear0_weight"] * np.float32(1.1)}
    for kind in KINDS:
        message = _message(KINDS[kind](steps(other), (4, 1, 28, 28)))
        words = {"fused": "layer 4, Linear to layer 5, ReLU: ",
                 "single": "layer 0, Conv2d to layer 7, Softmax: "}
        assert f"look at:   {words.get(kind, 'layer 4, Linear: ')}" in message.replace(
            "look at:  layer", "look at:   layer"), message
        assert len(message.splitlines()) == 5, message  # no cause


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("changes", "words"), [
    ({"swapped": "bias"}, ""), ({"swapped": "weight"}, ""),
    ({"transposed": False}, "layer 0, Linear")])
def test_a_square_model(kind: str, changes: dict, words: str, capsys) -> None:
    batch = [(ROWS[:4], torch.zeros(4, dtype=torch.int64))]
    checks.check_equivalence(KINDS[kind](square_steps(), (4, 16)), SQUARE, batch)
    message = _message(KINDS[kind](square_steps(**changes), (4, 16)), SQUARE, ROWS)
    assert words in message
    if "swapped" in changes:  # both layers are found
        assert re.search("layer 0, Linear to layer 2, Linear"
                         if kind in ("single", "fused") else
                         r"layer 0, Linear.*\n +and layer 2, Linear", message), message


@pytest.mark.parametrize(("layers", "words"), [
    ({"_0": _without_bias(MODEL[0])}, "layer 0, Conv2d"),
    ({"_6": _without_bias(MODEL[6])}, "layer 6, Linear"),
    ({"_1": None}, "layer 1, ReLU"), ({"_2": nn.AvgPool2d(2)}, "layer 2, MaxPool2d"),
    ({"_3": _FlattenNHWC()}, "layer 3, Flatten"), ({"_7": nn.Softmax(dim=0)}, "layer 7, Softmax"),
    ({"_7": None}, "main ends after layer 6, Linear")])
@pytest.mark.parametrize("fuse", [False, True], ids=["imported", "imported and fused"])
def test_the_layer_is_named_in_imported_models(layers: dict, words: str, fuse: bool) -> None:
    mod = imported(**layers)
    assert words in _message(fuse_all(mod) if fuse else mod)


def test_it_says_which_kernel_covers_the_layer() -> None:
    message = _message(fused(steps(conv_bias=3), (4, 1, 28, 28)))
    assert "layer 0, Conv2d to layer 1, ReLU: lv (4, 32, 26, 26) from " \
        "fused_kernel_kernel1_kernel2" in message
    message = _message(fused(steps(without=("relu0",)), (4, 1, 28, 28)))
    assert "layer 1, ReLU: lv (4, 32, 26, 26) from fused_kernel_kernel1 " \
        "is used without it" in message


def test_what_9_3_is_given_is_what_tvm_imports() -> None:
    for one, mod in notebook_09._normalized():
        tidied = notebook_09._tidy(helpers.import_operators(one.model, one.shape))
        assert tvm_ffi.structural_equal(mod, tidied), one.title


def test_the_plans_of_9_5_are_those_of_tvm() -> None:
    transform = relax.transform
    plan = tvm.transform.Sequential([
        transform.RewriteDataflowReshape(), transform.ToNonDataflow(),
        transform.RemovePurityChecking(), transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory()])
    cnn = notebook_09._untidy_cnn()
    mods = [transform.LegalizeOps()(cnn), transform.LegalizeOps()(notebook_09._tidy(cnn)),
            relax.get_pipeline("zero")(cnn)]
    for mod, (lives, most) in zip(mods, notebook_09.OF_TVM, strict=False):
        calls = notebook_09._calls(plan(mod))
        asked = {name: [call.args for call in calls
                        if getattr(call.op, "name", "") == f"relax.memory.alloc_{name}"]
                 for name in ("storage", "tensor")}
        assert sum(int(args[0].values[0]) for args in asked["storage"]) == most
        assert [4 * math.prod(map(int, args[2].values)) for args in asked["tensor"]] \
            == [count for _first, _last, count in lives]
