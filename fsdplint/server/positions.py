"""Positions as editors count them: lines from 0, and code units (mostly of UTF-16) in a line."""

from __future__ import annotations

import re
from bisect import bisect_right

_END = re.compile(r"\r\n|\n|\r")
_WIDE = re.compile("[\U00010000-\U0010ffff]")


def _units(text: str, encoding: str) -> int:
    if encoding == "utf-16":
        return len(text) + len(_WIDE.findall(text))
    return len(text) if encoding == "utf-32" else len(text.encode("utf-8", "surrogatepass"))


class Lines:
    """The lines of a text. A line ends in LF, CRLF or CR."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding
        self.starts = [0, *(match.end() for match in _END.finditer(text))]
        self._one_unit_each = text.isascii() or encoding == "utf-32"

    def position(self, offset: int) -> tuple[int, int]:
        """Line and code units of a character of the text."""
        line = bisect_right(self.starts, offset) - 1
        start = self.starts[line]
        if self._one_unit_each:
            return line, offset - start
        return line, _units(self.text[start:offset], self.encoding)

    def offset(self, line: int, units: int) -> int:
        """The offset of a position; a position behind the line's end is moved to the end."""
        if line >= len(self.starts):
            return len(self.text)
        start, end = self.starts[line], self._end(line)
        if self._one_unit_each:
            return min(start + units, end)
        for offset in range(start, end):
            if _units(self.text[start : offset + 1], self.encoding) > units:
                return offset
        return end

    def of_column(self, line: int, column: int) -> tuple[int, int]:
        """The position of a line and column that count characters from 1."""
        line = min(line, len(self.starts))
        start = self.starts[line - 1]
        return self.position(min(start + column - 1, len(self.text)))

    def line(self, number: int) -> str:
        """The text of a line (from 0) without its end."""
        if number >= len(self.starts):
            return ""
        return self.text[self.starts[number] : self._end(number)]

    def _end(self, line: int) -> int:
        end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
        while end > self.starts[line] and self.text[end - 1] in "\r\n":
            end -= 1
        return end
