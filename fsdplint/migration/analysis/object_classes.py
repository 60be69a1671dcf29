"""The classes of the program whose objects expressions are, in code that no run may reach."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Instance, ModuleValue
from fsdplint.migration.analysis.called_functions import Found, called_function
from fsdplint.migration.analysis.class_hierarchy import own_class
from fsdplint.migration.analysis.passed_names import file_of
from fsdplint.migration.analysis.variables import definition_at
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

Place = tuple[Source, cst.ClassDef]
MAX_DEPTH = 12  # of the bases that are followed


def classes_of(program: Program, source: Source, owner: cst.CSTNode, depth: int = 0) -> list[Place]:
    """The classes of the program of which an expression may be an object."""
    values = program.values(owner)
    made = [one.cls for one in values if isinstance(one, Instance)]
    made += [one.cls for one in values if isinstance(one, ModuleValue) and one.cls is not None]
    if made:
        return [(one.site.source, one.node) for one in made]
    if isinstance(owner, cst.Name) and is_self(source, owner):
        klass = own_class(source, owner)
        return [(source, klass)] if klass is not None else []
    if isinstance(owner, cst.Call):
        found = class_named(program, source, owner.func)
        return [found] if found is not None else []
    targets = list(_targets_of(program, source, owner, depth))
    types = [(where, annotation_of(where, one)) for where, one in targets]
    named = [class_named(program, where, one) for where, one in types if one is not None]
    classes = [one for one in named if one is not None]
    if depth < MAX_DEPTH and not classes:
        for where, target in targets:
            value = definition_at(where, target)
            if value is not None:
                classes += classes_of(program, where, value.value, depth + 1)
    return classes


def _targets_of(
    program: Program, source: Source, owner: cst.CSTNode, depth: int
) -> Iterator[tuple[Source, cst.CSTNode]]:
    """The places that bind a variable, or an attribute of an object of the program."""
    if isinstance(owner, cst.Name):
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(owner), owner.value)
        for target in scope.others.get(owner.value, ()) if scope is not None else ():
            yield source, target
    elif isinstance(owner, cst.Attribute) and depth < MAX_DEPTH:
        for one in classes_of(program, source, owner.value, depth + 1):
            for where, klass in with_bases(program, one):
                for target in attribute_targets(where, klass, owner.attr.value):
                    yield where, target


def annotation_of(source: Source, target: cst.CSTNode) -> cst.BaseExpression | None:
    """The annotation of a parameter, or of an assignment, at a place that binds a name."""
    parent = source.parent(target)
    holder = target if isinstance(target, cst.Param) else parent
    annotation = holder.annotation if isinstance(holder, cst.Param | cst.AnnAssign) else None
    return annotation.annotation if annotation is not None else None


def class_named(program: Program, source: Source, name: cst.BaseExpression) -> Place | None:
    """The class of the program that a name refers to."""
    other: Source | None = source
    last = name
    if isinstance(name, cst.Attribute):
        other, last = module_file(program, source, name.value), name.attr
    if not isinstance(last, cst.Name) or other is None:
        return None
    if isinstance(name, cst.Name):
        for item in bindings_of(source).imports():
            if item.local == name.value and item.name is not None:
                other = file_of(program, source, item.module)
                return class_in(other, item.name) if other is not None else None
    return class_in(other, last.value)


def with_bases(program: Program, klass: Place, depth: int = 0) -> Iterator[Place]:
    """A class and its bases in the program."""
    yield klass
    for base in klass[1].bases if depth < MAX_DEPTH else ():
        found = class_named(program, klass[0], base.value)
        if found is not None and found[1] is not klass[1]:
            yield from with_bases(program, found, depth + 1)


def functions(program: Program, source: Source, func: cst.BaseExpression) -> list[Found]:
    """The functions or methods of the program that a call may run."""
    found = called_function(program, source, func)
    if found is not None or not isinstance(func, cst.Attribute):
        return [found] if found is not None else []
    return [
        (where, method)
        for one in classes_of(program, source, func.value)
        for where, node in with_bases(program, one)
        for method in methods_named(node, func.attr.value)
    ]


def module_file(program: Program, source: Source, owner: cst.BaseExpression) -> Source | None:
    """The file of an imported module."""
    if not isinstance(owner, cst.Name):
        return None
    items = [one for one in bindings_of(source).imports() if one.local == owner.value]
    return file_of(program, source, items[0].full) if len(items) == 1 else None


def values_assigned(source: Source, node: cst.CSTNode) -> list[cst.BaseExpression]:
    """The values that assignments give to a variable."""
    if not isinstance(node, cst.Name):
        return []
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(node), node.value)
    targets = scope.others.get(node.value, ()) if scope is not None else ()
    found = [definition_at(source, one) for one in targets]
    return [one.value for one in found if one is not None]


def class_in(source: Source, name: str) -> Place | None:
    found = [
        one for one in source.tree.body if isinstance(one, cst.ClassDef) and one.name.value == name
    ]
    return (source, found[0]) if len(found) == 1 else None


def library_bases(source: Source, klass: cst.ClassDef) -> Iterator[str]:
    symbols = symbols_in(source)
    for base in klass.bases:
        yield symbols.get(base.value, "")


def is_self(source: Source, name: cst.Name) -> bool:
    """Whether a name is the first parameter of the method around it."""
    function = function_around(source, name)
    if not isinstance(function, cst.FunctionDef):
        return False
    params = [*function.params.posonly_params, *function.params.params]
    first = params[0].name.value if params else ""
    return first == name.value and own_class(source, function) is not None


def methods_named(klass: cst.ClassDef, name: str) -> list[cst.FunctionDef]:
    body = klass.body.body
    return [x for x in body if isinstance(x, cst.FunctionDef) and x.name.value == name]


def attribute_targets(source: Source, klass: cst.ClassDef, name: str) -> Iterator[cst.CSTNode]:
    """The targets in a class that give an attribute of its objects a value."""
    for statement in klass.body.body:
        for part in descend(statement):
            target = part.target if isinstance(part, cst.AssignTarget | cst.AnnAssign) else None
            if isinstance(target, cst.Name) and target.value == name:
                if function_around(source, part) is function_around(source, klass):
                    yield target
            elif isinstance(target, cst.Attribute) and target.attr.value == name:
                if isinstance(target.value, cst.Name) and is_self(source, target.value):
                    yield target
