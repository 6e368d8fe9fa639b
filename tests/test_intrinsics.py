"""Instructions that a CPU lacks, in arithmetic; and the kernels that notebook 13 makes."""

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from course import fewbits, intrinsics

HOST, ANY = tvm.target.Target.from_device("cpu"), tvm.target.Target("llvm")


def _calling(name: str) -> tvm.tirx.PrimFunc:
    """Return a program that calls an instruction on its start, if it has one, and two vectors."""
    bits, _ = intrinsics._KNOWN[name]
    narrow = "int8" if "vpdpbusd" in name or "ub" in name else "int16"
    kind = "int16" if "ub" in name else "int32"
    n, m = bits // int(narrow[3:]), bits // int(kind[3:])

    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((n,), narrow), b: T.Buffer((n,), narrow), c: T.Buffer((m,), kind)):
        if "vpdpbusd" in name:
            c[T.ramp(0, 1, m)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name), c.vload([0], f"{kind}x{m}"),
                a.vload([0], f"{narrow}x{n}"), b.vload([0], f"{narrow}x{n}"), dtype=f"{kind}x{m}")
        else:
            c[T.ramp(0, 1, m)] = T.call_llvm_pure_intrin(
                T.llvm_lookup_intrinsic_id(name), a.vload([0], f"{narrow}x{n}"),
                b.vload([0], f"{narrow}x{n}"), dtype=f"{kind}x{m}")
    return main


@pytest.mark.parametrize("name", intrinsics._KNOWN)
def test_arithmetic_gives_what_the_instruction_gives(name: str) -> None:
    if not intrinsics.has(HOST, name):
        pytest.skip(f"this CPU has no {name}")
    func = _calling(name)
    own, spelled = (intrinsics.compiled(func, target)["main"] for target in (HOST, ANY))
    draw = np.random.default_rng(0)
    for number in range(50):
        given = []
        for param in func.params:
            kind = np.iinfo(str(param.ty.dtype))
            ends = [kind.min, kind.max, -1] if number % 2 and kind.bits < 32 else None
            some = draw.integers(kind.min // 4, kind.max // 4, int(param.ty.shape[0]))
            given.append((draw.choice(ends, len(some)) if ends else some).astype(kind.dtype))
        came = []
        for run in (own, spelled):
            arrays = [tvm.runtime.tensor(one) for one in given]
            run(*arrays)
            came.append(arrays[-1].numpy())
        np.testing.assert_array_equal(*came)


@pytest.mark.parametrize("target", [HOST, ANY], ids=["host", "any"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_pairs_are_exact(lanes: int, target: tvm.target.Target) -> None:
    draw = np.random.default_rng(lanes)
    x, w = draw.integers(0, 256, (8, 48)), draw.integers(-128, 128, (4 * lanes, 48))
    x[0], w[0], w[1] = 255, 127, -128
    pairs = intrinsics.register(f"tested_{lanes}", intrinsics.of_pairs(lanes))
    for name, width in ((pairs, 2), ("", 1)):
        func = intrinsics.in_registers(intrinsics.dense(8, 48, 4 * lanes, lanes, width), name,
                                       lanes, width, 4, 2)
        out = tvm.runtime.tensor(np.zeros((8, 4 * lanes), "int32"))
        intrinsics.compiled(func, target)["main"](
            tvm.runtime.tensor(x.astype("uint8")),
            tvm.runtime.tensor(intrinsics.as_read(w.astype("int8"), lanes, width)), out)
        np.testing.assert_array_equal(out.numpy(), x @ w.T)


def test_eight_bits_in_groups_are_what_they_stand_for() -> None:
    draw = np.random.default_rng(0)
    matrix, x = draw.normal(size=(64, 96)).astype("float32"), draw.normal(size=96)
    whole, steps = fewbits.in_groups(matrix, intrinsics.GROUP, 8)
    out = tvm.runtime.tensor(np.zeros((2, 32), "float32"))
    intrinsics.compiled(intrinsics.of_eight_bits(64, 96), HOST)["main"](
        *(tvm.runtime.tensor(one) for one in (x.astype("float32"), intrinsics.in_panels(whole, 32),
                                              intrinsics.in_panels(steps, 32))), out)
    right = whole * np.repeat(steps, intrinsics.GROUP, 1) @ x
    np.testing.assert_allclose(out.numpy().ravel(), right, rtol=1e-5, atol=1e-5)


def test_the_librarys_intrinsic_saturates() -> None:
    """Notebook 13 says so; if a newer TVM mends it, its text has to change."""
    run = intrinsics.compiled(intrinsics.librarys().dot_product_16x4_u8i8i32_avx512, ANY)["main"]
    out = tvm.runtime.tensor(np.zeros(16, "int32"))
    run(tvm.runtime.tensor(np.array([130, 130, 0, 0], "uint8")),
        tvm.runtime.tensor(np.full((16, 4), 127, "int8")), out)
    assert set(out.numpy()) == {32_767}
