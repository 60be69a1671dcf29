"""Parameters of wrapped models in code that no run reaches.

In `if args.log:` with a setting that is off by default, no values are known. The variable of a loop
over `model.parameters()` is a parameter there, if `model` is a wrapped model.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source

LISTS = {"parameters": 0, "named_parameters": 1}  # the place of the parameter in an element
PASSED_ON = {"list", "tuple", "reversed", "sorted", "iter"}  # give the elements of what they get


def unreached_parameters(migration: Migration, source: Source) -> frozenset[cst.CSTNode]:
    """The names that are a parameter of a wrapped model, and of which no values are known."""
    found: set[cst.CSTNode] = set()
    for node in nodes(source):
        if isinstance(node, cst.For):
            name = _parameter(migration, node.target, node.iter)
            found.update(_uses(migration, source, name, [node.body]))
        elif isinstance(node, cst.CompFor):
            name = _parameter(migration, node.target, node.iter)
            around = source.parent(node)
            while isinstance(around, cst.CompFor):
                around = source.parent(around)
            if around is not None:
                found.update(_uses(migration, source, name, [around]))
    return frozenset(found)


def _parameter(
    migration: Migration, target: cst.BaseExpression, iterated: cst.BaseExpression
) -> str:
    """The variable of a loop that is a parameter of a wrapped model in unreached code, or ""."""
    while isinstance(iterated, cst.Call) and isinstance(iterated.func, cst.Name):
        if not iterated.args or iterated.args[0].keyword is not None or iterated.args[0].star:
            return ""
        if iterated.func.value == "enumerate":
            target = _element(target, 1)
        elif iterated.func.value not in PASSED_ON:
            return ""
        iterated = iterated.args[0].value
    if not isinstance(iterated, cst.Call) or not isinstance(iterated.func, cst.Attribute):
        return ""
    place = LISTS.get(iterated.func.attr.value)
    model = iterated.func.value
    if place is None or migration.values(model) or not migration.wrapping_of(model):
        return ""
    variable = _element(target, 1) if place else target
    return variable.value if isinstance(variable, cst.Name) else ""


def _element(target: cst.BaseExpression, place: int) -> cst.BaseExpression:
    """The target of one element of what a loop gets; the loop's own target if there is none."""
    if isinstance(target, cst.Tuple | cst.List) and len(target.elements) > place:
        return target.elements[place].value
    return cst.Tuple([])


def _uses(
    migration: Migration, source: Source, name: str, where: list[cst.CSTNode]
) -> Iterator[cst.Name]:
    """The reads of a variable in some code that binds it nowhere itself."""
    if not name:
        return
    for outer in where:
        uses = [
            node
            for node in source.descend(outer)
            if isinstance(node, cst.Name) and node.value == name
        ]
        if not any(isinstance(source.parent(node), cst.AssignTarget) for node in uses):
            yield from (node for node in uses if _is_read(source, node))


def _is_read(source: Source, node: cst.Name) -> bool:
    parent = source.parent(node)
    is_attribute = isinstance(parent, cst.Attribute) and parent.attr is node
    return not is_attribute and not (isinstance(parent, cst.Arg) and parent.keyword is node)
