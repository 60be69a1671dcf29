"""The loops of a source file: a line in a loop may be reached in its next turn."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

Lines = tuple[int, int]


@lru_cache(maxsize=256)
def loops(path: str) -> tuple[Lines, ...]:
    """The first and last line of every loop; empty if the file cannot be read."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor)
    )


def only_one_in_loop(path: str, base: int, one: int, other: int) -> int:
    """Which of two lines shares a loop with line `base` while the other does not.

    Returns 1 or 2 for the first or second line, and 0 for neither or both. From the base, this line
    is reached in the next turn, and the other one only after the loop.
    """
    for start, end in loops(path):
        if start <= base <= end:
            first, second = start <= one <= end, start <= other <= end
            if first != second:
                return 1 if first else 2
    return 0
