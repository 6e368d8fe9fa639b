"""Errors point at the reader's own line: the lines that tests/test_lines.py leaves out."""

import pytest
import test_lines


@test_lines.each([case for case in test_lines.CASES if case not in test_lines.FEW])
def test_the_line_that_is_wrong_is_quoted(number: str, source: str, before: list[str], line: int,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    test_lines.test_the_line_that_is_wrong_is_quoted(number, source, before, line, monkeypatch)
