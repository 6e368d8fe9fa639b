"""Programs that leave their buffers, or whose threads meet: refused, whatever they declare."""

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax, te
from tvm.script import tirx as T

from course import checks
from course.checks.observe.memory import Fenced, require_safe_access
from course.checks.observe.primfuncs import run_prim_func
from course.checks.run import check as running

TIMES = 10  # a wrong access may do no harm by chance; a static check sees it every time
FORKS = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere checks run in this process")


@T.prim_func(s_tir=True)
def past_its_axis(X: T.Buffer((8, 8), "float32"), Y: T.Buffer((8,), "float32")):
    for i, j in T.grid(8, 9):
        with T.sblock("Y"):
            vi, vj = T.axis.spatial(8, i), T.axis.reduce(8, j)
            with T.init():
                Y[vi] = T.float32(0)
            Y[vi] = Y[vi] + X[vi, vj]


@T.prim_func(s_tir=True)
def past_its_guard(X: T.Buffer((4,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        Y[i] = T.if_then_else(i < 5, X[i], T.float32(0))


@T.prim_func(s_tir=True)
def before_its_buffer(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        Y[i - 1] = X[i]


@T.prim_func(s_tir=True)
def past_its_scratch(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    scratch = T.alloc_buffer((3,), "float32")
    for i in range(4):
        scratch[i] = X[i]
    for i in range(4):
        Y[i] = scratch[i]


@T.prim_func(s_tir=True)
def threads_over_the_sum(X: T.Buffer((8, 8), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        Y[i] = T.float32(0)
    for j in T.parallel(8):
        for i in range(8):
            with T.sblock("Y"):
                vj, vi = T.axis.remap("SS", [j, i])
                Y[vi] = Y[vi] + X[vi, vj]


@T.prim_func(s_tir=True)
def lanes_over_the_sum(X: T.Buffer((8, 8), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        Y[i] = T.float32(0)
        for j in T.vectorized(8):
            Y[i] = Y[i] + X[i, j]


@T.prim_func(s_tir=True)
def reads_its_neighbour(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in T.parallel(8):
        Y[i] = X[i] + T.if_then_else(i > 0, Y[i - 1], T.float32(0))


@T.prim_func(s_tir=True)
def one_scratch_for_all_threads(X: T.Buffer((8, 8), "float32"), Y: T.Buffer((8,), "float32")):
    scratch = T.alloc_buffer((1,), "float32")
    for i in T.parallel(8):
        scratch[0] = X[i, 0]
        Y[i] = scratch[0]


@T.prim_func(s_tir=True)
def threads_over_the_sum_of_any_length(x: T.handle, y: T.handle):
    n, m = T.int64(), T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    for i in range(n):
        Y[i] = T.float32(0)
        for j in T.parallel(m):
            with T.sblock("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi] = Y[vi] + X[vi, vj]


@T.prim_func(s_tir=True)
def past_its_end_by_a_step(X: T.Buffer((7,), "float32"), Y: T.Buffer((7,), "float32")):
    for i in range(0, 8, 2):
        for j in range(2):
            Y[i + j] = X[i + j]


OUTSIDE = "outside the range"
WRONG = [(past_its_axis, OUTSIDE), (past_its_guard, OUTSIDE), (before_its_buffer, OUTSIDE),
         (past_its_scratch, OUTSIDE), (threads_over_the_sum, "threads that write"),
         (lanes_over_the_sum, "lanes that write"), (reads_its_neighbour, "write and read"),
         (past_its_end_by_a_step, r"X\[7\], outside the range [^;]*$"),  # i is 6, and 3 for TVM
         (one_scratch_for_all_threads, "both write scratch"),
         (threads_over_the_sum_of_any_length, "threads that write")]


@pytest.mark.parametrize(("func", "words"), WRONG,
                         ids=[func.attrs["global_symbol"] for func, _ in WRONG])
def test_refused_every_time(func: tvm.tirx.PrimFunc, words: str) -> None:
    for _ in range(TIMES):
        with pytest.raises(checks.CheckFailed, match=words):
            require_safe_access("main", func)


def test_a_split_that_does_not_divide_is_refused_only_without_its_guard() -> None:
    a = te.placeholder((16, 26), name="A")
    func = te.create_prim_func([a, te.compute(a.shape, lambda i, j: a[i, j] + 1, name="B")])
    for axis, factor in [(0, 3), (0, 5), (1, 4), (1, 8), (1, 25)]:
        for wrong in (False, True):
            schedule = tvm.s_tir.Schedule(func)
            loops = schedule.get_loops("B")
            schedule.vectorize(schedule.split(loops[axis], [None, factor],
                                              disable_predication=wrong)[1])
            if wrong:
                with pytest.raises(checks.CheckFailed, match=OUTSIDE):
                    require_safe_access("main", schedule.mod["main"])
            else:
                require_safe_access("main", schedule.mod["main"])


@T.prim_func(s_tir=True)
def where_the_data_say(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        Y[i] = T.float32(0)
    for i in range(8):
        Y[T.Cast("int32", X[i])] = T.float32(1)


@FORKS
@pytest.mark.parametrize("place", [8, -1, 15, 16, 1000, -17])
def test_what_the_data_decide_is_caught_where_it_runs(place: int) -> None:
    x = np.float32([0, 1, 2, 3, 4, 5, 6, place])
    passed, parts = checks.isolated(
        lambda: str(run_prim_func(where_the_data_say, [x], (8,))), 10)
    assert not passed and ("SIG" in parts[1] or OUTSIDE in parts[1]), parts
    inside = np.float32([0, 1, 2, 3, 4, 5, 6, 7])
    assert checks.isolated(
        lambda: str(run_prim_func(where_the_data_say, [inside], (8,)).sum()), 10) == (True, "8.0")


def test_an_array_between_pages_notices_what_is_written_beside_it() -> None:
    for at_start in (False, True):
        fenced = Fenced.of(np.ones(3, "float32"), at_start)
        fenced.require_whole("it")
        fenced.around[1][0] = 7
        with pytest.raises(checks.CheckFailed, match="a write next to it"):
            fenced.require_whole("it")


@FORKS
@pytest.mark.parametrize(("run", "words"), [
    (lambda: input("name? "), "input()"), (lambda: breakpoint(), "breakpoint()"),
    (lambda: __import__("pdb").set_trace(), "a debugger"),
    (lambda: sys.stdin.readline(), "sys.stdin")])
def test_nobody_is_at_the_keyboard(run, words: str) -> None:
    passed, parts = checks.isolated(run, 5)
    assert not passed and words in parts[1]


@FORKS
def test_an_endless_loop_is_told_by_the_time_that_it_computed(capsys) -> None:
    def endless() -> None:
        while True:
            pass

    passed, parts = checks.isolated(endless, 1)
    assert not passed and parts[1] == "still running after 1 seconds of computing"


@FORKS
def test_what_is_printed_is_bounded_while_it_runs(capsys) -> None:
    def prints() -> str:
        def resident() -> int:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")

        before = resident()
        for _ in range(20_000):
            print("x" * 10_000)
        grown = resident() - before
        return "small" if grown < 50e6 else f"{grown:,} bytes"

    assert checks.isolated(prints, 10) == (True, "small")
    assert len(capsys.readouterr().out) < running.MOST_PRINTED + 100


@FORKS
def test_a_look_at_for_what_comes_to_no_end() -> None:
    def endless() -> None:
        running.while_running("what is unrolled")
        while True:
            pass

    assert checks.isolated(endless, 1)[1][2] == "what is unrolled"
    assert checks.isolated(lambda: [None for _ in iter(int, 1)], 1)[1][2] == ""


@FORKS
def test_kernels_forked_from_one_process_name_what_they_call_apart() -> None:
    """As those of the tests and of grading are: two at a time."""
    turn = mmap.mmap(-1, 1)

    def in_turn(number: int, kernel: str) -> str:
        while turn[0] < number:
            time.sleep(0.01)
        running.while_calling(kernel)
        turn[0] += 1
        while turn[0] < 2:
            time.sleep(0.01)
        os.abort()

    if not (other := os.fork()):
        checks.isolated(lambda: in_turn(1, "theirs"), 10)
        os._exit(0)
    came = checks.isolated(lambda: in_turn(0, "mine"), 10)[1][1]
    os.waitpid(other, 0)
    assert "SIGABRT" in came and came.endswith("in mine"), came


@T.prim_func(s_tir=True)
def conditions_and_a_block_in_a_block(X: T.Buffer((8, 6), "float32"),
                                      Y: T.Buffer((8, 6), "float32")):
    for i in range(4):
        with T.sblock("outer"):
            vo = T.axis.spatial(4, i)
            for ii, j in T.grid(2, 8):
                with T.sblock("inner"):
                    vi = T.axis.spatial(8, vo * 2 + ii)
                    vj = T.axis.spatial(8, j)
                    if vj < 6:
                        if vi > 0:
                            Y[vi, vj] = X[vi, vj] + X[vi - 1, vj]
                        else:
                            Y[vi, vj] = X[vi, vj]


@T.prim_func(s_tir=True)
def threads_over_rows_of_any_number(x: T.handle, y: T.handle):
    n, m, f = T.int64(), T.int64(), T.int64()
    X = T.match_buffer(x, (n, 2 * m), "float32")
    Y = T.match_buffer(y, (f,), "float32")  # f = n * m: what the shapes do not say
    for i in T.parallel(n):
        for j in range(m):
            Y[i * m + j] = T.max(X[i, 2 * j], X[i, 2 * j + 1])


def test_threads_of_any_number_are_not_accused_where_extents_do_not_fit() -> None:
    require_safe_access("main", threads_over_rows_of_any_number)


def test_what_is_guarded_is_right() -> None:
    require_safe_access("main", conditions_and_a_block_in_a_block)


def test_a_sum_that_does_not_begin_at_0_is_right() -> None:
    """By emit_te such an axis is declared too short; its loops and its indices are right."""
    def step(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((3, 8), name="k")
        return te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="y")

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit_te(step, x))
    require_safe_access("step", bb.get()["step"])
    with pytest.raises(checks.CheckFailed, match=OUTSIDE):
        a = te.placeholder((4, 7), name="a")
        require_safe_access("step", te.create_prim_func([a, step(a)]))


# ---- whole modules: every kernel on arrays that notice --------------------------------------


@T.prim_func(s_tir=True)
def threads_where_the_data_say(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        Y[i] = T.float32(0)
    for i in T.parallel(8):
        Y[T.Cast("int32", X[i])] = Y[T.Cast("int32", X[i])] + T.float32(1)


@T.prim_func(s_tir=True)
def last_not_written(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(7):
        Y[i] = T.max(X[i], T.float32(0))


class _Occurs(nn.Module):
    """Whether each whole number occurs, as where_the_data_say has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bincount(x.clamp(0, 7).long(), minlength=8).clamp(max=1).float()


def _module(kernel: tvm.tirx.PrimFunc | str, constants: Sequence[np.ndarray] = ()) -> tvm.IRModule:
    """main(x) with x (8,) that calls one PrimFunc, or a library function, of one output (8,)."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    with bb.function("main", [x]):
        called, call = (kernel, relax.op.call_dps_packed) if isinstance(kernel, str) else \
            (bb.add_func(kernel, "kernel"), relax.call_tir)
        given = (x, *(relax.const(array, "float32") for array in constants))
        bb.emit_func_output(bb.emit(call(called, given, relax.TensorType((8,), "float32"))))
    return bb.get()


def _equivalence(mod: tvm.IRModule, layer: nn.Module, x: np.ndarray) -> str:
    """Return what check_equivalence says of a model of one layer, or "" where it accepts."""
    try:
        checks.check_equivalence(mod, nn.Sequential(layer).eval(),
                                 [(torch.from_numpy(x), torch.zeros(8))])
    except checks.CheckFailed as failed:
        return str(failed)
    return ""


ONCE, TWICE, PAST, FAR = (np.float32([0, 1, 2, 3, 4, 5, 6, last]) for last in (7, 4, 8, 10_000))


@FORKS
@pytest.mark.parametrize(("func", "layer", "x", "words"), [
    (where_the_data_say, _Occurs(), ONCE, ""), (where_the_data_say, _Occurs(), PAST, OUTSIDE),
    (where_the_data_say, _Occurs(), FAR, OUTSIDE), (where_the_data_say, _Occurs(), -PAST, OUTSIDE),
    (threads_where_the_data_say, _Occurs(), TWICE, "both write Y[4]"),
    (last_not_written, nn.ReLU(), ONCE, "[0, 0, 0, 0, 0, 0, 0, *nan*]")])
def test_check_equivalence_sees_what_the_data_decide(func: tvm.tirx.PrimFunc, layer: nn.Module,
                                                     x: np.ndarray, words: str) -> None:
    for _ in range(TIMES if words else 1):
        said = _equivalence(_module(func), layer, x)
        assert words in said and bool(words) == bool(said), said


def _beside(array: np.ndarray, places: int) -> None:
    """Write a number, so many float32 behind the beginning of an array."""
    ctypes.memset(array.ctypes.data + 4 * places, 1, 4)


@FORKS
@pytest.mark.parametrize(("harm", "words"), [
    (lambda x, w, out: None, ""),
    (lambda x, w, out: _beside(out, 8), "a write next to the output of library function env.harm"),
    (lambda x, w, out: _beside(out, -1), "a write next to the output"),
    (lambda x, w, out: _beside(out, 16), "in library function env.harm"),
    (lambda x, w, out: _beside(x, -1), "a write next to input 0"),
    (lambda x, w, out: _beside(w, 0), "env.harm writes into its input 1 (8,)"),
    (lambda x, w, out: _beside(x, 7), "env.harm writes into its input 0 (8,)"),
    (lambda x, w, out: out.__setitem__(0, np.nan), "[*nan*, 0, 0, 0, 0, 0, 0, 0]")])
def test_a_library_function_leaves_alone_what_is_not_its_output(harm, words: str) -> None:
    def function(*tensors) -> None:
        x, w, out = map(np.from_dlpack, tensors)
        out[...] = np.maximum(x, w)
        harm(x, w, out)

    tvm.register_global_func("env.harm", function, override=True)
    said = _equivalence(_module("env.harm", [np.zeros(8)]), nn.ReLU(), ONCE)
    assert words in said and bool(words) == bool(said), said


@FORKS
def test_a_view_past_the_end_of_x_ends_the_child_and_no_kernel() -> None:
    def register() -> None:
        @tvm.register_global_func("env.conv2d", override=True)
        def conv2d(*tensors):
            x, w, b, out = map(np.from_dlpack, tensors)
            windows = np.lib.stride_tricks.as_strided(  # as many as x has places
                x, x.shape + w.shape[2:], x.strides + x.strides[2:])
            every = np.einsum("ncijpq,fcpq->nfij", windows, w) + b
            out[...] = every[:, :, :out.shape[2], :out.shape[3]]

    with pytest.raises(checks.CheckFailed, match=r"process ended .*, in env.conv2d"):
        checks.exercise_3_5(register)
