"""A student who solves nothing still reaches the end of every notebook."""

from pathlib import Path

import pytest

from tools import execute, student

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("master", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_untouched_copy_runs_to_its_end(master: Path) -> None:
    """Checks say "not done yet", cells that need an answer say so, all else works."""
    notebook = student.student_version(master)
    execute.client(notebook).execute()
    checks = errors = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        is_check = bool(cell.metadata.get("nbgrader", {}).get("grade"))
        checks += is_check
        for output in cell.outputs:
            if output.output_type == "error":
                errors += 1
                assert is_check and "not done yet" in "".join(output.traceback), cell.source
                assert len(output.traceback) == 1, "one line, and no traceback"
    assert checks == errors > 0
