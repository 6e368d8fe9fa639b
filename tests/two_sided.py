"""Try wrong and right answers of an exercise in its notebook: one run of a notebook tries all.

The answers stand in tests/candidates/<notebook>.py, each under a line such as

    # %% 2.3 wrong: the kernel is flipped -> the kernel: it is flipped
    # %% 2.3 right: with a loop

The text after the arrow has to occur in the check's message. Code under `# %% shared` runs before
the first of them: what several answers have in common.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

from tools import execute
from tools.student import SOLUTION, STUB

ROOT = Path(__file__).resolve().parent.parent
HEAD = re.compile(r"^# %% (\d\.\d) (right|wrong): (.*?)(?: -> (.*))?$")
SHARED = "shared"


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
    def as_expected(self) -> bool:
        """Whether a right answer passed, or a wrong one got the message that it must get."""
        if self.right:
            return self.message == ""
        return self.words in self.message and len(self.message) < 1500


def candidates(stem: str) -> list[Candidate]:
    """Return the answers that tests/candidates/ holds for a notebook, and the untouched stubs."""
    found: list[Candidate] = []
    for line in (ROOT / "tests" / "candidates" / f"{stem}.py").read_text().splitlines():
        if head := HEAD.match(line):
            exercise, side, title, words = head.groups()
            found.append(Candidate(exercise, side == "right", title, words or "", ""))
        elif line == f"# %% {SHARED}":
            found.append(Candidate(SHARED, True, "", "", ""))
        elif line.startswith("# %%"):
            raise ValueError(f"{stem}: cannot read the line {line!r}")
        elif found:
            found[-1].source += line + "\n"
    return found


def _error(cell: nbformat.NotebookNode) -> str:
    """What a cell raised: the message shown to the reader, or "" if it ran through."""
    return "\n".join("\n".join(output.traceback) for output in cell.outputs
                     if output.output_type == "error")


def try_all(stem: str) -> list[Candidate]:
    """Run a solved notebook with every candidate in the place of the solution, then the solution.

    Cells that measure times are left out. Returns the candidates with the messages they got.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    tried = candidates(stem)
    cells, watched = [], []
    solution = None
    for cell in notebook.cells:
        if "timing" in cell.metadata.get("tags", []):
            continue
        grader = cell.metadata.get("nbgrader", {})
        cells.append(cell)
        if grader.get("solution"):
            solution = cell
        elif grader.get("grade"):
            number = grader["grade_id"]
            stub = Candidate(number, False, "untouched", "not done yet",
                             SOLUTION.sub(STUB, solution.source))
            tried.append(stub)
            if not watched:
                cells += [nbformat.v4.new_code_cell(c.source) for c in tried
                          if c.exercise == SHARED]
            for candidate in [c for c in tried if c.exercise == number]:
                for source in (candidate.source, cell.source):
                    extra = nbformat.v4.new_code_cell(source)
                    extra.metadata["tags"] = ["raises-exception"]
                    cells.append(extra)
                watched.append((candidate, cells[-2], cells[-1]))
            cells.append(nbformat.v4.new_code_cell(solution.source))
    notebook.cells = cells
    execute.client(notebook).execute()
    for candidate, answer, check in watched:
        candidate.message = _error(answer) or _error(check)
    return [candidate for candidate in tried if candidate.exercise != SHARED]
