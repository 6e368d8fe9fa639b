"""Mechanical changes of the solutions and wrong behaviours around them: some, which checks catch.

More of them: tests/slow/test_more_mutants.py; all of them: `make mutants`.
"""

import mutants
from behaviours import truths

from course.words import _
from tools import messages

_CELL = """def answer(x, k):
    ### BEGIN SOLUTION
    rows, columns = x.shape
    x.scale(2, axis=0)
    return [x[i, j] + 1 for i in range(rows) for j in range(k) if i < j]
    ### END SOLUTION
"""


def test_each_kind_of_change_is_made_once_and_in_place() -> None:
    made = mutants.mutants("0.0", _CELL)
    assert len({mutant.source for mutant in made}) == len(made)
    assert all(mutant.source.startswith("def answer(x, k):\n    ### BEGIN") for mutant in made)
    lines = {mutant.now for mutant in made}
    line = "return [x[i, j] + 1 for i in range(rows) for j in range(k) if i < j]"
    for was, now in [("x[i, j] + 1", "(x[i, j])"), ("x[i, j]", "x[(j, i)]"), ("+ 1", "+ 2"),
                     ("i < j", "(i <= j)"), ("range(k)", "(k)"), ("x[i, j] + 1", "(x[i, j] - 1)")]:
        assert line.replace(was, now) in lines, now
    for now in ("pass", "x.scale(2)", "x.scale(3, axis=0)", "x.scale(2, axis=1)",
                "x.scale(2, axis=0); x.scale(2, axis=0)"):
        assert now in lines, now
    assert not any("return" in mutant.was and "x.scale" in mutant.now for mutant in made)


def test_what_is_listed_as_equivalent_is_a_mutant_and_has_a_reason() -> None:
    every = {mutant.key for exercise in mutants.exercises()
             for mutant in mutants.mutants(exercise.number, exercise.answer)}
    listed = mutants.equivalent()
    assert not (stale := [key for key in listed if key not in every]), stale
    assert all(len(reason) > 10 for reason in listed.values())


def test_a_sample_is_caught() -> None:
    rows = list(mutants.run(mutants.sample(10)))
    missed = [str(mutant) for row in rows for mutant in row.missed]
    assert not missed, "\n".join(missed)
    assert not (false := [line for row in rows for line in row.false]), "\n".join(false)


def test_wrong_behaviours_are_tried_too() -> None:
    """Around the solution of each exercise of a kind, by a title that names it."""
    (exercise,) = mutants.exercises(["2.3"])
    every = [one for one in mutants.mutants("2.3", exercise.answer) if not one.was]
    assert {one.now for one in every} >= {"its result: rounded to float16",
                                          "input 1: rounded to whole numbers"}
    (row,) = mutants.run([(exercise, every[::6])], 1)
    assert row.tried >= 4 and not row.missed and not row.false


def test_a_false_cause_is_found() -> None:
    cause = _("a constant with {value} instead of {right} at {place}, and {count} more that differ")
    assert not truths.false_causes("2.7", "linear0_bias: one number off", cause)
    assert not truths.false_causes("2.3", "input 0: rounded to float16", _("one sblock"))
    for title in ("its sum: of all rows", "its result: rounded to float16"):
        assert truths.false_causes("2.7", title, cause) == [cause]
    rounded = _("it is x W + b")
    look_at = _("; ").join([rounded, _("one sblock")])
    assert truths.unexpected_causes(look_at, "something else") == [rounded]
    assert not truths.unexpected_causes(look_at, "something else | it is x W + b")


def test_what_is_refused_for_its_form_is_not_tried() -> None:
    wanted = _("explicit loops over single elements")
    assert truths.untried("0.1", "its result: cut off above 6", wanted) == [wanted]
    runs = _("your code to run")
    assert truths.untried("10.1", "its result: cut off above 6", runs) == [runs]
    assert not truths.untried("10.1", "split: what is left over is lost", runs)


def test_the_table_of_true_causes_has_no_other_than_checks_name() -> None:
    said = {one.msgid for one in messages.extracted()}
    assert {*truths.names().values()} == truths.TRUE.keys() | truths.FORMS.keys()
    assert truths.names().keys() | truths.causes() <= said and len(truths.causes()) > 8


def test_what_there_is_not_is_said(capsys) -> None:
    assert mutants.main(["9.9"]) == mutants.main(["3.1", "2.9"]) == mutants.main(["x"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "There is no exercise 9.9.", "There is no exercise 2.9.",
        "x: a notebook is 03, an exercise 3.1"]
