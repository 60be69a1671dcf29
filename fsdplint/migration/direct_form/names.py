"""FSDP1's own names in the place of attributes of classes, and of imports through other files."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.passed_names import passed_names
from fsdplint.migration.analysis.variables import ancestors
from fsdplint.migration.context import Migration, attributes
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of


def rewrite_imports(migration: Migration) -> set[tuple[str, str]]:
    """Import names from torch that files import from one another.

    Returns the path and the spelling of the imports that passed them on.
    """
    dropped = set()
    for one in passed_names(migration.program):
        if not one.is_fsdp1:
            continue
        module, _, name = one.full.rpartition(".")
        for use in one.uses:
            text = migration.need(one.source, module, name, use)
            migration.substitute(one.source, use, text)
            migration.rewrite.remove_import_if_unused(one.source, one.local)
        dropped.add((one.origin.path, one.spelling))
    return dropped


# Attributes of classes -------------------------------------------------------------------------------


def rewrite_class_attribute(inlining: Inlining, node: cst.Attribute) -> bool:
    """`Api.wrap` becomes `FSDP` where the class has `wrap = staticmethod(FSDP)`."""
    while isinstance(node.value, cst.Attribute):
        node = node.value
    klass = _class_of(inlining, node.value)
    found = _assignment(klass, node.attr.value) if klass is not None else None
    if klass is None or found is None:
        return False
    value = _plain(found.value)
    if not inlining.migration.fsdp1(value) or _is_assigned(inlining, node.attr.value):
        return False
    inlining.put(node, inlining.text(value))
    inlining.use_attribute(klass, found, node)
    return True


def _class_of(inlining: Inlining, node: cst.BaseExpression) -> cst.ClassDef | None:
    """The class of the file that a name means, or whose method has it as `self` or `cls`."""
    source = inlining.source
    if not isinstance(node, cst.Name):
        return None
    if node.value in ("self", "cls"):
        outer = (one for one in ancestors(source, node) if isinstance(one, cst.ClassDef))
        return next(outer, None)
    bindings = bindings_of(source)
    owner = bindings.owner(bindings.scope_at(node), node.value)
    bound = owner.others.get(node.value, []) if owner is bindings.module else []
    klass = source.parent(bound[0]) if len(bound) == 1 else None
    return klass if isinstance(klass, cst.ClassDef) and klass.name is bound[0] else None


def _assignment(klass: cst.ClassDef, name: str) -> cst.Assign | None:
    """The assignment of an attribute in the body of a class."""
    for line in klass.body.body:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        small = line.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            if is_constant(small.targets[0].target, name):
                return small
    return None


def _plain(node: cst.BaseExpression) -> cst.BaseExpression:
    """What `staticmethod` gets, or the expression itself."""
    if isinstance(node, cst.Call) and is_constant(node.func, "staticmethod"):
        return node.args[0].value if len(node.args) == 1 else node
    return node


def _is_assigned(inlining: Inlining, name: str) -> bool:
    """Whether code gives the attribute another value, or several classes have it."""
    count = 0
    for source in inlining.migration.program.sources.values():
        if name not in source.text:
            continue
        for node in attributes(source):
            parent = source.parent(node)
            is_target = isinstance(
                parent, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.Del
            )
            if node.attr.value == name and is_target and getattr(parent, "target", node) is node:
                return True
        for part in source.descend(source.tree):
            if isinstance(part, cst.ClassDef):
                count += _assignment(part, name) is not None
    return count != 1
