"""An instruction of the CPU in a program: int8 layers, and weights of four bits; for notebook 13.

The notebook shows this code and explains it. What instructions do: Intel, Intrinsics Guide.
"""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import tvm
from tvm import ir, s_tir, te, tirx
from tvm.script import tirx as T
from tvm.target.codegen import llvm_get_intrinsic_name, target_has_features

Pair = tuple[tirx.PrimFunc, tirx.PrimFunc]  # what an instruction computes, and how to call it

# ---- instructions that a CPU lacks, in arithmetic -------------------------------------------

# by the name of LLVM's intrinsic: the bits of its vectors, the features of which a CPU needs one
_KNOWN = {"llvm.x86.avx512.vpdpbusd.512": (512, ["avx512vnni"]),
          "llvm.x86.avx512.vpdpbusd.256": (256, ["avxvnni", "avx512vnni"]),
          "llvm.x86.avx512.vpdpbusd.128": (128, ["avxvnni", "avx512vnni"]),
          "llvm.x86.avx512.pmaddw.d.512": (512, ["avx512bw"]),
          "llvm.x86.avx2.pmadd.wd": (256, ["avx2"]), "llvm.x86.sse2.pmadd.wd": (128, ["sse2"]),
          "llvm.x86.avx512.pmaddubs.w.512": (512, ["avx512bw"]),
          "llvm.x86.avx2.pmadd.ub.sw": (256, ["avx2"]),
          "llvm.x86.ssse3.pmadd.ub.sw.128": (128, ["ssse3"])}
_ARM = "llvm.aarch64.neon.usdot.v4i32.v16i8"  # of the same vectors as vpdpbusd.128


def has(target: tvm.target.Target, name: str) -> bool:
    """Whether a CPU has an instruction, by the name of LLVM's intrinsic; only those known here."""
    return name in _KNOWN and any(target_has_features(one, target) for one in _KNOWN[name][1])


def _added(products: ir.Expr, lanes: int, count: int) -> ir.Expr:
    """Return the sums of `count` neighbours each."""
    parts = [tirx.Shuffle([products], [tirx.const(count * i + k, "int32") for i in range(lanes)])
             for k in range(count)]
    return sum(parts[1:], parts[0])


def _products(a: ir.Expr, b: ir.Expr, of: str, by: str) -> ir.Expr:
    """Return the products of the integers in two vectors, read as of types `of` and `by`."""
    wide = f"int32x{of.rpartition('x')[2]}"
    return tirx.Cast(wide, tirx.reinterpret(of, a)) * tirx.Cast(wide, tirx.reinterpret(by, b))


def _in_arithmetic(call: ir.Call) -> ir.Expr:
    """Return what an instruction computes, without it, where the target that is built for has none.

    Only inside `with target:`, as in `compiled`; elsewhere, and for others, the call as it is.
    """
    name, target = str(llvm_get_intrinsic_name(int(call.args[0]))), tvm.target.Target.current()
    if target is None or name not in _KNOWN or has(target, name):
        return call
    *start, a, b = call.args[1:]
    bits = _KNOWN[name][0]
    if name.endswith("vpdpbusd.128") and target_has_features("i8mm", target):
        return tirx.call_llvm_pure_intrin(call.ty.dtype, _ARM, *start, a, b)
    if "vpdpbusd" in name:
        four = _products(a, b, f"uint8x{bits // 8}", f"int8x{bits // 8}")
        return start[0] + _added(four, bits // 32, 4)
    if "pmaddubs" in name or ".ub.sw" in name:  # a sum becomes the nearest number of 16 bits
        two = _added(_products(a, b, f"uint8x{bits // 8}", f"int8x{bits // 8}"), bits // 16, 2)
        least, most = (tirx.Broadcast(tirx.const(end, "int32"), bits // 16)
                       for end in (-2**15, 2**15 - 1))
        return tirx.Cast(f"int16x{bits // 16}", tirx.max(tirx.min(two, most), least))
    return _added(_products(a, b, f"int16x{bits // 16}", f"int16x{bits // 16}"), bits // 32, 2)


tirx.register_intrin_lowering("tirx.call_llvm_pure_intrin", target="llvm", f=_in_arithmetic,
                              level=99)


def compiled(func: tirx.PrimFunc, target: tvm.target.Target) -> tvm.runtime.Module:
    """Compile a PrimFunc; an instruction that the target lacks is done in arithmetic, slowly."""
    with target:
        return tvm.compile(func.with_attr("global_symbol", "main"), target=target)


def instructions(func: tirx.PrimFunc, target: tvm.target.Target) -> Counter[str]:
    """Return how often each instruction is in the machine code of a PrimFunc for some CPU."""
    lines = compiled(func, target).mod.inspect_source("asm").splitlines()
    return Counter(line.replace("{vex}", "").split()[0] for line in lines if line.strip())


# ---- a layer of integers ------------------------------------------------------------------------


def lanes_of(target: tvm.target.Target) -> int:
    """Return how many int32 the widest vectors of a CPU have."""
    if target_has_features("i8mm", target):
        return 4
    return 16 if target_has_features("avx512bw", target) else 8


def of_pairs(lanes: int) -> Pair:
    """Return an intrinsic that adds two products to each of 4, 8 or 16 sums."""
    name = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd",
            16: "llvm.x86.avx512.pmaddw.d.512"}[lanes]

    @T.prim_func(s_tir=True)
    def description(A: T.Buffer((2,), "uint8", offset_factor=1),
                    B: T.Buffer((lanes, 2), "int8", offset_factor=1),
                    C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local")):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            for j, k in T.grid(lanes, 2):
                with T.sblock("pair"):
                    vj, vk = T.axis.remap("SR", [j, k])
                    C[vj] = C[vj] + T.Cast("int32", A[vk]) * T.Cast("int32", B[vj, vk])

    @T.prim_func(s_tir=True)
    def implementation(A: T.Buffer((2,), "uint8", offset_factor=1),
                       B: T.Buffer((lanes, 2), "int8", offset_factor=1),
                       C: T.Buffer((lanes,), "int32", offset_factor=1, scope="local")):
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:2], B[0:lanes, 0:2])
            T.writes(C[0:lanes])
            a: T.let = T.reinterpret(T.Cast("int16x2", A.vload([0], "uint8x2")), dtype="int32")
            b: T.let = T.Cast(f"int16x{2 * lanes}", B.vload([0, 0], f"int8x{2 * lanes}"))
            C[T.ramp(0, 1, lanes)] = C.vload([0], f"int32x{lanes}") + T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name),
                T.reinterpret(T.broadcast(a, lanes), dtype=f"int16x{2 * lanes}"), b,
                dtype=f"int32x{lanes}")

    return description, implementation


def dense(batch: int, inputs: int, outputs: int, lanes: int, width: int, integers: bool = True
          ) -> tirx.PrimFunc:
    """Return C = A B of a dense layer: A uint8 (batch, inputs), C int32 (batch, outputs).

    B is int8 (outputs // lanes, inputs // width, lanes, width), in the order in which it is read.
    Without `integers` all three are float32.
    """
    one, other, total = ("uint8", "int8", "int32") if integers else ("float32",) * 3
    A = te.placeholder((batch, inputs), one, name="A")
    B = te.placeholder((outputs // lanes, inputs // width, lanes, width), other, name="B")
    k = te.reduce_axis((0, inputs), name="k")
    return te.create_prim_func([A, B, te.compute((batch, outputs), lambda i, j: te.sum(
        A[i, k].astype(total)
        * B[j // lanes, k // width, j % lanes, k % width].astype(total), k), name="C")])


def in_registers(func: tirx.PrimFunc, intrinsic: str, lanes: int, width: int, rows: int,
                 columns: int, scope: str = "local", parallel: bool = False) -> tirx.PrimFunc:
    """Return a dense layer that adds up with an intrinsic, rows x columns vectors at a time.

    The intrinsic is one that is registered; without a name the lanes are left to the compiler.
    `parallel`: each tile is work for some thread.
    """
    schedule = s_tir.Schedule(func)
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [None, rows])
    j0, j1, lane = schedule.split(j, [None, columns, lanes])
    k0, k1 = schedule.split(k, [None, width])
    schedule.reorder(i0, j0, k0, i1, j1, lane, k1)
    copy = schedule.cache_write(block, 0, scope)
    schedule.reverse_compute_at(copy, j0)
    schedule.vectorize(schedule.split(schedule.get_loops(copy)[-1], [None, lanes])[1])
    schedule.unroll(i1)
    schedule.unroll(j1)
    if parallel:
        schedule.parallel(schedule.fuse(i0, j0))
    if not intrinsic:
        schedule.reorder(k1, lane)
        schedule.vectorize(lane)
    schedule.decompose_reduction(block, k0)
    if intrinsic:
        schedule.tensorize(lane, intrinsic)
    return schedule.mod["main"]


def register(name: str, pair: Pair) -> str:
    """Register an intrinsic under a name that schedules know it by, and return the name."""
    s_tir.TensorIntrin.register(name, *pair, override=True)
    return name


def librarys() -> ModuleType:
    """Return TVM's own intrinsics for x86, without those of all other machines: half a minute."""
    path = Path(s_tir.__file__).parent / "tensor_intrin" / "x86.py"
    spec = importlib.util.spec_from_file_location("tvm.s_tir.tensor_intrin.x86", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- a vector times a matrix --------------------------------------------------------------------

GROUP = 32  # neighbours in a row that share a step


def of_eight_bits(n: int, k: int) -> tirx.PrimFunc:
    """Return y = W x of weights in eight bits, in panels of 32 outputs and groups of GROUP inputs.

    x float32 (k,), W int8 (n // 32, k, 32), S float32 (n // 32, k // GROUP, 32), their steps,
    y float32 (n // 32, 32). Weights become float32 in registers, and steps multiply sums of GROUP.
    """
    x = te.placeholder((k,), name="x")
    W = te.placeholder((n // 32, k, 32), "int8", name="W")
    S = te.placeholder((n // 32, k // GROUP, 32), name="S")
    j, g = te.reduce_axis((0, GROUP), name="j"), te.reduce_axis((0, k // GROUP), name="g")
    part = te.compute((n // 32, k // GROUP, 32), lambda p, g, i: te.sum(
        x[g * GROUP + j] * W[p, g * GROUP + j, i].astype("float32"), j), name="part")
    y = te.compute((n // 32, 32), lambda p, i: te.sum(part[p, g, i] * S[p, g, i], g), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([x, W, S, y]))
    part, y = schedule.get_sblock("part"), schedule.get_sblock("y")
    panel, lane, group = schedule.get_loops(y)
    schedule.reorder(panel, group, lane)
    copy = schedule.cache_write(y, 0, "local")
    schedule.reverse_compute_at(copy, panel)
    schedule.set_scope(part, 0, "local")
    schedule.compute_at(part, group)
    *_, lane, number = schedule.get_loops(part)
    schedule.reorder(number, lane)
    for block in (part, y, copy):
        outer, inner = schedule.split(schedule.get_loops(block)[-1], [None, 16])
        schedule.unroll(outer)
        schedule.vectorize(inner)
    schedule.decompose_reduction(part, number)
    schedule.decompose_reduction(y, group)
    return schedule.mod["main"]


def of_four_bits(n: int, k: int, lanes: int, intrinsic: str, panels: int = 4) -> tirx.PrimFunc:
    """Return y = W x with weights in four bits and x in eight, by an intrinsic for four products.

    A uint8 (k,): x in steps; Z float32 (k // GROUP,): eight times the sum of each group of A; W
    uint8 (n // lanes, k // 8, lanes, 4), see `pack_fours`; S float32 (n // lanes, k // GROUP,
    lanes), a weight's step times that of x; y float32 (n // lanes, lanes). Each group is an int32.
    """
    A = te.placeholder((k,), "uint8", name="A")
    Z = te.placeholder((k // GROUP,), name="Z")
    W = te.placeholder((n // lanes, k // 8, lanes, 4), "uint8", name="W")
    S = te.placeholder((n // lanes, k // GROUP, lanes), name="S")
    j, g = te.reduce_axis((0, GROUP), name="j"), te.reduce_axis((0, k // GROUP), name="g")
    whole = te.compute((n // lanes, k // 8, 2, lanes, 4), lambda p, q, h, i, c: (
        W[p, q, i, c] >> (4 * h).astype("uint8") & tirx.const(15, "uint8")).astype("int8"),
        name="whole")
    part = te.compute((n // lanes, k // GROUP, lanes), lambda p, g, i: te.sum(
        A[g * GROUP + j].astype("int32") * whole[
            p, g * (GROUP // 8) + j // 8, j // 4 % 2, i, j % 4].astype("int32"), j), name="part")
    y = te.compute((n // lanes, lanes), lambda p, i: te.sum(
        S[p, g, i] * (part[p, g, i].astype("float32") - Z[g]), g), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([A, Z, W, S, y]))
    whole, part, y = (schedule.get_sblock(name) for name in ("whole", "part", "y"))
    panel, lane, group = schedule.get_loops(y)
    outer, inner = schedule.split(panel, [None, panels])
    schedule.reorder(outer, group, inner, lane)
    copy = schedule.cache_write(y, 0, "local")
    schedule.reverse_compute_at(copy, outer, preserve_unit_loops=True)
    schedule.set_scope(part, 0, "local")
    schedule.compute_at(part, group, preserve_unit_loops=True)
    *_, inner, one, lane, number = schedule.get_loops(part)
    eight, half, four = schedule.split(number, [GROUP // 8, 2, 4])
    schedule.reorder(eight, half, inner, one, lane, four)
    schedule.compute_at(whole, one, preserve_unit_loops=True)
    schedule.vectorize(schedule.fuse(*schedule.get_loops(whole)[-2:]))
    for block in (y, copy):
        schedule.unroll(schedule.get_loops(block)[-2])
        schedule.vectorize(schedule.get_loops(block)[-1])
    for loop in (eight, half, inner):
        schedule.unroll(loop)
    start = schedule.decompose_reduction(part, eight)
    schedule.vectorize(schedule.get_loops(start)[-1])
    schedule.decompose_reduction(y, group)
    schedule.tensorize(lane, intrinsic)
    return schedule.mod["main"]


def as_read(matrix: np.ndarray, lanes: int, width: int) -> np.ndarray:
    """Return weights (outputs, inputs) in the order of `dense`; zeros fill the last lanes."""
    matrix = np.pad(matrix, ((0, -len(matrix) % lanes), (0, 0)))
    cut = matrix.reshape(len(matrix) // lanes, lanes, -1, width)
    return np.ascontiguousarray(cut.swapaxes(1, 2))


def in_panels(matrix: np.ndarray, width: int) -> np.ndarray:
    """Return a matrix (n, k) as panels of `width` rows: (n // width, k, width)."""
    return np.ascontiguousarray(matrix.reshape(len(matrix) // width, width, -1).swapaxes(1, 2))


def pack_fours(whole: np.ndarray, lanes: int) -> np.ndarray:
    """Return integers (n, k) from -8 to 7 as `of_four_bits` takes them, eight more each.

    Of eight neighbours in a row, a byte has the one with number c, its low bits, and c + 4.
    """
    n, k = whole.shape
    eights = (whole + 8).astype("uint8").reshape(n // lanes, lanes, k // 8, 2, 4)
    return np.ascontiguousarray((eights[..., 0, :] | eights[..., 1, :] << 4).swapaxes(1, 2))
