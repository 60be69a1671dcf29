"""The model of an optimizer that an object holds, where the method at hand does not name the model.

    def checkpoint(self):
        return {"optimizer": self.optimizer.state_dict()}

Another method reads `self.model`, which is the model of this optimizer wherever the class sets or reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import libcst as cst

from fsdplint.migration.analysis.class_hierarchy import class_around
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend

IsModel = Callable[[cst.BaseExpression], bool | None]  # None: no run has the expression


def model_attribute(
    migration: Migration, source: Source, optimizer: cst.BaseExpression, is_model: IsModel
) -> cst.Attribute | None:
    """The attribute of the same object that holds the model of an optimizer, or None.

    is_model: whether an expression is the model of the optimizer in all runs.
    """
    function = function_around(source, optimizer)
    klass = class_around(source, function) if isinstance(function, cst.FunctionDef) else None
    receiver = _receiver(function)
    if klass is None or not receiver or not _is_of(optimizer, receiver):
        return None
    reads: dict[str, list[cst.Attribute]] = {}
    written: dict[str, list[cst.BaseExpression]] = {}
    for node, value in _attributes(source, klass, receiver):
        if value is None:
            reads.setdefault(node.attr.value, []).append(node)
        else:
            written.setdefault(node.attr.value, []).append(value)
    found = []
    for name, nodes in reads.items():
        values = written.get(name, [])
        if not values or _times_set(migration, name) != len(values):
            continue
        if not all(map(migration.values, values)):
            continue  # code that no run reaches sets it, too
        known = [is_model(one) for one in (*nodes, *values)]
        if any(is_model(one) for one in nodes) and False not in known:
            found.append(nodes[0])
    return min(found, key=lambda node: source.code(node)) if found else None


def _receiver(function: cst.CSTNode) -> str:
    """The name of the first parameter of a method."""
    if not isinstance(function, cst.FunctionDef) or function.decorators:
        return ""
    params = [*function.params.posonly_params, *function.params.params]
    return params[0].name.value if params else ""


def _is_of(node: cst.CSTNode, receiver: str) -> bool:
    return (
        isinstance(node, cst.Attribute)
        and isinstance(node.value, cst.Name)
        and node.value.value == receiver
    )


def _attributes(
    source: Source, klass: cst.ClassDef, receiver: str
) -> Iterator[tuple[cst.Attribute, cst.BaseExpression | None]]:
    """The attributes of the object in the methods of its class, with what each assignment sets."""
    for method in klass.body.body:
        if _receiver(method) != receiver:
            continue
        for node in descend(method):
            if not isinstance(node, cst.Attribute) or not _is_of(node, receiver):
                continue
            target = source.parent(node)
            assign = source.parent(target) if isinstance(target, cst.AssignTarget) else None
            yield node, assign.value if isinstance(assign, cst.Assign) else None


def _times_set(migration: Migration, name: str) -> int:
    """How often the program sets an attribute of a name, of whatever object."""
    setting = re.compile(rf"\.{re.escape(name)}\s*(:[^=\n]+)?=(?!=)")
    return sum(len(setting.findall(one.text)) for one in migration.program.sources.values())
