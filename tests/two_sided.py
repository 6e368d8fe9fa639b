"""Try wrong and right answers of an exercise in its notebook: one run of a notebook tries all.

The answers stand in tests/candidates/<notebook>.py, each under a line such as

    # %% 2.3 wrong: the kernel is flipped -> the kernel: it is flipped
    # %% 2.3 right: with a loop

The words after the arrow have to occur in a line of the check's message, in their order, as have
those of all parts with a | between them; a cause that the check names in its last line has to be in
one of them. Code under `# %% shared` runs before the first of them: what several answers have in
common. An answer that is the notebook's solution but for a few words says which, each in a line:

    # %% 2.3 wrong: the window moves by two -> every index inside its buffer
    # i + p, j + q => 2 * i + p, 2 * j + q

What else it needs stands below.
`make test` tries what is above the line `# %% more`, a few answers to each exercise;
`make test-all` the others too, and `make test NB=5.4` all of one exercise.
"""

import dataclasses
import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chinese
import nbformat
import pytest
from behaviours import truths

from course import present, words
from course.checks.run.check import registered
from course.checks.say.show import Example
from tools import execute
from tools.grading.submission import Statement, name_of, needed, python, statements
from tools.student import SOLUTION, STUB

ROOT = Path(__file__).resolve().parent.parent
HEAD = re.compile(r"^# %% (\d+\.\d) (?:(right): (.+)|(wrong): (.+?) -> (.+))$")
CHANGE = re.compile(r"^# (.+?) =>(?: (.*))?\n", re.MULTILINE)
SHARED = "shared"
MORE = "# %% more"
TELLS = "both languages: "  # in front of what a check found, for `Candidate.told`
# a check prints what it found in a form that can be said in both languages
BOTH = f"""
import json as _json
from course.checks.diagnose import equivalence as _equivalence
from course.checks.run import check as _check
from course.words import packed as _packed

def _isolated(*given, isolated=_check.isolated):
    passed, found = isolated(*given)
    print({TELLS!r} + _json.dumps(_packed(found)))
    return passed, found

_check.isolated = _equivalence.isolated = _isolated
"""
truths.causes()  # now: CPython 3.11 may stumble over ast.parse while another thread parses
ANSWERS = -1  # the number of the cells that are kept whole, for `needed`


@dataclass
class Candidate:
    """An answer to an exercise, and what its check said: "" for a right answer."""

    exercise: str
    right: bool
    title: str
    words: str
    source: str
    more: bool = False
    message: str = ""
    found: Any = None  # what its check found: sentences

    @property
    def runs_here(self) -> bool:
        """Whether it can be tried: with the tool that its check needs.

        Without fork (macOS), what ends the process ends the kernel. Its words say so: "ends the
        process" is what a check says of such an answer. Endless loops of Python are ended there by
        a timer (checks.run.check.alarmed).
        """
        needs = self.exercise != SHARED and registered[self.exercise].needs
        return not (needs and not present.tool(needs)) \
            and (sys.platform == "linux" or "ends the process" not in self.words)

    @property
    def as_expected(self) -> bool:
        """Whether a right answer passed, or a wrong one got the message that it must get."""
        if self.right:
            return self.message == ""
        lines = self.message.splitlines()
        return all(any(truths.has(line, part) for line in lines)
                   for part in self.words.split(" | ")) \
            and len(self.message) < 1500 and not self.false

    @property
    def false(self) -> list[str]:
        """Causes that its message names, and its heading does not."""
        return truths.unexpected_causes(self.found[2], self.words) \
            if isinstance(self.found, list) and self.found else []


def read(text: str) -> list[Candidate]:
    """Return the answers of a file; raises ValueError on a heading that cannot be read.

    A wrong answer without words to expect is such a heading: it could not fail.
    """
    found: list[Candidate] = []
    more = False
    for line in text.splitlines():
        if head := HEAD.match(line):
            exercise, right, passes, _, fails, words = head.groups()
            found.append(Candidate(exercise, bool(right), passes or fails, words or "", "", more))
        elif line == f"# %% {SHARED}":
            found.append(Candidate(SHARED, True, "", "", "", more))
        elif line == MORE:
            more = True
        elif line.startswith("# %%"):
            raise ValueError(f"cannot read the line {line!r}: a wrong answer is headed "
                             "`# %% 2.3 wrong: what is wrong -> words of its message`")
        elif found:
            found[-1].source += line + "\n"
    return found


def candidates(stem: str) -> list[Candidate]:
    """Return the answers that tests/candidates/ holds for a notebook."""
    found = read((ROOT / "tests" / "candidates" / f"{stem}.py").read_text(encoding="utf-8"))
    for candidate in found:
        if changes := CHANGE.findall(candidate.source):
            rest = CHANGE.sub("", candidate.source)
            candidate.source = _solutions(stem)[candidate.exercise]
            for old, new in changes:
                if old not in candidate.source:
                    raise ValueError(f"{candidate.exercise} {candidate.title}: the solution has no "
                                     f"{old!r}")
                candidate.source = candidate.source.replace(old, new)
            candidate.source += f"\n{rest}"
    return found


@functools.cache
def _solutions(stem: str) -> dict[str, str]:
    """Return the solutions' cells of a notebook, by the numbers of their exercises."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    return {name_of(cell).removesuffix("-solution"): cell.source for cell in notebook.cells
            if cell.metadata.get("nbgrader", {}).get("solution")}


def _error(cell: nbformat.NotebookNode) -> str:
    """What a cell raised: the message shown to the reader, or "" if it ran through.

    With the example that is displayed beside it, as text.
    """
    raised = [output for output in cell.outputs if output.output_type == "error"]
    shown = [output for output in cell.outputs if output.output_type == "display_data"]
    return "\n".join(["\n".join(output.traceback) for output in raised]
                     + [output.data["text/plain"] for output in shown] * bool(raised))


def _found(cell: nbformat.NotebookNode) -> Any:
    """What a check found, in sentences that can be said in both languages; None of no check."""
    lines = [line for output in cell.outputs if output.output_type == "stream"
             for line in output.text.splitlines() if line.startswith(TELLS)]
    return words.unpacked(json.loads(lines[0].removeprefix(TELLS))) if lines else None


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


def try_all(stem: str, more: bool = False, only: Collection[str] = ()) -> list[Candidate]:
    """Run a solved notebook with every candidate in the place of the solution, then the solution.

    With those above the line `# %% more` and the untouched stubs, or with those below it; `only`:
    those of some exercises. Cells that measure times are left out, and what no answer needs, and
    with a warning what would end the kernel here. Returns the candidates with their messages.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    tried = []
    for candidate in candidates(stem):
        if candidate.exercise == SHARED:
            tried.append(candidate)
        elif candidate.more != more or only and candidate.exercise not in only:
            continue
        elif candidate.runs_here:
            tried.append(candidate)
        else:
            warnings.warn(f"{stem}: {candidate.exercise} {candidate.title} is left out: a tool is "
                          "missing, or no check runs in a separate process here", stacklevel=2)
    cells: list[nbformat.NotebookNode] = []
    whole: list[bool] = []
    ends: list[int] = []
    watched: list[tuple[Candidate, nbformat.NotebookNode, nbformat.NotebookNode]] = []
    solution = ""

    def add(source: str, answer: bool = True, may_fail: bool = False) -> nbformat.NotebookNode:
        cells.append(nbformat.v4.new_code_cell(source))
        whole.append(answer)
        cells[-1].metadata["tags"] = ["raises-exception"] * may_fail
        return cells[-1]

    for cell in notebook.cells:
        if cell.cell_type != "code" or "timing" in cell.metadata.get("tags", []):
            continue
        grader = cell.metadata.get("nbgrader", {})
        asked = not only or name_of(cell).removesuffix("-solution") in only
        if grader.get("grade") and not asked:
            continue
        first = not cells  # it sets up
        add(cell.source + BOTH * first, answer=bool(grader) and asked or first)
        if grader.get("solution"):
            solution = cell.source
        elif grader.get("grade"):
            number = name_of(cell)
            if not more:
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
        candidate.found = _found(check)
    return [candidate for candidate in tried if candidate.exercise != SHARED]


def classes(prefix: str, stems: list[str], more: bool = False) -> dict[str, type]:
    """Return a test class for each notebook: pytest-xdist keeps a class on one worker."""
    def made(stem: str) -> type:
        def test_two_sided(self, record_property, pytestconfig) -> None:
            require_as_expected(stem, record_property, more, wanted(pytestconfig))
        return type(prefix + stem[:2], (), {"test_two_sided": test_two_sided})
    return {prefix + stem[:2]: made(stem) for stem in stems}


def exercises(stem: str) -> list[str]:
    """Return the numbers of a notebook's exercises."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4)
    return [name_of(cell) for cell in notebook.cells
            if cell.metadata.get("nbgrader", {}).get("grade")]


def _notebook(number: str) -> str:
    """Return the two digits of an exercise's notebook."""
    return f"{int(number.partition('.')[0]):02}"


def wanted(config: pytest.Config) -> list[str]:
    """Return the exercises of `make test NB="03 5.4"`, a notebook's and one; [] without NB."""
    if not (asked := config.getoption("exercises").split()):
        return []
    every = [number for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
             for number in exercises(path.stem)]
    found = {text: [number for number in every if text in (number, _notebook(number))]
             for text in asked}
    if unknown := [text for text, numbers in found.items() if not numbers]:
        raise pytest.UsageError(f"There is no exercise {unknown[0]}: NB=5.4 is one, NB=05 are "
                                "those of a notebook.")
    return [number for numbers in found.values() for number in numbers]


def belongs(item: pytest.Item, only: Collection[str]) -> bool:
    """Whether a test tries answers, or mutants, of these exercises."""
    if call := getattr(item, "callspec", None):
        return call.params.get("number") in only
    digits = getattr(item.parent, "name", "")[-2:]
    return item.name == "test_two_sided" and digits in map(_notebook, only)


def _sentences(found: Any) -> list[Any]:
    """Return what a check said, part by part, with the labels and texts of its example."""
    if not isinstance(found, list):
        return [found]
    parts = Example.again(*found[3:]).parts if found[3:] else []
    return [*found[:3], *(one for part in parts for one in (part.label, part.text))]


def in_both_languages(tried: Collection[Candidate]) -> tuple[int, int, list[str]]:
    """Return how many sentences checks said, how many more wait for a translator, and the faults.

    What is wrong with the Chinese of a sentence is a line each.
    """
    parts = [(c, part) for c in tried if c.found is not None
             for part in _sentences(c.found) if part]
    judged = [(c, part) for c, part in parts
              if not any(said.template in chinese.waiting() for said in truths.named(part))]
    return len(judged), len(parts) - len(judged), [
        f"{c.exercise} {c.title}: {fault}" for c, part in judged for fault in chinese.faults(part)]


def require_as_expected(stem: str, record_property: Callable[[str, object], None],
                        more: bool = False, only: Collection[str] = ()) -> None:
    """Try all and raise AssertionError for what came out otherwise; conftest prints the table."""
    tried = try_all(stem, more, only)
    table = []
    for number in only or exercises(stem):
        wrong = [c for c in tried if c.exercise == number and not c.right]
        right = [c for c in tried if c.exercise == number and c.right]
        if wrong or right:
            table.append((number, sum(c.as_expected for c in wrong), len(wrong),
                          sum(c.as_expected for c in right), len(right)))
    record_property("two_sided", table)
    said, waiting, faults = in_both_languages(tried)
    record_property("chinese", [(said, waiting, len(faults))])
    failed = faults + [f"{c.exercise} {'right' if c.right else 'wrong'}: {c.title}\n  wanted: "
              f"{'no message' if c.right else c.words}\n  got: {c.message or 'no message'}"
              + "".join(f"\n  not in the heading: {cause}" for cause in c.false)
              for c in tried if not c.as_expected]
    assert not failed, "\n" + "\n".join(failed)
