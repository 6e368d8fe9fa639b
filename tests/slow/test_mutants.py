"""Every mechanical change of every solution is caught by its check, or known to change nothing."""

import pytest

from tools import mutants


@pytest.mark.parametrize("number", mutants.judged())
def test_mutants_are_caught(number: str) -> None:
    (exercise,) = mutants.exercises([number])
    (row,) = mutants.run([(exercise, mutants.mutants(number, exercise.answer))], 1)
    assert row.tried >= 3
    assert not row.missed, "\n".join(map(str, row.missed))
