"""Errors point at the reader's own line: whatever line of a TVMScript answer is wrong.

Four lines of each answer are tried here, the others in tests/slow/test_more_lines.py.
"""

import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from course import checks
from course.checks.run.check import registered
from course.checks.say import messages
from tools import execute, student
from tools.grading.submission import name_of

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = re.compile(r"^ *@(?:T\.prim_func|R\.function|I\.ir_module)", re.MULTILINE)
WRONG = re.compile(r"\b([TR])\.(?!Buffer|Tensor|prim_func|function)(\w+)")


def solutions() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each exercise whose solution is in TVMScript, its cell, and the cells before it."""
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        before: list[str] = []
        for cell in nbformat.read(path, as_version=4).cells:
            grader = cell.metadata.get("nbgrader", {})
            if grader.get("solution") and SCRIPT.search(cell.source):
                yield name_of(cell).removesuffix("-solution"), cell.source, list(before)
            elif cell.cell_type == "code" and re.match(r"(import|from) ", cell.source):
                before.append("\n".join(line for line in cell.source.splitlines()
                                        if re.match(r"(import|from) ", line)))


CASES = [(number, source, before, line) for number, source, before in solutions()
         for line, text in enumerate(source.splitlines())
         if WRONG.search(text) and source.find(text) > SCRIPT.search(source).start()]


def each(cases: list[tuple[str, str, list[str], int]]) -> pytest.MarkDecorator:
    """Try each of these lines."""
    return pytest.mark.parametrize(("number", "source", "before", "line"), cases,
                                   ids=[f"{number} line {line}" for number, _, _, line in cases])


FEW = [case for number in dict.fromkeys(case[0] for case in CASES)
       for case in [case for case in CASES if case[0] == number][:4]]


@each(FEW)
def test_the_line_that_is_wrong_is_quoted(number: str, source: str, before: list[str], line: int,
                                          monkeypatch) -> None:
    lines = source.splitlines()
    lines[line] = WRONG.sub(r"\1.\2_of_a_book", lines[line], count=1)
    cell = ModuleType("cell")
    monkeypatch.setitem(sys.modules, "cell", cell)
    text = "\n".join(lines) + "\n"
    monkeypatch.setitem(linecache.cache, "<cell>", (len(text), None,
                                                    text.splitlines(keepends=True), "<cell>"))
    exec("\n".join(before), cell.__dict__)
    exec(compile(text, "<cell>", "exec"), cell.__dict__)
    answer = cell.__dict__[re.search(r"^def (\w+)", source, re.MULTILINE)[1]]
    with pytest.raises(checks.CheckFailed) as stopped:
        registered[number].check(answer)
    said = str(stopped.value).splitlines()
    quoted = next(place for place, one in enumerate(said) if lines[line].strip()[:60] in one)
    if lines[line].lstrip().startswith("def "):  # Python evaluates it, not TVM's parser
        assert f"line {line + 1}: def " in said[quoted], said
    else:
        assert f"line {line + 1}, column " in said[quoted - 1], said
        assert said[quoted + 1].strip("^ ") == "" and "^" in said[quoted + 1], said
    assert re.match(r"  read: +docs/rosetta\.md", said[-1])


def test_there_are_such_lines() -> None:
    assert len(CASES) > 20 and {number for number, *_ in CASES} >= {"0.2", "0.3", "0.5"}


def test_a_cell_that_is_no_python_is_not_judged_by_an_earlier_one() -> None:
    """In a kernel: a right answer, then one with a slip, then the right one again."""
    notebook = nbformat.read(ROOT / "notebooks" / "02_emit_te_ingestion.ipynb", as_version=4)
    cells = {name_of(cell): cell.source for cell in notebook.cells}
    first = [cell.source for cell in notebook.cells if cell.cell_type == "code"][:2]
    right, check = cells["2.1-solution"], cells["2.1"]
    slip = right.replace("    return ", "    return = ", 1)
    notebook.cells = list(map(nbformat.v4.new_code_cell,
                              [*first, right, check, slip, check, right, check]))
    for cell in notebook.cells:
        cell.metadata["tags"] = ["raises-exception"]
    execute.client(notebook).execute()
    said = ["".join(output.get("text", output.get("evalue", "")) for output in cell.outputs)
            for cell in notebook.cells if cell.source == check]
    assert "Exercise 2.1 ✓" in said[0] and "Exercise 2.1 ✓" in said[2], said
    assert "Exercise 2.1 ✗" in said[1] and "got:      SyntaxError: " in said[1], said
    line = next(number for number, text in enumerate(slip.splitlines(), 1) if "return =" in text)
    assert f"look at:  your line {line}: return =" in said[1], said


@pytest.mark.parametrize("session", ["", "work/02_emit_te_ingestion.ipynb"])
def test_a_refusal_does_not_end_the_run_in_the_lab(session: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in a notebook's kernel of `make lab`; where grading executes one, a check raises."""
    monkeypatch.setenv("MLC_LAB", "1")
    if session:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    first = "import sys\nsys.path.insert(0, '..')\nfrom course import checks\ndef f(x, slope): pass"
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, [
        first, "import os\nos.environ['JPY_SESSION_NAME'] = 'forged'", "checks.exercise_2_1(f)"])))
    notebook.cells[-1].metadata["tags"] = ["raises-exception"]
    execute.client(notebook).execute()
    (output,) = notebook.cells[-1].outputs
    assert (output.output_type, output.get("name")) == (("stream", "stderr") if session
                                                        else ("error", None))
    assert "Exercise 2.1 ✗" in output.get("text", output.get("evalue"))


def test_the_lab_says_what_is_solved_and_breaks_no_word(tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nbformat.read(ROOT / "notebooks" / "02_emit_te_ingestion.ipynb", as_version=4)
    answer = next(cell.source for cell in whole.cells if name_of(cell) == "2.1-solution")
    student.for_students(whole)
    nbformat.write(whole, mine := tmp_path / "02_mine.ipynb")
    monkeypatch.setenv("MLC_LAB", "1")
    monkeypatch.setenv("JPY_SESSION_NAME", str(mine))
    notebook = nbformat.v4.new_notebook(cells=[
        *[cell for cell in whole.cells if cell.cell_type == "code"][:2],
        nbformat.v4.new_code_cell(answer),
        nbformat.v4.new_code_cell("checks.exercise_2_1(leaky_relu)")])
    execute.client(notebook).execute()
    (output,) = notebook.cells[-1].outputs
    assert output.text.startswith("\x1b[32mExercise 2.1 ✓ ")
    assert output.text.splitlines()[-1] == "02_mine: 1 of 7; not yet: 2.2, 2.3, 2.4, 2.5, 2.6, 2.7"
    lines = messages.wrapped("  look at:  " + "word " * 30).splitlines()
    assert [line.count("word") for line in lines] == [13, 13, 4]
    assert [line.index("word") for line in lines] == [12, 12, 12]
