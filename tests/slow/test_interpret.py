"""The interpreter against LLVM, on the PrimFuncs of all answers."""

import pytest
from interpreted import SHAPES, compare, of_candidates


@pytest.mark.parametrize("exercise", SHAPES)
def test_the_interpreter_gives_what_the_compiler_gives(exercise: str) -> None:
    compared = [compare(*case) for case in of_candidates(exercise)]
    assert compared.count(True) > 0.7 * len(compared)
    assert sum(str(one).startswith("unknown") for one in compared) < 0.1 * len(compared)
