"""Calls whose results nothing uses."""

from __future__ import annotations

import libcst as cst

from fsdplint.source.positions import descend
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around


def is_result_unused(source: Source, call: cst.CSTNode) -> bool:
    """Whether a call is a statement, or gives a local variable its value that nothing reads."""
    parent = source.parent(call)
    if isinstance(parent, cst.Expr):
        return True
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    name, function = parent.targets[0].target, function_around(source, call)
    if not isinstance(name, cst.Name) or not isinstance(function, cst.FunctionDef):
        return False
    return not any(
        isinstance(node, cst.Name) and node.value == name.value and node is not name
        for node in descend(function.body)
    )
