"""What an answer may not change behind its check's back: each way is tried, and noticed."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="Dask is missing: `make test-all` installs it")
from submissions import LINUX, ROOT, SOLVED, TOLERANT, cell, wrong_linear

SETUP = """
import gc, json, pathlib, random, secrets, sys, types
import numpy as np
import torch
from tvm import te
import checks
from checks.compare import trials
from checks.exercises import models
from checks.run import check as running
from checks.say import messages
from data import store
"""
# the check in itself, which only a function of another name holds
GC = """
gc.unfreeze()
for item in gc.get_objects():
    if type(item) is types.FunctionType and item.__qualname__ == "exercise_2_2" \\
            and not hasattr(item, "__wrapped__"):
        item.__code__ = (lambda answer: "all").__code__
"""
BLIND = """
class Watch:
    def changed(self):
        return []
for cell in running.observers[0].__closure__:
    if not callable(cell.cell_contents):
        cell.cell_contents = Watch()
""" + TOLERANT
FORGED = """
def linear(x, w, b):
    import os
    said = json.dumps([True, "all", ""]).encode()
    for number in range(4, 64):
        try:
            os.write(number, b"12345678" + len(said).to_bytes(8, "big") + said)
        except OSError:
            pass
    os._exit(0)
"""
MODULE = """
class Module(types.ModuleType):
    allclose = property(lambda self: lambda *arrays, **options: True)
    isclose = property(lambda self: lambda a, *others, **options: self.ones(self.shape(a), bool))
np.__class__ = Module
"""


def _inside(code: str) -> str:
    """Return a wrong answer that does it when it is called, in the process of the check alone."""
    return wrong_linear().replace("return", "exec(CODE, globals()); return") + f"\nCODE = {code!r}"


# what is changed, what the message has to name, and the answer where it is not the wrong one
CASES = {
    "the check": ("checks.exercise_2_2.__wrapped__.__code__ = (lambda answer: 'all').__code__",
                  "checks.exercises.notebook_02.exercise_2_2"),
    "the check, by gc": (GC, "checks.exercises.notebook_02.exercise_2_2"),
    "the check, by gc, when called": ("", "checks.exercises.notebook_02.exercise_2_2", _inside(GC)),
    "NumPy's own function": ("np.isclose.__wrapped__.__code__ = (lambda a, *others, equal_nan=1: "
                             "np.ones(np.shape(a), bool)).__code__", "numpy._core.numeric.isclose"),
    "a module's class": (MODULE, "numpy"),
    "which module is imported": ("sys.modules['numpy'] = types.ModuleType('numpy')", "numpy"),
    "how secrets are drawn": ("secrets.token_bytes = lambda n: b'12345678'", "secrets.token_bytes",
                              FORGED),
    "what that relies on": ("random._urandom = lambda n: b'12345678'", "random._urandom", FORGED),
    "the watcher": ("from tools.grading import integrity\n"
                    "integrity.Watch.changed = lambda self: []\n" + TOLERANT,
                    "checks.compare.trials.ATOL"),
    "who asks it": ("from tools.grading import checking\ndel checking._refusal\n"
                    "checking.integrity = None", "tools.grading.checking._refusal"),
    "what asks it": (BLIND, "checks.compare.trials.ATOL"),
    "what asks it, when called": ("", "checks.compare.trials.ATOL", _inside(BLIND)),
    "a method that another hides": ("torch.Tensor.numpy = lambda self: 0", "torch.Tensor.numpy"),
    "a builtin that another hides": ("sys.modules['numpy._core.numeric'].all = lambda *a: True",
                                     "numpy._core.numeric.all"),
    "an option": ("json.dumps.__kwdefaults__['indent'] = 1", "json.dumps"),
    "a default": ("np.matrix.sum.__defaults__ = (0, None, None)",
                  "numpy.matrixlib.defmatrix.matrix.sum"),
    "a property": ("pathlib.PurePath.name.fget.__code__ = (lambda self: '').__code__",
                   "pathlib.PurePath.name"),
    "a closure": ("[cell for cell in models.random_cnn.__closure__ if callable(cell.cell_contents)]"
                  "[0].cell_contents = lambda: 1", "checks.exercises.models.random_cnn"),
    "a class's bases": ("class Error(store.CourseError):\n    pass\n"
                        "messages.CheckFailed.__bases__ = (Error,)",
                        "checks.say.messages.CheckFailed"),
    "who is asked": ("from tools.grading import checking\n"
                     "checking._watch = checking._failed = lambda *a: (lambda: None)\n" + TOLERANT,
                     "checks.compare.trials.ATOL"),
}
HONEST = {"right": cell(SOLVED, "2.2-solution").source, "wrong": wrong_linear()}


def main() -> None:
    """Check all in processes forked from this one, as a server does it; print what each said."""
    import plots  # noqa: F401 (as in tools.grading.server)
    from checks.run import check as running
    from checks.run import isolate
    from tools.grading import checking, integrity
    running.registered["2.2"].get_ready()
    integrity.functions()
    said = {}
    for name, (code, _, *other) in ({n: ("", "", a) for n, a in HONEST.items()} | CASES).items():
        with tempfile.TemporaryDirectory() as scratch:
            said[name] = isolate.Child(
                checking.run, "2.2", "linear", [SETUP, code, *(other or [wrong_linear()])], "en",
                Path(scratch), limits=isolate.Limits(wall=60), alone=True).result()
    print(json.dumps(said))


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[bool, str]]:
    """What was said of each answer, and whether it passed."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, __file__], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@LINUX
def test_who_changes_nothing_is_judged_by_the_answer(said) -> None:
    assert said["right"][0] and "Exercise 2.2 ✓" in said["right"][1]
    assert not said["wrong"][0] and "changed" not in said["wrong"][1]


@LINUX
@pytest.mark.parametrize("name", CASES)
def test_a_change_is_noticed_and_named(said, name: str) -> None:
    passed, text = said[name]
    assert not passed
    assert f"changed: {CASES[name][1]}" in text, text


if __name__ == "__main__":
    main()
