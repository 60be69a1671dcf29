"""Wrapping policies that methods return: `model.get_policy()`, whichever class the model is of.

A method of the program is one of several of its name, and the traces need not come by. So every
class that has one takes part: either all of them return policies that are written in these files,
and what they return becomes a test of a module everywhere, or none is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.class_hierarchy import class_around
from fsdplint.migration.analysis.variables import (
    ancestors,
    definitions,
    home_of,
    reads,
    return_values,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import (
    POLICY_BASE_UNSEEN,
    POLICY_DECORATED,
    POLICY_LOOKED_UP,
    POLICY_OWNER_UNSEEN,
    POLICY_UNSEEN,
    POLICY_USE_UNSEEN,
)
from fsdplint.migration.constructor import receivers
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.layout import descend

ABSTRACT = ("abc.abstractmethod", "abstractmethod")
PLAIN = ("staticmethod", "classmethod", "override")


@dataclass
class Methods:
    """What all methods of one name return.

    Attributes:
        sites: the policies.
        none: whether one of them may return None.
    """

    sites: list[NodeSite] = field(default_factory=list)
    none: bool = False


def method_called(migration: Migration, node: cst.CSTNode) -> str:
    """The name of the method that a node calls on an object, "" if it is no such call."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if not migration.symbol(node.func) and not migration.fsdp1(node.func):
            return node.func.attr.value
    return ""


class PolicyMethods:
    """Reads the methods of a program that return policies."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.names: set[str] = set()

    def read(self, source: Source, call: cst.Call) -> Methods | None:
        """What a call of a method may give; None where no class of the program has such a method.

        Raises:
            Blocked: it may also give what cannot be seen.
        """
        name = method_called(self.migration, call)
        found = receivers.methods(self.migration, name) if name else []
        if not found:
            return None
        result = Methods()
        self._follow(source, call, result)
        if not result.sites:
            return None
        self._check_uses()
        self.migration.policies.calls.add(call)
        return result

    def _follow(self, source: Source, call: cst.Call, result: Methods) -> None:
        """Add what a call may give, and see to it that its object is one of the program's."""
        name = method_called(self.migration, call)
        assert isinstance(call.func, cst.Attribute)
        if not receivers.is_own(self.migration, source, call.func.value, name):
            reason = POLICY_OWNER_UNSEEN(method=name)
            raise Blocked(source, call, reason)
        if name in self.names:
            return
        self.names.add(name)
        hidden = receivers.hidden(self.migration, name)
        if hidden is not None:
            where, base = hidden
            reason = POLICY_BASE_UNSEEN(base=where.code(base), method=name)
            raise Blocked(where, base, reason)
        for where, function in receivers.methods(self.migration, name):
            self._method(where, function, result)

    def _method(self, source: Source, function: cst.FunctionDef, result: Methods) -> None:
        marks = [source.code(one.decorator) for one in function.decorators]
        if any(mark in ABSTRACT for mark in marks):
            return
        if any(mark.rpartition(".")[2] not in PLAIN for mark in marks):
            reason = POLICY_DECORATED()
            raise Blocked(source, function.decorators[0], reason)
        if not _only_raises(function):
            for value in return_values(function):
                self._value(source, value, result)

    def _value(self, source: Source, node: cst.BaseExpression, result: Methods) -> None:
        """Add a policy that a method returns."""
        if is_constant(node, "None"):
            result.none = True
            return
        if isinstance(node, cst.IfExp):
            self._value(source, node.body, result)
            self._value(source, node.orelse, result)
            return
        if isinstance(node, cst.Name) and not self.migration.symbol(node):
            for item in definitions(source, node) or ():
                self._value(source, item.value, result)
            if definitions(source, node):
                return
        if written(self.migration, node) and source in self.migration.sources:
            if not any(site.node is node for site in result.sites):
                result.sites.append(NodeSite(source, node))
            return
        if isinstance(node, cst.Call) and method_called(self.migration, node):
            if receivers.methods(self.migration, method_called(self.migration, node)):
                self._follow(source, node, result)
                self.migration.policies.calls.add(node)
                return
        reason = POLICY_UNSEEN(policy=source.code(node))
        raise Blocked(source, node, reason)

    # What is done with the policies --------------------------------------------------------------

    def _check_uses(self) -> None:
        """Every use of the methods has to be one that gets a test of a module now.

        Raises:
            Blocked: one is not.
        """
        for source in self.migration.program.sources.values():
            if not any(name in source.text for name in self.names):
                continue
            for node in source.descend(source.tree):
                if isinstance(node, cst.SimpleString) and node.evaluated_value in self.names:
                    reason = POLICY_LOOKED_UP()
                    raise Blocked(source, node, reason)
                if isinstance(node, cst.Attribute) and node.attr.value in self.names:
                    call = source.parent(node)
                    called = isinstance(call, cst.Call) and call.func is node
                    if not called or not self._is_taken(source, call):
                        reason = POLICY_USE_UNSEEN()
                        raise Blocked(source, node, reason)

    def _is_taken(self, source: Source, node: cst.CSTNode | None) -> bool:
        """Whether a policy goes into a constructor, or into another policy."""
        if node is None or source not in self.migration.sources:
            return False
        if isinstance(node, cst.BaseExpression) and self.migration.values(node):
            return True  # followed by its value
        place = source.parent(node)
        if isinstance(place, cst.Arg):
            called = self.migration.called(source.parent(place))
            given = place.keyword is not None and place.keyword.value == "auto_wrap_policy"
            return called == FSDP and given
        if isinstance(place, cst.Element):
            return self._is_part(source, place)
        if isinstance(place, cst.Return):
            return _is_method_of(source, place, self.names)
        statement = source.parent(place) if isinstance(place, cst.AssignTarget) else place
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target = statement.targets[0].target
            home = home_of(source, target) if isinstance(target, cst.Name) else None
            if isinstance(target, cst.Name) and home is not None and home is not source.tree:
                return all(self._is_taken(source, use) for use in reads(source, home, target.value))
        return False

    def _is_part(self, source: Source, element: cst.Element) -> bool:
        """Whether a policy is one of those of `partial(_or_policy, policies=[...])`."""
        made = source.parent(element)
        arg = source.parent(made) if made is not None else None
        call = source.parent(arg) if isinstance(arg, cst.Arg) else None
        if not isinstance(call, cst.Call) or not call.args:
            return False
        return self.migration.fsdp1(call.args[0].value) == "_or_policy"


def written(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression makes a policy of FSDP1."""
    if node in migration.policies.read_elsewhere:
        return True
    if migration.called(node) in ("ModuleWrapPolicy", "CustomPolicy"):
        return True
    if migration.fsdp1(node) in ("always_wrap_policy", "size_based_auto_wrap_policy"):
        return True
    return (
        isinstance(node, cst.Call)
        and migration.symbol(node.func) == "functools.partial"
        and bool(node.args)
        and migration.fsdp1(node.args[0].value).endswith("_policy")
    )


def _is_method_of(source: Source, node: cst.CSTNode, names: set[str]) -> bool:
    """Whether a statement stands in a method of one of some names."""
    function = next((x for x in ancestors(source, node) if isinstance(x, cst.FunctionDef)), None)
    if function is None or function.name.value not in names:
        return False
    return class_around(source, function) is not None


def _only_raises(function: cst.FunctionDef) -> bool:
    """Whether a method only says that it has to be overridden."""
    if any(isinstance(part, cst.Return) for part in descend(function.body)):
        return False
    last = function.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)
