"""Remarks: changes in behaviour or cost that a fix makes, with the lines concerned."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTH = 96


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass
class Remark:
    """A change in behaviour or cost: its description, size and places."""

    text: str
    detail: str = ""
    places: list[Place] = field(default_factory=list)


def remark_lines(remark: Remark) -> Iterator[str]:
    """The lines of a remark."""
    places = f" ({', '.join(map(str, remark.places))})" if remark.places else ""
    text = f"{remark.text}{places}." + (f" {remark.detail}" if remark.detail else "")
    yield from wrap_text("  - ", text)


def wrap_text(head: str, text: str) -> Iterator[str]:
    """A text in lines of at most `WIDTH` characters; `head` begins the first one."""
    yield from textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=head,
        subsequent_indent=" " * (4 if len(head) > 12 else len(head)),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]
