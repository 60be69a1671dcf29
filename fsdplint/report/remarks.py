"""Remarks: what a fix changes in behaviour or cost, with the lines that it is about."""

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
    """What changes in behaviour or cost: what, how much, and where."""

    text: str
    detail: str = ""
    places: list[Place] = field(default_factory=list)


def remark_lines(remark: Remark) -> Iterator[str]:
    """A note on what changes."""
    places = f" ({', '.join(map(str, remark.places))})" if remark.places else ""
    text = f"{remark.text}{places}." + (f" {remark.detail}" if remark.detail else "")
    yield from wrapped("  - ", text)


def wrapped(head: str, text: str) -> Iterator[str]:
    """A text in lines of at most `WIDTH` characters, the first one behind `head`."""
    yield from textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=head,
        subsequent_indent=" " * (4 if len(head) > 12 else len(head)),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]
