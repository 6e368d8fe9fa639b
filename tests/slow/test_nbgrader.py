"""nbgrader itself takes the notebooks, by the commands that instructor/README.md names."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("nbgrader", reason="nbgrader is missing: `make test-all` installs it")
from nbgrader.preprocessors import CheckCellMetadata

from tools import student

ROOT = Path(__file__).resolve().parents[2]
STEM = "01_model_preparation"


@pytest.mark.parametrize("stem", [path.stem for path in (ROOT / "notebooks").glob("*.ipynb")])
def test_it_finds_no_fault_with_the_marks_of_cells(stem: str) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    CheckCellMetadata().preprocess(notebook, {})  # raises what it finds
    exercise = next(cell for cell in notebook.cells if "nbgrader" in cell.metadata)
    exercise.metadata.nbgrader.grade_id = "1.1"
    with pytest.raises(Exception, match="validate"):
        CheckCellMetadata().preprocess(notebook, {})


def test_a_student_version_and_two_submissions() -> None:
    """One notebook is solved, one as it was handed out."""
    guide = (ROOT / "instructor" / "README.md").read_text(encoding="utf-8")
    block = re.search("```\n(export PATH.*?nbgrader export.*?)```", guide, re.DOTALL)[1]
    place = ROOT / "build" / "test_nbgrader"  # below the course
    shutil.rmtree(place, ignore_errors=True)
    before, autograde, then = block.replace("build/nbgrader", f"build/{place.name}").partition(
        "nbgrader autograde")
    env = {**os.environ, "MLC_QUICK": "1",
           "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(commands: str, folder: Path) -> str:
        return subprocess.run(["bash", "-ec", commands], cwd=folder, env=env, check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    run(before.partition("\n")[2], ROOT)  # PATH is that of the environment that tests run in
    made = place / "release" / "01" / f"{STEM}.ipynb"
    text = made.read_text(encoding="utf-8")
    assert "raise NotImplementedError" in text and "BEGIN SOLUTION" not in text
    solved = ROOT / "notebooks" / f"{STEM}.ipynb"
    assert [cell.source for cell in nbformat.read(made, as_version=4).cells
            if "NotImplementedError" not in cell.source] == [
        cell.source for cell in student.student_version(solved).cells
        if "NotImplementedError" not in cell.source]
    for name, notebook in (("anna", solved), ("ben", made)):
        (place / "submitted" / name / "01").mkdir(parents=True)
        shutil.copy(notebook, place / "submitted" / name / "01" / solved.name)
    said = run(autograde + then, place)
    with (place / "grades.csv").open(newline="") as file:
        rows = {row["student_id"]: (row["score"], row["max_score"]) for row in csv.DictReader(file)}
    assert rows == {"anna": ("5.0", "5.0"), "ben": ("0.0", "5.0")}, said
