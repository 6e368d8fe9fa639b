"""GPU programs on NumPy: results, races, refusals, counts; the same by the CPU's compiler."""

import ast
from typing import Any

import nbformat
import numpy as np
import pytest
import tvm
from interpreted import defined
from tvm import te
from tvm.s_tir import dlight as dl
from tvm.script import tirx as T

from course import gpu, present
from course.checks import random
from course.tir import threads
from course.words import ROOT
from data.store import CourseError

needs_compiler = pytest.mark.skipif(not present.tool("c++20"), reason=present.tool("c++20").said)


def relu(n: int, guarded: bool = True, width: int = 32) -> tvm.tirx.PrimFunc:
    """max(X, 0) of n numbers, `width` threads a block."""
    if guarded:
        X = te.placeholder((n,), name="X")
        sch = tvm.s_tir.Schedule(te.create_prim_func(
            [X, te.compute((n,), lambda i: te.max(X[i], 0.0), name="Y")]))
        block, thread = sch.split(sch.get_loops(sch.get_sblock("Y"))[0], [None, width])
        sch.bind(block, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
        return sch.mod["main"]
    blocks = -(-n // width)

    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((n,), "float32"), Y: T.Buffer((n,), "float32")):
        for b in T.thread_binding(blocks, thread="blockIdx.x"):
            for t in T.thread_binding(width, thread="threadIdx.x"):
                Y[b * width + t] = T.max(X[b * width + t], T.float32(0))
    return main


def dense(n: int = 16, k: int = 32, m: int = 24) -> tvm.s_tir.Schedule:
    """Y = X @ W.T, not scheduled yet."""
    X, W = te.placeholder((n, k), name="X"), te.placeholder((m, k), name="W")
    over = te.reduce_axis((0, k), name="over")
    return tvm.s_tir.Schedule(te.create_prim_func([X, W, te.compute(
        (n, m), lambda i, j: te.sum(X[i, over] * W[j, over], over), name="Y")]))


def tiled(n: int = 16, k: int = 32, m: int = 24, tile: int = 8) -> tvm.tirx.PrimFunc:
    """The dense layer by tiles in shared memory."""
    sch = dense(n, k, m)
    block = sch.get_sblock("Y")
    (i, ii), (j, jj), (o, oo) = (sch.split(loop, [None, tile]) for loop in sch.get_loops(block))
    sch.reorder(i, j, ii, jj, o, oo)
    for loop, tag in zip((i, j, ii, jj), ("blockIdx.y", "blockIdx.x", "threadIdx.y",
                                          "threadIdx.x"), strict=True):
        sch.bind(loop, tag)
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), jj)
    for number in (0, 1):
        copy = sch.cache_read(block, number, "shared")
        sch.compute_at(copy, o)
        for loop, tag in zip(sch.get_loops(copy)[-2:], ("threadIdx.y", "threadIdx.x"), strict=True):
            sch.bind(loop, tag)
    sch.decompose_reduction(block, o)
    return sch.mod["main"]


def across(n: int = 16, k: int = 32, m: int = 24) -> tvm.tirx.PrimFunc:
    """The dense layer with the sum over threads."""
    sch = dense(n, k, m)
    for loop, tag in zip(sch.get_loops(sch.get_sblock("Y")),
                         ("blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=True):
        sch.bind(loop, tag)
    return sch.mod["main"]


def by_dlight(n: int = 16, k: int = 32, m: int = 24) -> tvm.tirx.PrimFunc:
    """The dense layer as dlight schedules it: virtual threads, vectors, shared memory."""
    func = dense(n, k, m).mod["main"].with_attr("global_symbol", "main")
    with tvm.target.Target(gpu.TARGET, host="llvm"):
        return dl.ApplyDefaultSchedule(dl.gpu.Matmul(), dl.gpu.Fallback())(
            tvm.IRModule({"main": func}))["main"]


def dense_arrays(n: int = 16, k: int = 32, m: int = 24) -> list[np.ndarray]:
    return [random(n, k), random(m, k, seed=1), np.full((n, m), np.nan, "float32")]


DENSE = {"tiles": tiled, "across threads": across, "dlight": by_dlight}


@pytest.mark.parametrize("name", DENSE)
def test_the_result_is_numpys_and_there_is_no_race(name: str) -> None:
    X, W, Y = dense_arrays()
    launches = threads.run(threads.lowered(DENSE[name]()), X, W, Y)
    np.testing.assert_allclose(Y, X @ W.T, rtol=1e-5, atol=1e-5)
    assert not [race for launch in launches for race in launch.races]


@needs_compiler
@pytest.mark.parametrize("name", DENSE)
def test_the_cuda_source_gives_the_same(name: str) -> None:
    X, W, Y = dense_arrays()
    assert gpu.run_source(DENSE[name](), X, W, Y)
    np.testing.assert_allclose(Y, X @ W.T, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_what_three_warps_find_together() -> None:
    X, over = te.placeholder((2, 192), name="X"), te.reduce_axis((0, 192), name="over")
    sch = tvm.s_tir.Schedule(te.create_prim_func([X, te.compute(
        (2,), lambda i: te.max(X[i, over], over), name="Y")]))
    row, column = sch.get_loops(sch.get_sblock("Y"))
    sch.bind(row, "blockIdx.x")
    sch.bind(sch.split(column, [None, 96])[1], "threadIdx.x")
    given, Y = random(2, 192), np.zeros(2, "float32")
    assert gpu.run_source(sch.mod["main"], given, Y) and (given.max(axis=1) == Y).all()


def test_extents_that_do_not_divide() -> None:
    X, Y = random(100), np.full(100, np.nan, "float32")
    launch, = threads.run(threads.lowered(relu(100)), X, Y)
    assert (np.maximum(X, 0) == Y).all()
    assert (launch.grid, launch.block) == ((4, 1, 1), (32, 1, 1))
    assert launch.stores["Y"] == 100 and launch.writer["Y"].tolist() == list(range(100))
    assert launch.names(99) == ((3, 0, 0), (3, 0, 0))


def test_without_a_guard_the_thread_is_named_that_leaves_its_buffer() -> None:
    with pytest.raises(threads.Refused, match="thread 4 of block 3 is outside X: element 100"):
        threads.run(threads.lowered(relu(100, guarded=False)), random(100), random(100))


def test_a_race_is_named_where_a_barrier_is_missing() -> None:
    launch, = threads.run(threads.lowered(tiled(), barriers=False), *dense_arrays())
    assert {(race.buffer, race.what) for race in launch.races} == {
        (buffer, what) for buffer in ("X_shared", "W_shared")
        for what in ("write and read", "read and write")}
    race = launch.races[0]
    assert race.first[0] == race.second[0] and race.first[1] != race.second[1]


@T.prim_func(s_tir=True)
def one_place(X: T.Buffer((64,), "float32"), Y: T.Buffer((1,), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            Y[0] = X[b * 32 + t]


@T.prim_func(s_tir=True)
def neighbour(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            Y[b * 32 + t] = X[b * 32 + t]
            if t < 31:
                Y[b * 32 + t] = Y[b * 32 + t + 1]


def test_races_in_global_memory() -> None:
    launch, = threads.run(threads.lowered(one_place), random(64), np.zeros(1, "float32"))
    assert [(race.what, race.index) for race in launch.races] == [("write and write", "0")]
    launch, = threads.run(threads.lowered(neighbour), random(64), np.zeros(64, "float32"))
    assert ("write and read", "1") in [(race.what, race.index) for race in launch.races]


@T.prim_func(s_tir=True)
def reversed_blocks(X: T.Buffer((64,), "float32"), Y: T.Buffer((64,), "float32")):
    for b in T.thread_binding(2, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            held = T.alloc_buffer((32,), scope="shared")
            held[t] = X[b * 32 + t]
            T.tvm_storage_sync("shared")
            Y[b * 32 + t] = held[31 - t]


def test_barriers_of_ones_own() -> None:
    X, Y = random(64), np.full(64, np.nan, "float32")
    launch, = threads.run(threads.lowered(reversed_blocks, barriers=False), X, Y)
    assert (Y.reshape(2, 32) == X.reshape(2, 32)[:, ::-1]).all()
    assert launch.barriers == 1 and launch.shared_bytes == 128 and not launch.races


def strided(stride: int) -> tvm.tirx.PrimFunc:
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((32 * stride,), "float32"), Y: T.Buffer((32,), "float32")):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            Y[t] = X[t * stride]
    return main


@pytest.mark.parametrize(("stride", "transactions"), [(1, 1), (2, 2), (8, 8), (32, 32), (64, 32)])
def test_transactions_of_a_warp(stride: int, transactions: int) -> None:
    launch, = threads.run(threads.lowered(strided(stride)), random(32 * stride),
                          np.zeros(32, "float32"))
    assert launch.transactions == {"X": transactions, "Y": 1}


def test_transactions_of_short_rows() -> None:
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((640,), "float32"), Y: T.Buffer((256,), "float32")):
        for v in T.thread_binding(16, thread="threadIdx.y"):
            for u in T.thread_binding(16, thread="threadIdx.x"):
                Y[v * 16 + u] = X[v * 40 + u]
    launch, = threads.run(threads.lowered(main), random(640), np.zeros(256, "float32"))
    assert launch.transactions == {"X": 20, "Y": 8}  # counted by hand


def test_the_lanes_of_a_vector_are_reached_at_once() -> None:
    X = te.placeholder((128,), name="X")
    copied = te.create_prim_func([X, te.compute((128,), lambda i: X[i], name="Y")])
    found = {}
    for vectors in (True, False):
        sch = tvm.s_tir.Schedule(copied)
        thread, lane = sch.split(sch.get_loops(sch.get_sblock("Y"))[0], [None, 4])
        sch.bind(thread, "threadIdx.x")
        if vectors:
            sch.vectorize(lane)
        launch, = threads.run(threads.lowered(sch.mod["main"]), random(128), np.zeros(128, "f4"))
        found[vectors] = launch.transactions
    assert found == {True: {"X": 4, "Y": 4}, False: {"X": 16, "Y": 16}}


def test_a_program_for_the_cpu_is_none_for_a_gpu() -> None:
    with pytest.raises(CourseError, match="no loop is bound"):
        gpu.source(dense().mod["main"])


# ---- what is true of programs in CUDA, by its programming guide, and what is said of them ----

WAIT, FILL = "T.tvm_storage_sync('shared')", "held[t] = X[b * 32 + t]"
HELD, MIRRORED = "held = T.alloc_buffer((32,), scope='shared')", "Y[b * 32 + t] = held[31 - t]"
ADD = "T.evaluate(T.call_extern('float32', 'atomicAdd', T.address_of({}), X[b * 32 + t]))"
ONE = "one = T.alloc_buffer((1,), scope='local')"


def program(*body: str, blocks: int = 2, width: int = 32) -> tvm.tirx.PrimFunc:
    """Return a program of X and Y, 64 numbers each, with `body` for thread t of block b."""
    lines = ["@T.prim_func(s_tir=True)",
             "def main(X: T.Buffer((64,), 'float32'), Y: T.Buffer((64,), 'float32')):",
             f"    for b in T.thread_binding({blocks}, thread='blockIdx.x'):",
             f"        for t in T.thread_binding({width}, thread='threadIdx.x'):",
             *(" " * 12 + line for line in body)]
    return tvm.script.from_source("\n".join(lines))


BETWEEN = "no barrier in between"
TRUE = [
    ("a tile is mirrored, with a barrier", "", [HELD, FILL, WAIT, MIRRORED]),
    ("a barrier in block 0 alone", BETWEEN, [HELD, FILL, "if b < 1:", "    " + WAIT, MIRRORED]),
    ("as many barriers as the block's number", BETWEEN,
     [HELD, FILL, "for i in range(b):", "    " + WAIT, MIRRORED]),
    ("a barrier in each branch, by blocks", "",
     [HELD, FILL, "if b < 1:", "    " + WAIT, "else:", "    " + WAIT, MIRRORED]),
    ("all read element 0, one writes it", "thread 30 of block 0 reads it, thread 31",
     [HELD, FILL, WAIT, "Y[b * 32 + t] = held[0]", "if t == 31:", "    held[0] = T.float32(0)"]),
    ("a barrier that half of the threads take", "16 threads of block 0 reach a barrier",
     [HELD, FILL, "if t < 16:", "    " + WAIT, MIRRORED]),
    ("a barrier in each branch, by threads", "16 threads of block 0 reach a barrier",
     [HELD, FILL, "if t < 16:", "    " + WAIT, "else:", "    " + WAIT, MIRRORED]),
    ("blocks that read what others write", "no barrier makes one block wait for another",
     ["Y[b * 32 + t] = X[b * 32 + t]", WAIT, "Y[b * 32 + t] = Y[63 - (b * 32 + t)]"]),
    ("local memory that nobody wrote", "reads one[0] before anything was written there",
     [ONE, "Y[b * 32 + t] = one[0] + X[b * 32 + t]"]),
    ("shared.dyn with its own barrier", "",
     [HELD.replace("shared", "shared.dyn"), FILL, WAIT.replace("shared", "shared.dyn"), MIRRORED]),
    ("barriers by the block's number, two in each turn", "",
     [HELD, ONE, FILL, "for i in range(b + 1):", "    " + WAIT, "    one[0] = held[31 - t]",
      "    " + WAIT, "    held[t] = one[0]", "Y[b * 32 + t] = held[t]"]),
    ("all threads add to one element", "", [ADD.format("Y[0]")]),
    ("the same by TVM's operator", "",
     ["T.evaluate(T.cuda.atomic_add(T.address_of(Y[b]), X[b * 32 + t]))"]),
    ("a sum in shared memory, and barriers", "",
     [HELD, "held[t] = T.float32(0)", WAIT, ADD.format("held[t // 16]"), WAIT,
      "Y[b * 32 + t] = held[t]"]),
    ("the sum is read with no barrier", "thread 15 of block 0 writes it, thread 0 of block 0 reads",
     [HELD, "held[t] = T.float32(0)", WAIT, ADD.format("held[t // 16]"),
      "Y[b * 32 + t] = held[t // 16]"]),
    ("the sum's zero comes with no barrier", "thread 0 of block 0 writes it, thread 1",
     ["if t == 0:", "    Y[b * 32] = T.float32(0)", ADD.format("Y[b * 32]")]),
    ("a sum over blocks, of a zero by one of them", "no barrier makes one block wait",
     ["if b * 32 + t == 0:", "    Y[0] = T.float32(0)", WAIT, ADD.format("Y[0]")]),
    ("a sum that begins with nothing", "reads held[0] before anything was written there",
     [HELD, ADD.format("held[0]")])]


@pytest.mark.parametrize(("said", "body"), [pytest.param(*case[1:], id=case[0]) for case in TRUE])
def test_what_is_said_of_a_program_is_true(said: str, body: list[str]) -> None:
    try:
        launch, = gpu.run_kernels(program(*body), random(64), np.zeros(64, "float32"),
                                  barriers=False)
        came = "; ".join(map(str, launch.races))
    except CourseError as refused:
        came = str(refused)
    assert said in came if said else not came, came


@needs_compiler
@pytest.mark.parametrize(("said", "body"), [
    pytest.param(*case[1:], id=case[0]) for case in TRUE if not case[1]
    or "reach a barrier" in case[1]])
def test_real_threads_do_the_same(said: str, body: list[str]) -> None:
    X = np.arange(64, dtype="float32")  # sums of them are exact, in any order
    came = []
    for run in gpu.run, gpu.run_source:
        Y = np.zeros(64, "float32")
        try:
            assert run(program(*body), X, Y, barriers=False)
            came.append(Y.tolist())
        except CourseError as refused:
            came.append(str(refused))
    assert came[0] == came[1] and (said in came[0] if said else any(came[0]))


def test_an_index_beyond_its_row_is_seen() -> None:
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((2, 32), "float32"), Y: T.Buffer((2, 32), "float32")):
        for b in T.thread_binding(2, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                Y[b, t] = X[b, t + 1]
    with pytest.raises(CourseError, match="thread 31 of block 0 is outside X: element 0, 32"):
        gpu.run(main, random(2, 32), random(2, 32))


@pytest.mark.parametrize(("index", "rounds"), [
    ("t", 1), ("0", 1), ("t * 2 % 64", 2), ("t * 32", 32), ("t * 33", 1), ("t // 4", 1)])
def test_rounds_of_a_warp_in_shared_memory(index: str, rounds: int) -> None:
    launch, = threads.run(threads.lowered(program(
        "held = T.alloc_buffer((1056,), scope='shared')",
        "for i in range(33):", "    held[i * 32 + t] = X[b * 32 + t]", WAIT,
        f"Y[b * 32 + t] = held[{index}]")), random(64), np.zeros(64, "float32"))
    assert launch.rounds == {"held": 2 * (33 + rounds)}
    assert launch.conflicts == {"held": 2 * (rounds - 1)}


def test_bank_conflicts_of_a_tile_and_none_of_one_whose_rows_are_longer() -> None:
    found = []
    for aligned in (False, True):
        sch = tvm.s_tir.Schedule(tiled(32, 32, 32, 32))
        if aligned:
            sch.storage_align(sch.get_sblock("W_shared"), 0, 0, 32, 1)
        launch, = threads.run(threads.lowered(sch.mod["main"]), *dense_arrays(32, 32, 32))
        found.append((launch.conflicts["W_shared"], launch.shared_bytes))
    assert found == [(32 * 32 * 31, 2 * 4 * 32 * 32), (0, 4 * 32 * (32 + 33))]


def test_the_barriers_that_tvm_puts_in_are_those_of_shared_dyn_too() -> None:
    func = program(HELD.replace("shared", "shared.dyn"), FILL, MIRRORED)
    launch, = threads.run(threads.lowered(func), random(64), np.zeros(64, "float32"))
    assert launch.barriers == 1 and not launch.races


@pytest.mark.parametrize(("shuffle", "right"), [
    ("T.tvm_warp_shuffle_down(T.tvm_warp_activemask(), one[0], 1, 32, 32)",
     lambda x: np.roll(x, -1)[:-1]),
    ("T.tvm_warp_shuffle(T.tvm_warp_activemask(), one[0], 5, 32, 32)", lambda x: 0 * x + x[5])])
def test_what_a_warp_hands_on(shuffle: str, right) -> None:
    X, Y = random(64), np.zeros(64, "float32")
    threads.run(threads.lowered(program(ONE, "one[0] = X[b * 32 + t]",
                                        f"Y[b * 32 + t] = {shuffle}")), X, Y)
    for block in range(2):
        wanted = right(X[32 * block:32 * block + 32])
        assert (Y[32 * block:32 * block + len(wanted)] == wanted).all()


def test_an_element_that_stands_twice_in_an_expression_is_loaded_once() -> None:
    launch, = threads.run(threads.lowered(program(
        "Y[b * 32 + t] = X[b * 32 + t] * X[b * 32 + t]")), random(64), np.zeros(64, "float32"))
    assert launch.loads == {"X": 64} and launch.transactions == {"X": 2, "Y": 2}


def test_a_sum_inside_a_warp_is_no_barrier_for_another_warp() -> None:
    X, over = te.placeholder((2, 32), name="X"), te.reduce_axis((0, 32), name="over")
    kept = te.compute((1, 2, 32), lambda block, i, j: X[i, j], name="kept")
    sums = te.compute((1, 2), lambda block, i: te.sum(X[i, over], over), name="sums")
    other = te.compute((1, 2, 32), lambda block, i, j: kept[block, 1 - i, j] / sums[block, i],
                       name="Y")
    sch = tvm.s_tir.Schedule(te.create_prim_func([X, other]))
    block, row, column = sch.get_loops(sch.get_sblock("Y"))
    sch.bind(block, "blockIdx.x")
    for name, scope in (("kept", "shared"), ("sums", "local")):
        made = sch.get_sblock(name)
        sch.set_scope(made, 0, scope)
        sch.compute_at(made, block)
    for name in ("kept", "sums", "Y"):
        *_outer, row, column = sch.get_loops(sch.get_sblock(name))
        sch.bind(row, "threadIdx.y")
        sch.bind(column, "threadIdx.x")
    launch, = threads.run(threads.lowered(sch.mod["main"], barriers=False), random(2, 32),
                          np.zeros((1, 2, 32), "float32"))
    assert [race.what for race in launch.races] == ["write and read"]


@needs_compiler
def test_both_ways_of_running_keep_the_programs_own_barriers() -> None:
    X, simulated, compiled = random(64), np.zeros(64, "float32"), np.zeros(64, "float32")
    gpu.run(reversed_blocks, X, simulated, barriers=False)
    assert gpu.run_source(reversed_blocks, X, compiled, barriers=False)
    assert (simulated == compiled).all() and simulated.any()
    assert gpu.source(reversed_blocks, barriers=False).count("__syncthreads();") == 1


# loads and stores by an H100's own counters, l1tex__t_set_accesses_pipe_lsu_mem_global_op_ld.sum
# and _st.sum of Nsight Compute, and its conflicts, l1tex__data_bank_conflicts_pipe_lsu_mem_shared;
# nvcc 13.0 compiled what gpu.source gives of notebook 10's kernels
LAYER = "dense_of(64, 96, 64)"
COUNTED = {
    "bound_relu(100, 32)": (4, 4, 0), "copy_of(64, 'column')": (128, 128, 0),
    "copy_of(64, 'row')": (4096, 4096, 0),
    f"thread_for_each_result({LAYER}, 'column')": (221184, 256, 0),
    f"thread_for_each_result({LAYER}, 'row')": (221184, 2048, 0),
    f"with_shared_memory({LAYER})": (12288, 512, 12288), f"dense_in_tiles({LAYER})": (768, 128, 0),
    f"tile_for_each_thread({LAYER})": (768, 512, 0), "with_barriers()": (4, 4, 0),
    "tree_sum()": (4, 4, 0), "block_for_each_row(row_sums(8, 128))": (32, 8, 0),
    "window_of_five(300)": (69, 10, 0)}


@pytest.fixture(scope="module")
def notebook_10() -> dict[str, Any]:
    """The functions of notebook 10."""
    cells = nbformat.read(ROOT / "notebooks" / "10_gpu_programs.ipynb", as_version=4).cells
    parts = [ast.unparse(node) for cell in cells if cell.cell_type == "code"
             for node in ast.parse(cell.source).body
             if isinstance(node, (ast.FunctionDef, ast.Import, ast.ImportFrom))]
    return defined("\n\n".join(parts), "notebook_10")


@pytest.mark.parametrize("kernel", COUNTED)
def test_an_h100_counts_the_same(kernel: str, notebook_10: dict[str, Any]) -> None:
    func = eval(kernel, notebook_10)
    arrays = [random(*map(int, param.shape)) for param in func.params]
    launch = gpu.run(func, *arrays)
    stores = launch.transactions[func.params[-1].name]
    loads = launch.transactions.total() - stores
    assert (loads, stores, launch.conflicts.total()) == COUNTED[kernel]


def test_an_element_of_padded_rows_is_named_by_its_axes() -> None:
    memory = threads._Memory("held", "shared", np.zeros((1, 33 * 32)), 0, (32, 32), (33, 1), False)
    assert [memory.at(flat) for flat in (0, 33, 33 * 31 + 31)] == ["0, 0", "1, 0", "31, 31"]
