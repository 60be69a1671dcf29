"""Whether all that a wrapping policy can be is in sight.

The traces keep what they know: of a parameter that one call gives a policy and another call what
code out of sight returns, they know the first only. What the assignments, the calls and their
arguments give is followed here by the code, whether the traces come by or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Bound, Class, Function
from fsdplint.migration.analysis.variables import ancestors, definition_at, return_values
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend

Place = tuple[Source, cst.BaseExpression]


class Flow:
    """Follows where one policy comes from."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.visited: set[cst.CSTNode] = set()

    def unseen(self, source: Source, node: cst.BaseExpression) -> Place | None:
        """The first expression that gives the policy and is out of sight."""
        if node in self.visited or is_constant(node, "None"):
            return None
        self.visited.add(node)
        if isinstance(node, cst.IfExp):
            return self.unseen(source, node.body) or self.unseen(source, node.orelse)
        if isinstance(node, cst.BooleanOperation):
            return self.unseen(source, node.left) or self.unseen(source, node.right)
        if isinstance(node, cst.Name) and not self.migration.symbol(node):
            return self._name(source, node)
        if isinstance(node, cst.Call):
            if not self.migration.symbol(node.func) or self._is_here(node):
                return self._call(source, node)
        if isinstance(node, cst.Attribute) and not self.migration.symbol(node):
            for other, value in self._assigned(source, node):
                place = self.unseen(other, value)
                if place is not None:
                    return place
            if (values := self._of_class(node)) is not None:
                return next(filter(None, (self.unseen(*one) for one in values)), None)
        if node in self.migration.policies.rewritten or self._known(node):
            return None
        return None if any(x in self.migration.names for x in descend(node)) else (source, node)

    def _known(self, node: cst.CSTNode) -> bool:
        return bool(self.migration.values(node))

    def _name(self, source: Source, node: cst.Name) -> Place | None:
        bindings = bindings_of(source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        bound = scope.others.get(node.value, ()) if scope is not None else ()
        for target in bound:
            found = definition_at(source, target)
            if found is not None:
                place = self.unseen(source, found.value)
            elif isinstance(target, cst.Param) and isinstance(scope.node, cst.FunctionDef):  # type: ignore[union-attr]
                place = self._parameter(source, scope.node, target)  # type: ignore[union-attr]
            else:  # one of several that a function returns, or a loop's variable
                seen = self._known(node) or self._is_here(_unpacked(source, target))
                place = None if seen else (source, node)
            if place is not None:
                return place
        return None if bound or self._known(node) else (source, node)

    def _call(self, source: Source, node: cst.Call) -> Place | None:
        functions = [v for v in self.migration.values(node.func) if isinstance(v, Function)]
        for function in functions:
            if isinstance(function.node, cst.FunctionDef):
                for value in return_values(function.node):
                    place = self.unseen(function.site.source, value)
                    if place is not None:
                        return place
        seen = self._known(node) or node in self.migration.policies.calls
        if functions or seen or self._is_here(node):
            return None
        return source, node

    def _is_here(self, node: cst.CSTNode | None) -> bool:
        """Whether a node is a call of a function of these files, by its name."""
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name):
            return False
        return any(
            isinstance(one, cst.FunctionDef) and one.name.value == node.func.value
            for other in self.migration.program.sources.values()
            for one in other.tree.body
        )

    def _assigned(
        self, source: Source, node: cst.Attribute
    ) -> Iterator[tuple[Source, cst.BaseExpression]]:
        """What assignments give an attribute: `self.policy = ...` of the same class, or of any
        object.
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

    def _of_class(self, node: cst.Attribute) -> list[Place] | None:
        """What the body of a class gives `Name.attribute` or `Name().attribute`; None where that is
        no class of these files, or has no such attribute.
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

    def _parameter(
        self, source: Source, function: cst.FunctionDef, parameter: cst.Param
    ) -> Place | None:
        """What the calls of a function give a parameter."""
        name = parameter.name.value
        klass = _class_of(source, function)
        names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        if klass is not None:
            names = names[1:]
        for other, call, given in self._calls(source, function, klass):
            named, _ = arguments(call, ["", *names] if given else names)
            if name in named:
                place = self.unseen(other, named[name].value)
                if place is not None:
                    return place
        return None if parameter.default is None else self.unseen(source, parameter.default)

    def _calls(
        self, source: Source, function: cst.FunctionDef, klass: cst.ClassDef | None
    ) -> Iterator[tuple[Source, cst.Call, bool]]:
        """The calls of a function, and of `functools.partial` with it as the first argument."""
        made = klass is not None and function.name.value == "__init__"
        name = klass.name.value if made and klass is not None else function.name.value
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


def _unpacked(source: Source, target: cst.CSTNode) -> cst.BaseExpression | None:
    """What an assignment to several names takes apart."""
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
