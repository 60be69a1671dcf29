"""The loops of a source file, to tell what is reached in a further turn of one from what is not."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

Lines = tuple[int, int]


@lru_cache(maxsize=256)
def loops(path: str) -> tuple[Lines, ...]:
    """The first and last line of every loop; none where the file cannot be read."""
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
    """Which of two lines is in a loop that line `base` is in and the other is not.

    1 or 2 for the first or second line, 0 for neither or both. From the base, that line is reached
    in another turn, the other only when the loop has ended.
    """
    for start, end in loops(path):
        if start <= base <= end:
            first, second = start <= one <= end, start <= other <= end
            if first != second:
                return 1 if first else 2
    return 0
