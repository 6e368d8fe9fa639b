"""The kernels of 06 to 08: they measure the machine, fuse the CNN, are the packed CNN; a library.

The notebooks show this code and explain it, but for steps 1 and 2 of 07, since writing them is an
exercise there; the benchmark, the tuning and the tests run the rest too.
"""

import contextlib
import io
import math
import os
import re
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax, te, topi
from tvm.relax.dpl import is_op, wildcard
from tvm.script import tirx as T

from course import present


def wide_vectors(target: tvm.target.Target) -> bool:
    """Whether the CPU has 32 vector registers of 16 float32 (AVX-512)."""
    return bool(tvm.target.codegen.target_has_features("avx512f", target))


def multiply_adds(threads: int, lanes: int, rounds: int, sums: int = 12) -> tvm.tirx.PrimFunc:
    """Multiply vectors in each thread's registers by a[t, 0] and add a[t, 1], in every round."""
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((threads, sums + 1, lanes), "float32"),
             b: T.Buffer((threads, sums, lanes), "float32")):
        T.func_attr({"tirx.noalias": True})
        for thread in T.parallel(threads):
            with T.sblock("fma"):
                t = T.axis.spatial(threads, thread)
                register = T.sblock_alloc_buffer((sums, lanes), "float32", scope="local")
                for r, lane in T.grid(sums, lanes):
                    register[r, lane] = a[t, r, lane]
                for _ in range(rounds):
                    for r in T.unroll(sums):
                        for lane in T.vectorized(lanes):
                            register[r, lane] = register[r, lane] * a[t, 0, lane] + a[t, 1, lane]
                for r, lane in T.grid(sums, lanes):
                    b[t, r, lane] = register[r, lane]
    return main


def least_seconds(call: Callable[[], None], least: float = 0.3) -> float:
    """The shortest call in a while: for limits of the machine, which no program can beat."""
    shortest, end = math.inf, time.perf_counter() + least
    while shortest == math.inf or time.perf_counter() < end:  # one call, however late it is
        start = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


if os.environ.get("MLC_QUICK") == "1":  # as in helpers.measure; notebook 06 shows the function
    least_seconds.__defaults__ = (0.001,)


def measure_peak(target: tvm.target.Target, threads: int, sums: int = 12, lanes: int = 0) -> float:
    """Return the GFLOP/s of fused multiply-adds in registers; each counts as two operations.

    `sums` vectors grow side by side in each thread; without `lanes` they are the widest vectors.
    """
    lanes, rounds = lanes or (16 if wide_vectors(target) else 8), 200_000
    compiled = tvm.compile(multiply_adds(threads, lanes, rounds, sums), target=target)["main"]
    a = tvm.runtime.tensor(np.full((threads, sums + 1, lanes), 0.5, "float32"))
    b = tvm.runtime.tensor(np.zeros((threads, sums, lanes), "float32"))
    return threads * sums * lanes * 2 * rounds / least_seconds(lambda: compiled(a, b)) / 1e9


def measure_bandwidth(target: tvm.target.Target, threads: int, size: int = 2_163_200) -> float:
    """Return the GB/s at which `size` bytes are read repeatedly, and added up."""
    rows = size // (4 * threads * 128)
    times = -(-2_163_200 // size)  # so that the cost of a call does not matter if size is small
    a = te.placeholder((threads, rows, 8, 16), name="a")
    again, k = te.reduce_axis((0, times), name="again"), te.reduce_axis((0, rows), name="k")
    sums = te.compute((threads, 8, 16), lambda t, r, i: te.sum(a[t, k, r, i], [again, k]),
                      name="sums")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, sums]))
    block = schedule.get_sblock("sums")
    t, r, lane, again, k = schedule.get_loops(block)
    schedule.reorder(t, again, k, r, lane)
    copy = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(copy, t)
    schedule.vectorize(lane)
    schedule.unroll(r)
    schedule.parallel(t)
    schedule.decompose_reduction(block, again)
    compiled = tvm.compile(schedule.mod["main"], target=target)["main"]
    a = tvm.runtime.tensor(np.ones((threads, rows, 8, 16), "float32"))
    b = tvm.runtime.tensor(np.zeros((threads, 8, 16), "float32"))
    return times * a.numpy().nbytes / least_seconds(lambda: compiled(a, b)) / 1e9


def cache_sizes() -> dict[str, int]:
    """Return the bytes of the first core's data caches, L1 first; none where Linux doesn't say."""
    sizes = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            if (cache / "type").read_text().strip() != "Instruction":
                kilobytes = (cache / "size").read_text().strip().removesuffix("K")
                sizes["L" + (cache / "level").read_text().strip()] = int(kilobytes) * 1024
    return sizes


KINDS = {  # of instructions, on x86-64
    "FMAs": r"vfn?m(add|sub)", "single FMAs": r"vfn?m(add|sub)\w+ss",
    "maxima": r"vmax", "single maxima": r"vmaxss",
    "moves": r"v(perm|insert|extract|unpck|shuf|p?blend|p?align|mov[hl]|gather|scatter)",
    "gathers": r"vgather", "loads": r"v\w+\s+(\$\w+, )?[-\w]*\([^)]*\)(\{\w+\})?, ",
    "stores": r"v\w+\s.*, [-\w]*\([^)]*\)(\s*\{%k\d\})?$"}


def instructions(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> list[str]:
    """Return a PrimFunc's machine code, without labels, directives and comments."""
    code = tvm.compile(func.with_attr("global_symbol", "main"), target=target)
    lines = [line.split("#")[0].strip() for line in code.mod.inspect_source("asm").splitlines()]
    return [line for line in lines if line and not line.startswith(".") and line[-1] != ":"]


def count_instructions(func: tvm.tirx.PrimFunc, target: tvm.target.Target, *kinds: str
                       ) -> dict[str, int]:
    """Count a PrimFunc's instructions of some KINDS."""
    code = instructions(func, target)
    return {kind: sum(bool(re.match(KINDS[kind], line)) for line in code) for kind in kinds}


def fuse_layers(operators: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, str]]:
    """Return the CNN as three fused PrimFuncs (and two reshapes), and their names."""
    convolution = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    biased = is_op("relax.add")(convolution, wildcard())
    product = is_op("relax.matmul")(wildcard(), is_op("relax.permute_dims")(wildcard()))
    linear = is_op("relax.add")(wildcard(), product)
    patterns = [("conv_pool", is_op("relax.nn.max_pool2d")(is_op("relax.nn.relu")(biased))),
                ("dense", is_op("relax.nn.relu")(linear)),
                ("head", is_op("relax.nn.softmax")(linear))]
    grouped = relax.transform.FuseOpsByPattern(patterns, bind_constants=False)(operators)
    names = {str(func.attrs["Composite"]): variable.name_hint
             for variable, func in grouped.functions_items() if "Composite" in func.attrs}
    return relax.transform.FuseTIR()(relax.transform.LegalizeOps()(grouped)), names


def no_tensor_intrinsics() -> None:
    """Make importing every machine's tensor instructions do nothing in this process.

    MetaSchedule imports tvm.s_tir.tensor_intrin in each process that builds: 30 to 60 seconds,
    more than a build may take. A float32 program on a CPU uses none of these instructions.
    """
    name = "tvm.s_tir.tensor_intrin"
    sys.modules.setdefault(name, types.ModuleType(name))


def fuse_by_kind(mod: tvm.IRModule) -> tvm.IRModule:
    """Return mod as TVM's standard passes fuse it, without being told what to group.

    The records in data/tuned/ are found by the structure of the result.
    """
    return tvm.transform.Sequential([
        relax.transform.FoldConstant(), relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(), relax.transform.FuseTIR(),
    ])(mod)


# 32 channels are 2 x 16, the 100 outputs of the dense layer 96 + 4; 13 x 13 places are pooled
HALVES, LANES, WIDE, REST, PLACES = 2, 16, 96, 4, 13 * 13
UNITS = HALVES * PLACES  # of 16 channels at one place: what threads share
MOST = 16  # threads that get work
HEAD = ("total", "last", "hidden", "logits", "biased", "T_softmax_maxelem", "T_softmax_exp",
        "T_softmax_expsum", "T_softmax_norm")  # the blocks after the dense layer's sums


def cut(batch: int, threads: int) -> tuple[int, int]:
    """Return into how many groups the images are cut, and into how many parts the units.

    One of the two is 1, the other a multiple of the threads. Groups of whole tiles of four images
    take the head along, which on one thread would hold up three or more. Else each thread gets
    parts of the units, so small that the activations of one, 140 kB, stay in a core's L2 cache.
    """
    threads = min(threads, MOST)
    if threads > 2 and batch % (4 * threads) == 0:
        return batch // (8 if batch % (8 * threads) == 0 else 4), 1
    return 1, threads * math.ceil(batch * UNITS / threads / 2200)


def pack(weights: dict[str, np.ndarray], width: int = WIDE, parts: int = HALVES
         ) -> list[np.ndarray]:
    """Return the CNN's weights in the order in which `packed_program` reads them.

    conv (2, 3, 3, 16), its bias (2, 16), dense (parts, 96 / width, 16 * units, width), its
    last four outputs (parts, units, 4, 16), its bias (100), the head (100, 10), its bias (10);
    all float32. Where the units cannot be shared evenly, zeros fill the last part, as if there
    were 16 more channels, all zero.
    """
    units = -(-UNITS // parts)
    missing, halves = parts * units - UNITS, -(-parts * units // PLACES)
    conv = weights["conv2d_weight"].reshape(HALVES, LANES, 3, 3).transpose(0, 2, 3, 1)
    bias = weights["conv2d_bias"].reshape(HALVES, LANES)
    dense = weights["linear0_weight"].reshape(100, HALVES, LANES, PLACES).transpose(1, 3, 2, 0)
    dense = np.pad(dense.reshape(UNITS, LANES, 100), ((0, missing), (0, 0), (0, 0)))
    wide = dense[..., :WIDE].reshape(parts, units * LANES, WIDE // width, width)
    rest = dense[..., WIDE:].reshape(parts, units, LANES, REST)
    packed = [np.pad(conv, ((0, halves - HALVES), (0, 0), (0, 0), (0, 0))),
              np.pad(bias, ((0, halves - HALVES), (0, 0))), wide.transpose(0, 2, 1, 3),
              rest.transpose(0, 1, 3, 2), weights["linear0_bias"], weights["linear1_weight"].T,
              weights["linear1_bias"]]
    return [np.ascontiguousarray(array) for array in packed]


def relu(value: tvm.tirx.Expr) -> tvm.tirx.Expr:
    """The greater of a float32 number and 0."""
    return tvm.tirx.max(value, tvm.tirx.const(0.0, "float32"))


def packed_images(batch: int, parts: int = HALVES) -> tuple[list[te.Tensor], te.Tensor]:
    """The layers on images, channels last: their inputs, and the activations.

    Unit u of part p of the n-th image is 16 channels at one place of the pooled image; the
    activations are (parts, batch, units, 16).
    """
    units = -(-UNITS // parts)  # rounded up
    halves = -(-parts * units // PLACES)
    shapes = {"image": (batch, 1, 28, 28), "conv_weight": (halves, 3, 3, LANES),
              "conv_bias": (halves, LANES)}
    image, weight, bias = (te.placeholder(shape, name=name) for name, shape in shapes.items())

    def half(p: Any, u: Any) -> Any:
        return (p * units + u) // PLACES

    def pixel(p: Any, u: Any, dy: Any, dx: Any) -> tuple[Any, Any]:
        place = (p * units + u) % PLACES
        return 2 * (place // 13) + dy, 2 * (place % 13) + dx

    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    conv = te.compute(
        (parts, batch, units, 2, 2, LANES),
        lambda p, n, u, y, x, f: te.sum(image[(n, 0, *pixel(p, u, y + ry, x + rx))]
                                        * weight[half(p, u), ry, rx, f], [ry, rx]), name="conv")
    py, px = te.reduce_axis((0, 2), name="py"), te.reduce_axis((0, 2), name="px")
    pool = te.compute(
        (parts, batch, units, LANES),
        lambda p, n, u, f: te.max(conv[p, n, u, py, px, f], [py, px]), name="pool")
    act = te.compute((parts, batch, units, LANES),
                     lambda p, n, u, f: relu(pool[p, n, u, f] + bias[half(p, u), f]), name="act")
    return [image, weight, bias], act


def packed_dense(act: te.Tensor, width: int) -> tuple[list[te.Tensor], te.Tensor]:
    """The dense layer on such activations: its inputs, and its results (batch, 100).

    Each part of the units gives its part of every sum; `total` adds up the parts.
    """
    parts, batch, units, _lanes = map(int, act.shape)
    shapes = {"wide_weight": (parts, WIDE // width, units * LANES, width),
              "rest_weight": (parts, units, REST, LANES), "dense_bias": (100,)}
    wide_w, rest_w, bias = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    k, u = te.reduce_axis((0, units * LANES), name="k"), te.reduce_axis((0, units), name="u")
    wide = te.compute(
        (parts, batch, WIDE),
        lambda p, n, j: te.sum(act[p, n, k // LANES, k % LANES]
                               * wide_w[p, j // width, k, j % width], k), name="wide")
    rest = te.compute(
        (parts, batch, REST, LANES),
        lambda p, n, j, f: te.sum(act[p, n, u, f] * rest_w[p, u, j, f], u), name="rest")

    # the sums of all parts, first as they are, then with the 16 lanes of the last four added up
    p, f = te.reduce_axis((0, parts), name="p"), te.reduce_axis((0, LANES), name="f")
    total = te.compute(
        (batch, WIDE + REST * LANES), lambda n, j: te.sum(tvm.tirx.if_then_else(
            j < WIDE, wide[p, n, j], rest[p, n, (j - WIDE) // LANES, j % LANES]), p), name="total")
    last = te.compute((batch, REST), lambda n, j: te.sum(total[n, WIDE + j * LANES + f], f),
                      name="last")
    return [wide_w, rest_w, bias], te.compute(
        (batch, 100), lambda n, j: relu(bias[j] + tvm.tirx.if_then_else(
            j < WIDE, total[n, j], last[n, j - WIDE])), name="hidden")


def packed_program(batch: int, width: int = WIDE, parts: int = HALVES) -> tvm.tirx.PrimFunc:
    """The CNN from images (batch, 1, 28, 28) to probabilities (batch, 10), with packed weights."""
    on_images, act = packed_images(batch, parts)
    of_dense, hidden = packed_dense(act, width)
    weight = te.placeholder((100, 10), name="head_weight")
    bias = te.placeholder((10,), name="head_bias")
    i = te.reduce_axis((0, 100), name="i")
    logits = te.compute((batch, 10), lambda n, j: te.sum(hidden[n, i] * weight[i, j], i),
                        name="logits")
    biased = te.compute((batch, 10), lambda n, j: logits[n, j] + bias[j], name="biased")
    return te.create_prim_func([*on_images, *of_dense, weight, bias, topi.nn.softmax(biased)],
                               index_dtype_override="int64")


def unroll(schedule: tvm.s_tir.Schedule, *loops: Any) -> None:
    """Unroll several loops."""
    for loop in loops:
        schedule.unroll(loop)


def near_pooling(mod: tvm.IRModule, name: str,
                 inlined: tuple[str, ...] = ("pad_temp", "T_add", "compute"), move: bool = True
                 ) -> tvm.IRModule:
    """Return step 1 of 07: a fused conv_pool, its blocks `inlined`, computed two rows at a time.

    Without `move` the convolution stays where it is. Writing this is exercise 7.2.
    """
    schedule = tvm.s_tir.Schedule(mod)
    schedule.work_on(name)
    for each in inlined:
        schedule.compute_inline(each)
    if move:
        schedule.compute_at("conv2d_nchw", schedule.get_loops("pool_max")[2])
    return schedule.mod


def written_out(mod: tvm.IRModule, name: str, lanes: int = 0, parallel: bool = True
                ) -> tvm.IRModule:
    """Return step 2 of 07: step 1 with its windows unrolled, and `parallel` over the channels.

    With `lanes`, so many neighbours of a row are a vector; else LLVM makes its own.
    """
    schedule = tvm.s_tir.Schedule(near_pooling(mod, name))
    schedule.work_on(name)
    convolution, pool = map(schedule.get_sblock, ("conv2d_nchw", "pool_max"))
    *_, place, row, column = schedule.get_loops(convolution)
    if lanes:
        _, lane = schedule.split(place, [None, lanes])
        schedule.reorder(row, column, lane)
        schedule.vectorize(lane)
    image, channel, *_, y, x = schedule.get_loops(pool)
    unroll(schedule, row, column, y, x)
    if parallel:
        schedule.parallel(schedule.fuse(image, channel))
    schedule.decompose_reduction(convolution, row)
    schedule.decompose_reduction(pool, y)
    return schedule.mod


def pooling(row_inside: bool, biased: bool = False) -> tvm.tirx.PrimFunc:
    """Return the max pooling of (4, 32, 26, 26), in one of two orders, by itself or of a ReLU.

    All take a bias, so that they are called alike; it counts where they are `biased`.
    """
    x, bias = te.placeholder((4, 32, 26, 26), name="x"), te.placeholder((32,), name="bias")
    value = te.compute(x.shape, lambda n, f, row, column: relu(x[n, f, row, column] + bias[f]),
                       name="value") if biased else x
    pooled = topi.nn.pool2d(value, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, bias, pooled]))
    if biased:
        schedule.compute_inline("value")
    pool = schedule.get_sblock("pool_max")
    *_, across, y, x = schedule.get_loops(pool)
    if row_inside:
        schedule.reorder(y, x, across)
    schedule.decompose_reduction(pool, y)
    return schedule.mod["main"]


def schedule_dense(schedule: tvm.s_tir.Schedule, name: str, groups: int, images: int,
                   vectors: int, lanes: int) -> Any:
    """Keep tiles of images x vectors x lanes sums in registers; return the loop over the pieces."""
    block = schedule.get_sblock(name)
    part, n, *outputs, k = schedule.get_loops(block)
    group, n0, n1 = schedule.split(n, [groups, None, images])
    j0, j1, j2 = schedule.split(schedule.fuse(*outputs), [None, vectors, lanes])
    k0, k1 = schedule.split(k, [None, 2 if name == "wide" else 1])
    schedule.reorder(group, part, j0, n0, k0, k1, n1, j1, j2)
    schedule.vectorize(j2)
    unroll(schedule, k1, n1, j1)
    piece = schedule.fuse(group, part)
    copy = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(copy, n0)
    j1, j2 = schedule.split(schedule.fuse(*schedule.get_loops(copy)[3:]), [None, lanes])
    schedule.vectorize(j2)
    schedule.unroll(j1)
    return piece


def schedule_images(schedule: tvm.s_tir.Schedule, images: int) -> None:
    """Compute the blocks `conv` and `pool` for one unit at a time, where `act` needs them."""
    conv, pool, act = map(schedule.get_sblock, ("conv", "pool", "act"))
    *_, n, u, lanes = schedule.get_loops(act)
    if images > 1:  # or there is no loop over n
        schedule.reorder(u, n)
        u = n
    schedule.vectorize(lanes)
    schedule.compute_at(pool, u)
    schedule.compute_at(conv, u)
    *_, lanes, py, px = schedule.get_loops(pool)
    schedule.reorder(py, px, lanes)
    schedule.vectorize(lanes)
    unroll(schedule, py, px)
    *_, y, x, lanes, ry, rx = schedule.get_loops(conv)
    schedule.reorder(ry, rx, y, x, lanes)
    schedule.vectorize(lanes)
    unroll(schedule, ry, rx, y, x)
    for block, loop in ((conv, ry), (pool, py)):
        schedule.set_scope(block, 0, "local")
        schedule.decompose_reduction(block, loop)


def schedule_head(schedule: tvm.s_tir.Schedule, images: int) -> None:
    """Vectors for the blocks `total`, `hidden` and `logits`; 96 and 100 are multiples of 4."""
    total, hidden, logits = map(schedule.get_sblock, ("total", "hidden", "logits"))
    *_, j, p = schedule.get_loops(total)
    j, lanes = schedule.split(j, [None, LANES])
    schedule.reorder(p, j, lanes)
    schedule.vectorize(lanes)
    schedule.unroll(j)
    schedule.decompose_reduction(total, p)
    _, lanes = schedule.split(schedule.get_loops(hidden)[-1], [None, 4])
    schedule.vectorize(lanes)
    *_, n, j, i = schedule.get_loops(logits)
    n0, n1 = schedule.split(n, [None, images])
    schedule.reorder(n0, i, n1, j)
    schedule.vectorize(j)
    schedule.unroll(n1)
    schedule.decompose_reduction(logits, i)


def decompose_sums(schedule: tvm.s_tir.Schedule) -> None:
    """Set the sums of `wide` and `rest` to zero in blocks of their own, before their loops."""
    for name, first in (("wide", "k_0"), ("rest", "u_0")):
        block = schedule.get_sblock(name)
        found = {schedule.get(loop).loop_var.name: loop for loop in schedule.get_loops(block)}
        schedule.decompose_reduction(block, found[first])


def module_of(func: tvm.tirx.PrimFunc, weights: list[np.ndarray]) -> tvm.IRModule:
    """Return an IRModule whose main calls one PrimFunc, with the weights as constants."""
    images, *_, probabilities = [tuple(map(int, p.shape)) for p in func.params]
    bb = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType(images, "float32"))
    with bb.function("main", [image]):
        with bb.dataflow():
            kernel = bb.add_func(func.with_attr("global_symbol", "cnn"), "cnn")
            call = relax.call_tir(kernel, [image, *map(relax.const, weights)],
                                  relax.TensorType(probabilities, "float32"))
            output = bb.emit_output(call)
        bb.emit_func_output(output)
    return bb.get()


def packed_model(weights: dict[str, np.ndarray], batch: int, target: tvm.target.Target,
                 threads: int = 2, regions: int = 1) -> tvm.IRModule:
    """Return the CNN as an IRModule whose main calls one PrimFunc, for so many threads.

    They wait for each other at the end of each of 3, 2 or 1 parallel `regions`.
    """
    groups, parts = cut(batch, threads)
    images = min(4, batch)
    # what the registers hold: 32 of 16 numbers, or 16 of 8
    lanes, width = (16, WIDE) if wide_vectors(target) else (8, 24 if batch > 2 else 32)
    schedule = tvm.s_tir.Schedule(packed_program(batch, width, parts))
    few = min(batch, 2 if lanes == 16 or batch <= 4 else 1)  # our choice
    pieces = [schedule_dense(schedule, "wide", groups, images, width // lanes, lanes),
              schedule_dense(schedule, "rest", groups, few, REST * LANES // lanes, lanes)]
    if regions < 3:
        pieces = [schedule.merge(*pieces)]
    if regions > 1:
        pieces.append(schedule.get_loops("act")[0])
    # one region with one thread too: as a function of its own the piece keeps its sums in
    # registers, in a serial loop LLVM stores and loads some in each round (test_kernels.py)
    for piece in pieces if threads > 1 or regions == 1 else []:
        schedule.parallel(piece)
    if regions == 1:
        schedule.compute_at("act", pieces[0])
        for name in HEAD if groups > 1 else ():
            schedule.reverse_compute_at(schedule.get_sblock(name), pieces[0])
    schedule_images(schedule, images)
    schedule_head(schedule, images)
    decompose_sums(schedule)
    return module_of(schedule.mod["main"], pack(weights, width, parts))


def onnx_runtime(model: torch.nn.Module, threads: int, *inputs: torch.Tensor
                 ) -> tuple[Callable[[], None], Callable[[], np.ndarray]] | None:
    """Return a function that runs a PyTorch model in ONNX Runtime, and one that gives its output.

    If that or the exporter does not work, print a line that says so, and return None.
    """
    if not present.need("onnxruntime"):
        return None
    import onnxruntime
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)
    binding = session.io_binding()
    for place, tensor in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_cpu_input(place.name, tensor.numpy())
    binding.bind_output(session.get_outputs()[0].name)
    return (lambda: session.run_with_iobinding(binding),
            lambda: binding.copy_outputs_to_cpu()[0])
