"""What holds for every notebook: its pair, its exercises' form, its stored outputs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import chinese
import nbformat
import pytest

from course import checks, words
from course.checks.run import check as running
from tools import student, sync
from tools.grading import plan
from tools.grading.submission import name_of

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
# those on speed, and the one whose programs need compilers; the others have four at most
MOST_TIMING_CELLS = {"06": 22, "07": 16, "11": 19, "12": 12, "13": 7}


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request) -> nbformat.NotebookNode:
    return nbformat.read(request.param, as_version=4)


def _code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_pairs_are_in_sync() -> None:
    assert sync.differing() == [], "run `make sync`"


def test_minutes_are_as_contributing_counts_them(notebook) -> None:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    lines = sum(bool(line.strip()) for cell in _code(notebook) for line in cell.source.splitlines())
    stars = sum(map(len, re.findall(r"^### Exercise.+?(★+)$", text, re.MULTILINE)))
    said = int(re.search(r"\*\*Time\*\* about (\d+) minutes", text)[1])
    assert said == pytest.approx(len(text.split()) / 150 + lines / 12 + 8 * stars, abs=5)


def test_the_first_cells_are_the_same_in_all() -> None:
    setups = {_code(nbformat.read(path, as_version=4))[0].source for path in NOTEBOOKS}
    assert len(setups) == 1 and "TVM_NUM_THREADS" in setups.pop()


def test_opening_and_recap(notebook) -> None:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert text.startswith("# ")
    for part in ("**You will be able to**", "**You need**", "**Time**", "## Recap"):
        assert part in text
    graded = sum(bool(cell.metadata.get("nbgrader", {}).get("grade")) for cell in notebook.cells)
    said = re.search(r"\*\*Time\*\* .*?(?:the (\w+) exercises|$)", text, re.MULTILINE)[1]
    assert said in (None, ["two", "three", "four", "five", "six", "seven",
                            "eight"][graded - 2])


def _needed(node: ast.AST) -> set[str]:
    """Return the exercises that `if checks.accepted("2.2", ...)` asks for, before other things."""
    match node:
        case ast.If(test=ast.BoolOp(op=ast.And(), values=[first, *_])):
            return _needed(ast.If(test=first))
        case ast.If(test=ast.Call(func=ast.Attribute(attr="accepted"), args=numbers)):
            return {ast.literal_eval(number) for number in numbers}
    return set()


def test_no_cell_runs_an_answer_that_its_check_has_not_accepted(notebook) -> None:
    """It would run in the reader's own process: what crashes takes the kernel with it."""
    answers: dict[str, str] = {}

    def unguarded(node: ast.AST, asked: frozenset[str] = frozenset()) -> set[str]:
        asked |= _needed(node)
        used = {answers[node.id]} - asked if isinstance(node, ast.Name) and node.id in answers \
            and isinstance(node.ctx, ast.Load) else set()
        return used.union(*(unguarded(child, asked) for child in ast.iter_child_nodes(node)))

    for cell in _code(notebook):
        grader = cell.metadata.get("nbgrader", {})
        if grader.get("grade"):
            continue
        tree = ast.parse("" if cell.source.startswith("%") else cell.source)
        if grader.get("solution"):
            answers |= {node.name: name_of(cell).removesuffix("-solution")
                        for node in tree.body if isinstance(node, ast.FunctionDef)}
        else:
            assert not unguarded(tree), cell.source


@chinese.quoted
def test_a_cell_that_needs_an_exercise_says_so(monkeypatch, capsys) -> None:
    def answer() -> None:
        pass

    def another() -> None:
        pass

    monkeypatch.setattr(running, "right", {"2.3": answer})
    names = {"checks": checks, "conv2d": answer}
    for asked, value in (('"2.3"', True), ('"2.2", "2.3"', False)):
        assert eval(f"checks.accepted({asked})", names) is value
    assert capsys.readouterr().out.startswith("This cell needs exercise 2.2: write it")
    assert not eval('checks.accepted("2.3")', names | {"conv2d": another}), "written anew since"
    for asked, said in (('"8.1", "8.2"', "exercises 8.1 and 8.2:"),
                        ('"2.4", "2.6", "2.7"', "exercises 2.4, 2.6 and 2.7:")):
        capsys.readouterr()
        assert not eval(f"checks.accepted({asked})", names)
        assert capsys.readouterr().out.startswith(f"This cell needs {said}")
    monkeypatch.setattr(words, "_chosen", "zh")
    assert not eval('checks.accepted("2.4", "2.6", "2.7")', names)
    assert capsys.readouterr().out.startswith("这个单元格要用到练习 2.4、2.6 和 2.7：")


def test_every_exercise_has_its_form(notebook) -> None:
    cells = notebook.cells
    for position, cell in enumerate(cells):
        grader = cell.metadata.get("nbgrader", {})
        if not grader.get("grade"):
            continue
        number = name_of(cell)
        answer = cells[position - 1]
        text = "\n".join(c.source for c in cells[:position - 1] if c.cell_type == "markdown")
        heading = re.search(rf"^### Exercise {number}: .+ (★+)$", text, re.MULTILINE)
        assert heading, f"no heading for {number}"
        assert grader.locked and grader.points == len(heading[1])
        assert cell.source.startswith(f"checks.exercise_{number.replace('.', '_')}(")
        assert len(cell.source.splitlines()) == 1
        assert name_of(answer) == f"{number}-solution"
        for word in ("TODO", "APPROACH", "HINTS", "### BEGIN SOLUTION", "### END SOLUTION"):
            assert word in answer.source, f"{number} lacks {word}"


@pytest.mark.parametrize("language", ["", "zh"])
def test_the_sections_that_the_old_course_leads_to_are_there(language: str) -> None:
    document = (ROOT / "docs" / language / "old_course.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| (\d\d) \| (.+) \|$", document, re.MULTILINE)
    assert len(rows) >= 15
    for number, section in rows:
        (path,) = (ROOT / "paired_md" / language).glob(f"{number}_*.md")
        assert f"\n## {section}\n" in path.read_text(encoding="utf-8"), section


def test_grade_ids_are_unique_and_nbgrader_takes_them() -> None:
    ids = [cell.metadata.nbgrader.grade_id for path in NOTEBOOKS
           for cell in nbformat.read(path, as_version=4).cells if "nbgrader" in cell.metadata]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"\d+-\d(-solution)?", one) for one in ids)


def test_what_was_begun_while_grade_ids_had_a_dot_is_graded_alike(notebook) -> None:
    """Until autumn 2026. By its name a cell is an answer, whatever stands in it."""
    data = nbformat.writes(notebook)
    older = re.sub(r'("grade_id": "\d+)-', r"\1.", data)
    assert older != data
    master = student.for_students(notebook)
    came = plan.of_file(older.encode(), master)
    assert came == plan.of_file(data.encode(), master)
    assert came["sources"].keys() == came["answers"].keys() and not came["notes"]


def test_stored_outputs_are_complete_and_clean(notebook) -> None:
    for cell in _code(notebook):
        assert cell.execution_count, "stored outputs are missing: run `make outputs`"
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", cell.source
            text = str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
            assert not re.search(rf"{Path.home()}|/tmp/|/home/|\b0x[0-9a-f]{{6,}}", text), text
            if "image/png" in output.get("data", {}):
                assert output.metadata["image/png"].get("alt"), "plots.show gives a text"


def test_few_cells_are_left_out_of_the_comparison(request, notebook) -> None:
    left_out = [cell for cell in _code(notebook)
                if set(cell.metadata.get("tags", [])) & {"timing", "nbval-ignore-output"}]
    number = request.node.callspec.params["notebook"].stem[:2]
    assert len(left_out) <= MOST_TIMING_CELLS.get(number, 4)
    for cell in left_out:
        assert {"timing", "nbval-ignore-output"} <= set(cell.metadata.tags)


def test_student_version_holds_no_solution(notebook) -> None:
    """No line that stands in the master only inside solutions is left in the student's copy."""
    inside, outside = set(), set()
    for cell in notebook.cells:
        source = cell.source
        if cell.cell_type == "code":
            for match in student.SOLUTION.finditer(source):
                inside |= {line.strip() for line in match[0].splitlines()}
            source = student.SOLUTION.sub("", source)
        outside |= {line.strip() for line in source.splitlines()}
    copy = student.for_students(notebook)
    text = "\n".join(cell.source for cell in copy.cells)
    assert "SOLUTION" not in text and not any(cell.outputs for cell in _code(copy))
    assert len(inside) > 5
    lines = {line.strip() for line in text.splitlines()}
    assert [line for line in inside - outside if len(line) > 20 and line in lines] == []


def test_check_cells_of_a_student_are_protected(notebook) -> None:
    copy = student.for_students(notebook)
    for cell in copy.cells:
        locked = cell.metadata.get("nbgrader", {}).get("grade", False)
        assert (cell.metadata.get("editable"), cell.metadata.get("deletable")) == (
            (False, False) if locked else (None, None))


def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    code = ("import errno; from tools import student\n"
            "def full(*_): raise OSError(errno.ENOSPC, 'No space left on device')\n"
            "student.fill = full; student.main()")
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
                           check=False)
    assert ended.returncode == 1 and ended.stderr.startswith(
        "The copies in work/ cannot be written: No space left on device.")


def test_student_copies_are_never_overwritten(tmp_path: Path) -> None:
    first = NOTEBOOKS[0]
    made = student.fill(tmp_path / "work")
    assert len(made) == len(NOTEBOOKS)
    mine = tmp_path / "work" / first.name
    mine.write_text("my work")
    assert student.fill(tmp_path / "work") == [] and mine.read_text() == "my work"
    student.fill(tmp_path / "work", first.name[:2])
    assert (tmp_path / "work" / f"{first.stem}.old1.ipynb").read_text() == "my work"
    assert "raise NotImplementedError" in mine.read_text()
