"""Numbers for what statements make: the same in all runs, and in programs that share their runs."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from fsdplint.source.source import Source


class Numbering:
    """Gives each object that a statement makes a number of its kind.

    A program that takes over runs of an earlier one goes on with the numbers of that one. Otherwise
    its new runs would give the numbers of those runs to other objects.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, cst.CSTNode, int], int] = {}
        self._last: dict[str, int] = {}
        self._sources: dict[cst.CSTNode, Source] = {}

    def number(self, kind: str, source: Source, statement: cst.CSTNode, count: int) -> int:
        """The number of what a statement makes: the count-th of its kind in a run."""
        key = kind, statement, count
        if key not in self._numbers:
            self._last[kind] = self._numbers[key] = self._last.get(kind, 0) + 1
            self._sources[statement] = source
        return self._numbers[key]

    def of(self, sources: Collection[Source]) -> Numbering:
        """The numbers for statements of some sources. Those of others are not used again."""
        kept = set(sources)
        found = Numbering()
        found._last = dict(self._last)
        found._sources = {one: source for one, source in self._sources.items() if source in kept}
        found._numbers = {
            key: number for key, number in self._numbers.items() if key[1] in found._sources
        }
        return found
