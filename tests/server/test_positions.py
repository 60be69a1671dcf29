"""Positions as editors count them."""

from __future__ import annotations

import pytest

from fsdplint.server.analysis import _unchanged_lines, line_edits
from fsdplint.server.positions import Lines

TEXT = "a\U0001f525b\r\n\fü = '\u2028'\rlast\n"


@pytest.mark.parametrize(
    ("encoding", "units"), [("utf-16", [1, 3, 4]), ("utf-32", [1, 2, 3]), ("utf-8", [1, 5, 6])]
)
def test_units(encoding: str, units: list[int]) -> None:
    lines = Lines(TEXT, encoding)
    assert [lines.position(offset) for offset in (1, 2, 3)] == [(0, unit) for unit in units]
    for offset, character in enumerate(TEXT):
        if character != "\n" or TEXT[offset - 1] != "\r":
            assert lines.offset(*lines.position(offset)) == offset


def test_lines_end_as_editors_say() -> None:
    """Neither form feeds nor line separators end a line."""
    lines = Lines(TEXT)
    assert [lines.line(number) for number in range(5)] == [
        *("a\U0001f525b", "\fü = '\u2028'", "last", "", ""),
    ]
    assert lines.offset(0, 99) == 3
    assert lines.offset(9, 0) == len(TEXT)
    assert lines.of_column(1, 3) == (0, 3)
    assert lines.of_column(9, 1) == (3, 0)


def test_lines_that_are_kept() -> None:
    assert _unchanged_lines("a\nb\nc\n", "a\nx\ny\nc\n") == {1: 1, 3: 4}
    assert _unchanged_lines("a\na\n", "a\n") == {1: 1}
    assert _unchanged_lines("", "a\n") == {}


def test_edits_between_two_texts() -> None:
    old, new = "a\nb\nc\nd", "x\na\nc\ne\nd"
    text = old
    for edit in reversed(line_edits("f", old, new)):
        text = text[: edit.start] + edit.text + text[edit.end :]
    assert text == new
    assert line_edits("f", old, old) == []
