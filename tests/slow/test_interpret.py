"""The interpreter against LLVM, on the PrimFuncs of all answers."""

import pytest
from interpreted import SHAPES, compare, of_candidates


@pytest.mark.parametrize("exercise", SHAPES)
def test_the_interpreter_gives_what_the_compiler_gives(exercise: str) -> None:
    compared = [compare(*case) for case in of_candidates(exercise)]
    ran = [one for one in compared if not str(one).startswith("fault")]
    assert ran.count(True) > 0.8 * len(ran) and ran.count(True) > 10
    assert sum(str(one).startswith("unknown") for one in ran) < 0.2 * len(ran)
