"""Where code reads a parameter from: `weight` in `for weight in model.decoder.parameters()`.

A part of a wrapped model gives this rank's part of its parameters, as the model does. In the forward
of a module FSDP1 has gathered them, and code there reads them from the module itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend

_LISTS = ("list", "tuple", "reversed", "enumerate", "sorted", "iter", "next", "zip", "dict")
MAX_STEPS = 8  # variables between a parameter and its model


def is_read_from_wrapped(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether a parameter comes from a model that FSDP1 wraps there, or from a part of it."""
    todo, seen = [node], 0
    while todo and seen < MAX_STEPS:
        seen += 1
        for part in _owners(todo.pop()):
            if migration.wrapping_of(part):
                return True
            if isinstance(part, cst.Name):
                todo += _given(source, part)
    return False


def _owners(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """An expression, and the objects of which it is an attribute, an item or a result."""
    while True:
        yield node
        if isinstance(node, cst.Attribute | cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            node = node.func.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.args:
            if node.func.value not in _LISTS:
                return
            node = node.args[0].value
        else:
            return


def _given(source: Source, name: cst.Name) -> list[cst.BaseExpression]:
    """What a variable is an element of, or what it is assigned."""
    for outer in ancestors(source, name):
        loop = outer if isinstance(outer, cst.For) else getattr(outer, "for_in", None)
        while isinstance(loop, cst.For | cst.CompFor):
            targets = [one for one in descend(loop.target) if isinstance(one, cst.Name)]
            if any(one.value == name.value and one is not name for one in targets):
                return [loop.iter]
            loop = getattr(loop, "inner_for_in", None)
        if isinstance(outer, cst.FunctionDef | cst.Lambda):
            break
    found = reach(source, name)
    return [found.definition.value] if found is not None else []
