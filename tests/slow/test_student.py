"""Who solves nothing reaches the end of every notebook, and so does who has no tools that work."""

import shutil
from pathlib import Path

import nbformat
import pytest
from test_present import stand_in

from course import present
from tools import execute, student
from tools.grading.submission import name_of

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
# those that use what is here, and how it is broken there; test_present tries each way for each kind
BROKEN = {"03": "fails", "07": "does nothing", "08": "hangs", "10": "fails", "11": "empty",
          "13": "does nothing"}
WAYS = {"fails": "echo 'no developer tools were found' >&2; exit 1", "does nothing": "exit 0",
        "hangs": f"exec {shutil.which('sleep')} 600"}


class TestUntouched:
    """In classes, so that two workers share them."""

    @pytest.mark.parametrize("master", NOTEBOOKS, ids=lambda path: path.stem)
    def test_the_copy_runs_to_its_end(self, master: Path, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
        """Checks say "not done yet", cells that need an answer say so."""
        if master.stem[:2] not in BROKEN:
            monkeypatch.setenv("PATH", str(tmp_path))  # they use nothing of it
        notebook = student.student_version(master)
        execute.client(notebook).execute()
        checks = errors = 0
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            checks += (is_check := bool(cell.metadata.get("nbgrader", {}).get("grade")))
            for output in cell.outputs:
                if output.output_type == "error":
                    errors += 1
                    assert is_check and "not done yet" in "".join(output.traceback), cell.source
                    assert len(output.traceback) == 1, "one line, and no traceback"
        assert checks == errors > 0


class TestSolved:
    """Where no tool works; for the notebook that asks for most, where none is there."""

    @pytest.mark.parametrize("master", [path for path in NOTEBOOKS if path.stem[:2] in BROKEN],
                             ids=lambda path: f"{path.stem}-{BROKEN[path.stem[:2]]}")
    def test_it_goes_on_where_nothing_works(self, master: Path, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
        """Cells behind exercises too; and what does not work is named where it is asked for."""
        way, folder = BROKEN[master.stem[:2]], tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))
        if way in WAYS:
            stand_in(folder, WAYS[way])
        notebook = nbformat.read(master, as_version=4)
        setup = next(at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code")
        notebook.cells.insert(setup + 1, nbformat.v4.new_code_cell(  # who hangs is waited for
            "from course import present\npresent.PATIENCE = 2.0"))
        execute.client(notebook).execute()
        printed = "".join(output.get("text", "") for cell in notebook.cells
                          for output in cell.get("outputs", []))
        assert "Traceback" not in printed and "False" not in {
            line.rpartition("equal to PyTorch: ")[2] for line in printed.splitlines()
            if "equal to PyTorch: " in line}
        asked = {"07": ["c++"], "08": ["tar"], "10": ["c++20"],
                 "11": ["shared", "c++", "c", "arm64", "wasm", "node"]}.get(master.stem[:2], [])
        for kind in asked:
            thing = present.KNOWN[kind].thing
            said = "not here" if way == "empty" else "does not work here ("
            assert f"{thing}: {said}" in printed
        if way == "empty":
            lack = [str(cell.outputs) for cell in notebook.cells
                    if cell.metadata.get("nbgrader", {}).get("grade")
                    and "needs-shared" in cell.metadata.get("tags", [])]
            assert lack and all("is not judged on this machine" in said for said in lack)


def test_a_copy_that_was_begun_while_grade_ids_had_a_dot_runs_its_checks() -> None:
    """Until autumn 2026: a right answer, and one that is not written yet."""
    solved = nbformat.read(ROOT / "notebooks" / "02_emit_te_ingestion.ipynb", as_version=4)
    copy = student.student_version(ROOT / "notebooks" / "02_emit_te_ingestion.ipynb")
    right = {name_of(cell): cell.source for cell in solved.cells}
    code = [cell for cell in copy.cells if cell.cell_type == "code"]
    copy.cells = [*code[:2], *(cell for cell in code if name_of(cell)[:3] in ("2.1", "2.2"))]
    for cell in copy.cells[2:]:
        cell.metadata.nbgrader.grade_id = name_of(cell)
        if name_of(cell) == "2.1-solution":
            cell.source = right["2.1-solution"]
    execute.client(copy).execute()
    said = ["".join(output.get("text", output.get("evalue", "")) for output in cell.outputs)
            for cell in copy.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert said[0].startswith("Exercise 2.1 ✓") and "Exercise 2.2" in said[1]
    assert "not done yet" in said[1]
