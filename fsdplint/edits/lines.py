"""Map the lines of a changed text to the lines of the original text."""

from __future__ import annotations

import difflib
import re

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends, as Python counts them; a form feed ends no line."""
    return _LINE.findall(text)


class LineMap:
    """The lines of a changed text, and the original lines that they replace. Lines count from 1."""

    def __init__(self, before: str, after: str) -> None:
        old, new = lines_of(before), lines_of(after)
        self._old: dict[int, range] = {}
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            for number in range(j1, j2):
                same = range(i1 + number - j1 + 1, i1 + number - j1 + 2)
                self._old[number + 1] = same if tag == "equal" else range(i1 + 1, i2 + 1)

    def old(self, line: int) -> range:
        """The original lines that a line replaces; empty if the line was inserted."""
        return self._old.get(line, range(0))
