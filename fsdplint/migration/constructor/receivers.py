"""The class whose method is called, read from the code where no trace has the object."""

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

RETURNING_SELF = {
    "to",
    "cuda",
    "cpu",
    "train",
    "eval",
    "half",
    "float",
    "bfloat16",
    "requires_grad_",
}
LOADING = {"from_pretrained", "from_config", "_from_config"}  # class methods of Transformers
# Functions of libraries whose result has the methods of the model that they get.
DELEGATING = {"peft.get_peft_model", "peft.PeftModel", "peft.PeftModelForCausalLM"}
TYPING_WORDS = {"Optional", "Union", "None", "Type", "type"}  # in annotations, besides classes


def methods(migration: Migration, name: str) -> list[tuple[Source, cst.FunctionDef]]:
    """The methods that have a name, in all classes of the program."""
    return [
        (source, node)
        for source in migration.program.sources.values()
        if f"def {name}" in source.text
        for node in source.descend(source.tree)
        if isinstance(node, cst.FunctionDef) and node.name.value == name
        if class_around(source, node) is not None
    ]


def library_override(migration: Migration, name: str) -> tuple[Source, cst.BaseExpression] | None:
    """A base class of a library that may override a method of the program."""
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


def is_program_object(
    migration: Migration, source: Source, node: cst.BaseExpression, name: str
) -> bool:
    """Whether an object is of a class of the program that has a method called `name`."""
    return _Receiver(migration, name).is_owner(source, node)


class _Receiver:
    """Follows an object to its class."""

    def __init__(self, migration: Migration, name: str) -> None:
        self.migration = migration
        self.name = name
        self.classes = Classes(migration)
        self.owners = self.classes.with_method(name)
        self.visited: set[cst.CSTNode] = set()

    def is_owner(self, source: Source, node: cst.BaseExpression) -> bool:
        """Whether each object that an expression may give is of a class that has the method."""
        if node in self.visited or is_constant(node, "None"):
            return True
        self.visited.add(node)
        known = [self._is_owning_value(value) for value in self.migration.values(node)]
        if known and None not in known:
            return all(known)
        if isinstance(node, cst.IfExp):
            return self.is_owner(source, node.body) and self.is_owner(source, node.orelse)
        if isinstance(node, cst.Call):
            return self._call_gives_owner(source, node)
        if isinstance(node, cst.Name):
            return self._name_holds_owner(source, node)
        if isinstance(node, cst.Attribute):
            return self._attribute_holds_owner(source, node)
        return False

    def _is_owning_value(self, value: Value) -> bool | None:
        """Whether a value is of such a class; None if that is unknown."""
        if isinstance(value, Instance):
            return any(one.name in self.owners for one in value.cls.mro())
        if isinstance(value, ModuleValue):
            if value.inner is not None and value.wrapper:
                return self._is_owning_value(value.inner)
            if value.cls is not None:
                return any(one.name in self.owners for one in value.cls.mro())
            if (value.library_class or "").startswith("peft."):
                return None  # it has the methods of the model inside
            return False if value.library_class and not value.wrapper else None
        return False if isinstance(value, Function | Bound | Method) else None

    def _name_holds_owner(self, source: Source, node: cst.Name) -> bool:
        klass = own_class(source, node)
        if node.value in ("self", "cls") and klass is not None:
            return klass.name.value in self.owners
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        bound = list(scope.others.get(node.value, ())) if scope is not None else []
        return bool(bound) and all(self._binding_gives_owner(source, target) for target in bound)

    def _binding_gives_owner(self, source: Source, target: cst.CSTNode) -> bool:
        """Whether a binding of a name gives it such an object."""
        if isinstance(target, cst.Param):
            return self._names_owners(target.annotation)
        parent = source.parent(target)
        if isinstance(parent, cst.AnnAssign):
            return self._names_owners(parent.annotation)
        found = definition_at(source, target)
        return found is not None and self.is_owner(source, found.value)

    def _names_owners(self, annotation: cst.Annotation | None) -> bool:
        """Whether an annotation names such classes only."""
        if annotation is None:
            return False
        words = {last(part) for part in _parts(annotation.annotation)} - TYPING_WORDS
        return bool(words) and words <= self.owners

    def _call_gives_owner(self, source: Source, node: cst.Call) -> bool:
        """Whether a call returns such an object."""
        func = node.func
        if self.migration.called_name(node) == FSDP and node.args:
            return self.is_owner(source, node.args[0].value)
        if isinstance(func, cst.Name) and func.value == "super":
            klass = own_class(source, node)
            return klass is not None and klass.name.value in self.owners
        if last(func) in self.owners:
            return True
        if isinstance(func, cst.Attribute) and func.attr.value in RETURNING_SELF:
            return self.is_owner(source, func.value)
        if isinstance(func, cst.Attribute) and func.attr.value in LOADING:
            if last(func.value) in self.owners:
                return True
        if self.migration.symbol(func) in DELEGATING and node.args:
            return self.is_owner(source, node.args[0].value)
        functions = [
            statement
            for other in self.migration.program.sources.values()
            for statement in other.tree.body
            if isinstance(statement, cst.FunctionDef) and statement.name.value == last(func)
        ]
        return bool(functions) and all(self._names_owners(x.returns) for x in functions)

    def _attribute_holds_owner(self, source: Source, node: cst.Attribute) -> bool:
        """Whether each assignment to an attribute of its class gives it such an object."""
        family: set[str] | None = None
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            klass = own_class(source, node)
            family = self.classes.family(klass) if klass is not None else set()
        assigned = list(self.classes.assigned_values(node.attr.value, family))
        return bool(assigned) and all(
            self._names_owners(value)
            if isinstance(value, cst.Annotation)
            else value is not None and self.is_owner(home, value)
            for home, value in assigned
        )


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
