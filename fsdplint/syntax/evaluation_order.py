"""The order in which the parts of an expression are evaluated."""

from __future__ import annotations

import libcst as cst

from fsdplint.source.source import Source


def is_evaluated_first(source: Source, node: cst.CSTNode, root: cst.CSTNode) -> bool:
    """Whether no code is executed between the start of an expression and a part of it."""
    while node is not root:
        parent = source.parent(node)
        if parent is None or not _is_first_part(parent, node):
            return False
        node = parent
    return True


def _is_first_part(parent: cst.CSTNode, node: cst.CSTNode) -> bool:
    if isinstance(parent, cst.Tuple | cst.List):
        before = [element.value for element in parent.elements[: _number(parent, node)]]
        return all(isinstance(value, cst.Name | cst.BaseNumber) for value in before)
    if isinstance(parent, cst.Element | cst.UnaryOperation):
        return True
    if isinstance(parent, cst.Comparison | cst.BinaryOperation | cst.BooleanOperation):
        return parent.left is node
    if isinstance(parent, cst.NamedExpr | cst.Attribute | cst.Subscript):
        return parent.value is node
    return isinstance(parent, cst.Call) and parent.func is node


def _number(parent: cst.Tuple | cst.List, node: cst.CSTNode) -> int:
    return next(n for n, element in enumerate(parent.elements) if element is node)
