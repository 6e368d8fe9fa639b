"""Try wrong and right answers of an exercise in its notebook: one run of a notebook tries all.

The answers stand in tests/candidates/<notebook>.py, each under a line such as

    # %% 2.3 wrong: the kernel is flipped -> the kernel: it is flipped
    # %% 2.3 right: with a loop

The text after the arrow has to occur in the check's message. Code under `# %% shared` runs before
the first of them: what several answers have in common.
"""

import dataclasses
import os
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import nbformat

from tools import execute
from tools.grading.submission import Statement, needed, python, statements
from tools.student import SOLUTION, STUB

ROOT = Path(__file__).resolve().parent.parent
HEAD = re.compile(r"^# %% (\d\.\d) (?:(right): (.+)|(wrong): (.+?) -> (.+))$")
SHARED = "shared"
ANSWERS = -1  # the number of the cells that are kept whole, for `needed`


@dataclass
class Candidate:
    """An answer to an exercise, and what its check said: "" for a right answer."""

    exercise: str
    right: bool
    title: str
    words: str
    source: str
    message: str = ""

    @property
    def runs_here(self) -> bool:
        """Whether it can be tried: without fork (macOS), what ends the process ends the kernel.

        Its words say so: "ends the process" is what a check says of such an answer. Endless loops
        of Python are ended there by a timer (checks.alarm).
        """
        return sys.platform == "linux" or "ends the process" not in self.words

    @property
    def as_expected(self) -> bool:
        """Whether a right answer passed, or a wrong one got the message that it must get."""
        if self.right:
            return self.message == ""
        return self.words in self.message and len(self.message) < 1500


def read(text: str) -> list[Candidate]:
    """Return the answers of a file; raises ValueError on a heading that cannot be read.

    A wrong answer without words to expect is such a heading: it could not fail.
    """
    found: list[Candidate] = []
    for line in text.splitlines():
        if head := HEAD.match(line):
            exercise, right, passes, _, fails, words = head.groups()
            found.append(Candidate(exercise, bool(right), passes or fails, words or "", ""))
        elif line == f"# %% {SHARED}":
            found.append(Candidate(SHARED, True, "", "", ""))
        elif line.startswith("# %%"):
            raise ValueError(f"cannot read the line {line!r}: a wrong answer is headed "
                             "`# %% 2.3 wrong: what is wrong -> words of its message`")
        elif found:
            found[-1].source += line + "\n"
    return found


def candidates(stem: str) -> list[Candidate]:
    """Return the answers that tests/candidates/ holds for a notebook."""
    return read((ROOT / "tests" / "candidates" / f"{stem}.py").read_text(encoding="utf-8"))


def _error(cell: nbformat.NotebookNode) -> str:
    """What a cell raised: the message shown to the reader, or "" if it ran through."""
    return "\n".join("\n".join(output.traceback) for output in cell.outputs
                     if output.output_type == "error")


def without_the_rest(cells: list[nbformat.NotebookNode], whole: list[bool],
                     ends: list[int]) -> list[nbformat.NotebookNode]:
    """Return code cells without the statements that no answer and no check depends on.

    The cells that are `whole` stay as they are. `ends`: after how many cells each exercise ends;
    what is needed is looked for among the cells before that. nbval runs the rest anyway.
    """
    flat: list[Statement] = []
    upto = []
    for number, cell in enumerate(cells):
        found = statements(python(cell.source), ANSWERS if whole[number] else number)
        # an answer may fail before it binds a name: the earlier value counts then
        flat += [dataclasses.replace(item, surely=False) for item in found] if whole[number] \
            else found
        upto.append(len(flat))
    kept = {id(flat[place]) for end in ends for place in needed(flat[:upto[end - 1]], (), ANSWERS)}
    left = []
    for number, cell in enumerate(cells):
        if not whole[number]:
            lines = python(cell.source).splitlines(keepends=True)
            cell.source = "".join("".join(lines[slice(*item.lines)]) for item in flat
                                  if item.cell == number and id(item) in kept)
        if cell.source:
            left.append(cell)
    return left


def try_all(stem: str) -> list[Candidate]:
    """Run a solved notebook with every candidate in the place of the solution, then the solution.

    Cells that measure times are left out, and what no answer needs, and with a warning what would
    end the kernel here. Returns the candidates with the messages they got.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    tried = []
    for candidate in candidates(stem):
        if candidate.runs_here:
            tried.append(candidate)
        else:
            warnings.warn(f"{stem}: {candidate.exercise} {candidate.title} is left out, for no "
                          f"check runs in a process of its own on {sys.platform}", stacklevel=2)
    cells: list[nbformat.NotebookNode] = []
    whole: list[bool] = []
    ends, watched = [], []
    solution = None

    def add(source: str, answer: bool = True, may_fail: bool = False) -> nbformat.NotebookNode:
        cells.append(nbformat.v4.new_code_cell(source))
        whole.append(answer)
        cells[-1].metadata["tags"] = ["raises-exception"] * may_fail
        return cells[-1]

    for cell in notebook.cells:
        if cell.cell_type != "code" or "timing" in cell.metadata.get("tags", []):
            continue
        grader = cell.metadata.get("nbgrader", {})
        add(cell.source, answer=bool(grader) or not cells)  # the first cell sets up
        if grader.get("solution"):
            solution = cell.source
        elif grader.get("grade"):
            number = grader["grade_id"]
            tried.append(Candidate(number, False, "untouched", "not done yet",
                                   SOLUTION.sub(STUB, solution)))
            if not watched:
                for candidate in tried:
                    if candidate.exercise == SHARED:
                        add(candidate.source)
            for candidate in [c for c in tried if c.exercise == number]:
                watched.append((candidate, add(candidate.source, may_fail=True),
                                add(cell.source, may_fail=True)))
            add(solution)
            ends.append(len(cells))
    notebook.cells = without_the_rest(cells, whole, ends)
    # one thread, as in the processes in which checks run answers: other tests have the other cores
    one = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    execute.client(notebook).execute(env={**os.environ, **one})
    for candidate, answer, check in watched:
        candidate.message = _error(answer) or _error(check)
    return [candidate for candidate in tried if candidate.exercise != SHARED]
