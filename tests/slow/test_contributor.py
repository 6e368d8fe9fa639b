"""A contributor who knows no Chinese adds an exercise, and words messages anew: all is green."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

EXERCISE = """
### Exercise 3.7: the libraries that a module needs ★

Given: `mod`, an IRModule. Wanted: the names that its `main` calls by `R.call_dps_packed`, each
once, in the order of the calls.

Example: a module that calls `env.linear` and `env.linear` again gives `["env.linear"]`.

<details><summary>Hint 1: the name</summary>

The call's first argument has it: `global_symbol`.

</details>

ANSWER
def library_names(mod: tvm.IRModule) -> list[str]:
    \"""The names of the library functions that main calls.

    TODO: go through the calls.
    APPROACH:
      1. Visit the calls, and keep those of relax.call_dps_packed.
    HINTS: one, folded above this cell.
    \"""
    ### BEGIN SOLUTION
    names = []

    def visit(node: relax.Expr) -> None:
        if isinstance(node, relax.Call) and node.op == tvm.ir.Op.get("relax.call_dps_packed"):
            names.append(str(node.args[0].global_symbol))
    relax.analysis.post_order_visit(mod["main"], visit)
    return list(dict.fromkeys(names))
    ### END SOLUTION
```

CHECK
checks.exercise_3_7(library_names)
```
"""
CHECK = """

def _calling(names: tuple[str, ...]) -> tvm.IRModule:
    # a module whose main calls library functions one after the other
    bb = relax.BlockBuilder()
    value = x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with bb.function("main", [x]):
        for name in names:
            value = bb.emit(relax.op.call_dps_packed(name, (value,), x.ty))
        bb.emit_func_output(value)
    return bb.get()


@exercise("3.7", "library_names(mod)", seconds=10)
def exercise_3_7(library_names: Callable) -> str:
    for names in (("env.linear", "env.softmax", "env.linear"), ("b.two", "a.one", "c.three")):
        came, wanted = library_names(_calling(names)), list(dict.fromkeys(names))
        if came != wanted:
            raise CheckFailed(_("the names {names} of these library calls").format(names=wanted),
                              _("something else, that is {came}").format(came=came),
                              _("what comes twice, and the order in which it comes"))
    return _("the names of two modules, each of them once")
"""
ANSWERS = """# %% 3.7 wrong: a name twice -> what comes twice
def library_names(mod):
    return [str(binding.value.args[0].global_symbol)
            for binding in mod["main"].body.blocks[0].bindings]


# %% 3.7 wrong: in alphabetical order -> the order in which it comes
def library_names(mod):
    return sorted({str(binding.value.args[0].global_symbol)
                   for binding in mod["main"].body.blocks[0].bindings})


# %% 3.7 wrong: none -> something else, that is []
def library_names(mod):
    return []


# %% 3.7 right: by the bindings
def library_names(mod):
    return list(dict.fromkeys(str(binding.value.args[0].global_symbol)
                              for binding in mod["main"].body.blocks[0].bindings))


"""


def _change(path: Path, before: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, new + before), encoding="utf-8")


def _reworded(path: Path) -> int:
    """Put a word into each message of a module, behind its first; return how many they are."""
    lines = path.read_bytes().splitlines(keepends=True)
    found = [node.args[0] for node in ast.walk(ast.parse(b"".join(lines)))
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
             and node.func.id == "_" and isinstance(node.args[0], ast.Constant)
             and " " in node.args[0].value.strip()]
    for text in sorted(found, key=lambda text: -text.lineno * 1000 - text.col_offset):
        first, last = text.lineno - 1, text.end_lineno - 1
        end = lines[last][text.end_col_offset:]
        new = re.sub(r"(\S) ", r"\1 now ", text.value, count=1)
        lines[first:last + 1] = [lines[first][:text.col_offset] + repr(new).encode() + end]
    path.write_bytes(b"".join(lines))
    return len({text.value for text in found})


def test_an_exercise_and_new_words_without_chinese(clone: Path) -> None:
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("PYTEST_", "MLC_FORK"))}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", *words], cwd=clone, env=env, check=False,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout

    page = clone / "paired_md" / "03_extern_library_calls.md"
    marks = re.findall("^```python nbgrader=.*\"3-1.*", page.read_text("utf-8"), re.MULTILINE)
    answer, check = (line.replace('"3-1', '"3-7') for line in marks)
    _change(page, "\n## Recap\n", EXERCISE.replace("ANSWER", answer).replace("CHECK", check))
    _change(clone / "tests" / "candidates" / "03_extern_library_calls.py", "# %% more\n", ANSWERS)
    checks = clone / "course" / "checks"
    count = sum(_reworded(checks / name) for name in (
        "exercises/notebook_03.py", "exercises/notebook_08.py", "exercises/notebook_02.py"))
    with (checks / "exercises" / "notebook_03.py").open("a", encoding="utf-8") as file:
        file.write(CHECK)
    _change(clone / "README.md", "git, make, Python 3.11", "only ")
    _change(clone / "docs" / "tvm_errors.md", "a few distinctive words", "only ")
    said = run("tools.sync", "md")
    assert said.startswith("Written: notebooks/03_extern_library_calls.ipynb, "
                           "paired_md/po/zh/03_extern_library_calls.po, paired_md/po/zh/README.po, "
                           "paired_md/po/zh/docs/tvm_errors.po, course/words/zh.po, "
                           "paired_md/zh/03_extern_library_calls.md, README.zh.md, "
                           "docs/zh/tvm_errors.md, instructor/README.zh.md, README.md")
    assert "Nothing to write" in run("tools.sync")
    run("tools.sync", "check")
    said = run("tools.translation")
    assert re.search(r"[4-9] of \d+ paragraphs wait .*03: [4-9]", said)

    said = run("pytest", "-q", "tests/test_exercises.py", "tests/slow/test_more_answers.py",
               "tests/slow/test_more_mutants.py", "--exercises", "3.3 3.7")
    assert re.search(r"^3[.]7   wrong  4 of  4   right 1 of 1$", said, re.MULTILINE)
    assert re.search(r", 0 with English, lost .*; \d\d+ more wait for theirs$", said, re.MULTILINE)
    run("pytest", "-q", "tests/test_docs_zh.py", "tests/test_translation.py",
        "tests/test_handouts.py", "tests/slow/test_present.py::test_all_say_the_same_of_python")
    said = run("pytest", "-q", "-k", "catalogue or table or sentence", "tests/test_words.py",
               "tests/slow/test_mutants.py")
    chinese, every = map(int, re.search(r"Messages: (\d+) of (\d+) in Chinese", said).groups())
    assert every - chinese >= count + 4 > 50
