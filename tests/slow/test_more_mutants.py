"""Mechanical changes of every solution are caught by its check, or known to change nothing.

Some of each exercise, the same ones every time; `make mutants` tries them all. Of the wrong
behaviours every one is tried here, and what the check says of it is held against what it does.
"""

import random

import pytest
import truths

from tools import mutants

MOST = 10


@pytest.mark.parametrize("number", mutants.judged())
def test_mutants_are_caught(number: str) -> None:
    (exercise,) = mutants.exercises([number])
    every = mutants.mutants(number, exercise.answer)
    slips = [mutant for mutant in every if mutant.line]
    some = [mutant for mutant in every if not mutant.line]
    some += random.Random(number).sample(slips, min(MOST, len(slips)))
    (row,) = mutants.run([(exercise, some)], 1)
    assert row.tried >= 3
    assert not row.missed, "\n".join(map(str, row.missed))
    assert not (false := truths.of_row(row)), "\n".join(false)
