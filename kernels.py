"""The kernels of 06 and 07: what measures the machine, fuses the CNN, and is the packed CNN.

The notebooks show this code and explain it; the benchmark, the tuning and the tests run it.
"""

import contextlib
import math
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, topi
from tvm.relax.dpl import is_op, wildcard
from tvm.script import tirx as T


def wide_vectors(target: tvm.target.Target) -> bool:
    """Whether the CPU has 32 vector registers of 16 float32 (AVX-512)."""
    return bool(tvm.target.codegen.target_has_features("avx512f", target))


def multiply_adds(threads: int, lanes: int, rounds: int, sums: int = 12) -> tvm.tirx.PrimFunc:
    """Some vectors in registers for each thread, in every round times a[t, 0], plus a[t, 1]."""
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
    """The shortest call in a while: for limits of the machine, which nothing can better."""
    shortest, end = math.inf, time.perf_counter() + least
    while (start := time.perf_counter()) < end:
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
    times = -(-2_163_200 // size)  # so that the price of a call does not count where size is small
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
    """Make the import of every machine's tensor instructions, in this process, empty.

    MetaSchedule imports tvm.s_tir.tensor_intrin in each process that builds: 30 to 60 seconds,
    more than a build may take. A float32 program on a CPU uses none of these instructions.
    """
    name = "tvm.s_tir.tensor_intrin"
    sys.modules.setdefault(name, types.ModuleType(name))


def fuse_by_kind(mod: tvm.IRModule) -> tvm.IRModule:
    """Return mod as TVM's standard passes fuse it, with nobody telling them what to group.

    The records in data/tuned/ are found by the structure of the result.
    """
    return tvm.transform.Sequential([
        relax.transform.FoldConstant(), relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(), relax.transform.FuseTIR(),
    ])(mod)


# 32 channels are 2 x 16, the 100 outputs of the dense layer 96 + 4; 13 x 13 places are pooled
HALVES, LANES, WIDE, REST, PLACES = 2, 16, 96, 4, 13 * 13


def pack(weights: dict[str, np.ndarray], columns: int = WIDE) -> list[np.ndarray]:
    """Return the CNN's weights in the order in which `packed_program` reads them.

    conv (2, 3, 3, 16), its bias (2, 16), dense (2, 96 / columns, 2704, columns), its last four
    outputs (2, 169, 4, 16), its bias (100), the head (100, 10), its bias (10); all float32.
    """
    conv = weights["conv2d_weight"].reshape(HALVES, LANES, 3, 3).transpose(0, 2, 3, 1)
    dense = weights["linear0_weight"].reshape(100, HALVES, LANES, PLACES).transpose(1, 3, 2, 0)
    wide = dense[..., :WIDE].reshape(HALVES, PLACES * LANES, WIDE // columns, columns)
    rest = dense[..., WIDE:].transpose(0, 1, 3, 2)
    packed = [conv, weights["conv2d_bias"].reshape(HALVES, LANES), wide.transpose(0, 2, 1, 3),
              rest, weights["linear0_bias"], weights["linear1_weight"].T, weights["linear1_bias"]]
    return [np.ascontiguousarray(array) for array in packed]


def relu(value: tvm.tirx.Expr) -> tvm.tirx.Expr:
    """The greater of a float32 number and 0."""
    return tvm.tirx.max(value, tvm.tirx.const(0.0, "float32"))


def packed_program(batch: int, columns: int = WIDE) -> tvm.tirx.PrimFunc:
    """The CNN from images (batch, 1, 28, 28) to probabilities (batch, 10), with packed weights."""
    shapes = {"image": (batch, 1, 28, 28), "conv_weight": (HALVES, 3, 3, LANES),
              "conv_bias": (HALVES, LANES),
              "wide_weight": (HALVES, WIDE // columns, PLACES * LANES, columns),
              "rest_weight": (HALVES, PLACES, REST, LANES), "dense_bias": (100,),
              "head_weight": (100, 10), "head_bias": (10,)}
    inputs = [te.placeholder(shape, name=name) for name, shape in shapes.items()]
    image, conv_w, conv_b, wide_w, rest_w, dense_b, head_w, head_b = inputs

    # the layers on images, channels last
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    conv = te.compute(
        (HALVES, batch, 26, 26, LANES),
        lambda h, n, y, x, f: te.sum(image[n, 0, y + ry, x + rx] * conv_w[h, ry, rx, f], [ry, rx]),
        name="conv")
    py, px = te.reduce_axis((0, 2), name="py"), te.reduce_axis((0, 2), name="px")
    pool = te.compute(
        (HALVES, batch, 13, 13, LANES),
        lambda h, n, y, x, f: te.max(conv[h, n, 2 * y + py, 2 * x + px, f], [py, px]), name="pool")
    act = te.compute(pool.shape, lambda h, n, y, x, f: relu(pool[h, n, y, x, f] + conv_b[h, f]),
                     name="act")

    # the dense layer: each half of the channels gives its part of every sum
    k, p = te.reduce_axis((0, PLACES * LANES), name="k"), te.reduce_axis((0, PLACES), name="p")
    wide = te.compute(
        (HALVES, batch, WIDE),
        lambda h, n, j: te.sum(act[h, n, k // LANES // 13, k // LANES % 13, k % LANES]
                               * wide_w[h, j // columns, k, j % columns], k), name="wide")
    rest = te.compute(
        (HALVES, batch, REST, LANES),
        lambda h, n, j, f: te.sum(act[h, n, p // 13, p % 13, f] * rest_w[h, p, j, f], p),
        name="rest")
    f = te.reduce_axis((0, LANES), name="f")
    rest_sum = te.compute((HALVES, batch, REST), lambda h, n, j: te.sum(rest[h, n, j, f], f),
                          name="rest_sum")
    hidden = te.compute(
        (batch, 100),
        lambda n, j: relu(dense_b[j] + tvm.tirx.if_then_else(
            j < WIDE, wide[0, n, j] + wide[1, n, j],
            rest_sum[0, n, j - WIDE] + rest_sum[1, n, j - WIDE])), name="hidden")

    # the head
    i = te.reduce_axis((0, 100), name="i")
    logits = te.compute((batch, 10), lambda n, j: te.sum(hidden[n, i] * head_w[i, j], i),
                        name="logits")
    biased = te.compute((batch, 10), lambda n, j: logits[n, j] + head_b[j], name="biased")
    return te.create_prim_func([*inputs, topi.nn.softmax(biased)], index_dtype_override="int64")


def unroll(schedule: tvm.s_tir.Schedule, *loops: Any) -> None:
    """Unroll several loops."""
    for loop in loops:
        schedule.unroll(loop)


def schedule_dense(schedule: tvm.s_tir.Schedule, columns: int) -> None:
    """Tiles of sums in registers for the blocks `wide` and `rest`."""
    wide, rest = schedule.get_sblock("wide"), schedule.get_sblock("rest")
    h, n, j, k = schedule.get_loops(wide)
    images = min(4, schedule.get(n).extent.value)
    n0, n1 = schedule.split(n, [None, images])
    j0, j1, lanes = schedule.split(j, [None, columns // LANES, LANES])
    k0, k1 = schedule.split(k, [None, 2])
    schedule.reorder(h, j0, n0, k0, k1, n1, j1, lanes)
    schedule.vectorize(lanes)
    unroll(schedule, k1, n1, j1)
    copy = schedule.cache_write(wide, 0, "local")
    schedule.reverse_compute_at(copy, n0)
    *_, n1, j1 = schedule.get_loops(copy)
    j1, lanes = schedule.split(j1, [None, LANES])
    schedule.vectorize(lanes)
    unroll(schedule, n1, j1)

    h, n, j, lanes, p = schedule.get_loops(rest)
    n0, n1 = schedule.split(n, [None, images])
    schedule.reorder(h, n0, p, n1, j, lanes)
    schedule.vectorize(lanes)
    unroll(schedule, n1, j)
    copy = schedule.cache_write(rest, 0, "local")
    schedule.reverse_compute_at(copy, n0)
    *_, n1, j, lanes = schedule.get_loops(copy)
    schedule.vectorize(lanes)
    unroll(schedule, n1, j)


def schedule_images(schedule: tvm.s_tir.Schedule) -> None:
    """Compute the blocks `conv` and `pool` for one place at a time, where `act` needs them."""
    conv, pool, act = map(schedule.get_sblock, ("conv", "pool", "act"))
    *_, x, lanes = schedule.get_loops(act)
    schedule.vectorize(lanes)
    schedule.compute_at(pool, x)
    schedule.compute_at(conv, x)
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
                 one_region: bool = True) -> tvm.IRModule:
    """Return the CNN as an IRModule whose main calls one scheduled PrimFunc, weights packed."""
    columns = WIDE if wide_vectors(target) else LANES
    schedule = tvm.s_tir.Schedule(packed_program(batch, columns))
    act, wide, rest, rest_sum, logits = map(
        schedule.get_sblock, ("act", "wide", "rest", "rest_sum", "logits"))
    schedule_dense(schedule, columns)
    if one_region:
        half = schedule.merge(schedule.get_loops(wide)[0], schedule.get_loops(rest)[0])
        schedule.parallel(half)
        schedule.reverse_compute_at(rest_sum, half)
        schedule.compute_at(act, half)
    else:
        for block in (act, wide, rest):
            schedule.parallel(schedule.get_loops(block)[0])
    schedule_images(schedule)
    _, j, i = schedule.get_loops(logits)
    schedule.reorder(i, j)
    schedule.vectorize(j)
    for block, first in ((wide, "k_0"), (rest, "p"), (logits, "i")):
        loops = {schedule.get(loop).loop_var.name: loop for loop in schedule.get_loops(block)}
        schedule.decompose_reduction(block, loops[first])

    return module_of(schedule.mod["main"], pack(weights, columns))
