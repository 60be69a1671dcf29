"""Code that cannot be seen and that may give a wrapping policy.

A trace keeps the known values only. If one call passes a policy to a parameter, and another call
passes the result of an unknown function, the trace has the policy alone. So this module follows the
code: assignments, calls and their arguments, also where no trace runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Bound, Class, Function
from fsdplint.migration.analysis.called_functions import called_function
from fsdplint.migration.analysis.variables import definition_at, return_values
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend

Place = tuple[Source, cst.BaseExpression]


class Flow:
    """Follows one policy back to the code that makes it."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.visited: set[cst.CSTNode] = set()

    def find_unseen(self, source: Source, node: cst.BaseExpression) -> Place | None:
        """The first expression that may give the policy and cannot be followed."""
        if node in self.visited or is_constant(node, "None"):
            return None
        self.visited.add(node)
        if isinstance(node, cst.IfExp):
            return self.find_unseen(source, node.body) or self.find_unseen(source, node.orelse)
        if isinstance(node, cst.BooleanOperation):
            return self.find_unseen(source, node.left) or self.find_unseen(source, node.right)
        if isinstance(node, cst.Name) and not self.migration.symbol(node):
            return self._unseen_name(source, node)
        if isinstance(node, cst.Call):
            if not self.migration.symbol(node.func) or self._calls_own_function(source, node):
                return self._unseen_call(source, node)
        if isinstance(node, cst.Attribute) and not self.migration.symbol(node):
            for other, value in self._assigned_values(source, node):
                place = self.find_unseen(other, value)
                if place is not None:
                    return place
            if (values := self._class_values(node)) is not None:
                return next(filter(None, (self.find_unseen(*one) for one in values)), None)
        if node in self.migration.policies.rewritten or self._has_values(node):
            return None
        return None if any(x in self.migration.names for x in descend(node)) else (source, node)

    def _has_values(self, node: cst.CSTNode) -> bool:
        return bool(self.migration.values(node))

    def _unseen_name(self, source: Source, node: cst.Name) -> Place | None:
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        bound = scope.others.get(node.value, ()) if scope is not None else ()
        for target in bound:
            found = definition_at(source, target)
            if found is not None:
                place = self.find_unseen(source, found.value)
            elif isinstance(target, cst.Param) and isinstance(scope.node, cst.FunctionDef):  # type: ignore[union-attr]
                place = self._unseen_argument(source, scope.node, target)  # type: ignore[union-attr]
            else:  # unpacked from a tuple, or the variable of a loop
                seen = self._has_values(node) or self._calls_own_function(
                    source, _unpacked_value(source, target)
                )
                place = None if seen else (source, node)
            if place is not None:
                return place
        return None if bound or self._has_values(node) else (source, node)

    def _unseen_call(self, source: Source, node: cst.Call) -> Place | None:
        functions = [v for v in self.migration.values(node.func) if isinstance(v, Function)]
        for function in functions:
            if isinstance(function.node, cst.FunctionDef):
                for value in return_values(function.node):
                    place = self.find_unseen(function.site.source, value)
                    if place is not None:
                        return place
        seen = self._has_values(node) or node in self.migration.policies.calls
        own = called_function(self.migration.program, source, node.func)
        if not functions and own is not None:
            for value in return_values(own[1]):
                place = self.find_unseen(own[0], value)
                if place is not None:
                    return place
        if functions or seen or self._calls_own_function(source, node):
            return None
        return source, node

    def _calls_own_function(self, source: Source, node: cst.CSTNode | None) -> bool:
        """Whether a node calls a function of these files."""
        if not isinstance(node, cst.Call):
            return False
        return called_function(self.migration.program, source, node.func) is not None

    def _assigned_values(
        self, source: Source, node: cst.Attribute
    ) -> Iterator[tuple[Source, cst.BaseExpression]]:
        """The values that assignments give an attribute.

        For `self.policy` these are the assignments of the same class, else those of any object.
        """
        own = _own_class(source, node)
        for other in self.migration.program.sources.values():
            if node.attr.value not in other.text:
                continue
            for part in other.descend(other.tree):
                if not isinstance(part, cst.Assign):
                    continue
                for target in (one.target for one in part.targets):
                    if isinstance(target, cst.Attribute) and _last(target) == node.attr.value:
                        klass = _own_class(other, target)
                        if own is None or klass is None or own is klass:
                            yield other, part.value

    def _class_values(self, node: cst.Attribute) -> list[Place] | None:
        """The values that a class body gives `Name.attribute` or `Name().attribute`.

        None if these files have no such class, or the class has no such attribute.
        """
        owner = node.value.func if isinstance(node.value, cst.Call) else node.value
        if not isinstance(owner, cst.Name):
            return None
        found = [
            (other, part.value)
            for other in self.migration.program.sources.values()
            for klass in other.tree.body
            if isinstance(klass, cst.ClassDef) and klass.name.value == owner.value
            for part in descend(klass)
            if isinstance(part, cst.Assign | cst.AnnAssign) and part.value is not None
            if node.attr.value in _targets(part)
        ]
        return found or None

    def _unseen_argument(
        self, source: Source, function: cst.FunctionDef, parameter: cst.Param
    ) -> Place | None:
        """The first argument for a parameter that cannot be followed, in the calls of a function."""
        name = parameter.name.value
        klass = _class_of(source, function)
        names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        if klass is not None:
            names = names[1:]
        for other, call, partial in self._calls(source, function, klass):
            named, _ = arguments(call, ["", *names] if partial else names)
            if name in named:
                place = self.find_unseen(other, named[name].value)
                if place is not None:
                    return place
        return None if parameter.default is None else self.find_unseen(source, parameter.default)

    def _calls(
        self, source: Source, function: cst.FunctionDef, klass: cst.ClassDef | None
    ) -> Iterator[tuple[Source, cst.Call, bool]]:
        """The calls of a function, and whether each is `functools.partial(function, ...)`."""
        constructor = klass is not None and function.name.value == "__init__"
        name = klass.name.value if constructor and klass is not None else function.name.value
        for other in self.migration.program.sources.values():
            if name not in other.text:
                continue
            for node in other.descend(other.tree):
                if not isinstance(node, cst.Call):
                    continue
                if _last(node.func) == name:
                    if self._may_be(node.func, function, klass):
                        yield other, node, False
                elif node.args and _last(node.args[0].value) == name:
                    if self.migration.symbol(node.func) == "functools.partial":
                        if self._may_be(node.args[0].value, function, klass):
                            yield other, node, True

    def _may_be(
        self, node: cst.BaseExpression, function: cst.FunctionDef, klass: cst.ClassDef | None
    ) -> bool:
        """Whether a name may stand for a function, or for its class."""
        found = [v.function if isinstance(v, Bound) else v for v in self.migration.values(node)]
        known = [v.node for v in found if isinstance(v, Function | Class)]
        return not known or function in known or klass in known


def _targets(node: cst.Assign | cst.AnnAssign) -> set[str]:
    targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
    return {target.value for target in targets if isinstance(target, cst.Name)}


def _unpacked_value(source: Source, target: cst.CSTNode) -> cst.BaseExpression | None:
    """The value that an assignment to several names unpacks."""
    for parent in ancestors(source, target):
        if isinstance(parent, cst.Assign):
            return parent.value
        if not isinstance(parent, cst.Element | cst.Tuple | cst.List | cst.AssignTarget):
            break
    return None


def _own_class(source: Source, node: cst.Attribute) -> cst.ClassDef | None:
    """The class around `self.name`."""
    if not isinstance(node.value, cst.Name) or node.value.value != "self":
        return None
    return next((x for x in ancestors(source, node) if isinstance(x, cst.ClassDef)), None)


def _last(node: cst.CSTNode) -> str:
    name = node.attr if isinstance(node, cst.Attribute) else node
    return name.value if isinstance(name, cst.Name) else ""


def _class_of(source: Source, function: cst.FunctionDef) -> cst.ClassDef | None:
    """The class whose method a function is."""
    around = next(
        (x for x in ancestors(source, function) if isinstance(x, cst.ClassDef | cst.FunctionDef)),
        None,
    )
    return around if isinstance(around, cst.ClassDef) else None
