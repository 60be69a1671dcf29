"""Where the wrapping policies of a constructor call are made: in these files, or in a library."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from fsdplint.interpreter.values import (
    Class,
    Function,
    LibraryObject,
    Partial,
    Symbol,
    Value,
    is_none,
)
from fsdplint.migration.analysis.called_functions import called_function, local_function
from fsdplint.migration.analysis.variables import calls_of, definitions, home_of, return_values
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.constructor.policy_kinds import SIZE_POLICY, makes_policy
from fsdplint.migration.constructor.policy_methods import PolicyMethods
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend
from fsdplint.trace import Wrapped

MAX_DEPTH = 3  # calls of functions that return what another one returns


class PolicySources:
    """Finds the policies that an argument can hold."""

    def __init__(self, migration: Migration, source: Source) -> None:
        self.migration = migration
        self.source = source

    def sites(self, node: cst.BaseExpression) -> list[NodeSite] | None:
        """Where the policies that a node can hold are made.

        Empty if a library makes them, None if some of them cannot be seen.
        """
        sites: dict[cst.CSTNode, NodeSite] = {}
        unknown = False
        for arm in _arms(node):
            found = self._sites_of_values(arm)
            for site in self._sites_in_code(arm):
                found.setdefault(site.node, site)
            unknown = unknown or not found
            sites.update(found)
        if any(site.source not in self.migration.sources for site in sites.values()):
            return None
        if unknown:
            return None if sites or not self._comes_from_library(node) else []
        return list(sites.values())

    def find_unseen(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The part of an argument that holds a policy which cannot be seen."""
        for arm in _arms(node):
            if not self._sites_of_values(arm) and not self._sites_in_code(arm):
                return arm
        return node

    def may_be_none(self, node: cst.BaseExpression) -> bool:
        """Whether an argument may be None."""
        values = self.migration.values(node)
        if any(is_none(value) for value in values) or _may_lack(node):
            return True
        if self._wraps_without(node):
            return True
        if passed := self._passed_values(node):
            return any(_gives_none(*one) for one in passed)
        if self._may_unpack_none(node):
            return True
        found = definitions(self.source, node) if isinstance(node, cst.Name) else None
        calls = [item.value for item in found] if found else [node]
        if any(self._may_return_none(call) for call in calls):
            return True
        if any(_chooses_none(one) for one in calls):
            return True
        if not values and any(self._method_may_return_none(call) for call in calls):
            return True
        if not values and not found and isinstance(node, cst.Name):
            return True  # of a tuple, in code that is not reached
        return any(is_constant(item.value, "None") for item in found or ())

    def defaults_to_none(self, node: cst.BaseExpression) -> bool:
        """Whether an argument is a parameter that is None in calls which leave it out."""
        function = home_of(self.source, node) if isinstance(node, cst.Name) else None
        if not isinstance(node, cst.Name) or not isinstance(function, cst.FunctionDef):
            return False
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        return any(
            isinstance(bound, cst.Param) and is_constant(bound.default, "None")
            for bound in (scope.others.get(node.value, ()) if scope is not None else ())
        )

    def _wraps_without(self, node: cst.BaseExpression) -> bool:
        """Whether a run wraps a model without a policy where a call gives it an argument."""
        arg = self.source.parent(node)
        call = self.source.parent(arg) if isinstance(arg, cst.Arg) else None
        return any(
            "auto_wrap_policy" not in event.options and "**" not in event.options
            for trace in self.migration.program.traces
            for event in trace.of(Wrapped)
            if isinstance(event.site, NodeSite) and event.site.node is call
        )

    def _method_may_return_none(self, node: cst.BaseExpression) -> bool:
        if not isinstance(node, cst.Call):
            return False
        found = PolicyMethods(self.migration).read(self.source, node)
        return found is not None and found.may_be_none

    # Policies in these files ---------------------------------------------------------------------

    def _sites_of_values(self, node: cst.BaseExpression) -> dict[cst.CSTNode, NodeSite]:
        """Where the values that reach a node are made, if all of them are policies."""
        sites: dict[cst.CSTNode, NodeSite] = {}
        for value in self.migration.values(node):
            if is_none(value):
                continue
            site = value.created_at
            if not _is_policy(value):
                return {}
            named = self._mentions(value)
            if site is not None and not named:
                named = {site.node: site}
            if not named:
                return {}
            sites.update(named)
        return sites

    def _mentions(self, value: Value) -> dict[cst.CSTNode, NodeSite]:
        """Where the code names a function of FSDP1 that is a test without arguments."""
        name = fsdp1_name(value.name) if isinstance(value, Symbol) else None
        if name is None or name == SIZE_POLICY:
            return {}
        return {
            node: NodeSite(source, node)
            for source in self.migration.sources
            for node in nodes(source)
            if self.migration.fsdp1(node) == name and not isinstance(source.parent(node), cst.Arg)
            if isinstance(node, cst.BaseExpression) and makes_policy(self.migration, node)
        }

    def _sites_in_code(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies that the code gives a node, even if no trace reaches it."""
        if makes_policy(self.migration, node):
            return [NodeSite(self.source, node)]
        written = local_function(self.source, node)
        if written is not None:
            return [NodeSite(self.source, written)]
        sites = self._returned_policies(self.source, node)
        sites += self._unpacked_policies(node)
        sites += self._passed_policies(node)
        sites += self._method_policies(node)
        items = definitions(self.source, node) if isinstance(node, cst.Name) else None
        for item in items or ():
            for value in _arms(item.value):
                if makes_policy(self.migration, value):
                    sites.append(NodeSite(self.source, value))
                else:
                    sites += self._returned_policies(self.source, value)
                    sites += self._method_policies(value)
        return sites

    def _method_policies(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies that a called method of these files may return.

        Raises:
            Blocked: some of them cannot be seen, and no trace reaches the call.
        """
        if not isinstance(node, cst.Call):
            return []
        try:
            found = PolicyMethods(self.migration).read(self.source, node)
        except Blocked:
            if self.migration.values(node):
                return []
            raise
        return found.sites if found is not None else []

    def _returned_policies(
        self, source: Source, node: cst.BaseExpression, depth: int = 0, part: int | None = None
    ) -> list[NodeSite]:
        """The policies that a called function of these files may return.

        part: the position in a tuple that it returns.
        """
        if not isinstance(node, cst.Call) or depth > MAX_DEPTH:
            return []
        found = called_function(self.migration.program, source, node.func)
        if found is None:
            return []
        other, function = found
        sites = []
        for value in return_values(function):
            for item in _values_of_part(other, value, part):
                if makes_policy(self.migration, item):
                    sites.append(NodeSite(other, item))
                else:
                    sites += self._returned_policies(other, item, depth + 1)
        return sites

    def _unpacked_policies(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies of `precision, policy = get_policies()`."""
        sites = []
        for value, number in self._unpacked_tuples(node):
            sites += self._returned_policies(self.source, value, part=number)
        return sites

    def _unpacked_tuples(self, node: cst.BaseExpression) -> list[tuple[cst.BaseExpression, int]]:
        """The tuples that give a variable its values, with its positions in them."""
        if not isinstance(node, cst.Name):
            return []
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        found = []
        for target in scope.others.get(node.value, ()) if scope is not None else ():
            element = self.source.parent(target)
            group = self.source.parent(element) if element is not None else None
            place = self.source.parent(group) if isinstance(group, cst.Tuple) else None
            statement = self.source.parent(place) if isinstance(place, cst.AssignTarget) else None
            if isinstance(statement, cst.Assign) and isinstance(group, cst.Tuple):
                number = [part.value for part in group.elements].index(target)  # type: ignore[arg-type]
                found.append((statement.value, number))
        return found

    def _may_return_none(self, node: cst.BaseExpression, part: int | None = None) -> bool:
        """Whether a function of these files that a node calls may return None.

        part: the position in a tuple that it returns.
        """
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name):
            return False
        for source in self.migration.program.sources.values():
            for statement in source.tree.body:
                if not isinstance(statement, cst.FunctionDef):
                    continue
                if statement.name.value != node.func.value:
                    continue
                for value in return_values(statement):
                    items = elements(value) if part is not None else None
                    chosen = (
                        items[part] if items and part is not None and part < len(items) else value
                    )
                    if source.parent(chosen) is None or _gives_none(source, chosen):
                        return True
        return False

    def _may_unpack_none(self, node: cst.BaseExpression) -> bool:
        return any(self._may_return_none(*pair) for pair in self._unpacked_tuples(node))

    # Policies that a function gets ---------------------------------------------------------------

    def _passed_policies(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies that the calls of a function pass to its parameter.

        Empty if a call passes something else than a policy or None.
        """
        sites = []
        for source, value in self._passed_values(node):
            for arm in _arms(value):
                if not makes_policy(self.migration, arm):
                    return []
                sites.append(NodeSite(source, arm))
        return sites

    def _passed_values(self, node: cst.BaseExpression) -> list[tuple[Source, cst.BaseExpression]]:
        """What the calls of a top-level function or a method pass to its parameter.

        Empty if a use of the function cannot be read.
        """
        function = home_of(self.source, node) if isinstance(node, cst.Name) else None
        if not isinstance(node, cst.Name) or not isinstance(function, cst.FunctionDef):
            return []
        positional = [*function.params.posonly_params, *function.params.params]
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        bound = scope.others.get(node.value, []) if scope is not None else []
        parameter = bound[0] if len(bound) == 1 else None
        if parameter not in (*positional, *function.params.kwonly_params):
            return []
        is_method = self._is_method(function)
        is_top_level = function in self.source.tree.body
        if not (is_method or is_top_level) or not isinstance(parameter, cst.Param):
            return []
        values = []
        for source, call in calls_of(self.migration.program.sources.values(), function):
            if call is None:
                return []
            names = [param.name.value for param in positional]
            named, rest = arguments(call, names[1:] if is_method else names)
            value = named[node.value].value if node.value in named else parameter.default
            if rest or value is None:
                return []
            values.append((source, value))
        return values

    def _is_method(self, function: cst.FunctionDef) -> bool:
        """Whether a function is a method that gets the object."""
        block = self.source.parent(function)
        holder = self.source.parent(block) if block is not None else None
        return isinstance(holder, cst.ClassDef) and not function.decorators

    # Policies of libraries -----------------------------------------------------------------------

    def _comes_from_library(self, node: cst.BaseExpression) -> bool:
        """Whether functions of libraries return the policy."""
        items = definitions(self.source, node) if isinstance(node, cst.Name) else None
        values = [item.value for item in items] if items else [node]
        return all(isinstance(call, cst.Call) and self._is_library(call.func) for call in values)

    def _is_library(self, func: cst.BaseExpression) -> bool:
        name = self.migration.symbol(func)
        followed = any(isinstance(v, Function | Class) for v in self.migration.values(func))
        if not name or name.startswith("builtins.") or followed:
            return False
        folder = Path(self.source.path).resolve().parent
        package = name.partition(".")[0]
        near = [folder, *folder.parents[:3]]
        return not any((x / package).is_dir() or (x / f"{package}.py").is_file() for x in near)


def _gives_none(source: Source, value: cst.BaseExpression) -> bool:
    """Whether an expression may give None, also through the variables in it."""
    parts = list(descend(value))
    for name in parts[:]:
        if isinstance(name, cst.Name):
            parts += [part for one in _last_values(source, name) for part in descend(one)]
    return any(is_constant(part, "None") for part in parts)


def _last_values(source: Source, name: cst.Name) -> list[cst.BaseExpression]:
    """What a variable is assigned, less what a later line of the same block replaces."""
    found = definitions(source, name) or []
    blocks = [source.parent(source.parent(one.statement) or one.statement) for one in found]
    use = source.span(name)[0]
    starts = [source.span(one.statement)[0] for one in found]
    return [
        one.value
        for one, block, start in zip(found, blocks, starts, strict=True)
        if not any(
            other is block and start < later < use
            for other, later in zip(blocks, starts, strict=True)
        )
    ]


def _values_of_part(
    source: Source, value: cst.BaseExpression, part: int | None
) -> list[cst.BaseExpression]:
    """What a returned value, or one part of a returned tuple, may be."""
    if part is not None:
        parts = elements(value)
        if parts is None or part >= len(parts):
            return []
        value = parts[part]
    if isinstance(value, cst.Name) and source.parent(value) is not None:
        return [item.value for item in definitions(source, value) or ()]
    return [value]


def _arms(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The arms of conditional expressions, without None."""
    if isinstance(node, cst.IfExp):
        return [*_arms(node.body), *_arms(node.orelse)]
    return [] if is_constant(node, "None") else [node]


def _is_policy(value: Value) -> bool:
    return isinstance(value, Partial | LibraryObject | Symbol | Function)


def _may_lack(node: cst.BaseExpression) -> bool:
    """Whether a node is `options.get("key")`, which is None where the dict lacks the key."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value == "get"
        and len(node.args) == 1
    )


def _chooses_none(node: object) -> bool:
    """Whether an arm of a conditional expression is None."""
    if not isinstance(node, cst.IfExp):
        return is_constant(node, "None") if isinstance(node, cst.BaseExpression) else False
    return _chooses_none(node.body) or _chooses_none(node.orelse)
