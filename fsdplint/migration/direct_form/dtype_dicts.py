"""Dicts of dtypes under keys that the code does not name, as those of settings.

`MixedPrecision(**{key: getattr(torch, name) for key, name in settings.items()})` gets no other arguments
than dtypes: its flags are no attributes of `torch`.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import Bound, Dict, Function, Symbol, Value
from fsdplint.migration.analysis.variables import definitions, return_values
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

MAX_DEPTH = 4  # variables and functions that lead to one another


def holds_dtypes(
    migration: Migration, source: Source, node: cst.BaseExpression, depth: int = 0
) -> bool:
    """Whether all values of the dict that a node gives are dtypes."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, cst.DictComp):
        return _is_dtype(migration, node.value)
    if isinstance(node, cst.Dict):
        parts = [element.value for element in node.elements]
        starred = [isinstance(element, cst.StarredDictElement) for element in node.elements]
        return all(
            holds_dtypes(migration, source, part, depth + 1) if star else _is_dtype(migration, part)
            for part, star in zip(parts, starred, strict=True)
        )
    if isinstance(node, cst.IfExp):
        arms = (node.body, node.orelse)
        return all(holds_dtypes(migration, source, arm, depth + 1) for arm in arms)
    if isinstance(node, cst.BooleanOperation):
        arms = (node.left, node.right)
        return all(holds_dtypes(migration, source, arm, depth + 1) for arm in arms)
    if isinstance(node, cst.Name):
        found = definitions(source, node)
        return bool(found) and all(
            holds_dtypes(migration, source, one.value, depth + 1) for one in found or ()
        )
    if isinstance(node, cst.Call):
        functions = list(map(_function, migration.values(node.func)))
        return bool(functions) and all(
            one is not None
            and all(
                holds_dtypes(migration, one.site.source, value, depth + 1)
                for value in return_values(one.node)  # type: ignore[arg-type]
            )
            for one in functions
        )
    return False


def _function(value: Value) -> Function | None:
    """The function of the program that a value is."""
    value = value.function if isinstance(value, Bound) else value
    is_plain = isinstance(value, Function) and isinstance(value.node, cst.FunctionDef)
    return value if is_plain and isinstance(value, Function) else None


def _is_dtype(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression is an attribute of `torch`, or an element of a table of dtypes."""
    if migration.symbol(node).startswith("torch."):
        return migration.symbol(node).count(".") == 1
    if isinstance(node, cst.Call) and is_constant(node.func, "getattr") and node.args:
        return migration.symbol(node.args[0].value) == "torch"
    table = node.value if isinstance(node, cst.Subscript) else None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        table = node.func.value if node.func.attr.value == "get" else None
    found = migration.values(table) if table is not None else []
    return bool(found) and all(map(_is_table, found))


def _is_table(value: Value) -> bool:
    """Whether a dict has dtypes only."""
    return (
        isinstance(value, Dict)
        and not value.open
        and all(
            isinstance(item, Symbol)
            and item.name.startswith("torch.")
            and item.name.count(".") == 1
            for item in value.items.values()
        )
    )
