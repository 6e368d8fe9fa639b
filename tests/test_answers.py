"""checks.run: how an answer is called, whose it is, and what it may reach."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import tvm
import two_sided
from IPython.core.interactiveshell import InteractiveShell

from course import checks
from course.checks.run import cells, signature
from course.checks.run import check as running
from course.checks.run.answer import checked
from course.checks.run.signature import name_in, other_order, require_called_as
from tools.grading import plan
from tools.student import student_version

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = [number for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
           for number in two_sided.exercises(path.stem)]
FORKS = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere checks run in this process")

# ---- how it is called ----------------------------------------------------------------------


def _form(number: str) -> str:
    return running.registered[number].form


def _refused(number: str, answer: object) -> str:
    with pytest.raises(checks.CheckFailed) as failed:
        running.registered[number].check(answer)
    return str(failed.value)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")),
                         ids=lambda path: path.stem[:2])
def test_checks_call_answers_as_the_notebooks_define_them(path: Path) -> None:
    names: dict[str, object] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            lines = [line for line in cell.source.splitlines() if not line.startswith(("%", "@"))]
            with contextlib.suppress(Exception):  # what it needs is not there: its def is enough
                exec("from __future__ import annotations\n" + "\n".join(lines), names)
    for check in plan.checks_of(student_version(path)):
        form = _form(check.number)
        assert check.answer == name_in(form)
        require_called_as(names[check.answer], form)
        given = form.partition("(")[2].rstrip(")")
        shown = str(signature.plain(names[check.answer]))
        assert shown == f"({given})", (check.number, shown)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signature_of_ones_own_is_no_fault_of_the_course(number: str) -> None:
    """96 tries, 83 of them with 'a fault of the course' before."""
    name, _, rest = _form(number).partition("(")
    parameters = rest.rstrip(")")
    wrong = [f"def {name}({', '.join(filter(None, (parameters.split('=')[0], 'more')))}): 1"]
    if parameters:
        wrong += [f"def {name}(): 1", f"def {name}(*, {parameters}): 1"]
    for source in wrong:
        names: dict[str, object] = {}
        exec(source, names)
        said = _refused(number, names[name])
        assert f"{name} takes (" in said and "fault of the course" not in said, said
        assert "function that is called as" in said, said
    assert f"{name} is None" in _refused(number, None)
    assert "fault of the course" not in _refused(number, None)


@pytest.mark.parametrize(("source", "words"), [
    ("def f(a, b): yield a", "runs none of its lines"),
    ("async def f(a, b): pass", "an async def: calling it runs none"),
    ("f = tvm.get_global_func('topi.nn.relu')", "f is a function of TVM's"),
    ("f = 7", "f is 7"), ("def f(a): pass", "f takes (a)"),
    ("def f(a, b, *, c): pass", "f takes (a, b, *, c)")])
def test_what_cannot_be_called_is_told(source: str, words: str) -> None:
    names: dict[str, object] = {"tvm": tvm}
    exec(source, names)
    with pytest.raises(checks.CheckFailed) as failed:
        require_called_as(names["f"], "f(a, b)")
    assert words in str(failed.value)


def test_names_of_parameters_are_the_readers_own() -> None:
    for answer in (lambda x, y: 0, lambda *all: 0, lambda x, y, more=1: 0, max):
        require_called_as(answer, "f(a, b)")
    assert other_order(lambda b, a: 0, "f(a, b)") == "(b, a)"
    assert not other_order(lambda a, b: 0, "f(a, b)") and not other_order(max, "f(a, b)")
    with pytest.raises(checks.CheckFailed, match="takes \\(a, repeats\\)"):
        require_called_as(lambda a, repeats: 0, "f(a, repeats=5)")
    require_called_as(lambda a, repeats=1: 0, "f(a, repeats=5)")


def test_a_fault_of_the_course_is_one_that_no_answer_can_be(monkeypatch) -> None:
    monkeypatch.setattr(running, "registered", {})
    here = "course/checks/exercises/made_up.py"
    before, after = "raise KeyError('ours')\n    answer(1)", "return [][answer(1)]"
    for body, fault in ((before, True), (after, False)):
        names: dict[str, object] = {}
        exec(compile(f"def check(answer):\n    {body}", str(ROOT / here), "exec"), names)
        running.exercise("0.0", "answer(x)")(names["check"])
        said = _refused("0.0", lambda x: 0)
        assert ("a fault of the course" in said) == fault and "made_up.py, line " in said, said


# ---- whose it is ---------------------------------------------------------------------------

RIGHT = "def linear(x, w):\n    return x @ w"


class Kernel:
    """A shell in which cells run as in a kernel, and a check of `linear`."""

    def __init__(self) -> None:
        self.shell = InteractiveShell()
        self.notebook = cells.Notebook(self.shell.user_ns)
        self.shell.events.register("pre_run_cell", lambda info: self.notebook.begins(
            info.raw_cell, info.cell_id or ""))
        self.shell.events.register("post_run_cell", lambda result: self.notebook.ended(
            result.error_before_exec or result.error_in_exec))
        self.shell.user_ns["check"] = lambda answer: self.said.append(self.judge(answer))
        self.said: list[str] = []

    def judge(self, answer: object) -> str:
        try:
            cells.require_of_the_cell_above(answer, "linear", {"max_pool"}.__contains__)
        except checks.CheckFailed as failed:
            return str(failed)
        return ""

    def __call__(self, *sources: str, id: str | None = None) -> str:
        for source in sources:
            self.shell.run_cell(source, cell_id=id)
        self.shell.run_cell("check(linear)", cell_id=id and f"check of {id}")
        return self.said.pop()


@pytest.fixture
def kernel(monkeypatch, capsys) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(cells, "_notebook", made.notebook)
    return made


@pytest.mark.parametrize("id", [None, "the answer's"])
@pytest.mark.parametrize(("cell", "words"), [
    (f"import mathh\n{RIGHT}",
     "No module named 'mathh'; linear is still the one from an earlier cell"),
    (f"not_defined\n{RIGHT}", "name 'not_defined' is not defined"),
    (f"@not_defined\n{RIGHT}", "name 'not_defined' is not defined"),
    ("def linear(x, w):\n        y = x @ w\n    return y", "IndentationError"),
    ("if True:\n    def linear(x, w)\n        return x @ w", "SyntaxError"),
    ("linear = lambda x, w: (x @ w", "SyntaxError"),
    ("import mathh\nlinear = lambda x, w: x @ w", "No module named 'mathh'"),
    (f"%%time\nimport mathh\n{RIGHT}", "linear is still the one from an earlier cell"),
    ("if False:\n    def linear(x, w):\n        return x", "it ran and did not; linear is still"),
    (RIGHT.replace("linear", "linaer"), "it defines linaer; linear is still the one from"),
    (RIGHT.replace("linear", "my_layer"), "it defines my_layer; linear is still"),
    ("linaer = lambda x, w: x @ w", "it defines linaer; linear is still")])
def test_no_older_function_is_judged(kernel: Kernel, cell: str, words: str, id: str | None) -> None:
    assert kernel(RIGHT, id=id) == ""
    said = kernel(cell, id=id)
    assert words in said, said
    assert words in kernel(id=id), "a second check says so too"
    assert kernel(RIGHT, id=id) == "", "a fixed cell is not held against an error that is gone"


@pytest.mark.parametrize("id", [None, "the answer's"])
def test_an_answer_may_be_imported_or_one_of_several(kernel: Kernel, id: str | None) -> None:
    kernel.shell.run_cell("import sys, types; sys.modules['mine'] = types.SimpleNamespace()")
    kernel.shell.run_cell("def make():\n    return (lambda x, w: x @ w), 1\n"
                          "sys.modules['mine'].linear = make()[0]")
    assert kernel("def linear(x, w):\n    ...", id=id) == ""
    assert kernel("from mine import linear", id=id) == ""
    assert kernel("def make():\n    return max, 1\nlinear, one = make()", id=id) == ""


@pytest.mark.parametrize("fixed", [
    f"if True:\n    {RIGHT.replace(chr(10), chr(10) + '    ')}", "linear = lambda x, w: x @ w",
    f"{RIGHT}\nraise ValueError('below it')", "def other(x, w):\n    return x\nlinear = other"])
def test_a_fixed_cell_is_judged(kernel: Kernel, fixed: str) -> None:
    assert kernel(RIGHT) == ""
    assert "SyntaxError" in kernel("def linear(x, w)\n    return x @ w")
    assert kernel(fixed) == ""


@pytest.mark.parametrize("between", [
    "def max_pool(x):\n    return x",  # another answer
    "def helper(x):\n    return x", "x = 1", "x = [", "1 / 0", f"old = '''\n{RIGHT}\n'''",
    "[linear for linear in range(2)]",
    "def create(weights):\n    def linear(x, w):\n        return x\n    return linear",
    "class Model:\n    def linear(self):\n        return 1"])
def test_other_cells_do_not_count(kernel: Kernel, between: str) -> None:
    assert kernel("def linear(x, w):\n    return helper(x) @ w") == ""
    if "create" not in between:
        assert kernel(between) == ""
    assert kernel(between, id="another cell") == ""


def test_a_misspelt_cell_is_not_told_of_an_error_that_is_gone(kernel: Kernel) -> None:
    assert kernel(RIGHT) == ""
    assert "SyntaxError" in kernel("def linear(x, w)\n    return x @ w")
    said = kernel(RIGHT.replace("linear", "linaer"))
    assert "SyntaxError" not in said and "it defines linaer" in said


def test_what_an_older_answer_passed_is_not_accepted(kernel: Kernel, monkeypatch, capsys) -> None:
    monkeypatch.setattr(running, "registered", {"2.2": SimpleNamespace(form="linear(x, w)")})
    kernel(RIGHT)
    monkeypatch.setattr(running, "right", {"2.2": kernel.shell.user_ns["linear"]})
    kernel.shell.user_ns["accepted"] = running.accepted
    ask = "asked = accepted('2.2')"
    kernel.shell.run_cell(ask)
    assert kernel.shell.user_ns["asked"] is True
    kernel.shell.run_cell(f"import mathh\n{RIGHT}")
    kernel.shell.run_cell(ask)
    assert kernel.shell.user_ns["asked"] is False


# ---- what it may reach ---------------------------------------------------------------------


def _writes(size: int) -> str:
    for _time in range(size // 4096):
        os.write(1, bytes(4096))
    return "done"


def _recursion() -> str:
    class Deep:
        def __repr__(self) -> str:
            return repr([self])

    sys.setrecursionlimit(10**9)
    return repr(Deep())


@FORKS
@pytest.mark.parametrize("run", [
    lambda: _writes(10**8),
    lambda: subprocess.run([sys.executable, "-c", "print('x' * 10**7)"], check=True) and "done",
    lambda: sys.__stdout__ is None or sys.__stdout__.write("x" * 10**7) and "done",
    lambda: [ctypes.CDLL(None).puts(b"x" * 10_000) for _ in range(1000)] and "done"])
def test_what_goes_to_descriptor_1_is_bounded(run: Callable[[], str], capfd) -> None:
    assert checks.isolated(run, 5) == (True, "done")
    assert len(capfd.readouterr().out) < running.MOST_PRINTED + 100


@FORKS
def test_what_writes_without_end_is_ended(capfd) -> None:
    passed, parts = checks.isolated(lambda: _writes(10**13), 30)
    assert not passed and parts[1] in ("more than 512 MB", "still running after 30 seconds of "
                                                           "computing"), parts
    assert len(capfd.readouterr().out) < running.MOST_PRINTED + 100


@FORKS
def test_what_goes_to_descriptor_1_is_shown_in_its_order(capfd) -> None:
    def talks() -> str:
        print("one")
        os.write(1, b"two\n")
        os.write(2, b"unseen\n")
        print("three", flush=True)
        os._exit(7)

    passed, _parts = checks.isolated(talks, 5)
    assert not passed and capfd.readouterr().out == "one\ntwo\nthree\n"


@FORKS
def test_no_descriptor_leads_out_of_the_child() -> None:
    """A kernel whose sockets are written into dies."""
    mine, other = os.pipe()
    try:
        def everywhere() -> str:
            for number in range(3, 300):
                with contextlib.suppress(OSError):
                    os.write(number, b"x")
            return "done"

        passed, parts = checks.isolated(everywhere, 5)
        assert not passed and parts[1] == "no verdict from the check"
        os.set_blocking(mine, False)
        with pytest.raises(BlockingIOError):
            os.read(mine, 1)
    finally:
        os.close(mine)
        os.close(other)


@FORKS
def test_what_ignores_its_limit_is_ended() -> None:
    def ignores() -> str:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True:
            pass

    passed, parts = checks.isolated(ignores, 1)
    assert not passed and parts[1] in ("still running after 1 seconds of computing",
                                       "still running after 20 seconds")  # of a busy machine


@FORKS
def test_what_an_answer_starts_ends_with_it() -> None:
    passed, said = checks.isolated(
        lambda: str(subprocess.Popen(["sleep", "60"]).pid), 5)
    assert passed
    time.sleep(0.2)
    state = Path(f"/proc/{said}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


@FORKS
@pytest.mark.parametrize(("run", "came", "look_at"), [
    (os.abort, r"\(SIGABRT\)", "something that ends the process"),
    # CPython 3.12 counts its own calls in C, and raises before the stack is full
    (_recursion, "calls deep|RecursionError", "a function that calls itself has to end|your line"),
    # TVM's own handler of SIGSEGV prints a trace; where that fails in turn, it is SIGABRT
    (lambda: ctypes.string_at(0), r"\(SIG(SEGV|ABRT)\)", "your line ")])
def test_what_ended_a_process_is_not_guessed(run, came: str, look_at: str, monkeypatch) -> None:
    monkeypatch.setattr(checked, "names", frozenset([__file__]))
    passed, parts = checks.isolated(run, 20)
    assert not passed and re.search(came, parts[1]) and re.search(look_at, parts[2]), parts
    assert "outside a buffer" not in parts[2]
