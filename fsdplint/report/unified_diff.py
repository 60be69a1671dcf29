"""Unified diffs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator


def unified(path: str, old: str, new: str) -> Iterator[str]:
    """The lines of a patch from the old to the new text, with line ends; empty if they are
    equal."""
    for line in difflib.unified_diff(_lines(old), _lines(new), path, path, n=3):
        if line.endswith("\n"):
            yield line
        else:
            yield line + "\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """The lines as patch tools count them: only a line feed ends a line."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
