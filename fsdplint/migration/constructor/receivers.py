"""Whose method is called: the classes of a program by their code, where no trace has the object."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Bound, Function, Instance, Method, ModuleValue, Value
from fsdplint.migration.analysis.class_hierarchy import (
    Classes,
    class_around,
    defines,
    last,
    own_class,
)
from fsdplint.migration.analysis.variables import definition_at
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of

SAME = {"to", "cuda", "cpu", "train", "eval", "half", "float", "bfloat16", "requires_grad_"}
WORDS = {"Optional", "Union", "None", "Type", "type"}  # of an annotation, besides classes


def methods(migration: Migration, name: str) -> list[tuple[Source, cst.FunctionDef]]:
    """The methods of a name, in all classes of the program."""
    return [
        (source, node)
        for source in migration.program.sources.values()
        if f"def {name}" in source.text
        for node in source.descend(source.tree)
        if isinstance(node, cst.FunctionDef) and node.name.value == name
        if class_around(source, node) is not None
    ]


def hidden(migration: Migration, name: str) -> tuple[Source, cst.BaseExpression] | None:
    """A library's class that may have its own method of a name, which an object of the program's
    would have instead of the program's.
    """
    classes = Classes(migration)
    owners = classes.with_method(name)
    for source, klass in classes.all:
        if klass.name.value in owners and not defines(klass, name):
            for base in klass.bases:
                if last(base.value) in owners:
                    break
                foreign = classes.library_base(source, base.value)
                if foreign is not None:
                    return foreign
    return None


def is_own(migration: Migration, source: Source, node: cst.BaseExpression, name: str) -> bool:
    """Whether the object that a method is called on is one of the program's classes that have
    it.
    """
    return _Receiver(migration, name).is_own(source, node)


class _Receiver:
    """Follows an object to the class that it is of."""

    def __init__(self, migration: Migration, name: str) -> None:
        self.migration = migration
        self.name = name
        self.classes = Classes(migration)
        self.owners = self.classes.with_method(name)
        self.visited: set[cst.CSTNode] = set()

    def is_own(self, source: Source, node: cst.BaseExpression) -> bool:
        """Whether all that an expression may be is of a class that has the method."""
        if node in self.visited or is_constant(node, "None"):
            return True
        self.visited.add(node)
        known = [self._known(value) for value in self.migration.values(node)]
        if known and None not in known:
            return all(known)
        if isinstance(node, cst.IfExp):
            return self.is_own(source, node.body) and self.is_own(source, node.orelse)
        if isinstance(node, cst.Call):
            return self._made(source, node)
        if isinstance(node, cst.Name):
            return self._name(source, node)
        if isinstance(node, cst.Attribute):
            return self._attribute(source, node)
        return False

    def _known(self, value: Value) -> bool | None:
        """Whether a value is of such a class; None where that is not known."""
        if isinstance(value, Instance):
            return any(one.name in self.owners for one in value.cls.mro())
        if isinstance(value, ModuleValue):
            if value.inner is not None and value.wrapper:
                return self._known(value.inner)
            if value.cls is not None:
                return any(one.name in self.owners for one in value.cls.mro())
            return False if value.library_class and not value.wrapper else None
        return False if isinstance(value, Function | Bound | Method) else None

    def _name(self, source: Source, node: cst.Name) -> bool:
        klass = own_class(source, node)
        if node.value in ("self", "cls") and klass is not None:
            return klass.name.value in self.owners
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        bound = list(scope.others.get(node.value, ())) if scope is not None else []
        return bool(bound) and all(self._bound(source, target) for target in bound)

    def _bound(self, source: Source, target: cst.CSTNode) -> bool:
        """Whether what binds a name gives it such an object."""
        if isinstance(target, cst.Param):
            return self._annotated(target.annotation)
        parent = source.parent(target)
        if isinstance(parent, cst.AnnAssign):
            return self._annotated(parent.annotation)
        found = definition_at(source, target)
        return found is not None and self.is_own(source, found.value)

    def _annotated(self, annotation: cst.Annotation | None) -> bool:
        """Whether an annotation names nothing but such classes."""
        if annotation is None:
            return False
        words = {last(part) for part in _parts(annotation.annotation)} - WORDS
        return bool(words) and words <= self.owners

    def _made(self, source: Source, node: cst.Call) -> bool:
        """Whether a call gives such an object."""
        func = node.func
        if self.migration.called(node) == FSDP and node.args:
            return self.is_own(source, node.args[0].value)
        if isinstance(func, cst.Name) and func.value == "super":
            klass = own_class(source, node)
            return klass is not None and klass.name.value in self.owners
        if last(func) in self.owners:
            return True
        if isinstance(func, cst.Attribute) and func.attr.value in SAME:
            return self.is_own(source, func.value)
        found = [
            one
            for other in self.migration.program.sources.values()
            for one in other.tree.body
            if isinstance(one, cst.FunctionDef) and one.name.value == last(func)
        ]
        return bool(found) and all(self._annotated(one.returns) for one in found)

    def _attribute(self, source: Source, node: cst.Attribute) -> bool:
        """Whether everything that is assigned to an attribute of its class is such an object."""
        family: set[str] | None = None
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            klass = own_class(source, node)
            family = self.classes.family(klass) if klass is not None else set()
        given = list(self.classes.assigned_values(node.attr.value, family))
        return bool(given) and all(
            self._annotated(value)
            if isinstance(value, cst.Annotation)
            else self._is_given(s, value)
            for s, value in given
        )

    def _is_given(self, source: Source, value: cst.BaseExpression | None) -> bool:
        return value is not None and self.is_own(source, value)


def _parts(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The names in an annotation."""
    if isinstance(node, cst.SimpleString):
        try:
            node = cst.parse_expression(str(node.evaluated_value))
        except cst.ParserSyntaxError:
            yield node
            return
    if isinstance(node, cst.Subscript):
        yield from _parts(node.value)
        for part in node.slice:
            if isinstance(part.slice, cst.Index):
                yield from _parts(part.slice.value)
    elif isinstance(node, cst.BinaryOperation):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node
