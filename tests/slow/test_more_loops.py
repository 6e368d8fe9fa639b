"""Loop nests, live: many more of the steps that tests/test_live.py compares with TVM; builds."""

import pytest
import test_live
import tvm

from course.plots import moving, walks


@pytest.mark.parametrize("program", walks.PROGRAMS, ids=lambda program: program.id)
def test_many_random_steps_are_tvms(program: walks.Program) -> None:
    for seed in range(100, 150):
        test_live.compare(program, seed, 24)


@pytest.mark.parametrize("program", walks.PROGRAMS, ids=lambda program: program.id)
def test_what_the_page_warns_of_is_what_tvm_does_not_build(program: walks.Program, capfd) -> None:
    for seed in range(12):
        schedule, nested = test_live.compare(program, seed, 10)
        try:
            tvm.compile(schedule.mod, target="llvm")
        except Exception as error:  # an error of TVM's own, without a class of its own
            assert nested and moving.BUILDING[f"build{nested['kind']}"] in str(error)
        else:
            assert not nested
        capfd.readouterr()
