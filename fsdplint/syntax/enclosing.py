"""The nodes that enclose a node."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.source import Source

Function = cst.FunctionDef | cst.Lambda


def ancestors(source: Source, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The ancestors of a node, innermost first."""
    parent = source.parent(node)
    while parent is not None:
        yield parent
        parent = source.parent(parent)


def function_around(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The innermost function or lambda around a node, or the file's tree."""
    return next((one for one in ancestors(source, node) if isinstance(one, Function)), source.tree)


def annotation_around(source: Source, node: cst.CSTNode) -> cst.Annotation | None:
    """The annotation of which a node is the type, or a part of the type (`dict[str, X]`)."""
    current = source.parent(node)
    while isinstance(
        current, cst.Subscript | cst.SubscriptElement | cst.Index | cst.BinaryOperation | cst.Tuple
    ):
        current = source.parent(current)
    return current if isinstance(current, cst.Annotation) else None


def never_runs(source: Source, node: cst.CSTNode) -> bool:
    """Whether an earlier statement of a block around a node always leaves that block."""
    inner = node
    for outer in ancestors(source, node):
        if isinstance(outer, cst.IndentedBlock):
            for statement in outer.body:
                if statement is inner:
                    break
                if isinstance(statement, cst.SimpleStatementLine) and any(
                    isinstance(part, cst.Raise | cst.Return | cst.Break | cst.Continue)
                    for part in statement.body
                ):
                    return True
        inner = outer
    return False
