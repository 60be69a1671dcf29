"""Reads of an item of a dict by a key that is written in the code."""

from __future__ import annotations

import libcst as cst

GETTERS = ("get", "pop", "setdefault")


def read_key(node: cst.CSTNode) -> str:
    """The key in `values["key"]` or `values.get("key")`; "" for other expressions."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        index = node.slice[0].slice
        return string_value(index.value) if isinstance(index, cst.Index) else ""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        return string_value(node.args[0].value) if node.func.attr.value in GETTERS else ""
    return ""


def string_value(node: cst.BaseExpression) -> str:
    """The text of a string; "" for other expressions."""
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return text if isinstance(text, str) else ""
