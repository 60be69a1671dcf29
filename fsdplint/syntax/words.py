"""The words of some code."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.positions import code_children


def words_of(node: cst.CSTNode) -> str:
    """The names and strings in some code, with a "(" behind called names; no comments."""
    return " ".join(_each_word(node))


def _each_word(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString):
        return  # a docstring
    if isinstance(node, cst.Name | cst.SimpleString | cst.FormattedStringText):
        yield node.value
    elif isinstance(node, cst.Call):
        called = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        if isinstance(called, cst.Name):
            yield f"{called.value}("
    for child in code_children(node):
        yield from _each_word(child)
