"""Incremental parsing of a text that differs from another one in a single place.

The statements of a module before and after the place are reused with all of their nodes. The result
is None unless a full parse certainly gives the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from fsdplint.source.positions import Part
from fsdplint.source.quick_libcst import cst

_MARK = "pass\n"  # stands for the statement behind what is parsed


def reparse(tree: cst.Module, parts: Sequence[Part], old: str, new: str) -> cst.Module | None:
    """The tree of a text, from the tree and the parts of another; None where that is not certain.

    What comes before a statement (its comments, the end of the one before) depends on the text up
    to it and on its being there; so the part that is parsed begins where a statement began, and
    ends where one that is the same begins.
    """
    if "\r" in old or "\r" in new or "\f" in old or "\f" in new or not tree.has_trailing_newline:
        return None
    first, last = _changed_span(old, new)
    starts = list(accumulate((len(part.code) for part in parts), initial=0))
    if starts[-1] != len(old) or new[-1:] != "\n":
        return None
    begins = [starts[n + 1] + part.begin for n, part in enumerate(parts[1:-1])]
    before = [n for n, begin in enumerate(begins) if begin < first]
    behind = [n for n, begin in enumerate(begins) if begin >= last and begin > first]
    if not before:
        return None
    start, end = before[-1], behind[0] if behind else None
    if end is None:
        code = new[begins[start] :]
    else:
        code = new[begins[start] : len(new) - (len(old) - begins[end])]
        if not code.endswith("\n"):
            return None
        code += _MARK
    try:
        middle = cst.parse_module(code)
    except cst.ParserSyntaxError:
        return None
    return _splice(tree, start, end, middle)


def _changed_span(old: str, new: str) -> tuple[int, int]:
    """Between which characters the old text was replaced."""
    shorter = min(len(old), len(new))
    first = _longest(shorter, lambda n: old[:n] == new[:n])
    tail = _longest(shorter - first, lambda n: old[len(old) - n :] == new[len(new) - n :])
    return first, len(old) - tail


def _longest(limit: int, same: Callable[[int], bool]) -> int:
    """The greatest length up to a limit of which it holds; it holds of all shorter ones, too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if same(middle) else (low, middle - 1)
    return low


def _splice(tree: cst.Module, start: int, end: int | None, middle: cst.Module) -> cst.Module | None:
    """The tree with other statements from one to (and without) another."""
    body = list(middle.body)
    if middle.header or not body or body[0].leading_lines:
        return None
    if middle.default_indent != tree.default_indent:
        return None
    rest: list[cst.CSTNode] = []
    changes: dict[str, object] = {}
    if end is None:
        changes = {"footer": middle.footer}
    else:
        mark = body.pop()
        if not body or not _is_mark(mark) or middle.footer:
            return None
        follower = tree.body[end]
        if not _equal(tree, mark.leading_lines, follower.leading_lines):
            follower = follower.with_changes(leading_lines=mark.leading_lines)
        rest = [follower, *tree.body[end + 1 :]]
    if tree.body[start].leading_lines:
        body[0] = body[0].with_changes(leading_lines=tree.body[start].leading_lines)
    return tree.with_changes(body=[*tree.body[:start], *body, *rest], **changes)


def _is_mark(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and len(node.body) == 1
        and isinstance(node.body[0], cst.Pass)
    )


def _equal(tree: cst.Module, one: Sequence[cst.EmptyLine], other: Sequence[cst.EmptyLine]) -> bool:
    return len(one) == len(other) and all(a.deep_equals(b) for a, b in zip(one, other, strict=True))
