"""Mechanical changes of every solution are caught by its check, or known to change nothing.

Some of each exercise, the same ones every time, half of them wrong behaviours; what the check says
of these is held against what they do. `make mutants` tries them all.
"""

import random

import mutants
import pytest

MOST = 3  # of each sort: with 5 the slow tests came near the 90 minutes of CI


def _require_caught(number: str) -> None:
    (exercise,) = mutants.exercises([number])
    every, draw = mutants.mutants(number, exercise.answer), random.Random(number)
    some = [mutant for sort in ([one for one in every if one.line],
                                [one for one in every if not one.line])
            for mutant in draw.sample(sort, min(MOST, len(sort)))]
    (row,) = mutants.run([(exercise, some)], 1)
    assert row.tried >= 3
    assert not row.missed, "\n".join(map(str, row.missed))
    assert not row.false, "\n".join(row.false)


def _class(notebook: str) -> type:
    @pytest.mark.parametrize("number", [
        number for number in mutants.judged() if number.partition(".")[0] == notebook])
    def test_mutants_are_caught(self, number: str) -> None:
        _require_caught(number)
    return type("TestMutants", (), {"test_mutants_are_caught": test_mutants_are_caught})


# a class for each notebook, since pytest-xdist keeps a class, or a file without one, on one worker:
# on one, 39 of 77 exercises took ten minutes
globals().update({f"TestMutants{notebook}": _class(notebook) for notebook in
                  dict.fromkeys(number.partition(".")[0] for number in mutants.judged())})
