"""The comments beside and above arguments that FSDP2 does not have; they go with the arguments."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from fsdplint.source.source import Source


def lines_of_items(source: Source, items: Iterable[cst.CSTNode]) -> set[int]:
    """The lines of arguments, or of the values of a dict, and of the comments above them."""
    lines: set[int] = set()
    for item in items:
        start, end = source.span(item)
        first, last = source.position(start)[0], source.position(end)[0]
        lines.update(range(first, last + 1))
        while source.line(first - 1).lstrip().startswith("#"):
            first -= 1
            lines.add(first)
    return lines
