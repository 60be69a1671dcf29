"""Helpers of the tests about rewriting: nodes by their text, edits onto a text."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Fix, Safety
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.SimpleStatementLine)


def source_of(text: str, path: str = "train.py") -> Source:
    return Source(path, text)


def node(source: Source, start: str, kind: type | tuple[type, ...] = STATEMENTS) -> cst.CSTNode:
    """The innermost node of a kind whose text starts so; fails if there are several."""
    found = [x for x in descend(source.tree) if isinstance(x, kind)]
    found = [x for x in found if source.code(x).startswith(start)]
    lines = {x for x in found if isinstance(x, cst.SimpleStatementLine)}
    if len(found) - len(lines) >= 1:
        found = [x for x in found if x not in lines]
    assert len(found) == 1, f"{len(found)} nodes start with {start!r}"
    return found[0]


def name(source: Source, text: str) -> cst.CSTNode:
    """The only name with this text."""
    return node(source, text, cst.Name)


def edited(text: str, edits: Sequence[Edit]) -> str:
    for edit in reversed(edits):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def done(source: Source, rewrite: object) -> str:
    """The text of the only file after a rewrite's own edits (without imports); it parses."""
    fix: Fix = rewrite.fix("test", Safety.SAFE)  # type: ignore[attr-defined]
    result = edited(source.text, fix.edits)
    cst.parse_module(result)
    return result
