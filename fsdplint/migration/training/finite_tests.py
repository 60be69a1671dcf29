"""Tests for values of a gradient that are not finite: `torch.isfinite(p.grad).all()`."""

from __future__ import annotations

import libcst as cst

from fsdplint.source.source import Source

TESTS = {"isfinite": "all", "isnan": "any", "isinf": "any"}


def finite_test(
    source: Source, node: cst.Attribute, symbols: dict[cst.CSTNode, str]
) -> cst.Call | None:
    """The call that tests whether all values of a gradient are finite, or any is not; or None."""
    current: cst.CSTNode = node
    parent = source.parent(current)
    while isinstance(parent, cst.Attribute) and parent.attr.value == "data":
        current, parent = parent, source.parent(parent)
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if not isinstance(call, cst.Call) or len(call.args) != 1:
            return None
        library, _, name = symbols.get(call.func, "").rpartition(".")
        return _reduction(source, call, name) if library == "torch" else None
    if isinstance(parent, cst.Attribute):
        call = source.parent(parent)
        if isinstance(call, cst.Call) and call.func is parent and not call.args:
            return _reduction(source, call, parent.attr.value)
    return None


def _reduction(source: Source, call: cst.Call, name: str) -> cst.Call | None:
    """The call of `all` or `any` on the elementwise result of a test."""
    attribute = source.parent(call)
    if not isinstance(attribute, cst.Attribute) or attribute.attr.value != TESTS.get(name):
        return None
    found = source.parent(attribute)
    if isinstance(found, cst.Call) and found.func is attribute and not found.args:
        return found
    return None


def is_truth(source: Source, test: cst.Call) -> bool:
    """Whether code reads a test as a truth value. For a DTensor that is the value of this rank's part."""
    parent = source.parent(test)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value == "item"
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        named = isinstance(call, cst.Call) and isinstance(call.func, cst.Name)
        return named and call.func.value == "bool"  # type: ignore[union-attr]
    if isinstance(parent, cst.UnaryOperation):
        return isinstance(parent.operator, cst.Not)
    if isinstance(parent, cst.BooleanOperation):
        return parent.left is test or is_truth_of(source, parent)
    return isinstance(parent, cst.If | cst.While | cst.Assert) and parent.test is test


def is_truth_of(source: Source, node: cst.CSTNode) -> bool:
    """Whether a chain of `and`, `or` and `not` is a condition, so that its last operand is one."""
    parent = source.parent(node)
    while isinstance(parent, cst.BooleanOperation | cst.UnaryOperation):
        node, parent = parent, source.parent(parent)
    return isinstance(parent, cst.If | cst.While | cst.Assert) and parent.test is node
