"""docs/rosetta.md: each of today's names is there, each old one is gone, each message comes.

A row proves itself where it can: a dotted name is looked up, an import is executed, and other
code is run where it belongs (`execute` knows by its form). Where that is not enough (an old form
that is still accepted, something that needs a context, printed text) there is a proof below,
under the text of the row's first cell: OLD does what the old materials do, TODAY what "today"
says, SAME is a program with the unchanged names. The code of a cell stands in its proof
literally, so that what is run is what the reader sees.
"""

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import logging
import re
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.fx
import tvm
import tvm.relax.frontend.torch  # the table names it by its path
import tvm_ffi
from relax_models import relax_model, relu
from tvm import relax, te, topi
from tvm.ir.utils import derived_object
from tvm.relax.frontend import nn
from tvm.s_tir import dlight as dl
from tvm.s_tir import meta_schedule as ms
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import helpers
from course import present

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "rosetta.md").read_text()
STATUSES = {"renamed", "gone", "changed", "trap", "both", "printed"}
FAILS = {"renamed", "gone", "changed"}  # the old way raises an error
USUAL = "has no attribute|has no function|cannot import name|No module named"
OLD: dict[str, Callable] = {}
TODAY: dict[str, Callable] = {}
SAME: dict[str, Callable] = {}


def proof(kind: dict[str, Callable], *rows: str) -> Callable:
    def register(run: Callable) -> Callable:
        for row in rows:
            assert row not in kind, row
            kind[row] = run
        return run
    return register


# ---- the table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of a table "old, today, status, note"."""

    old: str
    today: str
    status: str
    note: str

    def __str__(self) -> str:
        return self.old.replace("`", "")


def tables(text: str, *header: str) -> list[list[str]]:
    """The cells of all tables with this header."""
    found, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|")
                 .split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not set(line) <= set("|-"):
            assert len(cells) == len(header), line
            found.append(cells)
        inside = inside or cells == list(header)
    return found


def rows(text: str) -> list[Row]:
    return [Row(*cells) for cells in tables(text, "old", "today", "status", "note")]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# ---- looking names up ----------------------------------------------------------------------


@functools.cache
def names() -> dict[str, object]:
    """What the first name of a dotted one stands for."""
    x = relax.Var("x", relax.TensorType((4, 5), "float32"))
    ex = relax.build(MODEL, "llvm")
    return {"tvm": tvm, "tvm_ffi": tvm_ffi, "relax": relax, "te": te, "topi": topi, "nn": nn,
            "T": T, "R": R, "I": I, "ms": ms, "dl": dl, "np": np, "torch": torch,
            "sch": tvm.s_tir.Schedule(FUNC), "bb": relax.BlockBuilder(), "x": x,
            "call": relax.op.add(x, x), "const": relax.const(np.ones(3, "float32")),
            "mod": MODEL, "func": FUNC, "lib": tvm.compile(FUNC, target="llvm"), "ex": ex,
            "vm": relax.VirtualMachine(ex, tvm.cpu()), "dev": tvm.cpu(),
            "tensor": tvm.runtime.tensor(ONES), "array": ONES, "MyModule": MODEL, "s": FUNC,
            "A": A, "B": topi.nn.relu(A), "w": x, "visit": lambda node: None}


def is_import(code: str) -> bool:
    return bool(re.fullmatch(r"(from [\w.]+ )?import [\w., ]+", code))


def is_name(code: str) -> bool:
    """Whether this can be looked up: a dotted name whose first part is known, or an import."""
    return is_import(code) or bool(
        re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", code)) and code.partition(".")[0] in names()


def look_up(code: str) -> object:
    """Return what a name or an import gives; raises AttributeError or ImportError."""
    if is_import(code):
        return exec(code, {})
    first, *rest = code.split(".")
    value = names()[first]
    for name in rest:
        try:
            value = getattr(value, name)
        except AttributeError:
            if not isinstance(value, types.ModuleType):
                raise
            try:  # a module that nothing has imported yet
                value = importlib.import_module(f"{value.__name__}.{name}")
            except ModuleNotFoundError:
                value = getattr(value, name)
    return value


def message(run: Callable, *args: object) -> str | None:
    """What the exception says that this raises, or None."""
    try:
        run(*args)
    except NotImplementedError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


# ---- proving a row -------------------------------------------------------------------------


def stands_in(code: str, source: str) -> bool:
    """Whether code occurs in a source, as a whole word; an ellipsis may be anything."""
    pieces = [re.escape(piece) for piece in " ".join(code.split()).split("…")]
    return bool(re.search(r"(?<!\w)" * code[0].isalpha() + ".*?".join(pieces) + r"(?!\w)",
                          " ".join(source.split())))


def execute(code: str) -> object:
    """Run a cell's code where it belongs, by its form, and return what comes of it.

    Raises NotImplementedError where the form is not known: the row needs a proof.
    """
    if code.startswith(("R.call", "R.alloc", "R.builtin")):
        pure = "@R.function(pure=False)" if "call_packed(" in code else "@R.function"
        return relax_module(f"y = {code}", pure)
    for start, run_form in FORMS.items():
        if re.match(start, code):
            return run_form(code)
    try:
        used = {node.id for node in ast.walk(ast.parse(code, mode="eval"))
                if isinstance(node, ast.Name)}
    except SyntaxError:
        used = {"nothing that can be evaluated"}
    if used <= set(names()):
        return eval(code, names())
    raise NotImplementedError


def body(function: Callable) -> str:
    """The source of a proof, without the decorator, which has the row's text in it."""
    return inspect.getsource(function).partition("\ndef ")[2]


def source(row: Row, *kinds: dict[str, Callable]) -> str:
    return "".join(body(kind[str(row)]) for kind in kinds if str(row) in kind)


def prove(row: Row) -> None:
    """Raise AssertionError, with the reason, unless all is true that the row says."""
    assert row.status in STATUSES, f"no such status: {row.status}"
    assert spans(row.old), "nothing old"
    if row.status == "printed":
        prove_printed(row)
    else:
        words = prove_old(row)
        prove_today(row)
        prove_note(row, words)


def prove_old(row: Row) -> str:
    """Return what the old names and the old code have said."""
    said = []
    for code in spans(row.old):
        if is_name(code):
            words, fails = message(look_up, code), row.status in ("renamed", "gone")
        elif stands_in(code, source(row, OLD)):
            continue
        else:
            words, fails = run_cell(code), row.status in FAILS
        assert words or not fails, f"{code} is there"
        assert fails or not words, f"{code} is not there: {words}"
        said.append(words or "")
    if str(row) in OLD:
        words = message(lambda: said.append(str(OLD[str(row)]())))
        assert bool(words) is (row.status in FAILS), f"the old way says {words}"
        said.append(words or "")
    elif row.status == "both":
        equal(*(execute(spans(cell)[0]) for cell in (row.old, row.today)))
    else:
        assert row.status != "trap", "a trap needs a proof"
    quoted = [span for span in spans(row.note) if span in "".join(said)]
    for words in said if row.status in FAILS else []:
        assert not words or row.status != "changed" and re.search(USUAL, words) or any(
            span in words for span in quoted), f"the note should quote: {words}"
    assert row.status != "changed" or any(said), "nothing is run that fails"
    return "\n".join(said)


def run_cell(code: str) -> str | None:
    try:
        return message(execute, code)
    except NotImplementedError:
        raise AssertionError(f"no proof runs {code}") from None


def prove_today(row: Row) -> None:
    for code in spans(row.today):
        if not is_name(code) and stands_in(code, source(row, TODAY)):
            continue
        words = message(look_up, code) if is_name(code) else run_cell(code)
        assert words is None, f"{code} says {words}"
    if str(row) in TODAY:
        TODAY[str(row)]()
    assert spans(row.today) or row.status == "gone" or str(row) in TODAY, "nothing for today"


def prove_note(row: Row, words: str) -> None:
    for span in spans(row.note):
        assert (span in words + row.old + row.today or stands_in(span, source(row, OLD, TODAY))
                or is_name(span) and message(look_up, span) is None
                or hasattr(builtins, span)), \
            f"neither said nor run nor there: {span}. It said: {words}"


def prove_printed(row: Row) -> None:
    """What is printed has all that stands under "today", and nothing of the old."""
    assert str(row) in TODAY, "no proof"
    shown = TODAY[str(row)]()
    for code in spans(row.today):
        assert code in shown, f"{code} is not printed"
    rest = functools.reduce(lambda text, code: text.replace(code, ""), spans(row.today), shown)
    for code in spans(row.old):
        assert code not in rest, f"{code} is printed"
    for code in spans(row.note):
        assert code in shown + row.today or stands_in(code, source(row, TODAY)) or is_name(code) \
            and message(look_up, code) is None, f"neither printed nor run nor there: {code}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", rows(TEXT), ids=str)
def test_row(row: Row) -> None:
    prove(row)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("subject", "cell"), tables(TEXT, "subject", "names"))
def test_unchanged(subject: str, cell: str) -> None:
    for code in spans(cell):
        if is_name(code):
            look_up(code)
        assert stands_in(code, body(SAME[subject])), f"no proof runs {code}"
    SAME[subject]()


def test_tables_and_proofs_fit() -> None:
    olds = [str(row) for row in rows(TEXT)]
    assert len(olds) > 100 and len(olds) == len(set(olds))
    assert TEXT.count("](tvm_errors.md#") > 10
    assert set(OLD) | set(TODAY) <= set(olds)
    assert {subject for subject, _ in tables(TEXT, "subject", "names")} == set(SAME)
    assert {status for status, _ in tables(TEXT, "status", "what it means")} == STATUSES
    known = {code for _, cell in tables(TEXT, "subject", "names") for code in spans(cell)}
    assert not known & {code for row in rows(TEXT) if row.status != "printed"
                        for code in spans(row.old)}


@pytest.mark.parametrize(("line", "reason"), [
    ("| `te.compute` | `te.placeholder` | renamed | |", "te.compute is there"),
    ("| `tvm.nd.array(array)` | `tvm.runtime.tensr` | gone | |", "has no attribute 'tensr'"),
    ("| `tvm.nd` | `tvm.runtime.tensor(array, 1, 2, 3)` | renamed | |", "TypeError"),
    ("| `tvm.nd` | `tvm.runtime.tensor(unknown)` | renamed | |", "no proof runs tvm.runtime.ten"),
    ("| `tvm.nd` | `from tvm.script import tirz` | renamed | |", "cannot import name 'tirz'"),
    ("| `tvm.nd` | `tvm.runtime` | renamed | says `no such words` |", "neither said nor run"),
    ("| `tvm.nd` | `tvm.runtime` | both | |", "tvm.nd is not there"),
    ("| `tvm.nd` | — | renamed | |", "nothing for today"),
    ("| `tvm.nd` | `tvm.runtime` | replaced | |", "no such status"),
    ("| `te.compute` | `te.compute` | changed | |", "nothing is run that fails"),
    ("| `te.compute(…)` | `te.compute` | gone | |", r"no proof runs te.compute"),
    ("| `te.var(1)` | `te.var` | changed | |", "the note should quote"),
    ("| `te.var(1)` | `te.var` | changed | says `something else` |", "the note should quote"),
    ("| `te.var(1)` | `te.var` | renamed | |", "the note should quote"),
    ("| `x: R.Any` | `x: R.Any` | trap | |", "a trap needs a proof"),
    ("| `x: R.Any` | `x: R.Shape` | both | |", "StructuralEqual"),
    ("| `x: R.Any` | `x: R.Any` | renamed | |", "x: R.Any is there"),
    ("| `out_sinfo=` | `out_sinfos=` | printed | |", "out_sinfos= is not printed"),
    ("| `out_ty=` | `out_ty=R` | printed | |", "no proof")])
def test_a_false_row_is_found(line: str, reason: str) -> None:
    head = "| old | today | status | note |\n|---|---|---|---|\n"
    (row,) = rows(head + line)
    with pytest.raises(Exception, match=reason):
        prove(row)


# ---- what the proofs are made of -----------------------------------------------------------

ONES = np.ones((4, 5), "float32")
SMALL = np.ones((3, 4), "float32")
A = te.placeholder((4, 5), name="A")
ENV = {"tvm": tvm, "relax": relax, "topi": topi, "I": I, "R": R, "T": T}


def script(text: str) -> object:
    """TVMScript, as in a file that has the usual imports."""
    return tvm.script.parse(textwrap.dedent(text), extra_vars=ENV)


def run_file(text: str) -> types.ModuleType:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "from_the_book.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location("from_the_book", path)
        module = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, {"from_the_book": module}):
            spec.loader.exec_module(module)
        return module


def prim(parameter: str = 'X: T.Buffer((1, 128), "float32")', attribute: str = "",
         decorator: str = "@T.prim_func(s_tir=True)", block: str = 'with T.sblock("Y"):',
         statement: str = "Y[vi] = X[0, vi] * T.float32(2) + Y[0]") -> tvm.tirx.PrimFunc:
    """A PrimFunc with one thing written in another way."""
    return script(f"""
        {decorator}
        def relu0({parameter}, Y: T.Buffer((128,), "float32")):
            {attribute}
            for i in range(128):
                {block}
                    vi = T.axis.spatial(128, i)
                    {statement}
        """)


def relax_module(line: str, decorator: str = "@R.function",
                 parameter: str = 'x: R.Tensor((1, 128), "float32")',
                 order: str = "n: T.int64, Y: T.Buffer((1, 128), 'float32')") -> tvm.IRModule:
    """A module whose main computes y in this line."""
    return script(f"""
        @I.ir_module
        class MyModule:
            @T.prim_func(s_tir=True)
            def relu0(X: T.Buffer((1, 128), "float32"), Y: T.Buffer((1, 128), "float32")):
                for i, j in T.grid(1, 128):
                    with T.sblock("Y"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        Y[vi, vj] = T.max(X[vi, vj], T.float32(0))

            @T.prim_func(s_tir=True)
            def scale(X: T.Buffer((1, 128), "float32"), {order}):
                for i, j in T.grid(1, 128):
                    with T.sblock("Y"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        Y[vi, vj] = X[vi, vj] * T.cast(n, "float32")

            {decorator}
            def main({parameter}):
                cls = MyModule
                {line}
                return y
        """)


def run(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    return helpers.build(mod)["main"](*inputs).numpy()


def matmul(n: int = 16) -> tvm.tirx.PrimFunc:
    x, y = te.placeholder((n, n), name="X"), te.placeholder((n, n), name="W")
    k = te.reduce_axis((0, n), name="k")
    product = te.compute((n, n), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="C")
    return te.create_prim_func([x, y, te.compute((n, n), lambda i, j: product[i, j] + 1.0,
                                                 name="D")])


def symbolic(line: str) -> tvm.tirx.PrimFunc:
    return script(f"""
        @T.prim_func(s_tir=True)
        def main(a: T.handle):
            {line}
            A = T.match_buffer(a, (n,), "float32")
            T.evaluate(0)
        """)


FORMS: dict[str, Callable] = {
    "@T.": lambda code: prim(decorator=code),
    "@R.": lambda code: relax_module('y = R.call_packed("env.f", x)', code),
    "@": lambda code: script(f"{code}\nclass M:\n    @R.function\n    "
                             "def main(x: R.Tensor((4,), 'float32')):\n        return x"),
    "with T.": lambda code: prim(block=code),
    "X: T.Buffer": lambda code: prim(parameter=code),
    "T.call_extern": lambda code: prim(statement=code),
    "n = T.": lambda code: symbolic(code),
    "[xn]: ": lambda code: script(f"@R.function\ndef main({code}):\n    return {code[0]}")}
equal = tvm.ir.assert_structural_equal
FUNC = te.create_prim_func([A, topi.nn.relu(A)])
MODEL = relax_model(relu)


# ---- unchanged: programs as in the old materials -------------------------------------------


@proof(SAME, "imports")
def _() -> None:
    module = run_file("""
        import tvm
        from tvm import relax, te, topi
        from tvm.script import ir as I
        from tvm.script import relax as R
        from tvm.ir.module import IRModule
        """)
    assert module.IRModule is tvm.IRModule and module.R is R and module.I is I


@proof(SAME, "TVMScript of PrimFuncs")
def _() -> None:
    func = script("""
        @T.prim_func(s_tir=True)
        def main(a: T.handle, b: T.handle, c: T.handle):
            T.func_attr({"global_symbol": "main"})
            n = T.int64()
            A = T.match_buffer(a, (n, 16), "float32")
            B = T.match_buffer(b, (n,), "float32")
            C = T.match_buffer(c, (16,), "float32")
            for i, k in T.grid(n, 16):
                with T.sblock("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + T.max(A[vi, vk], T.float32(0))
            for i in T.parallel(2):
                for j in T.serial(2):
                    for k in T.unroll(2):
                        for m in T.vectorized(3):
                            with T.sblock("C"):
                                T.where(i * 12 + j * 6 + k * 3 + m < 16)
                                vi = T.axis.spatial(16, i * 12 + j * 6 + k * 3 + m)
                                T.reads(A[0, vi])
                                T.writes(C[vi])
                                C[vi] = T.if_then_else(
                                    vi < T.int64(8), T.sqrt(A[0, vi]),
                                    T.exp(T.min(A[0, vi], T.cast(T.int32(1), "float32"))))
            for k in range(16):
                with T.sblock("nothing"):
                    vk = T.axis.reduce(16, k)
                    T.evaluate(vk)
        """)
    a, b, c = (tvm.runtime.tensor(np.full(shape, 4, "float32")) for shape in [(3, 16), 3, 16])
    tvm.compile(func, target="llvm")["main"](a, b, c)
    assert (b.numpy() == 64).all() and (c.numpy()[:8] == 2).all()
    np.testing.assert_allclose(c.numpy()[8:], np.e, rtol=1e-5)
    threads = script("""
        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((16,), "float32")):
            for i in T.thread_binding(16, thread="threadIdx.x"):
                with T.sblock("A"):
                    vi = T.axis.spatial(16, i)
                    A[vi] = T.float32(1)
        """)
    assert "threadIdx.x" in threads.script()


@proof(SAME, "TVMScript of Relax functions")
def _() -> None:
    script("""
        @R.function(pure=False)
        def main(p: R.Tuple(R.Tensor((1, 1, 8, 8), "float32"), R.Tensor((2, 1, 3, 3), "float32")),
                 s: R.Shape([4])):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                lv = R.nn.conv2d(p[0], p[1])
                lv1 = R.nn.max_pool2d(R.nn.relu(lv), (2, 2), (2, 2))
                lv2 = R.reshape(lv1, R.shape([2, 9]))
                lv3 = R.matmul(lv2, R.permute_dims(lv2))
                lv4 = R.multiply(R.add(lv3, R.const(1, "float32")), lv3)
                gv = R.nn.softmax(lv4)
                R.output(gv)
            _ = R.print(gv, format="{}")
            y = R.match_cast(gv, R.Tensor((2, 2), "float32"))
            return y
        """)


@proof(SAME, "a PrimFunc of the module, called by its name")
def _() -> None:
    mod = script("""
        @I.ir_module
        class MyModule:
            @T.prim_func(s_tir=True)
            def linear0(x: T.handle, w: T.handle, z: T.handle):
                m, n = T.int64(), T.int64()
                X = T.match_buffer(x, (1, m), "float32")
                W = T.match_buffer(w, (n, m), "float32")
                Z = T.match_buffer(z, (1, n), "float32")
                for i, j, k in T.grid(1, n, m):
                    with T.sblock("Z"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        with T.init():
                            Z[vi, vj] = T.float32(0)
                        Z[vi, vj] = Z[vi, vj] + X[vi, vk] * W[vj, vk]

            @R.function
            def main(x: R.Tensor((1, "m"), "float32"), w: R.Tensor(("n", "m"), "float32")):
                m, n = T.int64(), T.int64()
                with R.dataflow():
                    lv0 = R.call_dps_packed("linear0", (x, w), R.Tensor((1, n), "float32"))
                    R.output(lv0)
                return lv0
        """)
    assert run(mod, ONES[:1], ONES[:3]).tolist() == [[5, 5, 5]]


@proof(SAME, "tensor expressions")
def _() -> None:
    n = te.var("n", "int64")
    x: te.Tensor = te.placeholder((n, 5), dtype="float32", name="x")
    k = te.reduce_axis((0, 5), name="k")
    total = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="total")
    largest = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="largest")
    out = te.compute((n,), lambda i: te.if_then_else(
        te.all(i > 0, total[i] > 0), te.max(total[i], 0),
        te.exp(te.min(largest[i], 0))), name="out")
    assert isinstance(out, te.Tensor)
    result = tvm.runtime.empty((4,), "float32")
    tvm.compile(te.create_prim_func([x, out]), target="llvm")["main"](
        tvm.runtime.tensor(ONES), result)
    assert result.numpy().tolist() == [1, 5, 5, 5]


@proof(SAME, "TOPI")
def _() -> None:
    def cnn(image: te.Tensor) -> te.Tensor:
        kernel = te.compute((2, 1, 3, 3), lambda *i: 0.1 + 0 * image[0, 0, 0, 0])
        x = topi.nn.conv2d(topi.nn.pad(image, (0, 0, 1, 1)), kernel, 1, 0, 1)
        x = topi.nn.pool2d(topi.nn.relu(x), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
        x = topi.nn.flatten(topi.maximum(x, topi.exp(x) * 0))
        x = topi.nn.dense(topi.reshape(x, (2, 16)), topi.reshape(x, (2, 16)))
        x = topi.nn.matmul(x, topi.transpose(x))
        x = topi.multiply(topi.add(x, topi.sum(x, axis=1)), topi.max(x, axis=0))
        return topi.nn.softmax(x, axis=1)
    mod = relax_model(lambda bb, x: bb.emit_te(cnn, x), 1, 1, 8, 8)
    np.testing.assert_allclose(run(mod, np.ones((1, 1, 8, 8), "float32")).sum(1), 1, rtol=1e-5)


@proof(SAME, "BlockBuilder")
def _() -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 5), "float32"))
    with bb.function("main"):
        with bb.dataflow():
            lv0 = bb.emit_te(topi.nn.relu, x)
            lv1 = bb.emit(relax.op.add(lv0, x))
            lv2 = bb.emit(bb.call_te(topi.add, lv1, lv1))
            assert bb.lookup_binding(lv1).op == tvm.ir.Op.get("relax.add")
            gv = bb.emit_output(lv2)
        bb.emit_func_output(gv, params=[x])
    with bb.function("other", params=[x]):
        bb.emit_func_output(x)
    copy = bb.add_func(bb.get()["other"].with_attr("global_symbol", "copy"), "copy")
    bb.update_func(copy, bb.get()["other"].with_attr("global_symbol", "copy"))
    mod = bb.get()
    assert {gv.name_hint for gv in mod.get_global_vars()} == {"add", "copy", "main", "other",
                                                              "relu"}
    assert (run(mod, ONES) == 4).all()


@proof(SAME, "operators of Relax")
def _() -> None:
    weight = relax.const(np.ones((2, 1, 3, 3), "float32"))
    square = relax.const(np.ones((2, 32), "float32"))

    def model(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        y = bb.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, weight, padding=(1, 1))))
        y = bb.emit(relax.op.flatten(relax.op.nn.max_pool2d(y, (2, 2), (2, 2))))
        y = bb.emit(relax.op.linear(relax.op.reshape(y, (1, 32)), square))
        y = bb.emit(relax.op.matmul(relax.op.permute_dims(y), y))
        y = bb.emit(relax.op.multiply(y, relax.op.add(y, y)))
        return bb.emit(relax.op.nn.softmax(y))
    mod = relax_model(model, 1, 1, 8, 8)
    assert (run(mod, np.ones((1, 1, 8, 8), "float32")) == 0.5).all()


def multiply_and_add() -> tvm.IRModule:
    return script("""
        @I.ir_module
        class MyModule:
            @R.function
            def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
                with R.dataflow():
                    lv0 = relax.op.multiply(x, y)
                    gv0 = relax.op.add(lv0, y)
                    R.output(gv0)
                return gv0
        """)


@proof(SAME, "the parts of a Relax function")
def _() -> None:
    func = multiply_and_add()["main"]
    assert isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr)
    assert isinstance(func.params[0], relax.Var)
    (block,) = func.body.blocks
    assert isinstance(block, relax.DataflowBlock)
    assert [type(binding) for binding in block.bindings] == 2 * [relax.VarBinding]
    assert isinstance(block.bindings[0].var, relax.DataflowVar)
    call = block.bindings[1].value
    assert isinstance(call, relax.Call) and call.op == tvm.ir.Op.get("relax.add")
    assert list(call.args) == [block.bindings[0].var, func.params[1]]


@proof(SAME, "rewriting a graph")
def _() -> None:
    @relax.expr_functor.mutator
    class EwiseFMARewriter(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            if call.op != tvm.ir.Op.get("relax.add"):
                return call
            value = self.lookup_binding(call.args[0])
            if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.multiply"):
                return call
            return relax.Call(tvm.ir.Op.get("relax.ewise_fma"),
                              [value.args[0], value.args[1], call.args[1]], None, None)

    @relax.expr_functor.mutator
    class LowerToTensorIR(relax.PyExprMutator):
        def __init__(self, mod: tvm.IRModule) -> None:
            super().__init__()
            self.mod_ = mod

        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            if call.op == tvm.ir.Op.get("relax.add"):
                return self.builder_.call_te(topi.add, *call.args)
            return call

        def transform(self) -> tvm.IRModule:
            for global_var, func in self.mod_.functions.items():
                self.builder_.update_func(global_var, self.visit_expr(func))
            return self.builder_.get()

    @tvm.ir.transform.module_pass(opt_level=0, name="LowerToTensorIR")
    class LowerToTensorIRPass:
        def transform_module(self, mod: tvm.IRModule, ctx: object) -> tvm.IRModule:
            return LowerToTensorIR(mod).transform()

    @relax.expr_functor.visitor
    class Operators(relax.PyExprVisitor):
        def visit_call_(self, call: relax.Call) -> None:
            seen.append(call.op.name)

    seen: list[str] = []
    func = relax.analysis.remove_all_unused(
        EwiseFMARewriter().visit_expr(multiply_and_add()["main"]))
    Operators().visit_expr(func)
    assert seen == ["relax.ewise_fma"]
    relax.analysis.post_order_visit(func, lambda node: seen.append(type(node).__name__))
    assert "Call" in seen
    lowered = LowerToTensorIRPass()(multiply_and_add())
    assert {gv.name_hint for gv in lowered.get_global_vars()} == {"add", "main"}
    same = tvm.transform.module_pass(lambda mod, ctx: mod, opt_level=0, name="same")
    equal(same(lowered), lowered)
    assert (run(lowered, *2 * [2 * SMALL]) == 6).all()


@proof(SAME, "IRModule")
def _() -> None:
    func = FUNC
    func = func.with_attr("global_symbol", "relu")
    func = func.without_attr("tirx.noalias")
    mod = tvm.IRModule({"relu": func})
    assert "def relu(" in mod.script() and "def relu(" in func.script()
    mod.update_func(mod.get_global_var("relu"), FUNC.with_attr("global_symbol", "relu"))
    assert [gv.name_hint for gv, _ in mod.functions.items()] == ["relu"]
    mod.show(black_format=False)
    equal(tvm.IRModule.from_expr(FUNC.with_attr("global_symbol", "relu")), mod)
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(mod)), mod)
    tvm.ir.assert_structural_equal(tvm.script.from_source(mod.script()), mod)


@proof(SAME, "transformations")
def _() -> None:
    params = {"y": tvm.runtime.tensor(np.full((3, 4), 2, "float32"))}
    mod = relax.transform.BindParams("main", params)(multiply_and_add())
    with tvm.transform.PassContext(opt_level=3):
        fused = tvm.transform.Sequential([
            relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(), relax.transform.FuseOps(),
            relax.transform.FuseTIR(), relax.transform.DeadCodeElimination(),
            relax.transform.CanonicalizeBindings()])(mod)
    assert len(fused.functions) == 2 and "fused_multiply_add" in fused.script()
    zero = relax.get_pipeline("zero")(mod)
    for made in fused, zero, mod:
        assert (run(made, SMALL) == 4).all()
    half = relax.transform.ToMixedPrecision()(
        relax_model(lambda bb, x: bb.emit(relax.op.matmul(x, relax.op.permute_dims(x)))))
    assert "float16" in half.script()


@proof(SAME, "patterns, and code of one's own")
def _() -> None:
    mod = multiply_and_add()
    x, y = relax.dpl.wildcard(), relax.dpl.wildcard()
    product = relax.dpl.is_op("relax.multiply")(x, y)
    pattern = relax.dpl.is_op("relax.add")(product, relax.dpl.wildcard())
    matched = relax.transform.FuseOpsByPattern(
        [("course.fma", pattern)], annotate_codegen=True)(mod)
    assert len(matched.functions) == 2 and "fma" in matched.script()

    def compiled(functions: list, options: dict, names: dict) -> list[tvm.runtime.Module]:
        (func,) = functions
        a, b = (te.placeholder((3, 4), name=name) for name in "ab")
        kernel = te.create_prim_func([a, b, topi.add(topi.multiply(a, b), b)])
        return [tvm.compile(kernel.with_attr("global_symbol", func.attrs["global_symbol"])).mod]

    tvm.register_global_func("relax.ext.course", compiled, override=True)
    made = relax.transform.RunCodegen()(matched)
    assert "call_dps_packed" in made.script()
    assert (run(made, SMALL, 2 * SMALL) == 4).all()

    swapped = relax.dpl.rewrite_call(product, lambda call, parts: parts[x], mod["main"])
    assert "multiply" not in swapped.script()
    values = relax.analysis.get_var2val(mod["main"])
    assert [product.match(value, values) for value in values.values()].count(True) == 1
    assert relax.analysis.udchain(mod["main"].body.blocks[0])[mod["main"].params[0]]
    pair = relax.dpl.is_tuple_get_item(relax.dpl.wildcard(), 0)
    assert not pair.match(relax.const(1.0)) and relax.dpl.is_const().match(relax.const(1.0))

    def products(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        twice = [bb.emit(relax.op.matmul(x, relax.op.permute_dims(x))) for _ in range(2)]
        return bb.emit(relax.op.add(*twice))

    once = relax.transform.EliminateCommonSubexpr()(relax_model(products))
    assert once.script().count("R.matmul") == 1
    two = script("""
        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((2, 4), "float32"), v: R.Tensor((4, 3), "float32"),
                     w: R.Tensor((4, 3), "float32")):
                with R.dataflow():
                    left = R.matmul(x, v)
                    right = R.matmul(x, w)
                    gv = R.add(left, right)
                    R.output(gv)
                return gv
        """)
    one = relax.transform.CombineParallelMatmul()(two)
    assert one.script().count("R.matmul") == 1 and "R.concat" in one.script()
    planned = tvm.transform.Sequential([
        relax.transform.LegalizeOps(), relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(), relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory()])(two)
    assert "R.memory.alloc_storage" in planned.script()


@proof(SAME, "schedule primitives")
def _() -> None:
    sch = tvm.s_tir.Schedule(matmul())
    block_C, block_D = sch.get_sblock("C"), sch.get_sblock("D", func_name="main")
    assert len(sch.get_child_blocks(sch.get_sblock("root"))) == 2
    i, j, k = sch.get_loops(block=block_C)
    j_0, j_1 = sch.split(loop=j, factors=sch.sample_perfect_tile(loop=j, n=2, decision=[4, 4]))
    sch.reorder(i, j_0, k, j_1)
    sch.reverse_compute_at(block_D, j_0)
    sch.vectorize(j_1)
    sch.unroll(sch.split(k, [None, 4])[1])
    sch.parallel(sch.fuse(i, j_0))
    sch.annotate(sch.get_loops(block_D)[0], "pragma_x", sch.sample_categorical([1, 2], [1.0, 0.0]))
    sch.decompose_reduction(block_C, sch.get_loops(block_C)[1])
    assert 'sch.decompose_reduction(' in str(sch.trace)
    inputs = [tvm.runtime.tensor(np.ones((16, 16), "float32")) for _ in range(3)]
    tvm.compile(sch.mod, target="llvm")["main"](*inputs)
    assert (inputs[2].numpy() == 17).all()

    sch = tvm.s_tir.Schedule(matmul())  # as for a GPU
    block = sch.get_sblock("C")
    C_local = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.reverse_compute_at(C_local, j)
    shared = sch.cache_read(block, read_buffer_index=0, storage_scope="shared")
    sch.compute_at(shared, k)
    sch.storage_align(shared, 0, axis=0, factor=32, offset=8)
    sch.set_scope(shared, 0, "shared.dyn")
    assert "threadIdx.x" in sch.mod.script() and "shared.dyn" in sch.mod.script()

    sch = tvm.s_tir.Schedule(matmul())
    sch.transform_layout(sch.get_sblock("C"), ("write", 0), lambda i, j: (j, i))
    sch.rfactor(sch.get_loops(sch.get_sblock("C"))[-1], 0)
    two = te.create_prim_func([A, topi.negative(topi.nn.relu(A))])
    sch = tvm.s_tir.Schedule(two)
    sch.compute_inline(sch.get_sblock("compute"))
    sch = tvm.s_tir.Schedule(two)
    sch.reverse_compute_inline(sch.get_sblock("compute_1"))

    def description(scale: str) -> tvm.tirx.PrimFunc:
        return script(f"""
            @T.prim_func(s_tir=True)
            def vector(X: T.Buffer((5,), "float32"), Y: T.Buffer((5,), "float32")):
                with T.sblock("root"):
                    T.reads(X[0:5])
                    T.writes(Y[0:5])
                    {scale}
            """)
    loop = """for i in range(5):
                        with T.sblock("Y"):
                            vi = T.axis.spatial(5, i)
                            Y[vi] = T.max(X[vi], T.float32(0))"""
    tvm.s_tir.TensorIntrin.register("rosetta.relu", description(loop), description(
        'T.evaluate(T.call_extern("int32", "relu5", X.access_ptr("r"), Y.access_ptr("w")))'),
        override=True)
    sch = tvm.s_tir.Schedule(FUNC)
    block = sch.blockize(sch.get_loops(sch.get_sblock("compute"))[1])
    sch.tensorize(block, "rosetta.relu")
    assert '"relu5"' in sch.mod.script()


@proof(SAME, "building")
def _() -> None:
    for target in tvm.target.Target("llvm"), tvm.target.Target("llvm", host="llvm"):
        with target:
            assert tvm.target.Target.current() == target
        for ex in relax.build(MODEL, target=target), tvm.compile(MODEL, target):
            assert relax.VirtualMachine(ex, tvm.cpu())["main"](ONES).numpy().all()
    assert tvm.target.Target("nvidia/tesla-p100").arch == "sm_60"


@proof(SAME, "running")
def _() -> None:
    vm = relax.VirtualMachine(relax.build(MODEL, "llvm"), tvm.cpu())
    dev = tvm.device("cpu", 0)
    assert dev == tvm.cpu(0) and dev.exist and isinstance(tvm.cuda(0).exist, bool)
    tensor = vm["main"](tvm.runtime.tensor(ONES, dev))
    assert tensor.shape == (4, 5) and tensor.dtype == "float32" and tensor.device == dev
    assert tensor.copyto(dev).numpy().all() and tensor.numpy().all()
    vm.set_input("main", tensor)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main").numpy().all()
    vm.save_function("main", "saved", tensor)
    assert vm["saved"]().numpy().all()
    for timer in (vm.time_evaluator("main", dev, number=1),
                  vm.module.time_evaluator("main", dev, number=1)):
        assert timer(tensor).mean > 0
    lib = tvm.compile(FUNC, target="llvm")
    lib["main"](tensor, tensor)
    torch.from_dlpack(tensor).fill_(7)
    assert (np.from_dlpack(tensor) == 7).all()
    tvm.register_global_func("env.rosetta", lambda x: x + 1, override=True)
    assert tvm.get_global_func("env.rosetta")(1) == 2


@proof(SAME, "saving and loading")
def _() -> None:
    if not present.tool("shared"):
        pytest.skip(present.tool("shared").said)
    with tempfile.TemporaryDirectory() as folder:
        ex = relax.build(MODEL, "llvm")
        ex.export_library(f"{folder}/model.so")
        vm = relax.VirtualMachine(tvm.runtime.load_module(f"{folder}/model.so"), tvm.cpu())
        assert vm["main"](ONES).numpy().all()
    saved = tvm.runtime.save_param_dict({"w": tvm.runtime.tensor(ONES)})
    assert tvm.runtime.load_param_dict(saved)["w"].numpy().all()


@proof(SAME, "importers")
def _() -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU()).eval(), torch.ones(4, 5)
    for keep in True, False:
        for mod in (relax.frontend.torch.from_fx(
                        torch.fx.symbolic_trace(net), [((4, 5), "float32")],
                        keep_params_as_input=keep),
                    relax.frontend.torch.from_exported_program(
                        torch.export.export(net, (x,)), keep_params_as_input=keep,
                        unwrap_unit_return_tuple=True)):
            model, params = relax.frontend.detach_params(mod)
            weights = [tvm.runtime.tensor(w.numpy()) for w in params.get("main", [])]
            assert len(weights) == 2 * keep
            np.testing.assert_allclose(run(model, ONES, *weights), net(x).detach().numpy(),
                                       rtol=1e-5)

    class Net(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(5, 3)

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            x = nn.op.relu(self.fc(x))
            return nn.op.tensor_expr_op(topi.negative, "negative", [x])
    mod, named = Net().export_tvm({"forward": {"x": nn.spec.Tensor(("n", 5), "float32")}})
    assert [name for name, _ in named] == ["fc.weight", "fc.bias"]
    assert {gv.name_hint for gv in mod.get_global_vars()} == {"forward", "negative"}


# ---- imports and modules -------------------------------------------------------------------

COPY = """
    import tvm
    from tvm.script import ir as I, relax as R, tirx as T
    @I.ir_module
    class MyModule:
        @T.prim_func(s_tir=True)
        def copy(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("y"):
                    vi = T.axis.spatial(4, i)
                    y[vi] = x[vi]
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = MyModule
            y = R.call_tir(cls.copy, (x,), R.Tensor((4,), "float32"))
            return y
    """


@proof(OLD, "from __future__ import annotations")
def _() -> None:
    equal(run_file("    from __future__ import annotations" + COPY).MyModule,
          run_file(COPY).MyModule)


@proof(TODAY, "from __future__ import annotations")
def _() -> None:
    run_file(COPY)


@proof(TODAY, "tvm.tir.stmt_functor.post_order_visit(func.body, visit)")
def _() -> None:
    func, seen = matmul(), []
    visit = seen.append
    tvm_ffi.structural_walk(func.body, visit)
    loops = [node.loop_var.name for node in seen if isinstance(node, tvm.tirx.For)]
    assert loops == ["k", "j", "i", "j", "i"]  # from the inside
    assert {"BufferType", "PrimType"} <= {type(node).__name__ for node in seen}


@proof(TODAY, "tvm.TVMError, tvm.error.TVMError")
def _() -> None:
    assert issubclass(tvm.error.InternalError, RuntimeError)
    for error, wrong in [(ValueError, lambda: tvm.target.Target("llvm -mcpu=x")),
                         (TypeError, lambda: tvm.compile(FUNC, "llvm", 1)),
                         (AttributeError, lambda: tvm.ir.Op.get("relax.missing"))]:
        with pytest.raises(error):
            wrong()


# ---- TVMScript -----------------------------------------------------------------------------


def inlined(allocation: str) -> tvm.s_tir.Schedule:
    """A schedule that has inlined the block whose buffer was made by this line."""
    sch = tvm.s_tir.Schedule(script(f"""
        @T.prim_func(s_tir=True)
        def main(X: T.Buffer((1, 128), "float32"), Z: T.Buffer((1, 128), "float32")):
            {allocation}
            for i, j in T.grid(1, 128):
                with T.sblock("Y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj] * T.float32(2)
            for i, j in T.grid(1, 128):
                with T.sblock("Z"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Z[vi, vj] = Y[vi, vj] + T.float32(1)
        """))
    sch.compute_inline(sch.get_sblock("Y"))
    return sch


@proof(OLD, 'Y = T.alloc_buffer((1, 128), "float32")')
def _() -> str:
    with pytest.raises(tvm.s_tir.ScheduleError) as caught:
        inlined('Y = T.alloc_buffer((1, 128), "float32")')
    assert "schedule primitive 'compute-inline'" in str(caught.value)  # the script was accepted
    return f"compute_inline: {caught.value}"


@proof(TODAY, 'Y = T.alloc_buffer((1, 128), "float32")')
def _() -> None:
    inlined('Y = T.sblock_alloc_buffer((1, 128), "float32")')


def overlap_excluded(attribute: str) -> bool:
    """Whether the machine code of a PrimFunc with this attribute speaks of noalias."""
    func = prim(attribute=attribute)
    assert func.attrs["global_symbol"] == "relu0"
    return "noalias" in tvm.compile(func, target="llvm").mod.inspect_source("ll")


@proof(OLD, 'T.func_attr({"global_symbol": "relu0", "tir.noalias": True})')
def _() -> None:
    assert not overlap_excluded("")
    assert not overlap_excluded('T.func_attr({"global_symbol": "relu0", "tir.noalias": True})')


@proof(TODAY, 'T.func_attr({"global_symbol": "relu0", "tir.noalias": True})')
def _() -> None:
    assert overlap_excluded('T.func_attr({"tirx.noalias": True})')


@proof(OLD, "R.is_impure()")
def _() -> None:
    relax_module("R.is_impure(); y = x")


# ---- tensors and running -------------------------------------------------------------------


@proof(TODAY, "tvm.nd.array(array)")
def _() -> None:
    array = ONES
    assert isinstance(tvm.runtime.tensor(array), tvm.runtime.Tensor)
    vm = relax.VirtualMachine(relax.build(MODEL, "llvm"), tvm.cpu())
    assert isinstance(vm["main"](array), tvm.runtime.Tensor)
    assert isinstance(vm["main"](torch.ones(4, 5)), torch.Tensor)


@proof(TODAY, "tvm.nd.empty, tvm.nd.from_dlpack")
def _() -> None:
    buffer = np.zeros(64, "float32")
    start = -buffer.ctypes.data % 64 // 4
    tvm.runtime.from_dlpack(buffer[start:start + 6])
    with pytest.raises(RuntimeError, match="Data is not aligned to 64 bytes"):
        tvm.runtime.from_dlpack(buffer[start + 4:start + 10])


@proof(TODAY, "dev.device_type, dev.device_id")
def _() -> None:
    dev = tvm.cpu(0)
    assert (dev.type, dev.index, dev.dlpack_device_type()) == ("cpu", 0, 1)


@proof(OLD, "tvm.testing.assert_allclose")
def _() -> None:
    import tvm.testing
    tvm.testing.assert_allclose(np.float64(5e-8), np.float64(0))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(np.float64(5e-8), np.float64(0))
    absent = {name: None for name in sys.modules if name.partition(".")[0] == "pytest"}
    loaded = [name for name in sys.modules if name.startswith("tvm.testing")]
    with mock.patch.dict(sys.modules, absent), mock.patch.object(tvm, "testing"):
        for name in loaded:
            del sys.modules[name]
        assert "pytest" in str(message(exec, "import tvm.testing"))


@proof(TODAY, "lib.time_evaluator")
def _() -> None:
    tensors = tvm.runtime.tensor(ONES), tvm.runtime.empty((4, 5), "float32")
    for timed in tvm.compile(FUNC, target="llvm").mod, tvm.build(FUNC, target="llvm"):
        assert timed.time_evaluator("main", tvm.cpu(), number=1)(*tensors).mean > 0


# ---- schedules -----------------------------------------------------------------------------


@proof(OLD, "sch.decompose_reduction(block, k); sch.parallel(i)")
def _() -> None:
    sch = tvm.s_tir.Schedule(matmul())
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    other = sch.copy()
    other.reorder(k, j)
    other.decompose_reduction(block, k)
    with pytest.raises(tvm.s_tir.ScheduleError, match="does not have compact dataflow"):
        other.vectorize(j)
    sch.decompose_reduction(block, k); sch.parallel(i)  # noqa: E702 (one cell of the table)


@proof(TODAY, "sch.decompose_reduction(block, k); sch.parallel(i)")
def _() -> None:
    sch = tvm.s_tir.Schedule(matmul())
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    sch.reorder(k, j)
    sch.vectorize(j)
    sch.parallel(i); sch.decompose_reduction(block, k)  # noqa: E702 (one cell of the table)


# ---- Relax functions and calls -------------------------------------------------------------


@proof(TODAY, 'R.call_tir(relu0, (x,), (1, 128), dtype="float32")')
def _() -> None:
    relax_module("""cls = MyModule
                y = R.call_tir(cls.relu0, (x,), R.Tensor((1, 128), "float32"))""")


@proof(OLD, 'relax.call_tir("env.relu", (x,), relax.TensorType((1, 128), "float32"))')
def _() -> None:
    x = relax.Var("x", relax.TensorType((1, 128), "float32"))
    relax.call_tir("env.relu", (x,), relax.TensorType((1, 128), "float32"))  # not at once
    relax_model(lambda bb, x: bb.emit(
        relax.call_tir("env.relu", (x,), relax.TensorType((1, 128), "float32"))), 1, 128)


@proof(TODAY, 'R.call_tir(cls.scale, (x,), R.Tensor((1, 128), "float32"), tir_vars=R.shape([2]))')
def _() -> None:
    line = 'y = R.call_tir(cls.scale, (x, R.prim_value(2)), R.Tensor((1, 128), "float32"))'
    assert (run(relax_module(line), np.ones((1, 128), "float32")) == 2).all()
    with pytest.raises(Exception, match="not well-formed"):  # the number after the output
        relax_module(line, order="Y: T.Buffer((1, 128), 'float32'), n: T.int64")


@proof(OLD, 'R.call_packed("env.f", x, sinfo_args=[R.Tensor((1, 128), "float32")])')
def _() -> None:
    mod = execute('R.call_packed("env.f", x, sinfo_args=[R.Tensor((1, 128), "float32")])')
    assert isinstance(mod["main"].ret_ty, relax.AnyType) and "-> R.Any" in mod.script()
    call = mod["main"].body.blocks[0].bindings[0].value
    assert "sinfo_args" in dict(call.attrs.items()) and not call.ty_args


@proof(TODAY, 'R.call_packed("env.f", x, sinfo_args=[R.Tensor((1, 128), "float32")])')
def _() -> None:
    mod = execute('R.call_packed("env.f", x, ty_args=[R.Tensor((1, 128), "float32")])')
    assert mod["main"].ret_ty == relax.TensorType((1, 128), "float32")


@proof(TODAY, 'R.alloc_tensor((1, 128), dtype="float32")')
def _() -> None:
    func = script("""
        @R.function
        def main(x: R.Tensor((1, 128), "float32")):
            y = R.builtin.alloc_tensor(R.shape([1, 128]), dtype="float32", runtime_device_index=0)
            return y
        """)
    assert run(tvm.IRModule({"main": func}), np.ones((1, 128), "float32")).shape == (1, 128)


@proof(OLD, 'R.call_packed("env.f", x) in @R.function')
def _() -> None:
    relax_module('y = R.call_packed("env.f", x)', "@R.function")


@proof(TODAY, 'R.call_packed("env.f", x) in @R.function')
def _() -> None:
    relax_module('y = R.print(x, format="{}")', "@R.function(pure=False)")
    with pytest.raises(Exception, match="Program is not well-formed"):
        relax_module('y = R.print(x, format="{}")')


@proof(TODAY, "relax.dataflow, relax.output, relax.add, relax.multiply")
def _() -> None:
    equal(relax_module("y = relax.op.add(x, x)"), relax_module("y = R.add(x, x)"))


@proof(TODAY, "relax.op.dense(x, w), relax.op.nn.dense(x, w)")
def _() -> None:
    w, bias = relax.const(2 * ONES), relax.const(np.ones(4, "float32"))
    mod = relax_model(lambda bb, x: bb.emit(relax.op.matmul(x, relax.op.permute_dims(w))))
    assert (run(mod, ONES) == 10).all()
    mod = relax_model(lambda bb, x: bb.emit(relax.op.linear(x, w, bias)))
    assert (run(mod, ONES) == 11).all()


@proof(OLD, 'relax.Var("x", (1, 784), relax.DynTensorType(2, "float32"))')
def _() -> None:
    with pytest.raises(AttributeError):
        relax.Var("x", (1, 784), relax.DynTensorType(2, "float32"))
    relax.Var("x", (1, 784), relax.TensorType((1, 784), "float32"))


@proof(OLD, 'relax.const(array, relax.TensorStructInfo(array.shape, "float32"))')
def _() -> None:
    array = ONES
    with pytest.raises(AttributeError):
        relax.const(array, relax.TensorStructInfo(array.shape, "float32"))
    relax.const(array, relax.TensorType(array.shape, "float32"))


@proof(TODAY, "relax.Constant, relax.expr.Constant")
def _() -> None:
    assert isinstance(relax.const(1.0), tvm.ir.GenericConst)


# ---- types ---------------------------------------------------------------------------------


@proof(TODAY, 'relax.DynTensorType(2, "float32")')
def _() -> None:
    assert relax.TensorType(ndim=2, dtype="float32").shape is None
    assert relax.TensorType((1, 784), "float32").ndim == 2


@proof(TODAY, "x.name_hint, x.vid.name_hint")
def _() -> None:
    assert MODEL.get_global_var("main").name_hint == "main"


@proof(TODAY, "func.buffer_map")
def _() -> None:
    func = FUNC
    assert [int(extent) for extent in func.params[0].shape] == [4, 5]


@proof(TODAY, 'relax.TensorType((1, "m"), "float32")')
def _() -> None:
    assert relax.TensorType((1, tvm.tirx.Var("m", "int64")), "float32").ndim == 2
    assert execute('x: R.Tensor((1, "m"), "float32")').ret_ty.ndim == 2


# ---- building ------------------------------------------------------------------------------


@proof(TODAY, 'relax.vm.build(MyModule, "llvm")')
def _() -> None:
    MyModule = MODEL
    assert type(relax.build(MyModule, "llvm")) is type(tvm.compile(MyModule, "llvm"))


@proof(OLD, 'tvm.build(func, target="llvm")')
def _() -> str:
    func, out = FUNC, tvm.runtime.empty((4, 5), "float32")
    for lib in tvm.build(func, target="llvm"), tvm.compile(func, target="llvm"):
        lib["main"](tvm.runtime.tensor(ONES), out)
        assert (out.numpy() == 1).all()
    return message(lambda: tvm.build(MODEL, target="llvm"))


@proof(OLD, 'tvm.target.Target("llvm -mcpu=core-avx2")')
def _() -> None:
    for build in relax.build, tvm.compile:
        assert "CLI target string form" in message(build, MODEL, "llvm -mcpu=core-avx2")
    tvm.target.Target("llvm -mcpu=core-avx2")


# ---- transformations and importers ---------------------------------------------------------


@proof(OLD, "assert relax.analysis.well_formed(mod)")
def _() -> None:
    mod, bb = MODEL, relax.BlockBuilder()
    with pytest.raises(AssertionError):
        assert relax.analysis.well_formed(mod)
    x = relax.Var("x", relax.TensorType((4, 5), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = relu(bb, x)
        bb.emit_func_output(lv)
    assert "used outside DataflowBlock" in message(relax.analysis.well_formed, bb.get())
    assert not relax.analysis.check_well_formed(bb.get())


@proof(TODAY, "assert relax.analysis.well_formed(mod)")
def _() -> None:
    mod = MODEL
    assert relax.analysis.check_well_formed(mod)


@proof(OLD, 'Code(mod.script(), language="python")')
def _() -> None:
    from IPython.display import Code
    mod = MODEL
    assert "R.call_tir" in Code(mod.script(), language="python").data


@proof(TODAY, 'Code(mod.script(), language="python")')
def _() -> None:
    mod = MODEL
    mod.show()
    assert "R.call_tir" in repr(helpers.show(mod))


@proof(OLD, "graph.print_tabular()")
def _() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU()).graph
    # what builds the site brings its package along
    with mock.patch.dict(sys.modules), mock.patch.object(sys, "meta_path", []):
        sys.modules.pop("tabulate", None)
        graph.print_tabular()


@proof(TODAY, "graph.print_tabular()")
def _() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU()).graph
    print(graph)


# ---- printed modules -----------------------------------------------------------------------


@proof(TODAY, "# from tvm.script import tir as T", "@T.prim_func above a function",
       'with T.block("root"):', 'T.func_attr({"tir.noalias": True})',
       "= T.alloc_buffer(", "T.float32(0)", "rxplaceholder: T.Buffer", "out_sinfo=",
       'R.call_tir(relu, (x,), (4, 5), dtype="float32")',
       'meta[relay.Constant][0], metadata["relax.expr.Constant"][0]')
@functools.cache
def printed() -> str:
    mod = relax_model(lambda bb, x: bb.emit(relax.op.multiply(
        bb.emit_te(lambda a: topi.add(topi.nn.relu(a), a), x), relax.const(ONES))))
    return relax.transform.LegalizeOps()(mod).script() + MODEL.script()


@proof(TODAY, "R.call_dps_packed(te_matmul, (A, B)")
def _() -> str:
    def te_matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return topi.nn.matmul(a, b)

    bb = relax.BlockBuilder()
    inputs = [relax.Var(name, relax.TensorType((4, 4), "float32")) for name in "AB"]
    with bb.function("main", inputs):
        with bb.dataflow():
            gv = bb.emit_output(bb.emit_te(te_matmul, *inputs))
        bb.emit_func_output(gv)
    return bb.get().script()


@proof(TODAY, 'x: R.Tensor((1, "m")', "X = T.match_buffer(x, (1, n))", ": R.Object")
@functools.cache
def printed_symbolic() -> str:
    mod = script("""
        @I.ir_module
        class Module:
            @T.prim_func(s_tir=True)
            def relu(x: T.handle, y: T.handle):
                n = T.int64()
                X = T.match_buffer(x, (1, n))
                Y = T.match_buffer(y, (1, n))
                for i, j in T.grid(1, n):
                    with T.sblock("Y"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        Y[vi, vj] = T.max(X[vi, vj], T.float32(0))
            @R.function
            def main(x: R.Tensor((1, "m"), "float32"), o: R.Object):
                m = T.int64()
                y = R.call_dps_packed("relu", (x,), R.Tensor((1, m), "float32"))
                return y
        """)
    return mod.script(extra_config={"script.use_pep695": False})


@proof(TODAY, 'sch.get_block(name="C", func_name="main")', "def apply_trace(sch: tir.Schedule)")
def printed_trace() -> str:
    sch = tvm.s_tir.Schedule(matmul())
    sch.get_sblock(name="C", func_name="main")
    return str(sch.trace)


@proof(TODAY, "tvm.relax.vm.Executable, tvm.relax.vm_build.Executable")
def _() -> str:
    ex = relax.build(MODEL, "llvm")
    return str(type(ex))


@proof(TODAY, "tvm.relax.expr.Call")
def _() -> str:
    call = MODEL["main"].body.blocks[0].bindings[0].value
    return str(type(call))


@proof(TODAY, "<tvm.nd.NDArray shape=(1, 10), cpu(0)>")
def _() -> str:
    tensor = tvm.runtime.tensor(np.ones((1, 10), "float32"))
    return repr(tensor)


# ---- tuning --------------------------------------------------------------------------------


@derived_object
class NoBuilder(ms.builder.PyBuilder):
    """Builds nothing, so that tuning ends at once."""

    def build(self, inputs: list) -> list:
        return [ms.builder.BuilderResult(None, "not built") for _ in inputs]


@derived_object
class NoRunner(ms.runner.PyRunner):
    def run(self, inputs: list) -> list:
        return []


def tuning(run: Callable) -> Callable:
    """A proof that calls run(func, target), where ms.tune_tir neither builds nor measures."""
    def tune_tir(*args: object, **options: object) -> object:
        with tempfile.TemporaryDirectory() as folder:
            options |= {"work_dir": folder, "builder": NoBuilder(), "runner": NoRunner(),
                        "cost_model": "random", "strategy": "replay-trace",
                        "space": ms.space_generator.ScheduleFn(lambda sch: None),
                        "task_scheduler": "round-robin", "max_trials_global": 1}
            return original(*args, **options)

    @functools.wraps(run)
    def prove_it() -> None:
        loggers = mock.Mock(side_effect=lambda _, tasks: len(tasks) * [logging.getLogger("tune")])
        slow = {"tvm.s_tir.tensor_intrin": mock.Mock()}  # its import takes 25 s
        with (mock.patch.object(ms, "tune_tir", tune_tir), mock.patch.dict(sys.modules, slow),
              mock.patch.object(ms.tir_integration, "get_loggers_from_work_dir", loggers),
              mock.patch.object(ms.relax_integration, "get_loggers_from_work_dir", loggers)):
            run(FUNC, tvm.target.Target({"kind": "llvm", "num-cores": 1}))

    original = ms.tune_tir
    return prove_it


@proof(OLD, 'ms.tune_tir(func, target, config=ms.TuneConfig(…), work_dir="tune_tmp")')
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    with pytest.raises(AttributeError):
        ms.tune_tir(func, target, config=ms.TuneConfig(max_trials_global=64), work_dir="tune_tmp")
    ms.tune_tir(func, target, config=None, work_dir="tune_tmp")


@proof(TODAY, 'ms.tune_tir(func, target, config=ms.TuneConfig(…), work_dir="tune_tmp")')
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    ms.tune_tir(func, target, max_trials_global=64, num_trials_per_iter=64, work_dir="tune_tmp")


@proof(OLD, 'ms.tune_tir(…, task_name="main")')
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    ms.tune_tir(func, target, max_trials_global=64, work_dir="tune_tmp", task_name="main")


@proof(TODAY, 'ms.tune_tir(…, task_name="main")')
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    ms.tune_tir(func, target, max_trials_global=64, work_dir="tune_tmp")


@proof(OLD, "sch = ms.tune_tir(…)")
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    sch = ms.tune_tir(func, target)
    sch.mod  # noqa: B018 (as in 2022)


@proof(TODAY, "sch = ms.tune_tir(…)")
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    database = ms.tune_tir(func, target, database="memory")
    sch = ms.tir_integration.compile_tir(database, func, target)
    assert sch is None  # nothing valid in it
    func = func.with_attr("tirx.noalias", True)
    found = tvm.s_tir.Schedule(func)
    found.get_sblock("compute")
    database.commit_tuning_record(ms.database.TuningRecord(
        found.trace, database.commit_workload(tvm.IRModule({"main": func})), [1e-6], target,
        ms.arg_info.ArgInfo.from_prim_func(func)))
    sch = ms.tir_integration.compile_tir(database, func, target)
    equal(sch.mod["main"], func)


@proof(OLD, 'target="llvm --num-cores=1"')
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    ms.tune_tir(func, target="llvm --num-cores=1")


@proof(TODAY, 'target="llvm --num-cores=1"')
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    ms.tune_tir(func, target=tvm.target.Target({"kind": "llvm", "num-cores": 1}))


@proof(SAME, "tuning and ready-made schedules, in their new home")
@tuning
def _(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> None:
    mod = relax.transform.LegalizeOps()(
        relax_model(lambda bb, x: bb.emit(relax.op.matmul(x, relax.op.permute_dims(x)))))
    assert len(ms.relax_integration.extract_tasks(mod, target)) == 2
    with tempfile.TemporaryDirectory() as folder, target:
        database = ms.relax_integration.tune_relax(
            mod, params={}, target=target, work_dir=folder, max_trials_global=1,
            space=ms.space_generator.ScheduleFn(lambda sch: None), strategy="replay-trace",
            cost_model="random", builder=NoBuilder(), runner=NoRunner())
        assert isinstance(database, ms.database.JSONDatabase)
        equal(relax.transform.MetaScheduleApplyDatabase(work_dir=folder)(mod), mod)
        tune = relax.transform.MetaScheduleTuneTIR(work_dir=folder, max_trials_global=1)
        assert len(tune(tvm.IRModule()).functions) == 0
        tune = relax.transform.MetaScheduleTuneIRMod({}, work_dir=folder, max_trials_global=1)
        assert "No tasks to tune" in message(tune, tvm.IRModule())
    database = ms.tune_tir(func, target, database="memory")
    assert ms.tir_integration.compile_tir(database, func, target) is None
    with tvm.target.Target("nvidia/tesla-p100"):
        scheduled = dl.ApplyDefaultSchedule(dl.gpu.Matmul(), dl.gpu.Fallback())(mod)
    assert "threadIdx.x" in scheduled.script()
