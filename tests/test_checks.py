"""checks: no false alarm on right modules, the layer of wrong ones, no crash and no hang."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax, te, topi

import helpers
from course import checks, present
from course.checks.exercises import models, notebook_09
from course.checks.exercises.schedules import require_scheduled
from course.checks.run import check as running
from course.checks.run.isolate import Child
from course.checks.say.messages import CheckFailed
from tools.grading import inside

WEIGHTS = helpers.load_weights("cnn")
MODEL = helpers.pytorch_model(WEIGHTS)


def _cnn(**changes) -> tvm.IRModule:
    """The CNN by emit_te, with an operator exchanged for another: conv=..., pool=..., ..."""
    const = {name: relax.const(value, "float32") for name, value in WEIGHTS.items()}
    steps = {
        "conv": lambda bb, v: bb.emit_te(topi.nn.conv2d, v, const["conv2d_weight"], 1, 0, 1),
        "conv_bias": lambda bb, v: bb.emit_te(topi.add, v, relax.const(
            WEIGHTS["conv2d_bias"].reshape(1, 32, 1, 1), "float32")),
        "relu0": lambda bb, v: bb.emit_te(topi.nn.relu, v),
        "pool": lambda bb, v: bb.emit_te(topi.nn.pool2d, v, (2, 2), (2, 2), (1, 1), (0,) * 4,
                                         "max"),
        "flatten": lambda bb, v: bb.emit_te(topi.nn.flatten, v),
        "dense0": lambda bb, v: bb.emit_te(topi.nn.dense, v, const["linear0_weight"]),
        "bias0": lambda bb, v: bb.emit_te(topi.add, v, const["linear0_bias"]),
        "relu1": lambda bb, v: bb.emit_te(topi.nn.relu, v),
        "dense1": lambda bb, v: bb.emit_te(topi.nn.dense, v, const["linear1_weight"]),
        "bias1": lambda bb, v: bb.emit_te(topi.add, v, const["linear1_bias"]),
        "softmax": lambda bb, v: bb.emit_te(topi.nn.softmax, v, axis=1),
    } | changes
    bb = relax.BlockBuilder()
    value = x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            for step in steps.values():
                value = step(bb, value) if step else value
            value = bb.emit_output(value)
        bb.emit_func_output(value)
    return bb.get()


def _fused() -> tvm.IRModule:
    passes = [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(),
              relax.transform.FuseTIR()]
    return tvm.transform.Sequential(passes)(_cnn())


def _library() -> tvm.IRModule:
    @tvm.register_global_func("env.test_conv2d", override=True)
    def conv2d(x, w, out):
        torch.from_dlpack(out)[:] = torch.conv2d(torch.from_dlpack(x), torch.from_dlpack(w))

    weight = relax.const(WEIGHTS["conv2d_weight"], "float32")
    return _cnn(conv=lambda bb, v: bb.emit(relax.op.call_dps_packed(
        "env.test_conv2d", (v, weight), relax.TensorType((4, 32, 26, 26), "float32"))))


RIGHT = {"emit_te": _cnn, "imported": lambda: helpers.import_model(MODEL, (4, 1, 28, 28)),
         "fused": _fused, "library": _library}


@pytest.mark.parametrize("kind", RIGHT)
def test_no_false_alarm(kind: str, capsys) -> None:
    checks.check_equivalence(RIGHT[kind](), MODEL, helpers.test_loader())
    assert "Equivalent ✓ 1,000 images in 250 batches" in capsys.readouterr().out


def _first_only(bb, value):
    return bb.emit_te(lambda a: te.compute(
        a.shape, lambda n, f: a[n, f] * te.if_then_else(n == 0, 1.0, 0.5), name="scaled"), value)


def _hole(bb, value):
    return bb.emit_te(lambda a: te.compute(a.shape, lambda n, f: te.if_then_else(
        n == 2, te.const(float("nan"), "float32"), a[n, f]), name="hole"), value)


WRONG = [
    ("layer 0, Conv2d: ", {"conv_bias": None}),
    ("layer 0, Conv2d: ", {"conv_bias": lambda bb, v: bb.emit_te(
        topi.add, v, relax.const(WEIGHTS["conv2d_bias"][:26], "float32"))}),
    ("from add is used without it", {"relu0": None}),
    ("layer 2, MaxPool2d: ", {"pool": lambda bb, v: bb.emit_te(
        topi.nn.pool2d, v, (2, 2), (2, 2), (1, 1), (0,) * 4, "avg")}),
    ("layer 3, Flatten: ", {"flatten": lambda bb, v: bb.emit_te(
        lambda a: topi.nn.flatten(topi.transpose(a, (0, 2, 3, 1))), v)}),
    ("layer 4, Linear: ", {"dense0": lambda bb, v: bb.emit_te(
        topi.matmul, v, relax.const(WEIGHTS["linear0_weight"].reshape(5408, 100), "float32"))}),
    ("main ends after layer 6, Linear", {"softmax": None}),
    ("layer 7, Softmax: ", {"softmax": lambda bb, v: bb.emit_te(topi.nn.softmax, v, axis=0)}),
    ("*0.5* at [1, 0]", {"relu1": lambda bb, v: _first_only(bb, bb.emit_te(topi.nn.relu, v))}),
    ("*nan* at [2, :]", {"relu1": _hole})]


@pytest.mark.parametrize(("words", "changes"), WRONG)
def test_the_layer_is_named(words: str, changes: dict) -> None:
    with pytest.raises(checks.CheckFailed, match="Not equivalent") as failed:
        checks.check_equivalence(_cnn(**changes), MODEL, helpers.test_loader(count=8))
    assert words in str(failed.value) and len(str(failed.value).splitlines()) <= 6


def _nan_is_seen(bb, value):
    """ReLU, as long as the compiler knows NaN: with fast-math there is none, and x is left."""
    def relu(a):
        return te.compute(a.shape, lambda *i: te.if_then_else(
            te.isnan(te.sqrt(-1 - a(*i) * a(*i))), te.max(a(*i), te.const(0, "float32")), a(*i)))
    return bb.emit_te(relu, value)


def test_a_fault_of_the_target_alone_gets_its_own_cause() -> None:
    mod, loader = _cnn(relu0=_nan_is_seen), helpers.test_loader(count=8)
    checks.check_equivalence(mod, MODEL, loader)
    with pytest.raises(checks.CheckFailed, match="Not equivalent") as failed:
        checks.check_equivalence(mod, MODEL, loader,
                                 tvm.target.Target({"kind": "llvm", "fast-math": True}))
    assert "layer 1, ReLU" in str(failed.value)


def test_another_order_of_what_is_returned() -> None:
    mod = _cnn(softmax=lambda bb, v: (bb.emit_te(topi.nn.softmax, v, axis=1), v)[1])
    with pytest.raises(checks.CheckFailed, match="main to return .*, which is layer"):
        checks.check_equivalence(mod, MODEL, helpers.test_loader(count=8))


def test_what_main_returns_counts_also_if_it_was_not_bound_last() -> None:
    const = {name: relax.const(value, "float32") for name, value in WEIGHTS.items()}
    linear = nn.Sequential(nn.Flatten(), nn.Linear(5408, 100)).eval()
    linear.load_state_dict({"1.weight": torch.from_numpy(WEIGHTS["linear0_weight"].copy()),
                            "1.bias": torch.from_numpy(WEIGHTS["linear0_bias"].copy())})
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 32, 13, 13), "float32"))
    with bb.function("main", [x]):
        flat = bb.emit_te(topi.nn.flatten, x)
        product = bb.emit_te(topi.nn.dense, flat, const["linear0_weight"])
        bb.emit_te(topi.add, product, const["linear0_bias"])
        bb.emit_func_output(product)
    batch = torch.from_numpy(checks.random(2, 32, 13, 13))
    with pytest.raises(checks.CheckFailed, match="main to return .*, which is layer"):
        checks.check_equivalence(bb.get(), linear, [(batch, torch.zeros(2))])


def test_a_main_that_computes_nothing() -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(x)
    relu = nn.Sequential(nn.ReLU()).eval()
    with pytest.raises(checks.CheckFailed, match="operators in main"):
        checks.check_equivalence(bb.get(), relu, [(torch.full((2, 4), -1.0), torch.zeros(2))])


@pytest.mark.parametrize(("mod", "words"), [
    (None, "an IRModule"), (tvm.IRModule({}), "a function named main")])
def test_what_is_no_model(mod, words: str) -> None:
    with pytest.raises(checks.CheckFailed, match=words):
        checks.check_equivalence(mod, MODEL, helpers.test_loader(count=8))


def test_a_function_that_is_not_registered() -> None:
    mod = _cnn(pool=lambda bb, v: bb.emit(relax.op.call_dps_packed(
        "env.nobody", (v,), relax.TensorType((4, 32, 13, 13), "float32"))))
    with pytest.raises(checks.CheckFailed, match="Cannot find ffi::Function env.nobody"):
        checks.check_equivalence(mod, MODEL, helpers.test_loader(count=8))


def test_out_of_bounds_is_refused_without_running() -> None:
    a = te.placeholder((4,), name="a")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i + 1], name="b")])
    with pytest.raises(checks.CheckFailed, match="outside the range"):
        checks.run_prim_func(func, [np.zeros(4, "float32")], (4,))


def test_wrong_probabilities_that_are_nearly_one_hot_are_caught() -> None:
    layers = nn.Sequential(nn.Softmax(dim=1))
    right = torch.tensor([[30.0, 0.0], [0.0, 29.0]]).softmax(1).numpy()
    wrong = torch.tensor([[30.0, 0.5], [0.0, 29.0]]).softmax(1).numpy()
    assert checks.is_layer(right, right, layers[0])
    assert not checks.is_layer(wrong, right, layers[0])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere checks run in this process")
@pytest.mark.parametrize(("run", "words"), [
    (lambda: os.abort(), "SIGABRT"),
    (lambda: time.sleep(60), "still running after 1 seconds"),
    (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
])
def test_a_crash_and_a_hang_stay_in_the_child(run, words: str) -> None:
    passed, parts = checks.isolated(run, seconds=1)
    assert not passed and words in parts[1]


FORGERY = """
import contextlib, os, time
from course import checks

def everywhere(forged):
    for number in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(number, forged)

said = b'[true, "fine", ""]'
for forged in (b"x", said, bytes(8) + len(said).to_bytes(8, "big") + said, bytes(50_000)):
    for then in (lambda: "done", lambda: os._exit(0), lambda: time.sleep(60)):
        passed, parts = checks.isolated(lambda: everywhere(forged) or then(), 5)
        assert not passed and parts[1] == "no verdict from the check", parts
print("never believed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere checks run in this process")
def test_a_forged_verdict_is_not_believed() -> None:
    """In a process of its own: pytest's open files are written into as well."""
    run = subprocess.run([sys.executable, "-c", FORGERY], cwd=helpers.ROOT, capture_output=True,
                         text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert run.stdout == "never believed\n", run.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere checks run in this process")
def test_without_its_tool_a_check_judges_nothing(monkeypatch, capsys) -> None:
    """In a notebook it says so, and for a grade it is not right."""
    monkeypatch.setattr(present, "tool", lambda _kind: present.Tool(said="No linker"))
    monkeypatch.setattr(running, "right", {})
    source = "def ship(mod, target, folder): ..."
    given: dict[str, Any] = {}
    exec(source, given)
    checks.exercise_11_8(given["ship"])
    said = "Exercise 11.8 is not judged on this machine. No linker"
    assert capsys.readouterr().out.strip() == said and not running.right
    assert Child(inside.check, "11.8", "ship", [source], "en").result() == [False, said]


@pytest.mark.parametrize("raised", [NotImplementedError, KeyboardInterrupt, CheckFailed])
def test_the_courses_code_generator_comes_back(raised) -> None:
    """Where nothing forks, 9.6 runs in the reader's own kernel."""
    name = notebook_09._COURSES
    tvm_ffi.register_global_func(name, lambda *given: "the notebook's", override=True)
    try:
        with pytest.raises(raised), notebook_09._another_generator():
            if raised is not CheckFailed:
                raise raised
            tvm_ffi.get_global_func(name)([], {}, {})  # an answer's pattern has the course's name
        assert tvm_ffi.get_global_func(name)() == "the notebook's"
    finally:
        tvm_ffi.registry.remove_global_func(name)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere checks run in this process")
def test_a_long_verdict_arrives_whole() -> None:
    assert checks.isolated(lambda: "é" * 100_000, 5) == (True, "é" * 100_000)


@pytest.mark.parametrize("forks", [True, False])
def test_what_is_prepared_cannot_be_spoiled(forks: bool, monkeypatch) -> None:
    if forks and sys.platform != "linux":
        pytest.skip("nothing forks here")
    monkeypatch.setattr(running, "forks", lambda: forks)

    def spoil() -> str:
        models.cnn()[0]["conv2d_bias"][:] = 7
        models.reference(8)[0].images[:] = 7
        return "spoiled"

    monkeypatch.setattr(running, "registered", {})

    @running.exercise("0.0", "answer()", prepare=[models.cnn])
    def check(answer: Callable[[], str]) -> str:
        return answer()

    check(spoil)
    assert np.array_equal(models.cnn()[0]["conv2d_bias"], WEIGHTS["conv2d_bias"])
    assert models.reference(8)[0].images.max() <= 1
    assert (models.cnn() is models.cnn()) == forks  # made once, or anew each time


def test_no_notebooks_checks_need_those_of_another_nor_the_plots() -> None:
    for path in sorted((Path(checks.__file__).parent).rglob("*.py")):
        imported = {name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                    if isinstance(node, ast.Import | ast.ImportFrom)
                    for name in [getattr(node, "module", None) or "",
                                 *(alias.name for alias in node.names)]}
        assert not [name for name in imported if "plots" in name], path.name
        assert not [name for name in imported if "notebook_" in name], path.name


def _undocumented(node: ast.AST) -> Iterator[str]:
    """Yield the public functions, classes and methods in a module or class without a docstring."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and not part.name.startswith("_"):
            setter = any(isinstance(one, ast.Attribute) and one.attr == "setter"
                         for one in part.decorator_list)
            if not setter and not ast.get_docstring(part):
                yield part.name
            if isinstance(part, ast.ClassDef):
                yield from _undocumented(part)


@pytest.mark.parametrize("path", sorted(Path(checks.__file__).parent.rglob("*.py")),
                         ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_is_public_in_checks_has_a_docstring(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(module) and not list(_undocumented(module))


def _endless() -> str:
    while True:
        pass


def _endless_after_an_except() -> str:
    with contextlib.suppress(BaseException):
        _endless()
    return _endless()


def _endless_inside_a_call_of_tvms() -> str:
    return str(tvm_ffi.convert(_endless)())


@pytest.mark.parametrize("run", [_endless, _endless_after_an_except,
                                 _endless_inside_a_call_of_tvms])
def test_without_fork_a_timer_ends_endless_loops(run, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    before = signal.getsignal(signal.SIGALRM)
    start = time.monotonic()
    passed, parts = checks.isolated(run, seconds=0.3)
    assert not passed and "still running after 0.3 seconds" in parts[1]
    assert time.monotonic() - start < 5
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0), "the timer would go off in the next cell"


def _copied(given: tuple[int, ...], declared: tuple[int, ...], buffer: str) -> tvm.IRModule:
    """A main that copies x by a PrimFunc whose first buffer is declared as told."""
    rows, columns = declared
    source = f"""# from tvm.script import tirx as T
@T.prim_func(private=True, s_tir=True)
def copy(X: T.Buffer({buffer}), Y: T.Buffer(({rows}, {columns}), "float32")):
    for i, j in T.grid({rows}, {columns}):
        with T.sblock("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj]
"""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(given, "float32"))
    copy = bb.add_func(tvm.script.from_source(source), "copy")
    with bb.function("main", [x]):
        gv = bb.emit(relax.call_tir(copy, relax.Tuple([x]), relax.TensorType(declared, "float32")))
        bb.emit_func_output(gv)
    return bb.get()


@pytest.mark.parametrize(("given", "declared", "buffer", "fits"), [
    ((4, 3), (4, 3), '(4, 3), "float32"', True),
    ((4, 3), (5, 3), '(5, 3), "float32"', False),
    ((4, 3), (2, 3), '(2, 3), "float32"', False),
    ((4, 3), (4, 3), '(4, 3), "int32"', False),
    ((4, 3), (4, 3), '(4, 3), "float32", strides=[6, 2]', False)])
def test_kernels_look_at_their_tensors(given, declared, buffer, fits) -> None:
    mod = _copied(given, declared, buffer)
    loader = [(torch.rand(given), torch.zeros(given[0]))]
    if fits:
        checks.check_equivalence(mod, nn.Sequential(nn.Identity()), loader)
        with pytest.raises(checks.CheckFailed, match="main to run on float32"):
            checks.check_equivalence(mod, nn.Sequential(nn.Identity()),
                                     [(torch.rand(5, 3), torch.zeros(5))])
    else:
        with pytest.raises(checks.CheckFailed):
            checks.check_equivalence(mod, nn.Sequential(nn.Identity()), loader)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no choice of CPUs here")
def test_checks_that_run_at_the_same_time_do_not_share_one_cpu() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert checks.isolated(lambda: str(sorted(os.sched_getaffinity(0))), 5) == (True, str(allowed))


def test_without_fork_answers_in_time_and_in_threads(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert checks.isolated(lambda: "done", 5) == (True, "done")
    passed, parts = checks.isolated(lambda: 1 / 0, 5)
    assert not passed and "ZeroDivisionError" in parts[1]
    with ThreadPoolExecutor() as pool:  # where no timer can be set
        assert pool.submit(checks.isolated, lambda: "done", 5).result() == (True, "done")


def test_what_an_answer_prints_is_shown(capsys) -> None:
    assert checks.isolated(lambda: print("seen") or "done", 5) == (True, "done")
    assert capsys.readouterr().out == "seen\n"


def test_a_cause_is_named_only_if_it_gives_what_came() -> None:
    expected = np.ones(3, np.float32)
    doubled = {"it is doubled": lambda: 2 * expected}
    with pytest.raises(checks.CheckFailed, match="it is doubled"):
        checks.require_equal(2 * expected, expected, doubled)
    with pytest.raises(checks.CheckFailed) as failed:
        checks.require_equal(3 * expected, expected, doubled)
    assert failed.value.parts[2] == ""


@pytest.mark.parametrize(("came", "words"), [
    (np.ones(4, np.float32), "shape"), (np.ones(3), "float64"),
    (np.array([1, np.nan, 1], np.float32), r"\[1, \*nan\*, 1\]"),
    (np.array([1, 1, 1.01], np.float32), r"\[1, 1, \*1.01\*\]"), (None, "shape"),
])
def test_compare_refuses(came, words: str) -> None:
    with pytest.raises(checks.CheckFailed, match=words):
        checks.require_equal(came, np.ones(3, np.float32), {})


def test_compare_accepts_rounding() -> None:
    checks.require_equal(np.float32([1, 1, 1.00001]), np.ones(3, np.float32), {})


def test_a_convolution_without_its_sum() -> None:
    x = te.placeholder((4, 8), name="x")
    func = te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] * 2.0, name="y")])
    with pytest.raises(checks.CheckFailed, match="no block with a reduction axis"):
        require_scheduled(func)


def _conv2d_of_ones_own(weight_first: bool, product_turned: bool, bias: bool) -> tvm.tirx.PrimFunc:
    x = te.placeholder((4, 1, 28, 28), name="image")
    w, b = te.placeholder((32, 1, 3, 3), name="kernel"), te.placeholder((32,), name="offset")
    c, p, q = (te.reduce_axis((0, n), name=name) for n, name in [(1, "c"), (3, "p"), (3, "q")])

    def term(n, f, i, j):
        factors = x[n, c, i + p, j + q], w[f, c, p, q]
        return factors[1] * factors[0] if product_turned else factors[0] * factors[1]

    y = te.compute((4, 32, 26, 26), lambda *i: te.sum(term(*i), axis=[c, p, q]), name="mine")
    out = te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="sum") if bias else y
    inputs = [w, x] if weight_first else [x, w]
    return te.create_prim_func([*inputs, *[b] * bias, out])


@pytest.mark.parametrize("weight_first", [False, True])
@pytest.mark.parametrize("product_turned", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_scheduled_conv2d_of_ones_own(weight_first: bool, product_turned: bool,
                                        bias: bool) -> None:
    func = _conv2d_of_ones_own(weight_first, product_turned, bias)
    with pytest.raises(checks.CheckFailed, match="parallel outermost loop"):
        require_scheduled(func)
    schedule = tvm.s_tir.Schedule(func)
    block = schedule.get_sblock("mine")
    n, f, i, j, c, p, q = schedule.get_loops(block)
    outer, inner = schedule.split(j, factors=[None, 13])
    schedule.reorder(n, f, i, outer, c, p, q, inner)
    schedule.unroll(q)
    schedule.vectorize(inner)
    schedule.parallel(n)
    if bias:
        *_, rows, last = schedule.get_loops(schedule.get_sblock("sum"))
        schedule.parallel(schedule.get_loops(schedule.get_sblock("sum"))[0])
    with pytest.raises(checks.CheckFailed, match="a decomposed reduction"):
        require_scheduled(schedule.mod["main"])
    schedule.decompose_reduction(block, c)
    assert require_scheduled(schedule.mod["main"])
