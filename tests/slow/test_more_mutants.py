"""Mechanical changes of every solution are caught by its check, or known to change nothing.

Some of each exercise, the same ones every time; `make mutants` tries them all.
"""

import random

import pytest

from tools import mutants

MOST = 10


@pytest.mark.parametrize("number", mutants.judged())
def test_mutants_are_caught(number: str) -> None:
    (exercise,) = mutants.exercises([number])
    every = mutants.mutants(number, exercise.answer)
    some = random.Random(number).sample(every, min(MOST, len(every)))
    (row,) = mutants.run([(exercise, some)], 1)
    assert row.tried >= 3
    assert not row.missed, "\n".join(map(str, row.missed))
