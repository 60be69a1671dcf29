"""Expressions that certainly are a dtype of torch."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

MAX_DEPTH = 4


def is_dtype(
    migration: Migration, source: Source, node: cst.BaseExpression | None, depth: int = 0
) -> bool:
    """Whether an expression is a dtype, and never None: a literal, or the item of a table of them."""
    if node is None or depth > MAX_DEPTH:
        return False
    if re.fullmatch(r"torch\.\w+", migration.symbol(node)):
        return True
    if isinstance(node, cst.IfExp):
        sides = (node.body, node.orelse)
        return all(is_dtype(migration, source, side, depth + 1) for side in sides)
    if isinstance(node, cst.Name):
        found = definitions(source, node)
        return bool(found) and all(
            is_dtype(migration, source, one.value, depth + 1) for one in found or ()
        )
    if isinstance(node, cst.Subscript):
        return _is_table(migration, source, node.value, depth + 1)
    return isinstance(node, cst.Call) and _is_read(migration, source, node, depth + 1)


def _is_read(migration: Migration, source: Source, call: cst.Call, depth: int) -> bool:
    """Whether a call is `table.get(key, dtype)` or `getattr(torch, name)`."""
    given = [arg.value for arg in call.args]
    if is_constant(call.func, "getattr"):
        return len(given) == 2 and migration.symbol(given[0]) == "torch"
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "get":
        return False
    return (
        len(given) == 2
        and is_dtype(migration, source, given[1], depth)
        and _is_table(migration, source, call.func.value, depth)
    )


def _is_table(migration: Migration, source: Source, node: cst.BaseExpression, depth: int) -> bool:
    """Whether an expression is a dict whose values are dtypes."""
    if isinstance(node, cst.Name):
        found = definitions(source, node)
        value = found[0].value if found is not None and len(found) == 1 else None
        return value is not None and _is_table(migration, source, value, depth + 1)
    return isinstance(node, cst.Dict) and all(
        isinstance(item, cst.DictElement) and is_dtype(migration, source, item.value, depth)
        for item in node.elements
    )
