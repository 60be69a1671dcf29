"""What attributes of classes and of settings objects stand for."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.context import attributes
from fsdplint.migration.direct_form.inlining import Assignment, Inlining, assignment_target
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend


@dataclass(frozen=True)
class ClassAttribute:
    """An attribute of a class that only one assignment sets.

    Attributes:
        klass: the class.
        assignment: the assignment, in the body of the class or in its `__init__`.
        value: what it assigns, without `staticmethod`.
    """

    klass: cst.ClassDef
    assignment: Assignment
    value: cst.BaseExpression


def rewrite_attribute(inlining: Inlining, node: cst.Attribute) -> bool:
    """`Api.wrap` becomes `FSDP` where the class has `wrap = staticmethod(FSDP)`."""
    while isinstance(node.value, cst.Attribute):
        node = node.value
    found = attribute_of(inlining, node)
    if found is None or not inlining.migration.fsdp1(found.value):
        return False
    names = [part for part in descend(found.value) if isinstance(part, cst.Name)]
    if not all(inlining.meanings.is_same_variable(name, node) for name in names):
        return False
    inlining.put(node, inlining.text(found.value))
    inlining.use_attribute(found.klass, found.assignment, node)
    return True


def attribute_of(inlining: Inlining, node: cst.Attribute) -> ClassAttribute | None:
    """The attribute of a class of the file that a node reads, if it has the same value everywhere."""
    klass = _class_of(inlining, node.value)
    found = _assignments(klass, node.attr.value) if klass is not None else []
    if klass is None or len(found) != 1 or found[0].value is None:
        return None
    if _has_other_value(inlining, node.attr.value, found[0]):
        return None
    return ClassAttribute(klass, found[0], _without_staticmethod(found[0].value))


def _class_of(inlining: Inlining, node: cst.BaseExpression) -> cst.ClassDef | None:
    """The class of the file that a name is, or is an object of."""
    source = inlining.source
    if not isinstance(node, cst.Name):
        return None
    if node.value in ("self", "cls"):
        outer = (one for one in ancestors(source, node) if isinstance(one, cst.ClassDef))
        return next(outer, None)
    found = definitions(source, node)
    if found and len(found) == 1:
        made = found[0].value
        if not isinstance(made, cst.Call) or made.args or not isinstance(made.func, cst.Name):
            return None
        node = made.func
    bindings = bindings_of(source)
    owner = bindings.owner(bindings.scope_at(node), node.value)
    bound = owner.others.get(node.value, []) if owner is bindings.module else []
    klass = source.parent(bound[0]) if len(bound) == 1 else None
    return klass if isinstance(klass, cst.ClassDef) and klass.name is bound[0] else None


def _assignments(klass: cst.ClassDef, name: str) -> list[Assignment]:
    """The assignments of an attribute in the body of a class, and of `self.name` in its `__init__`."""
    found = [one for one in _statements(klass) if is_constant(assignment_target(one), name)]
    for method in klass.body.body:
        if isinstance(method, cst.FunctionDef) and method.name.value == "__init__":
            for one in _statements(method):
                target = assignment_target(one)
                if isinstance(target, cst.Attribute) and is_constant(target.value, "self"):
                    found += [one] if target.attr.value == name else []
    return found


def _statements(block: cst.ClassDef | cst.FunctionDef) -> list[Assignment]:
    """The assignments that stand in a body itself, each on its own line."""
    lines = [one for one in block.body.body if isinstance(one, cst.SimpleStatementLine)]
    smalls = [line.body[0] for line in lines if len(line.body) == 1]
    return [
        one
        for one in smalls
        if isinstance(one, cst.AnnAssign) or (isinstance(one, cst.Assign) and len(one.targets) == 1)
    ]


def _without_staticmethod(node: cst.BaseExpression) -> cst.BaseExpression:
    """What `staticmethod` gets, or the expression itself."""
    if isinstance(node, cst.Call) and is_constant(node.func, "staticmethod"):
        return node.args[0].value if len(node.args) == 1 else node
    return node


def _has_other_value(inlining: Inlining, name: str, only: Assignment) -> bool:
    """Whether code gives an attribute another value, or several classes have it."""
    own = set(descend(only))
    for source in inlining.migration.program.sources.values():
        if name not in source.text:
            continue
        for node in attributes(source):
            parent = source.parent(node)
            is_target = isinstance(
                parent, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.Del
            )
            if node.attr.value == name and is_target and node not in own:
                if getattr(parent, "target", node) is node:
                    return True
        for part in source.descend(source.tree):
            if isinstance(part, cst.ClassDef):
                if any(one is not only for one in _assignments(part, name)):
                    return True
    return False
