"""The defaults of command line arguments: `parser.add_argument("--size", default=8)`."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from fsdplint.source.positions import descend
from fsdplint.source.source import Source, once


@once
def argument_defaults(source: Source) -> Mapping[str, float | None]:
    """The numbers that arguments have by default, by their attributes; None for other defaults."""
    found: dict[str, float | None] = {}
    for node in descend(source.tree):
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            continue
        given = {arg.keyword.value: arg.value for arg in node.args if arg.keyword is not None}
        if node.func.attr.value == "set_defaults":
            found.update(dict.fromkeys(given))
        if node.func.attr.value != "add_argument":
            continue
        flags = [
            text
            for arg in node.args
            if arg.keyword is None and isinstance(arg.value, cst.SimpleString)
            if isinstance(text := arg.value.evaluated_value, str)
        ]
        name = _text(given.get("dest")) or next((one for one in flags if one[:2] == "--"), "")
        name = name.lstrip("-").replace("-", "_")
        if name:
            default = _number(given.get("default"))
            found[name] = default if found.get(name, default) == default else None
    return found


def _text(node: cst.CSTNode | None) -> str:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else ""


def _number(node: cst.CSTNode | None) -> float | None:
    value = node.evaluated_value if isinstance(node, cst.Integer | cst.Float) else None
    return value if isinstance(value, int | float) else None
