"""Types of state dicts in variables, parameters and attributes.

A type is known if all assignments and arguments give the same type, or if the program asserts it.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.class_hierarchy import Classes, own_class
from fsdplint.migration.analysis.variables import calls_of, definition_at
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors, function_around

ENUM = "StateDictType."


class TypeReader:
    """Follows one expression to its possible types."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.visited: set[cst.CSTNode] = set()
        self.asserted = ""  # the text of the assert that gave the type

    def single_type(self, source: Source, node: cst.BaseExpression) -> str:
        """The only possible type of an expression (`StateDictType.FULL_STATE_DICT`), or ""."""
        found = self.types(source, node)
        return found.pop() if len(found) == 1 else ""

    def types(self, source: Source, node: cst.BaseExpression) -> set[str]:
        """The possible types of an expression, with "" if some are not known."""
        name = self.migration.fsdp1(node)
        if name:
            return {name if name.startswith(ENUM) else ""}
        if node in self.visited:
            return set()
        self.visited.add(node)
        asserted = self._asserted_type(source, node)
        if asserted:
            return {asserted}
        if isinstance(node, cst.Name):
            return self._name(source, node)
        if isinstance(node, cst.Attribute):
            return self._attribute(source, node)
        return {""}

    def _name(self, source: Source, node: cst.Name) -> set[str]:
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        found: set[str] = set()
        for target in scope.others.get(node.value, ()) if scope is not None else ():
            made = definition_at(source, target)
            if made is not None:
                found |= self.types(source, made.value)
            elif isinstance(target, cst.Param):
                found |= self._parameter(source, target)
            else:
                found.add("")
        return found or {""}

    def _attribute(self, source: Source, node: cst.Attribute) -> set[str]:
        """The types that any code assigns to `self.attribute` of a class."""
        klass = own_class(source, node)
        if not isinstance(node.value, cst.Name) or node.value.value != "self" or klass is None:
            return {""}
        classes = Classes(self.migration)
        found: set[str] = set()
        for other, value in classes.assigned_values(node.attr.value, classes.family(klass)):
            if isinstance(value, cst.BaseExpression):
                found |= self.types(other, value)
            else:
                found.add("")
        return found or {""}

    def _parameter(self, source: Source, parameter: cst.Param) -> set[str]:
        """The types of a parameter: its default, and the arguments of all calls."""
        function = function_around(source, parameter)
        if function is source.tree or not isinstance(function, cst.FunctionDef):
            return {""}
        around = source.parent(function)
        klass = own_class(source, function) if around is not source.tree else None
        if klass is not None and function.name.value != "__init__":
            return {""}
        named = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        found = set()
        if parameter.default is not None:
            found |= self.types(source, parameter.default)
        calls = calls_of(self.migration.program.sources.values(), klass or function)
        for other, call in calls:
            if call is None or any(arg.star for arg in call.args):
                return {""}
            given, rest = arguments(call, named[1:] if klass is not None else named)
            value = given.get(parameter.name.value)
            if rest or (value is None and parameter.default is None):
                return {""}
            if value is not None:
                found |= self.types(other, value.value)
        return found or {""}

    # Asserts -------------------------------------------------------------------------------------

    def _asserted_type(self, source: Source, node: cst.BaseExpression) -> str:
        """The type that an assert before a node gives it, or ""."""
        code = source.code(node)
        if not isinstance(node, cst.Name) or not self._bound_once(source, node):
            return ""
        for check in _asserts(source, node):
            for part in _all_of(check.test):
                asserted = self._compared_type(source, part, code)
                if asserted:
                    self.asserted = source.code(part)
                    return asserted
        return ""

    def _compared_type(self, source: Source, test: cst.BaseExpression, code: str) -> str:
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return ""
        target = test.comparisons[0]
        if not isinstance(target.operator, cst.Equal | cst.Is):
            return ""
        for one, other in ((test.left, target.comparator), (target.comparator, test.left)):
            name = self.migration.fsdp1(other)
            if source.code(one) == code and name.startswith(ENUM):
                return name
        return ""

    def _bound_once(self, source: Source, node: cst.Name) -> bool:
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        return (
            scope is not None
            and scope.node is function_around(source, node)
            and len(scope.others.get(node.value, ())) == 1
        )


def _asserts(source: Source, node: cst.CSTNode) -> Iterator[cst.Assert]:
    """The asserts that always run before a node in its function."""
    start = source.span(node)[0]
    for block in ancestors(source, node):
        if isinstance(block, cst.IndentedBlock | cst.Module):
            for line in block.body:
                if isinstance(line, cst.SimpleStatementLine) and source.span(line)[0] < start:
                    yield from (part for part in line.body if isinstance(part, cst.Assert))
        if isinstance(block, cst.FunctionDef | cst.Lambda):
            return


def _all_of(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The operands of a conjunction such as `a and b`, or the test itself."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _all_of(test.left)
        yield from _all_of(test.right)
    else:
        yield test
