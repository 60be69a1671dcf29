"""Attributes of objects (`self.model`) in methods that no run reaches."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from fsdplint.interpreter.values import Value
from fsdplint.source.source import Source

Values = Callable[[cst.CSTNode], list[Value]]
Uses = list[tuple[cst.FunctionDef, cst.Attribute]]


def unreached_attributes(
    source: Source, klass: cst.ClassDef, values: Values, is_wrapped: Callable[[Value], bool]
) -> dict[cst.CSTNode, str]:
    """The attributes that are wrapped models in the methods of a class that no run reaches.

    Returns:
        The nodes, and whether they are a wrapped model "always" or "sometimes".
    """
    found: dict[cst.CSTNode, str] = {}
    for uses in _uses(source, klass).values():
        reached = [(method, node) for method, node in uses if values(node)]
        unreached = [node for _, node in uses if not values(node)]
        if not reached or not unreached:
            continue
        deciding = _after_construction(source, reached)
        known = [value for node in deciding for value in values(node)]
        if any(map(is_wrapped, known)):
            how = "always" if all(map(is_wrapped, known)) else "sometimes"
            methods = {method for method, _ in reached}
            found |= {n: how for m, n in uses if n in set(unreached) and m not in methods}
    return found


def _uses(source: Source, klass: cst.ClassDef) -> dict[str, Uses]:
    """The attributes of the object in the methods of a class, by name."""
    found: dict[str, Uses] = {}
    for method in klass.body.body:
        if not isinstance(method, cst.FunctionDef) or not method.params.params:
            continue
        own = method.params.params[0].name.value
        for node in source.descend(method.body):
            if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
                if node.value.value == own:
                    found.setdefault(node.attr.value, []).append((method, node))
    return found


def _after_construction(source: Source, uses: Uses) -> list[cst.Attribute]:
    """The uses in methods that do not bind the attribute; if there are none, its last binding."""
    bound = [(m, n) for m, n in uses if isinstance(source.parent(n), cst.AssignTarget)]
    binding = {method for method, _ in bound}
    readers = [node for method, node in uses if method not in binding]
    if readers or not bound:
        return readers
    return [max((node for _, node in bound), key=source.span)]
