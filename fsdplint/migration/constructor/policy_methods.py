"""Wrapping policies that methods return: `model.get_policy()`, for any class of the model.

Several classes may have a method of the same name, and the traces need not reach each of them. If
all these methods return policies that are written in these files, all their policies become tests
of a module. Otherwise none of them changes: where the object may be a library's, they stay functions
of three parameters (`policy_uses`); other code blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.class_hierarchy import class_around
from fsdplint.migration.analysis.variables import definitions, home_of, reads, return_values
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
from fsdplint.migration.constructor.policy_kinds import makes_policy
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend

ABSTRACT = ("abc.abstractmethod", "abstractmethod")
TRANSPARENT = ("staticmethod", "classmethod", "override")  # decorators that keep the result


@dataclass
class Methods:
    """What all methods of one name return.

    Attributes:
        sites: where the policies are made.
        may_be_none: whether a method may return None.
    """

    sites: list[NodeSite] = field(default_factory=list)
    may_be_none: bool = False


def called_method(migration: Migration, node: cst.CSTNode) -> str:
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
        """The policies that a call of a method may give; None if no class of the program gives one.

        Raises:
            Blocked: the call may also give something that cannot be seen.
        """
        name = called_method(self.migration, call)
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
        """Add what a call may give; block if its object may be a library's."""
        name = called_method(self.migration, call)
        assert isinstance(call.func, cst.Attribute)
        if not receivers.is_program_object(self.migration, source, call.func.value, name):
            if not self.migration.policies.all_stay:
                raise Blocked(source, call, POLICY_OWNER_UNSEEN(method=name))
            result.may_be_none = True
        if name in self.names:
            return
        self.names.add(name)
        override = receivers.library_override(self.migration, name)
        if override is not None:
            home, base = override
            raise Blocked(home, base, POLICY_BASE_UNSEEN(base=home.code(base), method=name))
        for home, function in receivers.methods(self.migration, name):
            self._add_method(home, function, result)

    def _add_method(self, source: Source, function: cst.FunctionDef, result: Methods) -> None:
        marks = [source.code(one.decorator) for one in function.decorators]
        if any(mark in ABSTRACT for mark in marks):
            return
        if any(mark.rpartition(".")[2] not in TRANSPARENT for mark in marks):
            raise Blocked(source, function.decorators[0], POLICY_DECORATED())
        if not _only_raises(function):
            for value in return_values(function):
                self._add_value(source, value, result)

    def _add_value(self, source: Source, node: cst.BaseExpression, result: Methods) -> None:
        """Add a policy that a method returns."""
        if is_constant(node, "None"):
            result.may_be_none = True
            return
        if isinstance(node, cst.IfExp):
            self._add_value(source, node.body, result)
            self._add_value(source, node.orelse, result)
            return
        if isinstance(node, cst.Name) and not self.migration.symbol(node):
            for item in definitions(source, node) or ():
                self._add_value(source, item.value, result)
            if definitions(source, node):
                return
        if makes_policy(self.migration, node) and source in self.migration.sources:
            if not any(site.node is node for site in result.sites):
                result.sites.append(NodeSite(source, node))
            return
        if isinstance(node, cst.Call) and called_method(self.migration, node):
            if receivers.methods(self.migration, called_method(self.migration, node)):
                self._follow(source, node, result)
                self.migration.policies.calls.add(node)
                return
        raise Blocked(source, node, POLICY_UNSEEN(policy=source.code(node)))

    # How the policies are used -------------------------------------------------------------------

    def _check_uses(self) -> None:
        """Check that each use of the methods can take a test of a module.

        Raises:
            Blocked: a use cannot.
        """
        for source in self.migration.program.sources.values():
            if not any(name in source.text for name in self.names):
                continue
            for node in source.descend(source.tree):
                if isinstance(node, cst.SimpleString) and node.evaluated_value in self.names:
                    raise Blocked(source, node, POLICY_LOOKED_UP())
                if isinstance(node, cst.Attribute) and node.attr.value in self.names:
                    call = source.parent(node)
                    called = isinstance(call, cst.Call) and call.func is node
                    if not called or not self._takes_test(source, call):
                        raise Blocked(source, node, POLICY_USE_UNSEEN())

    def _takes_test(self, source: Source, node: cst.CSTNode | None) -> bool:
        """Whether a policy goes into a constructor, or into another policy."""
        if node is None or source not in self.migration.sources:
            return False
        if isinstance(node, cst.BaseExpression) and self.migration.values(node):
            return True  # the value is followed
        place = source.parent(node)
        if isinstance(place, cst.Arg):
            called = self.migration.called_name(source.parent(place))
            policy = place.keyword is not None and place.keyword.value == "auto_wrap_policy"
            return called == FSDP and policy
        if isinstance(place, cst.Element):
            return self._is_part(source, place)
        if isinstance(place, cst.Return):
            return _is_method_of(source, place, self.names)
        statement = source.parent(place) if isinstance(place, cst.AssignTarget) else place
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target = statement.targets[0].target
            home = home_of(source, target) if isinstance(target, cst.Name) else None
            if isinstance(target, cst.Name) and home is not None and home is not source.tree:
                return all(
                    self._takes_test(source, use) for use in reads(source, home, target.value)
                )
        return False

    def _is_part(self, source: Source, element: cst.Element) -> bool:
        """Whether a policy is one of those of `partial(_or_policy, policies=[...])`."""
        policies = source.parent(element)
        arg = source.parent(policies) if policies is not None else None
        call = source.parent(arg) if isinstance(arg, cst.Arg) else None
        if not isinstance(call, cst.Call) or not call.args:
            return False
        return fsdp1_name(self.migration.symbol(call.args[0].value)) == "_or_policy"


def _is_method_of(source: Source, node: cst.CSTNode, names: set[str]) -> bool:
    """Whether a statement stands in a method that has one of some names."""
    function = next((x for x in ancestors(source, node) if isinstance(x, cst.FunctionDef)), None)
    if function is None or function.name.value not in names:
        return False
    return class_around(source, function) is not None


def _only_raises(function: cst.FunctionDef) -> bool:
    """Whether a method only raises, because subclasses override it."""
    if any(isinstance(part, cst.Return) for part in descend(function.body)):
        return False
    last = function.body.body[-1]
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)
