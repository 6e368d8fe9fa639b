"""Write made-up submissions of two notebooks, to measure grading with (instructor/README.md).

    PYTHONPATH=. python tests/slow/made_up_class.py folder 12
    taskset -c 0 make grade SUBMISSIONS=folder FRESH=1        on one core, and again on two

Of four students one has solved all, one has wrong answers, one has done nothing, and one's
notebooks are hostile: a crash, an endless loop that prints, daemons.
"""

import sys
from pathlib import Path

import nbformat
import submissions
from nbformat.v4 import new_code_cell

from tools import student

STEMS = ("01_model_preparation", "02_emit_te_ingestion")
HOSTILE = ("import ctypes\nctypes.string_at(0)", submissions.PRINTS_FOR_EVER, submissions.STAYS)


def notebook(stem: str, number: int) -> nbformat.NotebookNode:
    """Return what student `number` hands in."""
    master = submissions.ROOT / "notebooks" / f"{stem}.ipynb"
    kind, made = number % 4, student.student_version(master)
    if kind == 0:
        return nbformat.read(master, as_version=4)
    if kind == 1:
        for cell in made.cells:
            cell.source = cell.source.replace("raise NotImplementedError", "return None")
    if kind == 3:
        made.cells.append(new_code_cell(HOSTILE[number // 4 % len(HOSTILE)]))
    return made


if __name__ == "__main__":
    for student_number in range(int(sys.argv[2])):
        place = Path(sys.argv[1]) / f"student {student_number:03}"
        place.mkdir(parents=True)
        for name in STEMS:
            nbformat.write(notebook(name, student_number), place / f"{name}.ipynb")
