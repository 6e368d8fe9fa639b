"""Every exercise from both sides: wrong answers get their message, right ones pass."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import two_sided

from course import checks
from course.checks.run.check import registered

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
STEMS = [path.stem for path in NOTEBOOKS]


# those with most answers first
globals().update(two_sided.classes(
    "Test", sorted(STEMS, key=lambda stem: -len(two_sided.candidates(stem)))))


@pytest.mark.parametrize("number", registered)
def test_enough_answers(number: str) -> None:
    (stem,) = (stem for stem in STEMS if stem.startswith(registered[number].notebook))
    right = Counter(c.right for c in two_sided.candidates(stem)
                    if c.exercise == number and not c.more)
    above = f"above the line `{two_sided.MORE}` of tests/candidates/{stem}.py"
    assert right[False] >= 3, f"{number}: three wrong answers are needed {above}"
    assert right[True] >= 1, f"{number}: another right answer is needed {above}"


def test_each_exercise_of_a_notebook_has_its_check() -> None:
    """The number that a check was registered with is that of its function and of its cell."""
    assert {number: exercise.notebook for number, exercise in registered.items()} == {
        number: stem[:2] for stem in STEMS for number in two_sided.exercises(stem)}
    for exercise in registered.values():
        assert exercise.check.__name__ == exercise.function
        assert exercise.check.__module__ == f"course.checks.exercises.notebook_{exercise.notebook}"
        assert getattr(checks, exercise.function) is exercise.check


def test_a_wrong_answer_without_words_to_expect_is_refused() -> None:
    wrong, right = two_sided.read("# %% 1.1 wrong: x -> its words\na\n# %% 1.1 right: y\nb\n")
    assert (wrong.right, wrong.title, wrong.words, wrong.source) == (False, "x", "its words", "a\n")
    assert (right.right, right.title, right.words, right.source) == (True, "y", "", "b\n")
    for heading in ("1.1 wrong: x -> ", "1.1 wrong: x", "1.1 wrong:", "1.1 odd: x -> y", "1.1 x"):
        with pytest.raises(ValueError, match="cannot read the line"):
            two_sided.read(f"# %% {heading}\nx = 1\n")


def test_the_words_of_a_heading_survive_a_rewording() -> None:
    heading = "# %% 1.1 wrong: x -> the sum: a column | 3 for 5\n"
    (tried,) = two_sided.read(heading)
    for said, fits in (("got 3 for 5\nThe sum is a wide column", True),
                       ("got 3 for 5\na column, the sum", False), ("got 3 for 5\nthe sum", False),
                       ("got 5 for 3\nthe sum: a column", False),
                       ("3 for\n5, the sum: a column", False)):
        tried.message = said
        assert tried.as_expected is fits, said


def test_without_fork_what_ends_the_process_is_left_out(monkeypatch) -> None:
    tried = [candidate for stem in STEMS for candidate in two_sided.candidates(stem)]
    assert all(candidate.runs_here for candidate in tried)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert [c.title for c in tried if not c.runs_here] == ["os._exit"]
