"""The search for objects of library classes by what makes them, in code that no run may reach.

An expression is such an object if a run has made it one. Elsewhere its binding is followed: the
assignments of a variable or attribute, the annotation or the arguments of a parameter, and what a
function returns.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.values import Const, Instance, ModuleValue, Unknown, is_none
from fsdplint.migration.analysis.class_hierarchy import own_class, positional_parameters
from fsdplint.migration.analysis.object_classes import (
    Place,
    attribute_targets,
    class_named,
    classes_of,
    functions,
    library_bases,
    methods_named,
    module_file,
    with_bases,
)
from fsdplint.migration.analysis.passed_names import file_of
from fsdplint.migration.analysis.variables import definition_at
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import canonical, imported_names, symbols_in, walk

MAX_DEPTH = 12  # of the bindings that are followed


@dataclass
class ObjectSearch:
    """The search for what an expression is.

    Attributes:
        classes: the full names of the library classes.
    """

    program: Program
    classes: Set[str]
    depth: int = 0
    seen: set[cst.CSTNode] = field(default_factory=set)

    def is_one(self, source: Source, node: cst.CSTNode | None) -> bool:
        if node is None or node in self.seen or self.depth > MAX_DEPTH:
            return False
        self.seen.add(node)
        known = self._in_runs(node)
        if known is not None:
            return known
        self.depth += 1
        try:
            return self._is_bound(source, node)
        finally:
            self.depth -= 1

    def _in_runs(self, node: cst.CSTNode) -> bool | None:
        """Whether runs have made an expression such an object; None if they do not say."""
        values = self.program.values(node)
        for value in values:
            if isinstance(value, Unknown) and value.owner is None and value.library in self.classes:
                return True
            if isinstance(value, Instance) and self.classes & set(value.cls.library_bases()):
                return True
        others = [value for value in values if not is_none(value)]
        known = all(isinstance(value, Const | Instance | ModuleValue) for value in others)
        return False if others and known else None

    def _is_bound(self, source: Source, node: cst.CSTNode) -> bool:
        match node:
            case cst.Name():
                return self._is_variable(source, node)
            case cst.Attribute():
                return self._is_attribute(source, node)
            case cst.Call():
                return self._is_call(source, node)
            case cst.IfExp():
                return self.is_one(source, node.body) or self.is_one(source, node.orelse)
            case cst.BooleanOperation():
                return self.is_one(source, node.left) or self.is_one(source, node.right)
            case cst.NamedExpr():
                return self.is_one(source, node.value)
        return False

    # Names ---------------------------------------------------------------------------------------

    def _is_variable(self, source: Source, name: cst.Name) -> bool:
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(name), name.value)
        if scope is None:
            return False
        if any(self._is_target(source, one) for one in scope.others.get(name.value, ())):
            return True
        for item in scope.imports:
            if item.local == name.value and item.name is not None:
                other = file_of(self.program, source, item.module)
                if other is not None and self._in_module(other, item.name):
                    return True
        return False

    def _in_module(self, source: Source, name: str) -> bool:
        targets = bindings_of(source).module.others.get(name, ())
        return any(self._is_target(source, one) for one in targets)

    def _is_target(self, source: Source, target: cst.CSTNode) -> bool:
        """Whether a name or attribute gets such an object at a place that binds it."""
        parent = source.parent(target)
        param = target if isinstance(target, cst.Param) else parent
        if isinstance(param, cst.Param):
            return self._is_parameter(source, param)
        if isinstance(parent, cst.AnnAssign) and parent.target is target:
            return self._is_annotated(source, parent.annotation) or self.is_one(
                source, parent.value
            )
        found = definition_at(source, target)
        return found is not None and self.is_one(source, found.value)

    def _is_annotated(self, source: Source, annotation: cst.Annotation | None) -> bool:
        """Whether an annotation names one of the classes, also in quotes."""
        if annotation is None:
            return False
        symbols = symbols_in(source)
        for part in descend(annotation.annotation):
            if symbols.get(part) in self.classes:
                return True
            if isinstance(part, cst.SimpleString):
                texts = str(part.evaluated_value).replace("|", " ").replace("[", " ").split()
                if any(_full_name(source, one.strip("],")) in self.classes for one in texts):
                    return True
        return False

    # Attributes ----------------------------------------------------------------------------------

    def _is_attribute(self, source: Source, node: cst.Attribute) -> bool:
        name = node.attr.value
        if self._is_given(source, node.value, name):
            return True
        module = module_file(self.program, source, node.value)
        if module is not None:
            return self._in_module(module, name)
        return any(self._has(one, name) for one in classes_of(self.program, source, node.value))

    def _has(self, klass: Place, name: str) -> bool:
        """Whether an attribute of a class of the program, or of one of its bases, is such an object."""
        return any(
            self._is_target(source, target)
            for source, node in with_bases(self.program, klass)
            for target in attribute_targets(source, node, name)
        ) or any(
            self._returns(source, method)
            for source, node in with_bases(self.program, klass)
            for method in methods_named(node, name)
            if any(dotted_name(one.decorator).endswith("property") for one in method.decorators)
        )

    # What libraries do ---------------------------------------------------------------------------

    def _is_given(self, source: Source, owner: cst.BaseExpression, name: str) -> bool:
        """Whether a library gives its object `owner` such an object as an attribute."""
        return False

    def _is_passed(self, source: Source, function: cst.FunctionDef, param: cst.Param) -> bool:
        """Whether a library calls a method of the program with such an object."""
        return False

    def _passes_itself(self, source: Source, call: cst.Call, function: cst.FunctionDef) -> bool:
        """Whether a call of a method of such an object runs a function with the object."""
        return False

    # Functions -----------------------------------------------------------------------------------

    def _is_call(self, source: Source, node: cst.Call) -> bool:
        if symbols_in(source).get(node.func) in self.classes:
            return True
        klass = class_named(self.program, source, node.func)
        if klass is not None:
            return any(
                full in self.classes
                for place in with_bases(self.program, klass)
                for full in library_bases(*place)
            )
        return any(self._returns(*one) for one in functions(self.program, source, node.func))

    def _returns(self, source: Source, function: cst.FunctionDef) -> bool:
        if self._is_annotated(source, function.returns):
            return True
        return any(
            self.is_one(source, one.value)
            for one in descend(function.body)
            if isinstance(one, cst.Return) and function_around(source, one) is function
        )

    def _is_parameter(self, source: Source, param: cst.Param) -> bool:
        """Whether a parameter gets such an object: by its annotation, default, or arguments."""
        if param.annotation is not None:
            return self._is_annotated(source, param.annotation)
        function = function_around(source, param)
        if not isinstance(function, cst.FunctionDef):
            return False
        if self.is_one(source, param.default) or self._is_passed(source, function, param):
            return True
        names = [one.name.value for one in positional_parameters(source, function)]
        name = param.name.value
        called = function.name.value
        klass = own_class(source, function)
        called = klass.name.value if klass is not None and called == "__init__" else called
        for other in self.program.sources.values():
            if called not in other.text:
                continue
            for call in walk(other, skip_imports=True):
                if not isinstance(call, cst.Call):
                    continue
                if self._runs(other, call.func, function):
                    given = arguments(call, tuple(names))[0].get(name)
                    if given is not None and self.is_one(other, given.value):
                        return True
                elif names[:1] == [name] and self._passes_itself(other, call, function):
                    return True
        return False

    def _runs(self, source: Source, func: cst.BaseExpression, function: cst.FunctionDef) -> bool:
        """Whether a call with this name runs a function, or the constructor that it is."""
        last = func.attr if isinstance(func, cst.Attribute) else func
        if not isinstance(last, cst.Name):
            return False
        if function.name.value == "__init__":
            klass = class_named(self.program, source, func)
            places = [] if klass is None else list(with_bases(self.program, klass))
            return any(function in methods_named(node, "__init__") for _, node in places)
        if last.value != function.name.value:
            return False
        return any(found is function for _, found in functions(self.program, source, func))


def _full_name(source: Source, text: str) -> str:
    head, _, rest = text.partition(".")
    full = imported_names(source).get(head, head)
    return canonical(f"{full}.{rest}" if rest else full)
