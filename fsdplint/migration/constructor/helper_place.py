"""Where a file gets the functions that the new code calls."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend


def helper_place(migration: Migration, source: Source, at: cst.CSTNode) -> cst.CSTNode:
    """The top-level statement before which a function for `at` has to be defined.

    The calls of the constructor that stand above `at` may need the same function, and so may
    statements that put their arguments into a dict.
    """
    calls = [
        node
        for node in source.descend(source.tree)
        if isinstance(node, cst.Call) and migration.called_name(node) in (FSDP, "wrap")
    ]
    dicts = {
        arg.value.value
        for call in calls
        for arg in call.args
        if arg.star == "**" and isinstance(arg.value, cst.Name)
    }
    filled = [one for one in source.tree.body if dicts and _assigns(one, dicts)]
    return top_level(source, min([at, *calls, *filled], key=source.span))


def _assigns(statement: cst.CSTNode, names: set[str]) -> bool:
    """Whether a statement of the top level assigns one of some names or an item of it."""
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return False
    return any(
        isinstance(part, cst.AssignTarget)
        and isinstance(target := _variable(part.target), cst.Name)
        and target.value in names
        for part in descend(statement)
    )


def _variable(target: cst.BaseExpression) -> cst.BaseExpression:
    return target.value if isinstance(target, cst.Subscript) else target
