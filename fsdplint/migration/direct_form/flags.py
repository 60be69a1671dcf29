"""Values that can only be True or False: constants, and flags of the command line."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import Const, Unknown
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.context import Migration, nodes
from fsdplint.syntax.arguments import is_constant

_ACTIONS = ("store_true", "store_false")


def is_flag(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression certainly is True or False, wherever it is known."""
    if is_constant(node, "True") or is_constant(node, "False"):
        return True
    known = [value for value in migration.values(node) if not isinstance(value, Unknown)]
    if known:
        return all(isinstance(value, Const) and isinstance(value.value, bool) for value in known)
    return isinstance(node, cst.Attribute) and _is_parsed(migration, node.attr.value)


def _is_parsed(migration: Migration, name: str) -> bool:
    """Whether each argument of the command line with a name is a flag."""
    found = [
        {arg.keyword.value: arg.value for arg in node.args if arg.keyword is not None}
        for source in full_program(migration.program).sources.values()
        if "add_argument" in source.text
        for node in nodes(source)
        if isinstance(node, cst.Call) and _is_definition(node, name)
    ]
    return bool(found) and all(
        isinstance(action := named.get("action"), cst.SimpleString)
        and action.evaluated_value in _ACTIONS
        for named in found
    )


def _is_definition(node: cst.Call, name: str) -> bool:
    """Whether a call is `parser.add_argument("--name")`."""
    if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "add_argument":
        return False
    texts = [arg.value for arg in node.args if arg.keyword is None]
    return any(
        isinstance(text, cst.SimpleString)
        and str(text.evaluated_value).lstrip("-").replace("-", "_") == name
        for text in texts
    )
