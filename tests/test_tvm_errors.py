"""docs/tvm_errors.md: each message that it explains is provoked, and comes in the words quoted."""

import contextlib
import functools
import importlib
import re
import subprocess
import sys
import tempfile
import time
import typing
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import nbformat
import numpy as np
import pytest
import torch
import torch.fx
import tvm
import tvm_ffi
from relax_models import relax_model as model
from relax_models import relu
from tvm import relax, te, topi
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import helpers
from course.checks.say.messages import explained, reason
from course.tir.loops import nests

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "tvm_errors.md").read_text()
PHRASES = [phrase for heading in re.findall(r"^### (.*)$", TEXT, re.M)
           for phrase in re.findall(r"`([^`]+)`", heading)]
ONES = np.ones((4, 5), "float32")
TYPE = relax.TensorType((4, 5), "float32")
A = te.placeholder((4, 5), name="A")

CASES: dict[str, Callable[[], object]] = {}
SCHEDULES: dict[str, Callable[[Callable], object]] = {}  # these get a function that schedules


def provokes(words: str, cases: dict = CASES) -> Callable:
    def register(case: Callable) -> Callable:
        assert words not in cases
        cases[words] = case
        return case
    return register


def const(*shape: int) -> relax.Expr:
    return relax.const(np.ones(shape, "float32"), "float32")


def calling(name: str, *function: Callable) -> relax.VirtualMachine:
    """A machine whose main calls a library function, which is registered if it is given."""
    for body in function:
        tvm.register_global_func(name, body, override=True)
    return helpers.build(model(lambda bb, x: bb.emit(relax.op.call_dps_packed(name, (x,), TYPE))))


def compiled(output: te.Tensor) -> Callable:
    return tvm.compile(te.create_prim_func([A, output]), target="llvm")["main"]


def doubled(n: int = 16) -> tvm.tirx.PrimFunc:
    x = te.placeholder((n, n), name="x")
    b = te.compute((n, n), lambda i, j: x[i, j] * 2.0, name="B")
    return te.create_prim_func([x, te.compute((n, n), lambda i, j: b[i, j] + 1.0, name="C")])


def product(n: int = 16) -> tvm.tirx.PrimFunc:
    x, y = te.placeholder((n, n), name="x"), te.placeholder((n, n), name="y")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([x, y, te.compute(
        (n, n), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="C")])


# ---- tensor expressions and TOPI -----------------------------------------------------------

K = te.reduce_axis((0, 5), name="k")
provokes("Reduction dimensions of dense do not match")(
    lambda: model(lambda bb, x: bb.emit_te(topi.nn.dense, x, const(5, 10))))
provokes("Incompatible broadcast dims")(
    lambda: model(lambda bb, x: bb.emit_te(topi.add, x, const(32)), 4, 32, 26, 26))
provokes("missing 3 required positional arguments: 'strides', 'padding', and 'dilation'")(
    lambda: model(lambda bb, x: bb.emit_te(topi.nn.conv2d, x, const(32, 1, 3, 3)), 4, 1, 28, 28))
provokes("Reductions are only allowed at the top level of compute")(
    lambda: te.compute((4,), lambda i: te.sum(A[i, K], axis=K) + 1.0))
provokes("reducer() missing 1 required positional argument: 'axis'")(
    lambda: te.compute((4,), lambda i: te.sum(A[i, K])))
provokes("Cannot use and / or / not operator to Expr")(
    lambda: te.compute((4, 5), lambda i, j: A[i, j] if A[i, j] > 0 else 0.0))


@provokes("are used, but are not passed in as API arguments")
def _() -> None:
    p, q = te.reduce_axis((0, 4), name="p"), te.reduce_axis((0, 5), name="q")
    compiled(te.compute((4,), lambda i: te.sum(A[p, q], axis=[p])))


provokes("MatchesCode(DLDataTypeCode::kDLInt")(
    lambda: te.compute((4, 5), lambda i, j: A[i, j] // 4))
provokes("TVM supports multiple types of integer divisions")(
    lambda: te.compute((4, A.shape[1] / 2), lambda i, j: A[i, 2 * j]))


# ---- BlockBuilder and building -------------------------------------------------------------

provokes("BlockBuilder destroyed with remaining blocks")(
    lambda: model(lambda bb, x: bb.emit_te(topi.nn.dense, x)))
provokes("not supported type in emit_te")(
    lambda: model(lambda bb, x: bb.emit_te(topi.add, x, ONES)))
provokes("shape is only available on a Var with BufferType")(
    lambda: model(lambda bb, x: bb.emit_te(topi.nn.relu(x))))
provokes("dtype is only available on a Var with BufferType")(lambda: relax.Var("x", TYPE).dtype)
provokes("no block is being built")(
    lambda: relax.BlockBuilder().emit_te(topi.nn.relu, relax.Var("x", TYPE)))


@provokes("EmitOutput has to be called inside dataflow block")
def _() -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", TYPE)
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit_output(bb.emit_te(topi.nn.relu, x)))


@provokes("emit_func_output must be called in a relax function")
def _() -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", TYPE)
    with bb.function("main", [x]), bb.dataflow():
        bb.emit_output(bb.emit_te(topi.nn.relu, x))


provokes("Mismatched type on argument")(lambda: relax.build(relax.BlockBuilder(), target="llvm"))


provokes("unexpected keyword argument 'out_sinfo'")(
    lambda: relax.op.call_dps_packed("env.relu", (relax.Var("x", TYPE),), out_sinfo=TYPE))


def without_emit_output() -> tvm.IRModule:
    bb = relax.BlockBuilder()
    x = relax.Var("x", TYPE)
    with bb.function("main", [x]):
        with bb.dataflow():
            lv1 = bb.emit_te(topi.negative, relu(bb, x))
        bb.emit_func_output(lv1)
    return bb.get()


provokes("is used outside DataflowBlock")(
    lambda: relax.analysis.well_formed(without_emit_output()))


provokes("can only have dtype of int64")(
    lambda: relax.TensorType((tvm.tirx.Var("n", "int32"), 4), "float32"))


@provokes("type mismatch: expected R.Tensor")
def _() -> None:
    func = te.create_prim_func([A, topi.nn.relu(A)]).without_attr("global_symbol")
    wrong = relax.TensorType((4, 6), "float32")
    helpers.build(model(lambda bb, x: bb.emit(
        relax.op.call_tir(bb.add_func(func, "relu"), (x,), wrong))))


provokes("CLI target string form")(lambda: tvm.target.Target("llvm -num-cores 4"))


@provokes('Target does not have attribute "num-cores"')
@mock.patch.dict(sys.modules, {"tvm.s_tir.tensor_intrin": mock.Mock()})  # its import takes 25 s
def _() -> None:
    meta_schedule.TuneContext(mod=doubled(), target=tvm.target.Target("llvm"),
                              space_generator="post-order-apply")


# ---- running -------------------------------------------------------------------------------

provokes("Module has no function")(lambda: helpers.build(model(relu))["mian"])
provokes("expect Tensor with dtype float32 but get")(
    lambda: helpers.build(model(relu))["main"](np.ones((4, 5))))
provokes("mismatch to specified constant")(
    lambda: helpers.build(model(relu))["main"](ONES[:3]))
provokes("Expected 2 arguments when calling")(lambda: compiled(topi.nn.relu(A))(ONES))
provokes("'Tensor' object is not subscriptable")(
    lambda: helpers.build(model(relu))["main"](ONES)[0])
provokes("unsupported operand type(s) for")(
    lambda: calling("env.test", lambda x, out: 2 * x)["main"](ONES))
provokes("must be Tensor, not Tensor")(
    lambda: calling("env.test", lambda x, out: torch.relu(x))["main"](ONES))


@provokes("'Array' object has no attribute 'numpy'")
def _() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(4, 5),))
    helpers.build(from_exported_program(program))["main"](ONES).numpy()


provokes("Cannot find ffi::Function")(lambda: calling("env.missing"))


@provokes("Data is not aligned to 64 bytes")
def _() -> None:
    buffer = np.zeros(64, "float32")
    start = -buffer.ctypes.data % 64 // 4
    tvm.runtime.from_dlpack(buffer[start + 4:start + 10])


# ---- schedules -----------------------------------------------------------------------------


@provokes("cannot be fulfilled with regard to", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(product())
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("C"))[2])


@provokes("does not have compact dataflow", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(product())
    block = schedule.get_sblock("C")
    i, _, k = schedule.get_loops(block)
    schedule.decompose_reduction(block, k)
    schedule.parallel(i)


@provokes("to be written by single block", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(product())
    block = schedule.get_sblock("C")
    schedule.decompose_reduction(block, schedule.get_loops(block)[2])
    schedule.cache_write(block, 0, "local")


def read_twice(**options: str) -> None:
    b = te.compute((4, 5), lambda i, j: A[i, j] * 2, name="B")
    both = [te.compute((4, 5), lambda i, j: b[i, j] + 1, name=name) for name in "CD"]
    schedule = tvm.s_tir.Schedule(te.create_prim_func([A, *both]), **options)
    schedule.compute_at(schedule.get_sblock("B"), schedule.get_loops("C")[0])


provokes("to be present under the target loop")(read_twice)
provokes("Not all required blocks are under the loop scope")(
    lambda: read_twice(error_render_level="fast"))


@provokes("loops are not in a chain", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(doubled())
    loops = [schedule.get_loops(schedule.get_sblock(name)) for name in "BC"]
    schedule.reorder(loops[0][1], loops[1][0])


@provokes("not the parent of the inner loop", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(product())
    i, _, k = schedule.get_loops(schedule.get_sblock("C"))
    schedule.fuse(i, k)


@provokes("to be higher than all the loops related to reduce block var", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(product())
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, j)


@provokes("The loop no longer exists in the IRModule", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(doubled())
    j = schedule.get_loops(schedule.get_sblock("C"))[1]
    schedule.split(j, factors=[None, 8])
    schedule.vectorize(j)


@T.prim_func(s_tir=True)
def with_alloc_buffer(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
    b = T.alloc_buffer((16,))
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            b[vi] = x[vi] * T.float32(2)
    for i in range(16):
        with T.sblock("C"):
            vi = T.axis.spatial(16, i)
            y[vi] = b[vi] + T.float32(1)


@provokes("an output block", SCHEDULES)
def _(make: Callable) -> None:
    with pytest.raises(tvm.s_tir.ScheduleError, match="an output block"):
        schedule = make(doubled())
        schedule.compute_inline(schedule.get_sblock("C"))
    schedule = make(with_alloc_buffer)
    schedule.compute_inline(schedule.get_sblock("B"))


@provokes("has init statement", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(product())
    schedule.cache_read("C", 0, "global")
    with pytest.raises(tvm.s_tir.ScheduleError, match="has init statement"):
        schedule.reverse_compute_inline("C")
    schedule.cache_write("C", 0, "global")
    schedule.compute_inline("C")


provokes("Cannot find a block with the", SCHEDULES)(
    lambda make: make(doubled()).get_sblock("doubled"))
provokes("does not know which function to be working on", SCHEDULES)(
    lambda make: make(tvm.IRModule({"f": doubled(), "g": doubled()})).get_sblock("C"))


@provokes("Nested parallel loop is not supported by threadpool", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(doubled())
    for loop in schedule.get_loops(schedule.get_sblock("C")):
        schedule.parallel(loop)
    tvm.compile(schedule.mod, target="llvm")


@provokes("VectorizeLoop before LiftStorageAlloc", SCHEDULES)
def _(make: Callable) -> None:
    schedule = make(doubled())
    for loop in schedule.get_loops(schedule.get_sblock("C")):
        schedule.vectorize(loop)
    tvm.compile(schedule.mod, target="llvm")


# ---- TVMScript: TVM finds a class's source by its name, so no two may have the same ---------


@provokes("TIR verifier does not support statement")
def _() -> None:
    @T.prim_func
    def copy(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.sblock("y"):
                vi = T.axis.spatial(16, i)
                y[vi] = x[vi]


@provokes("Cannot treat type")
def _() -> None:
    @T.prim_func(s_tir=True)
    def returns(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
        for i in range(4):
            Y[i] = X[i]
        return Y

    tvm.compile(returns, target="llvm")


@provokes("Undefined variable")
def _() -> None:
    @I.ir_module
    class BareName:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            y = R.call_tir(copy, (x,), R.Tensor((16,), "float32"))  # noqa: F821 (the mistake)
            return y


@provokes("expects the first argument to be a GlobalVar")
def _() -> None:
    @I.ir_module
    class LibraryByCallTir:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            y = R.call_tir("env.copy", (x,), R.Tensor((16,), "float32"))
            return y


@provokes("data must be int or Expr, but got ~")
def _() -> None:
    n = typing.TypeVar("n")

    @T.prim_func(s_tir=True)
    def as_printed(X: T.Buffer((1, n), "float32"), Y: T.Buffer((1, n), "float32")):
        for i in range(1):
            with T.sblock("Y"):
                vi = T.axis.spatial(1, i)
                Y[vi, 0] = X[vi, 0]


@provokes("VMShapeLower do not work for local functions")
def _() -> None:
    group = relax.transform.FuseOpsByPattern(
        [("mine.relu", is_op("relax.nn.relu")(wildcard()))], annotate_codegen=True)
    tvm.compile(group(model(lambda bb, x: bb.emit(relax.op.nn.relu(x)))), target="llvm")


@provokes("Program is not well-formed")
def _() -> None:
    @I.ir_module
    class WrongOutput:
        @T.prim_func(s_tir=True)
        def copy(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.sblock("y"):
                    vi = T.axis.spatial(16, i)
                    y[vi] = x[vi]

        @R.function
        def main(x: R.Tensor((16,), "float32")):
            cls = WrongOutput
            y = R.call_tir(cls.copy, (x,), R.Tensor((17,), "float32"))
            return y


@provokes("contains an impure call")
def _() -> None:
    @I.ir_module(check_well_formed=False)
    class Impure:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            _ = R.print(x, format="{}")
            return x

    relax.analysis.well_formed(Impure)


@provokes("occurs within a dataflow block")
def _() -> None:
    @I.ir_module(check_well_formed=False)
    class ImpureInBlock:
        @R.function(pure=False)
        def main(x: R.Tensor((16,), "float32")):
            with R.dataflow():
                _ = R.print(x, format="{}")
                y = R.add(x, x)
                R.output(y)
            return y

    relax.analysis.well_formed(ImpureInBlock)


provokes("could not get source code")(lambda: exec(compile(
    "@I.ir_module\nclass M:\n    @R.function\n    def main(x: R.Tensor((4,), 'float32')):\n"
    "        return x", "<cell>", "exec"),  # under `python -c` 3.13 knows the source of <string>
    {"I": I, "R": R, "__name__": "nowhere"}))


# ---- installation and names ----------------------------------------------------------------


def in_new_python(code: str, *options: str) -> None:
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True)
    raise RuntimeError(done.stderr)


provokes("No module named 'pandas'")(
    lambda: tvm.get_global_func("s_tir.meta_schedule.print_interactive_table")(""))
provokes("Failed to connect to server")(lambda: tvm.rpc.base.connect_with_retry(
    ("127.0.0.1", 1), timeout=0, retry_period=0))


@provokes("Unable to connect to the tracker using the following configuration")
def _() -> None:
    with mock.patch.object(tvm.rpc, "connect_tracker", lambda *address: time.sleep(0.2)):
        meta_schedule.runner.RPCConfig("127.0.0.1", 1, "key", 1, 0.05).connect_tracker()


class Difference(torch.nn.Module):
    """a - b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b


def exported(model: torch.nn.Module, *example: torch.Tensor, shapes: object = None
             ) -> torch.export.ExportedProgram:
    with helpers.quiet():
        return torch.export.export(model, example, dynamic_shapes=shapes)


@provokes("Unsupported function types")
def _() -> None:
    class Powers(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp2(x)

    from_exported_program(exported(Powers(), torch.ones(2)))


UP_TO_4 = torch.export.Dim("n", min=1, max=4)
provokes("specialized it to be a constant")(lambda: exported(
    Difference(), torch.ones(2), torch.ones(2), shapes=({0: UP_TO_4}, None)))


@provokes("storage allocation failure")
def _() -> None:
    class Table(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x[:, None] * x, 1) @ x

    mod = from_exported_program(exported(Table(), torch.ones(3), shapes=({0: UP_TO_4},)),
                                unwrap_unit_return_tuple=True)
    helpers.build(mod)["main"](tvm.runtime.tensor(np.ones(1000, "float32")))


def bound(threads: int | None) -> tvm.runtime.Executable:
    schedule = tvm.s_tir.Schedule(te.create_prim_func([A, topi.nn.relu(A)]))
    if threads:
        loops = schedule.get_loops(schedule.get_sblock("compute"))
        block, thread = schedule.split(schedule.fuse(*loops), [None, threads])
        schedule.bind(block, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
    return tvm.compile(schedule.mod, target={"kind": "cuda", "arch": "sm_80"})


provokes("device_type on argument")(
    lambda: bound(4)["main"](*map(tvm.runtime.tensor, (ONES, ONES))))


@provokes("Device API cuda is not enabled")
def _() -> None:
    if tvm.cuda(0).exist:  # then there is nothing to provoke
        raise tvm.error.InternalError("Device API cuda is not enabled.")
    tvm.runtime.tensor(ONES, tvm.cuda(0))


provokes("No module named 'tvm'")(lambda: in_new_python("import tvm", "-I", "-S"))
@provokes("No module named 'tabulate'")
def _() -> None:
    # what builds the site brings it along
    with mock.patch.dict(sys.modules), mock.patch.object(sys, "meta_path", []):
        sys.modules.pop("tabulate", None)
        torch.fx.symbolic_trace(torch.nn.ReLU()).graph.print_tabular()


provokes("operator torchvision::nms does not exist")(lambda: in_new_python(
    "import torch; torch.library.register_fake('torchvision::nms')(lambda *boxes: None)"))
provokes("has no attribute")(lambda: tvm.nd)
provokes("cannot import name 'tir'")(lambda: exec("from tvm.script import tir"))


@provokes("StopIteration")
def _() -> None:
    notebook = nbformat.read(next((ROOT / "notebooks").glob("02*.ipynb")), as_version=4)
    setup = next(cell.source for cell in notebook.cells if "helpers.py" in cell.source)
    with contextlib.chdir(tempfile.gettempdir()):
        exec(setup, {})


# ---- the tests -----------------------------------------------------------------------------


def message(case: Callable, capfd: pytest.CaptureFixture) -> str:
    """What a case's exception says, and what TVM wrote on stderr beside it."""
    try:
        case()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    else:
        text = "no error"
    return text + capfd.readouterr().err


def test_each_message_has_its_case_and_each_case_its_message() -> None:
    assert len(PHRASES) == len(set(PHRASES))
    assert set(PHRASES) == set(CASES) | set(SCHEDULES)
    sections = TEXT.split("\n### ")[1:]
    assert all("`" in section.splitlines()[0] for section in sections)
    for section in sections:
        assert [line[:9] for line in section.splitlines() if line.startswith("- **W")] \
            == ["- **When:", "- **What ", "- **What "], section


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", CASES)
def test_message(words: str, capfd) -> None:
    assert words in message(CASES[words], capfd)


LOGGED = "BlockBuilder destroyed with remaining blocks"  # what is raised after that says more


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", [
    words for words in CASES | SCHEDULES if f"`{words}`" in TEXT.partition("## Installation")[0]
    and words != LOGGED])
def test_a_check_links_to_the_explanation(words: str, capfd) -> None:
    run = CASES.get(words) or functools.partial(SCHEDULES[words], tvm.s_tir.Schedule)
    with pytest.raises(BaseException) as raised:  # whatever TVM raises
        run()
    capfd.readouterr()
    link = explained(reason(raised.value))
    heading = next(line for line in TEXT.splitlines() if line.startswith("### ")
                   and f"`{words}`" in line)
    assert link.startswith("docs/tvm_errors.md#") and len(link.split("#")[1]) > 8
    assert re.sub(r"[^a-z0-9]", "", link.split("#")[1]) == re.sub(r"[^a-z0-9]", "",
                                                                  heading.lower())


@pytest.mark.parametrize("words", [
    "AttributeError: 'GPT' object has no attribute 'block'",
    "AttributeError: 'Sequential' object has no attribute 'relu'",
    "AttributeError: 'NoneType' object has no attribute 'block'",
    "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'"])
def test_what_is_not_tvms_has_no_link(words: str) -> None:
    assert not explained(words)
    assert "rosetta" in explained("'Schedule' object has no attribute 'get_block'")


@pytest.mark.parametrize("level", ["detail", "fast"])
@pytest.mark.parametrize("words", SCHEDULES)
def test_message_of_a_schedule(words: str, level: str, capfd) -> None:
    make = functools.partial(tvm.s_tir.Schedule, error_render_level=level)
    assert words in message(lambda: SCHEDULES[words](make), capfd)


def test_the_reason_of_an_ill_formed_module_can_be_had(capfd) -> None:
    text = message(CASES["Program is not well-formed"], capfd)
    assert "Traceback" not in text and "out_ty" not in text
    func = te.create_prim_func([A, topi.nn.relu(A)]).without_attr("global_symbol")
    wrong = relax.TensorType((4, 6), "float32")
    mod = model(lambda bb, x: bb.emit(relax.op.call_tir(bb.add_func(func, "relu"), (x,), wrong)))
    with pytest.raises(ValueError, match="`out_ty` argument for R.call_tir must be compatible"):
        relax.analysis.well_formed(mod)


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda bb, x: relax.op.call_dps_packed("env.x", (x,), (4, 5)),
     "Expected `Array<relax.TensorType>` but got `Array[index 0: ffi.Array]`"),
    (lambda bb, x: relax.op.add(x, ONES), "Expected `ir.Expr` but got `ffi.Tensor`"),
    (lambda bb, x: relax.transform.LegalizeOps(bb.get()),
     "Expected `Optional<Map<str, ffi.Function>>` but got `ir.IRModule`"),
    (lambda bb, x: relax.build(bb, target="llvm"),
     "Expected `RValueRef<ir.IRModule>` but got `relax.BlockBuilder`"),
    (lambda bb, x: bb.emit_te(topi.exp, relax.const(torch.ones(3), "float32")),
     "value has to be scalar or Tensor")])
def test_wrong_kinds(wrong: Callable, words: str, capfd) -> None:
    came = message(lambda: wrong(relax.BlockBuilder(), relax.Var("x", TYPE)), capfd)
    assert words in came
    assert words in TEXT


def test_an_executable_is_no_machine(capfd) -> None:
    two = model(lambda bb, x: bb.emit_te(topi.exp, relu(bb, x)))
    for mod, words in [(model(relu), "Expected 2 arguments when calling"),
                       (two, "Module has no function 'main'")]:
        executable = relax.build(mod, target="llvm")
        assert words in message(lambda e=executable: e["main"](ONES), capfd)


@pytest.mark.parametrize("row", re.findall(r"^\| `(.* has no attribute '.*)$", TEXT, re.M))
def test_old_name(row: str, monkeypatch) -> None:
    monkeypatch.delattr(tvm, "testing", raising=False)  # there where something has imported it
    objects = {"Schedule": tvm.s_tir.Schedule(doubled()), "Var": relax.Var("x", TYPE),
               "Tensor": tvm.runtime.tensor(ONES)}
    names = {"tvm": tvm, "relax": relax, "te": te, "np": np, "T": T, "R": R, "tvm_ffi": tvm_ffi}
    old, today = row.split(" | ")
    said, _, _ = old.partition("`")
    module, kind, name = re.match(
        r"(?:module '(.*)'|'(.*)' object) has no attribute '(.*)'", said).groups()
    holder = importlib.import_module(module) if module else objects[kind]
    with pytest.raises(AttributeError) as caught:
        getattr(holder, name)
    assert str(caught.value) == said
    for path in re.findall(r"`(\.?[\w.]+)", today):
        eval(f"holder{path}" if path.startswith(".") else path, names | {"holder": holder})


# ---- wrong without a message ---------------------------------------------------------------


def run(output: te.Tensor) -> np.ndarray:
    destination = tvm.runtime.tensor(np.full([int(n) for n in output.shape], np.nan, "float32"))
    compiled(output)(tvm.runtime.tensor(2 * ONES), destination)
    return destination.numpy()


def test_silent_tensor_expressions() -> None:
    wide = te.placeholder((4, 32, 26, 26))
    bias = topi.add(wide, te.placeholder((26,)))
    assert [int(n) for n in bias.shape] == [4, 32, 26, 26]
    assert (run(te.compute((4,), lambda i: te.sum(A[i, 0], axis=1))) == 3).all()  # 2 + 1
    assert [int(n) for n in te.compute((4, 3), lambda i: A[i, 0]).shape] == [4]
    longer = run(topi.reshape(te.compute((4, 5), lambda i, j: A[i, j] + i), (4, 6)))
    assert longer.ravel()[18:].tolist() == [5, 5, 2, 2, 2, 2]


def test_silent_conv2d_with_other_channels() -> None:
    for channels, found in [(3, True), (1, False)]:
        mod = model(lambda bb, x, c=4 - channels: bb.emit_te(
            topi.nn.conv2d, x, const(8, c, 3, 3), 1, 0, 1), 4, channels, 8, 8)
        relax.build(mod, target="llvm")
        caught = pytest.raises(tvm.s_tir.ScheduleError, match="Out of bounds memory access")
        with caught if found else contextlib.nullcontext():
            tvm.s_tir.analysis.OOBChecker()(tvm.IRModule({"main": mod["conv2d"]}))


def test_silent_missing_init() -> None:
    @T.prim_func(s_tir=True)
    def total(x: T.Buffer((4, 5), "float32"), y: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 5):
            with T.sblock("y"):
                vi, vk = T.axis.remap("SR", [i, k])
                y[vi] = y[vi] + x[vi, vk]

    memory = tvm.runtime.tensor(np.full(4, 100, "float32"))
    tvm.compile(total, target="llvm")(tvm.runtime.tensor(ONES), memory)
    assert (memory.numpy() == 105).all()


def test_silent_modules() -> None:
    mod = without_emit_output()
    assert (helpers.build(mod)["main"](ONES).numpy() == -1).all()
    for change in relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps():
        mod = change(mod)
    with pytest.raises(Exception, match="Var lv1 is not defined"):
        helpers.build(mod)
    bound = relax.transform.BindParams("mian", {"x": ONES})(model(relu))
    assert len(bound["main"].params) == 1
    assert np.array(helpers.build(model(relu))["main"](ONES)).dtype == object


def test_silent_imports_and_gpu_programs() -> None:
    same = torch.ones(3)
    for example, right in ((same, same), False), ((same, torch.ones(3)), True):
        mod = from_exported_program(exported(Difference(), *example),
                                    unwrap_unit_return_tuple=True)
        came = helpers.build(mod)["main"](*(tvm.runtime.tensor(np.full(3, number, "float32"))
                                            for number in (5, 3)))
        assert (came.numpy() == (2 if right else 0)).all()
    assert bound(4).mod.imports
    assert not bound(None).mod.imports


def test_silent_classes_of_one_name() -> None:
    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            return x

    first = Twice

    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor((17,), "float32")):
            return x

    tvm.ir.assert_structural_equal(first, Twice)


def test_silent_library_functions() -> None:
    def rebinds(x: tvm.runtime.Tensor, out: tvm.runtime.Tensor) -> None:
        out = np.from_dlpack(x) * 2  # noqa: F841 (the mistake)

    def writes_a_copy(x: tvm.runtime.Tensor, out: tvm.runtime.Tensor) -> None:
        out.numpy()[...] = np.from_dlpack(x) * 2

    for function in rebinds, writes_a_copy:
        tvm.register_global_func("env.test", function, override=True)
        destination = tvm.runtime.tensor(np.full((4, 5), np.nan, "float32"))
        tvm.get_global_func("env.test")(tvm.runtime.tensor(ONES), destination)
        assert np.isnan(destination.numpy()).all()
    old = calling("env.test", lambda x, out: np.copyto(np.from_dlpack(out), 1))
    new = calling("env.test", lambda x, out: np.copyto(np.from_dlpack(out), 2))
    assert (old["main"](ONES).numpy() == 1).all() and (new["main"](ONES).numpy() == 2).all()


def test_silent_loss_of_lanes() -> None:
    schedule = tvm.s_tir.Schedule(doubled())
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.vectorize(j)
    schedule.split(j, factors=[None, 4])
    assert {loop.kind for loop in nests(schedule.mod["main"])[1].loops} == {"serial"}


def test_silent_tolerance() -> None:
    right, wrong = np.array([1 - 3e-5, 2e-5, 1e-5]), np.array([1, 1e-9, 1e-9])
    np.testing.assert_allclose(wrong, right, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(wrong, right, rtol=1e-4, atol=1e-7)
