"""Tensors that an object of the program holds, and that no model has as a parameter."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Instance, LibraryObject
from fsdplint.migration.context import Migration
from fsdplint.migration.training.own_tensors import MAKERS
from fsdplint.source.source import Source

REGISTERING = {"register_parameter", "setattr", "__setattr__", "ParameterList", "ParameterDict"}


def is_held_by_object(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether a node is an attribute of objects that are no modules, and no module gets its tensor."""
    if not isinstance(node, cst.Attribute):
        return False
    tensors = migration.program.values(node)
    owners = migration.program.values(node.value)
    if not tensors or not owners or not all(isinstance(one, Instance) for one in owners):
        return False
    if not all(isinstance(one, LibraryObject) and one.name in MAKERS for one in tensors):
        return False
    known = {id(one) for one in tensors}
    reads = _reads(migration, known, node.attr.value)
    return not any(_gives_to_module(migration, source, read) for source, read in reads)


def _reads(
    migration: Migration, tensors: set[int], name: str
) -> Iterator[tuple[Source, cst.CSTNode]]:
    """The expressions that had one of some tensors as their value, and unknown attributes of a name."""
    for source in migration.program.sources.values():
        for node in source.descend(source.tree):
            if isinstance(node, cst.Name | cst.Attribute | cst.Subscript):
                values = migration.program.values(node)
                if any(id(one) in tensors for one in values):
                    yield source, node
                elif not values and isinstance(node, cst.Attribute) and node.attr.value == name:
                    if not isinstance(source.parent(node), cst.AssignTarget):
                        yield source, node


def _gives_to_module(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether code may make a tensor a parameter of a module."""
    parent = source.parent(node)
    while isinstance(parent, cst.Element | cst.DictElement | cst.List | cst.Tuple | cst.Dict):
        parent = source.parent(node := parent)
    if isinstance(parent, cst.AssignTarget):
        return isinstance(node, cst.Attribute) and not _is_of_object(migration, node)
    if isinstance(parent, cst.Assign) and parent.value is node:
        return not all(
            isinstance(one.target, cst.Name | cst.Subscript)
            or (isinstance(one.target, cst.Attribute) and _is_of_object(migration, one.target))
            for one in parent.targets
        )
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        return not isinstance(call, cst.Call) or _last_name(call.func) in REGISTERING
    return False


def _is_of_object(migration: Migration, target: cst.Attribute) -> bool:
    owners = migration.program.values(target.value)
    return bool(owners) and all(isinstance(one, Instance) for one in owners)


def _last_name(function: cst.BaseExpression) -> str:
    name = function.attr if isinstance(function, cst.Attribute) else function
    return name.value if isinstance(name, cst.Name) else ""
