"""The class hierarchy of a program: subclasses, bases, and the values of attributes."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.qualified_names import imported_names

# Libraries whose classes have no methods with names that a program's own methods have.
HARMLESS = ("torch", "abc", "typing", "typing_extensions", "enum", "dataclasses", "collections")

AssignedValue = cst.BaseExpression | cst.Annotation | None


class Classes:
    """The classes of a program, by name."""

    def __init__(self, migration: Migration) -> None:
        self.sources = list(migration.program.sources.values())
        self.all = [
            (source, node)
            for source in self.sources
            for node in source.descend(source.tree)
            if isinstance(node, cst.ClassDef)
        ]
        self.by_name: dict[str, list[tuple[Source, cst.ClassDef]]] = {}
        for source, klass in self.all:
            self.by_name.setdefault(klass.name.value, []).append((source, klass))

    def with_method(self, name: str) -> set[str]:
        """The classes that define a method or inherit it from a class of the program."""
        owners = {klass.name.value for _, klass in self.all if defines(klass, name)}
        return self._with_subclasses(owners)

    def _with_subclasses(self, names: set[str]) -> set[str]:
        """Some classes and all their subclasses."""
        found = set(names)
        while True:
            more = {
                klass.name.value
                for _, klass in self.all
                if klass.name.value not in found
                and any(last(b.value) in found for b in klass.bases)
            }
            if not more:
                return found
            found |= more

    def family(self, klass: cst.ClassDef) -> set[str]:
        """All classes of the program that an instance of a class may have: subclasses and bases."""
        found = self._with_subclasses({klass.name.value})
        todo = list(found)
        while todo:
            for _, one in self.by_name.get(todo.pop(), ()):
                bases = {last(base.value) for base in one.bases} & set(self.by_name) - found
                found |= bases
                todo += bases
        return found

    def library_base(
        self, source: Source, base: cst.BaseExpression, depth: int = 0
    ) -> tuple[Source, cst.BaseExpression] | None:
        """The library's class that a base class is or derives from, if its code may matter."""
        if depth > 9:
            return source, base
        if isinstance(base, cst.Subscript):
            return self.library_base(source, base.value, depth)
        if definitions := self.by_name.get(last(base)):
            found = (
                self.library_base(where, one.value, depth + 1)
                for where, klass in definitions
                for one in klass.bases
            )
            return next((one for one in found if one is not None), None)
        text = dotted_name(base)
        first, _, rest = text.partition(".")
        full = imported_names(source).get(first, "")
        builtin = not full and not rest and hasattr(builtins, first)
        return None if builtin or full.partition(".")[0] in HARMLESS else (source, base)

    def assigned_values(
        self, name: str, family: set[str] | None
    ) -> Iterator[tuple[Source, AssignedValue]]:
        """The values that are assigned to attributes of a name; None for an unknown value."""
        for source in self.sources:
            if name not in source.text:
                continue
            for node in source.descend(source.tree):
                own = _is_target(source, node, name)
                if not own:
                    continue
                klass = own_class(source, node)
                of_own_class = isinstance(node, cst.Attribute) and last(node.value) == "self"
                of_own_class = of_own_class or isinstance(node, cst.Name)
                if family is not None and of_own_class and klass is not None:
                    if klass.name.value not in family:
                        continue
                yield source, _assigned_value(source, node)


def class_around(source: Source, node: cst.CSTNode) -> cst.ClassDef | None:
    """The class whose body directly contains a function or an assignment."""
    around = next(
        (x for x in ancestors(source, node) if isinstance(x, cst.ClassDef | cst.FunctionDef)), None
    )
    return around if isinstance(around, cst.ClassDef) else None


def positional_parameters(source: Source, function: cst.FunctionDef) -> list[cst.Param]:
    """The parameters that the positional arguments of a call fill: of a method, without `self`."""
    params = [*function.params.posonly_params, *function.params.params]
    if class_around(source, function) is None:
        return params
    marks = [source.code(mark.decorator) for mark in function.decorators]
    return params if "staticmethod" in marks else params[1:]


def own_class(source: Source, node: cst.CSTNode) -> cst.ClassDef | None:
    """The innermost class around a node."""
    return next((x for x in ancestors(source, node) if isinstance(x, cst.ClassDef)), None)


def _is_target(source: Source, node: cst.CSTNode, name: str) -> bool:
    """Whether a node is the target of `x.name = ...`, or of `name = ...` in a class."""
    if isinstance(node, cst.Name) and node.value == name:
        parent = source.parent(node)
        inside = class_around(source, node) is not None
        return inside and isinstance(parent, cst.AnnAssign | cst.AssignTarget)
    if not isinstance(node, cst.Attribute) or node.attr.value != name:
        return False
    parent = source.parent(node)
    if isinstance(parent, cst.Element):
        group = source.parent(parent)
        return group is not None and isinstance(source.parent(group), cst.AssignTarget)
    return isinstance(parent, cst.AssignTarget) or (
        isinstance(parent, cst.AnnAssign) and parent.target is node
    )


def _assigned_value(source: Source, target: cst.CSTNode) -> AssignedValue:
    """The value that an assignment gives a target; `a, b = x, y` gives `b` the value `y`."""
    parent = source.parent(target)
    if isinstance(parent, cst.AnnAssign):
        return parent.annotation
    if isinstance(parent, cst.AssignTarget):
        statement = source.parent(parent)
        return statement.value if isinstance(statement, cst.Assign) else None
    group = source.parent(parent) if isinstance(parent, cst.Element) else None
    place = source.parent(group) if group is not None else None
    statement = source.parent(place) if place is not None else None
    if not isinstance(group, cst.Tuple | cst.List) or not isinstance(statement, cst.Assign):
        return None
    value = statement.value
    if not isinstance(value, cst.Tuple | cst.List) or len(value.elements) != len(group.elements):
        return None
    if any(isinstance(one, cst.StarredElement) for one in (*value.elements, *group.elements)):
        return None
    number = next(i for i, one in enumerate(group.elements) if one is parent)
    return value.elements[number].value


def defines(klass: cst.ClassDef, name: str) -> bool:
    """Whether a class itself defines a method of a name."""
    return any(
        isinstance(one, cst.FunctionDef) and one.name.value == name for one in klass.body.body
    )


def last(node: cst.CSTNode) -> str:
    """The last part of a name with dots."""
    name = node.attr if isinstance(node, cst.Attribute) else node
    if isinstance(name, cst.Subscript):
        return last(name.value)
    return name.value if isinstance(name, cst.Name) else ""
