"""The checks of notebook 11: models for any input, what ships them, and targets."""

import contextlib
import copy
import functools
import itertools
import json
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax, te, tirx, topi
from tvm.relax.frontend.torch import from_exported_program
from tvm.target.codegen import llvm_get_cpu_features, llvm_get_system_triple

import helpers
from course.checks.compare.tolerance import random
from course.checks.diagnose.equivalence import build, renamed, require_tensor
from course.checks.exercises import schedules
from course.checks.exercises.models import model_of
from course.checks.observe.guard_pages import guarded
from course.checks.run.answer import line_of_answer
from course.checks.run.check import exercise, prepared
from course.checks.say.messages import CheckFailed, reason, require_type
from course.checks.spec.forms import compiled, naming, result
from course.checks.spec.spec import Cases, Spec, check, require_equal
from course.ship import native
from course.tir.walk import walk
from course.words import CourseError, Sentence, _
from data import gpt

# ---- any batch -----------------------------------------------------------------------------

_MOST, _BATCHES = 64, (1, 2, 7, 64)


@prepared
def _exporting() -> bool:
    """Export and import something: the first time loads modules for seconds, once in a kernel."""
    with helpers.quiet():
        program = torch.export.export(nn.ReLU(), (torch.zeros(2),))
        build(from_exported_program(program, unwrap_unit_return_tuple=True))
    return True


@prepared
def _models() -> list[tuple[str, nn.Module, tuple[tuple[int, ...], ...]]]:
    """Return models with their titles, and the shapes of their inputs in a batch of 1.

    One has three inputs, a residual, and a layer that is used twice.
    """
    with torch.random.fork_rng():
        torch.manual_seed(11)
        images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
        joined = model_of(
            lambda self, x, y, u, v: torch.cat(
                [(z := x + torch.relu(self.wide(x))) + self.wide(z),
                 self.narrow(y) - u * v[:, None]], 1),
            wide=nn.Linear(8, 8), narrow=nn.Linear(3, 8), inputs=("x", "y", "u", "v"))
        return [("x: (n, 1, 6, 6)", images.eval(), ((1, 1, 6, 6),)),
                ("x: (n, 8), y: (n, 3), u: (n, 8), v: (n,)", joined,
                 ((1, 8), (1, 3), (1, 8), (1,)))]


def _inputs(shapes: Sequence[tuple[int, ...]], batch: int) -> list[torch.Tensor]:
    return [torch.from_numpy(3 * random(batch, *shape[1:], seed=batch + place))
            for place, shape in enumerate(shapes)]


@exercise("11.1", "for_any_batch(module, example)", seconds=30, prepare=[_exporting, _models])
def exercise_11_1(for_any_batch: Callable) -> str:
    """a module for any batch."""
    for title, model, shapes in _models():
        with naming(title):
            with helpers.quiet():
                mod = for_any_batch(copy.deepcopy(model), tuple(_inputs(shapes, 1)))
                machine = build(mod)
            _require_any_batch(mod["main"], len(shapes))
        check(compiled({title: model}, lambda model, *given: model(*given), {title: [
            [one.numpy() for one in _inputs(shapes, batch)] for batch in _BATCHES]}, 1e-4),
            {title: machine["main"]})
    return _("{count} models, one with four inputs, for batches of {batches}").format(
        count=len(_models()), batches=", ".join(map(str, _BATCHES)))


def _require_any_batch(main: relax.Function, inputs: int) -> None:
    """Raise CheckFailed unless main takes so many inputs, in any batch of at most _MOST."""
    if len(main.params) != inputs:
        raise CheckFailed(_("parameters of main: {count}").format(count=inputs),
                          f"{len(main.params)}")
    for param in main.params:
        if not isinstance(param.ty.shape[0], tirx.Var):
            raise CheckFailed(_("main to take any batch"), f"{param.name}: {param.ty}")
    used = set(relax.analysis.free_vars(main.body))
    for param in main.params:
        if param not in used:
            raise CheckFailed(_("main to use each of its inputs"),
                              _("{param} is never used").format(param=param.name))
    require_tensor(main)
    largest = {int(most) for most in (main.attrs.get("tir_var_upper_bound") or {}).values()}
    if largest != {_MOST}:
        raise CheckFailed(_("any batch up to {most}").format(most=_MOST),
                          _("any batch up to {most}").format(most=_(", ").join(
                              map(str, sorted(largest)))) if largest else _("no upper limit"))


# ---- an operator ---------------------------------------------------------------------------

_AMAX = (
    "amax(x)", "amax(x, [1])", "amax(x, [-1], True)", "amax(x, [0, 2])",
    "amax(x[:, None], [2], False)", "amax(x, [], True)", "amax(x * x, [1, -1], True)",
    "amax(x, [2, 0])", "amax(x, [0, 1])", "amax(x, [-2])", "amax(x, [0, 1, 2], True)",
    "amax(x[:, None], [2, -3, -1])",
    "amax(100 * x[0], [1])",
    "amax((10**16 + 1) * x.long(), [1])")  # int64: beyond int32, not exact in float64


def _amax(call: str, x: torch.Tensor) -> torch.Tensor:
    return eval(call, {"amax": torch.amax, "x": x})


@exercise("11.2", "convert_amax(node, importer)", prepare=[_exporting])
def exercise_11_2(convert_amax: Callable) -> str:
    """a rule for amax."""
    def rule(node: torch.fx.Node, importer: Any) -> relax.Expr:
        x = node.args[0]
        with naming(f"amax({', '.join(map(str, node.args))}), {x} {tuple(x.meta['val'].shape)}"):
            came = convert_amax(node, importer)
            require_type(came, relax.Var, _("a Relax variable"))
        return came

    with helpers.quiet():
        every = model_of(lambda self, x: tuple(_amax(call, x) for call in _AMAX))
        program = torch.export.export(every, (torch.zeros(2, 3, 4),))
        mod = from_exported_program(program, custom_convert_map={"amax.default": rule})
        machine = build(mod)
    x = random(2, 3, 4, seed=2) * 500 - 300
    result(lambda given: machine["main"](given)[0], x,
           title=_("{count} calls in one main").format(count=len(_AMAX)))
    mains = {call: lambda *given, place=place: machine["main"](*given)[place]
             for place, call in enumerate(_AMAX)}
    count = check(compiled({call: call for call in _AMAX}, _amax,
                           {call: [[x]] for call in _AMAX}), mains)
    return _("right for {count} ways to call it").format(count=count)


# ---- a cache -------------------------------------------------------------------------------

_TEXTS, _PAST = 2, (*range(9), 17, 40, 63)  # letters that stand before the new one


@prepared
def _gpt(blocks: int = gpt.LAYERS) -> gpt.GPT:
    """Return a model of random weights, so large that each part of it matters."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = gpt.GPT()
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.4, 0.4)
        nn.init.uniform_(model.norm.weight, 4, 8)  # logits beyond 6, of both signs
        model.blocks = model.blocks[:blocks]
    return model.eval().requires_grad_(requires_grad=False)


def _stepping(answer: Callable) -> Callable[..., np.ndarray]:
    """Return an answer as a function of how many letters stand before, and of what is wanted.

    For a model of some blocks, and for some texts.
    """
    def run(past: int, blocks: int, texts: int, result: str) -> np.ndarray:
        tokens, _logits, *caches = _whole(blocks)
        before = tokens[:texts, past:past + 1], *(cache[:, :texts, :, :past] for cache in caches)
        given = [one.clone() for one in before]
        came = answer(_gpt(blocks), *given)
        parts = came if isinstance(came, tuple | list) else [came]
        if len(parts) != len(_PARTS) or not all(isinstance(one, torch.Tensor) for one in parts):
            raise CheckFailed(_("three tensors: logits, keys, values"),
                              ", ".join(type(one).__name__ for one in parts) or f"{came}")
        for name, one, there in zip(("token", "keys", "values"), before, given, strict=True):
            if not torch.equal(one, there):
                raise CheckFailed(_("{name} as it was").format(name=name), _("a different one"))
        return came[_PARTS.index(result)].numpy()
    return run


@functools.cache
def _whole(blocks: int) -> tuple[torch.Tensor, ...]:
    """Return letters of texts, and their logits, keys and values from the whole model.

    What a letter adds to the caches, and its logits, do not depend on the letters behind it.
    """
    model, drawn = _gpt(blocks), torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 95, (_TEXTS, max(_PAST) + 1), generator=drawn)
    x, kept = model.token(tokens) + model.place(torch.arange(tokens.shape[1])), []
    for block in model.blocks:
        kept.append(block.heads(x)[1:])
        x = block(x)
    return tokens, model(tokens), *(torch.stack(each) for each in zip(*kept, strict=True))


def _right(past: int, blocks: int, texts: int, result: str) -> np.ndarray:
    logits, *caches = _whole(blocks)[1:]
    return (logits[:texts, past:past + 1] if result == "logits" else
            caches[_PARTS.index(result) - 1][:, :texts, :, :past + 1]).numpy()


def _steps() -> Cases:
    for blocks, texts, every in ((1, 1, (0, 1, 5)), (gpt.LAYERS, _TEXTS, _PAST)):
        yield from ({"past": past, "blocks": blocks, "texts": texts, "result": result}
                    for past in every for result in ("keys", "values", "logits"))  # as computed


def _new_letter_first(result: str, **given: int) -> np.ndarray:
    right = _right(result=result, **given)
    return right if result == "logits" else np.roll(right, 1, axis=3)


_PARTS = ("logits", "keys", "values")
_STEPS = Spec(_stepping, _right, _steps, fits=lambda given: given["past"] >= 0
              and 1 <= given["blocks"] <= gpt.LAYERS and 1 <= given["texts"] <= _TEXTS,
              named={_("the new letter's keys and values stand before the older ones"):
                     _new_letter_first})


@exercise("11.3",
          "one_more_letter(model, token, keys, values)", seconds=20, prepare=[_exporting, _gpt])
def exercise_11_3(one_more_letter: Callable) -> str:
    """a transformer with a cache."""
    with torch.no_grad():
        check(_STEPS, one_more_letter)
    small, past = _gpt(1), torch.export.Dim("past", min=1, max=gpt.LONGEST - 1)
    cache = torch.zeros(1, 1, gpt.HEADS, 5, gpt.WIDTH // gpt.HEADS)  # of a block, of a text
    given = torch.zeros(1, 1, dtype=torch.int64), cache, cache.clone()
    try:
        with helpers.quiet():
            torch.export.export(model_of(
                lambda self, token, keys, values: one_more_letter(self.small, token, keys, values),
                small=small), given, dynamic_shapes=(None, {3: past}, {3: past}))
    except Exception as error:  # torch.export raises many kinds
        raise CheckFailed(_("a function that torch.export takes, for any past"), reason(error),
                          line_of_answer(error)) from None
    return _("{steps} letters of {texts} texts as the whole model gives them, and exported for any "
             "past").format(steps=len(_PAST), texts=_TEXTS)


# ---- a tensor struct -----------------------------------------------------------------------

# numbers, shape, axes, bytes of an address, first; each byte of an address another one
_TENSORS = [(0x7F123456789ABC40, 0x55D1AA22C3E8, 4, 8, 0x0102030405060708),
            (0xC1D2E300, 0xA1B2F408, 2, 4, 0x1122334455667788), (4096, 0x1FF0, 1, 8, 0),
            (0x10040, 0xFF20, 3, 4, 64), (0x7FFE00000080, 0x10, 0, 8, 4),
            (0x10040, 0xFF20, 6, 8, 0)]


def _fields(numbers: int, shape: int, axes: int, address: int, first: int
            ) -> list[tuple[str, int, int]]:
    """Return the fields of a DLTensor as C has them: name, bytes, value."""
    return [("data", address, numbers), ("device.type", 4, 1), ("device.id", 4, 0),
            ("axes", 4, axes), ("kind.code", 1, 2), ("kind.bits", 1, 32), ("kind.lanes", 2, 1),
            ("shape", address, shape), ("strides", address, 0), ("padding", 8 - address, 0),
            ("first", 8, first)]


@exercise("11.4", "dl_tensor(numbers, shape, axes, address, first)", seconds=5)
def exercise_11_4(dl_tensor: Callable) -> str:
    """the bytes of a tensor struct."""
    for case in _TENSORS:
        numbers, shape, axes, address, start = case
        with naming(f"dl_tensor({numbers:#x}, {shape:#x}, {axes}, {address}, {start:#x})"):
            came = dl_tensor(*case)
            require_type(came, bytes | bytearray, _("bytes"))
            place = 0
            for name, size, value in _fields(*case):
                wanted, there = value.to_bytes(size, "little"), came[place:place + size]
                if there != wanted:
                    raise CheckFailed(
                        _("{bytes} in the bytes from {first}, the field {name}").format(
                            bytes=wanted.hex(" "), first=place, name=name),
                        there.hex(" ") or _("they end before it, after {count}").format(
                            count=len(came)))
                place += size
            if len(came) != place:
                raise CheckFailed(_("{count} bytes").format(count=place), f"{len(came)}")
    return _("right for {count} tensors, with addresses of 8 and of 4 bytes").format(
        count=len(_TENSORS))


# ---- without threads -----------------------------------------------------------------------


_FROM_TWO = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((10,), "float32"), y: T.Buffer((10,), "float32")):
    for i in T.serial(2):
        y[i] = x[i]
    for i in T.parallel(2, 10):
        y[i] = x[i] + T.float32(1)
"""
_NESTED = """
@T.prim_func(s_tir=True)
def nested(x: T.Buffer((10,), "float32"), y: T.Buffer((1, 10), "float32")):
    for i in T.parallel(1):
        for j in T.parallel(0, 10, step=5):
            for k in T.unroll(5):
                y[i, j + k] = x[j + k] + T.float32(1)
"""


@prepared
def _threaded() -> dict[str, tirx.PrimFunc]:
    """Return PrimFuncs with parallel loops: one, several, inside of others, from 2 on, none."""
    x, w = te.placeholder((6, 10), name="x"), te.placeholder((16, 10), name="w")
    k = te.reduce_axis((0, 10), name="k")
    dense = tvm.s_tir.Schedule(te.create_prim_func([x, w, te.compute(
        (6, 16), lambda i, j: te.sum(x[i, k] * w[j, k], k), name="dense")]))
    block = dense.get_sblock("dense")
    i, j, over = dense.get_loops(block)
    outer, inner = dense.split(j, [None, 4])
    dense.reorder(i, outer, over, inner)
    dense.vectorize(inner)
    dense.parallel(dense.fuse(i, outer))
    dense.decompose_reduction(block, over)

    rows = te.placeholder((5, 12), name="parallel")
    softmax = tvm.s_tir.Schedule(te.create_prim_func([rows, topi.nn.softmax(rows)]))
    for child in softmax.get_child_blocks(softmax.get_sblock("root")):
        softmax.parallel(softmax.get_loops(child)[0])

    one, two = (tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.relu(x)])) for _ in range(2))
    _row, column = one.get_loops(one.get_sblock("compute"))
    outer, inner = one.split(column, [None, 5])
    one.parallel(outer)
    one.unroll(inner)
    row, column = two.get_loops(two.get_sblock("compute"))
    _outer, inner = two.split(column, [None, 5])
    two.annotate(row, "pragma_auto_unroll_max_step", 4)
    two.annotate(inner, "pragma_unroll_explicit", 0)
    two.parallel(inner)
    scheduled = {"dense": dense, "softmax": softmax, "relu 1": one, "relu 2": two}
    return {title: schedule.mod["main"] for title, schedule in scheduled.items()} | {
        "abs": te.create_prim_func([x, topi.abs(x)]),
        "from 2": tvm.script.from_source(_FROM_TWO), "nested": tvm.script.from_source(_NESTED)}


@exercise("11.5", "for_the_browser(func)", prepare=[_threaded])
def exercise_11_5(for_the_browser: Callable) -> str:
    """a program without threads."""
    for title, func in _threaded().items():
        with naming(title):
            came = for_the_browser(func)
            require_type(came, tirx.PrimFunc, _("a PrimFunc as the result"))
            _require_only_serial(func, came)
        schedules.require_same_results(func, came)
    return _("{count} programs without a parallel loop, and otherwise as they were").format(
        count=len(_threaded()))


def _require_only_serial(func: tirx.PrimFunc, came: tirx.PrimFunc) -> None:
    """Raise CheckFailed unless one PrimFunc is another with its parallel loops made serial."""
    def serial(loop: tirx.For) -> tirx.For:
        return loop if loop.kind != tirx.ForKind.PARALLEL else tirx.For(
            loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body,
            annotations=loop.annotations, step=loop.step)

    left = sum(loop.kind == tirx.ForKind.PARALLEL for loop, _place in walk(came.body)
               if isinstance(loop, tirx.For))
    if left:
        raise CheckFailed(
            _("no parallel loop"), _("parallel loops: {count}").format(count=left),
            next(line.strip() for line in came.script().splitlines() if "T.parallel(" in line))
    wanted = func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, serial)))
    lines = list(map(_signature, (wanted, came)))
    if lines[0] == lines[1] and (differ := tvm_ffi.get_first_structural_mismatch(wanted, came)):
        lines = list(map(_line, (wanted, came), differ))
    if lines[0] != lines[1]:
        raise CheckFailed(_("the given program, its parallel loops serial: `{source}`").format(
            source=lines[0]), lines[1])


def _signature(func: tirx.PrimFunc) -> str:
    """Return what code outside of a PrimFunc may use: its name, parameters and attributes."""
    attrs = dict(func.attrs.items()) if func.attrs else {}
    name, params = attrs.pop("global_symbol", ""), ", ".join(one.name for one in func.params)
    return ", ".join([f"{name}({params})", *sorted(f"{key}: {attrs[key]}" for key in attrs)])


def _line(func: tirx.PrimFunc, path: Any) -> str:
    """Return the line of a PrimFunc's script with what a path leads to, or is around it."""
    while path:
        lines = [line.strip() for line in func.script(path_to_underline=[path]).splitlines()]
        if below := next((number for number, line in enumerate(lines) if set(line) == {"^"}), 0):
            return lines[below - 1]
        path = path.parent  # what is missing has no line
    return ""


# ---- products ------------------------------------------------------------------------------

@prepared
def _products() -> tvm.IRModule:
    """Return x times (8, 48), ReLU, times (48, 95), times its transpose, times the ReLU.

    To that it adds the ReLU times two matrices at once, and the largest of it times (48, 10).
    """
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    w, v = (relax.const(random(*shape, seed=sum(shape))) for shape in ((8, 48), (48, 95)))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            hidden = bb.emit(relax.op.nn.relu(bb.emit(relax.op.matmul(x, w))))
            logits = bb.emit(relax.op.matmul(hidden, v))
            scores = bb.emit(relax.op.matmul(logits, bb.emit(relax.op.permute_dims(logits))))
            rows = bb.emit(relax.op.matmul(scores, hidden))  # a sum of n products
            two = bb.emit(relax.op.matmul(hidden, relax.const(random(2, 48, 48))))
            few = bb.emit(relax.op.matmul(hidden, relax.const(random(48, 10))))  # no 16 columns
            terms = [bb.emit(relax.op.sum(two, axis=0)), bb.emit(relax.op.max(few, 1, True))]
            output = bb.emit_output(relax.op.add(rows, bb.emit(relax.op.add(*terms))))
        bb.emit_func_output(output)
    # products are those whose names begin with "matmul"; the first has it inside
    return renamed(relax.transform.LegalizeOps()(bb.get()),
                   {"relu": "relu_of_matmul", "matmul3": "matmul_rows"})


@exercise("11.6", "products_in_rows(mod)", seconds=20, prepare=[_products])
def exercise_11_6(products_in_rows: Callable) -> str:
    """products of matrices with lanes along their rows."""
    original = _products()
    names = sorted(variable.name_hint for variable in original.get_global_vars())
    with naming(", ".join(names)):
        mod = schedules.returned(products_in_rows, original)
    products = [name for name in names if name.startswith("matmul")]
    functions = schedules.only_changed(mod, original, products, "matmul")
    known = [name for name in products
             if isinstance(original[name].params[-1].shape[-1], tirx.IntImm)]
    for name in known:
        for update in schedules.summing(functions[name]):
            around = _("block {block} of {name}").format(block=update.block, name=name)
            lanes = schedules.require_lanes(update, around, 16)
            schedules.require_neighbours(update, lanes, update.realize.block.writes[0],
                                         what=_("lanes of {name}").format(name=name))
        schedules.require_decomposed(functions[name])
    before, after = build(original), build(mod)
    for size in (1, 3, 17):
        given = tvm.runtime.tensor(random(size, 8, seed=size))
        right = before["main"](given).numpy()
        with guarded(after, mod, at_start=True):  # of extents that vary, a run shows it
            came = after["main"](given).numpy()
        require_equal(came, right, {}, words=_("a batch of {size}").format(size=size), atol=1e-3)
    return _("{count} products in lanes of 16 along their rows, the same results for batches of "
             "1, 3 and 17").format(count=len(known))


# ---- what processors share -----------------------------------------------------------------

_SETS = ("popcnt", "avx", "f16c", "avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512vnni",
         "avxvnni")
_OTHERS = ("sse4a", "aes", "adx", "sha", "gfni", "vaes", "avx512vbmi", "avx512bf16", "clwb")
_PROCESSORS = ("nehalem", "sandybridge", "haswell", "znver3", "alderlake", "skylake-avx512",
               "cascadelake", "znver4", "sapphirerapids")


def _fleets() -> Iterator[tuple[str, ...]]:
    """Yield one processor each, then two, then three or more: the smallest come first."""
    for size in (1, 2):
        yield from itertools.combinations(_PROCESSORS, size)
    yield ("bdver1",)  # which has fma4, and no fma
    yield ("znver4", "haswell", "skylake-avx512")  # the one in between has least
    yield from (_PROCESSORS, _PROCESSORS[3:6], _PROCESSORS[:1:-1], _PROCESSORS[5:])


@exercise("11.7", "for_all(processors)")
def exercise_11_7(for_all: Callable) -> str:
    """a target for several processors."""
    machine = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}
    known = {name: set(llvm_get_cpu_features(tvm.target.Target({**machine, "mcpu": name})))
             for name in {*itertools.chain(*_fleets())}}
    said = ""
    for fleet in _fleets():
        given = _("for {processors}").format(processors=", ".join(fleet))
        names = list(fleet)
        with mock.patch.object(tvm.target.Target, "__init__", autospec=True,
                               side_effect=tvm.target.Target.__init__) as made, naming(given):
            target = for_all(names)
        said += str([(call.args[1:], call.kwargs) for call in made.call_args_list])
        if names != list(fleet):
            raise CheckFailed(_("the given names as they were; {given}").format(given=given),
                              ", ".join(map(str, names)))
        require_type(target, tvm.target.Target, _("a Target {given}").format(given=given))
        kind, triple = target.kind.name, str(target.attrs.get("mtriple", ""))
        wanted = _("a target of kind llvm with mtriple {triple}").format(triple=machine["mtriple"])
        if triple == llvm_get_system_triple() and triple not in said:
            raise CheckFailed(wanted, _("mtriple {triple}, this machine's, which your function "
                                        "passed to no Target").format(triple=triple))
        if kind != "llvm" or not triple.startswith("x86_64") or "linux" not in triple:
            raise CheckFailed(wanted, _("{kind} with mtriple {triple}").format(
                kind=kind, triple=triple or None))
        features = set(llvm_get_cpu_features(target))
        shared_by_all = set.intersection(*(known[name] for name in fleet))
        shared = shared_by_all & {*_SETS}
        came = features & {*_SETS, *set(_OTHERS).difference(shared_by_all)}
        if came != shared:
            lacks = next((name for name in fleet if came - known[name]), None)
            raise CheckFailed(
                _("{features} {given}").format(features=_in_order(shared), given=given),
                _in_order(came),
                _("{processor} has no {features}").format(
                    processor=lacks, features=_in_order(came - known[lacks])) if lacks
                else _("each has {features}").format(features=_in_order(shared - came)))
    return _("{count} fleets of up to {most} processors: each gets what its processors share"
             ).format(count=len(list(_fleets())), most=len(_PROCESSORS))


def _in_order(names: set[str]) -> str:
    return ", ".join(name for name in (*_SETS, *_OTHERS) if name in names) \
        or _("none of the features")


# ---- a folder to hand over -----------------------------------------------------------------


@prepared
def _sent() -> list[tuple[tvm.IRModule, dict[str, Any], np.ndarray, np.ndarray]]:
    """Return modules with weights, each with its target, an input and the right result.

    Their inputs are float32 and int64. Their targets are neither this machine's nor LLVM's default;
    programs for them run here.
    """
    arm = platform.machine() in ("arm64", "aarch64")
    older, newer = ({"mattr": ["+neon"]}, {"mattr": ["+neon", "+crc"]}) if arm else (
        {"mattr": ["+ssse3"]}, {"mcpu": "x86-64-v2"})
    here = {"kind": "llvm", "mtriple": llvm_get_system_triple()}
    w, rows = 3 * random(8, 5, seed=8), 3 * random(9, 4, seed=9)
    numbers, tokens = 3 * random(3, 8, seed=3), np.array([7, 0, 3, 8, 3])
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    t = relax.Var("tokens", relax.TensorType((n,), "int64"))
    off = relax.op.subtract(x, relax.op.mean(x, axis=0, keepdims=True))  # each row needs all others
    dense = relax.op.expand_dims(relax.op.matmul(off, relax.const(w)), 1)
    return [(_of_main(x, dense), here | newer, numbers, ((numbers - numbers.mean(0)) @ w)[:, None]),
            (_of_main(t, relax.op.take(relax.const(rows), t, 0)), here | older, tokens,
             rows[tokens])]


def _of_main(given: relax.Var, result: relax.Expr) -> tvm.IRModule:
    bb = relax.BlockBuilder()
    with bb.function("main", [given]):
        bb.emit_func_output(bb.emit(result))
    return bb.get()


def _written(run: Callable[[], Any]) -> list[str]:
    """Run something; return the targets of the LLVM modules that it wrote to files, as JSON."""
    targets, write = [], tvm.runtime.Module.write_to_file

    def noted(module: tvm.runtime.Module, *given: Any, **options: Any) -> None:
        if module.kind == "llvm":
            targets.append(module.get_function("_get_target_string")())
        write(module, *given, **options)

    with mock.patch.object(tvm.runtime.Module, "write_to_file", noted):
        run()
    return targets


def _files(folder: Path) -> str:
    return ", ".join(sorted(file.name for file in folder.iterdir()))


def _received(place: Path, given: str, result: str) -> np.ndarray:
    """Return what received/run.py makes of a file; what is named lies in the folder `place`."""
    try:
        native.elsewhere(place, Path("received", "run.py"), given, result)
        return np.load(place / result)
    except CourseError as error:
        said, name = str(error), "run.py"
        for folder in (place, place.parent):  # temporary; a path that is whole still looks so
            said = said.replace(f"{folder}", "/...")
    except (OSError, EOFError, ValueError) as error:
        said, name = reason(error).replace(f"{place}/", ""), "np.load"
    # of several errors the last one, which nothing handled; notes follow it
    line = re.search(r'run\.py", line (\d+).*\n *(.*)(?:\n .*)*\n(\S.*)',
                     said.rpartition("Traceback (most recent")[2])
    look_at = [_("line {number} of run.py: {source}").format(number=line[1], source=line[2])] \
        if line else []
    if not line or "No such file" in said:
        look_at.append(_("the folder has {files}; where it was called: {others}").format(
            files=_files(place / "received"), others=_files(place)))
    raise CheckFailed(
        _("a result in {result} after python received/run.py {given} {result}, without other "
          "programs").format(given=given, result=result),
        _("{reason}, from {name}").format(reason=line[3] if line else said.splitlines()[-1],
                                          name=name),
        Sentence("\n").join(look_at))


@exercise("11.8", "ship(mod, target, folder)", seconds=90, prepare=[_sent], needs="shared")
def exercise_11_8(ship: Callable) -> str:
    """a folder to hand over."""
    for mod, named, given, right in _sent():
        target = tvm.target.Target(named)
        with native.workplace() as name, native.workplace() as other, contextlib.chdir(other):
            folder, place = Path(name, "sent"), Path(name, "there")
            for each in (folder, place / "tokens", place / "rows"):
                each.mkdir(parents=True)
            targets = _written(functools.partial(ship, mod, target, folder))
            if not (folder / "run.py").is_file():
                raise CheckFailed(_("run.py in the folder"), _files(folder) or _("no file"))
            others = [one for one in targets if llvm_get_cpu_features(
                tvm.target.Target(json.loads(one))) != llvm_get_cpu_features(target)]
            if others or not targets:
                raise CheckFailed(_("machine code for {target}").format(
                    target=json.dumps(named)), (others or [_("no LLVM module written")])[0])
            folder = folder.rename(place / "received")
            if links := [each.name for each in folder.rglob("*") if each.is_symlink() and not (
                    each.exists() and each.resolve().is_relative_to(folder.resolve()))]:
                raise CheckFailed(_("files in the folder"), _(
                    "{name} is a link that leads to no file in the folder, now that it was moved"
                    ).format(name=links[0]))
            second = given.dtype == "int64"
            file, result = ("tokens/x.npy", "rows/y.npy") if second else ("x.npy", "y.npy")
            words = f"{file}: {given.dtype} {given.shape}"
            if second:
                np.save(place / result, given)  # of an earlier run
                words = _("{words}, the result over an older file").format(words=words)
            np.save(place / file, given)
            require_equal(_received(place, file, result), right, {}, atol=1e-4, words=words)
    return _("two models with their weights, each for its target: they run where there is neither "
             "torch nor a compiler")
