"""Excerpts of source code with a span underlined."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from fsdplint.trace import Location

if TYPE_CHECKING:
    from fsdplint.source.source import Source

TAB = 4
CONTEXT = 1  # lines before and after
LONGEST = 4  # lines of a span that are shown without a gap
WIDEST = 160  # columns of a line that are shown


def frame(source: Source, at: Location) -> list[str]:
    """The numbered lines around a span, which is underlined; long spans are shortened."""
    count = source.text.count("\n") + 1
    end_line = max(at.end_line, at.line)
    span = list(range(at.line, end_line + 1))
    if len(span) > LONGEST:
        span = [*span[:2], 0, span[-1]]
    before = range(max(1, at.line - CONTEXT), at.line)
    after = range(end_line + 1, min(count, end_line + CONTEXT) + 1)
    numbers = [*before, *span, *after]
    margin = len(str(max(numbers)))
    lines = []
    for number in numbers:
        if number == 0:
            lines.append(f"{'.' * margin} |")
            continue
        text = source.line(number)
        lines.append(f"{number:>{margin}} | {printable_line(text)}".rstrip()[: WIDEST + margin + 3])
        if at.line <= number <= end_line:
            start = at.column - 1 if number == at.line else len(text) - len(text.lstrip())
            end = at.end_column - 1 if number == at.end_line else len(text.rstrip())
            lines.append(f"{' ' * margin} | {_underline(text, start, end)}".rstrip())
    while lines and lines[-1].rstrip().endswith("|") and lines[-1].split("|")[1].strip() == "":
        lines.pop()
    return [f"{' ' * margin} |", *lines, f"{' ' * margin} |"]


def _underline(text: str, start: int, end: int) -> str:
    """Carets under the characters start..end of a line as it is printed."""
    indent = _width(text[:start])
    width = max(1, _width(text[: max(start, end)]) - indent)
    return " " * indent + "^" * width if indent < WIDEST else ""


def printable_line(text: str) -> str:
    """A line with tabs as spaces and without control characters."""
    result: list[str] = []
    column = 0
    for character in text:
        if character == "\t":
            step = TAB - column % TAB
            result.append(" " * step)
            column += step
            continue
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            character = "\N{REPLACEMENT CHARACTER}"
        result.append(character)
        column += _cells(character)
    return "".join(result)


def _width(text: str) -> int:
    """The number of terminal columns of a text."""
    return sum(_cells(character) for character in printable_line(text))


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
