"""Puts statements and expressions in the place of others in a syntax tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst
import libcst.matchers as m

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Replacement = cst.CSTNode | Sequence[Statement]
Changes = Mapping[cst.CSTNode, Replacement]  # nodes are compared by identity


def statements(text: str) -> list[Statement]:
    return list(cst.parse_module(text).body)


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def text_of(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def plant(module: cst.Module, changes: Changes, head: str = "") -> str:
    """The text of a module after changes, with further statements (imports, helpers) at its top."""
    changed = module.visit(_Plant(changes))
    if head:
        length = _head_length(changed)
        body = [*changed.body[:length], *statements(head), *changed.body[length:]]
        changed = changed.with_changes(body=body)
    return changed.code


class _Plant(cst.CSTTransformer):
    def __init__(self, changes: Changes) -> None:
        self.changes = changes

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[Statement]:
        new = self.changes.get(original_node)
        if new is None:
            return updated_node
        if isinstance(new, cst.CSTNode):
            return new
        return cst.FlattenSentinel(new or statements("pass\n"))


def _head_length(module: cst.Module) -> int:
    """How many statements must come first: the docstring and imports from `__future__`."""
    strings = m.SimpleString() | m.ConcatenatedString()
    first = m.Expr(strings) | m.ImportFrom(module=m.Name("__future__"))
    length = 0
    while length < len(module.body) and m.matches(
        module.body[length], m.SimpleStatementLine([first])
    ):
        length += 1
    return length
