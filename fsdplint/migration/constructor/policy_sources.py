"""Where the wrapping policies of a constructor call are made: in these files, or in a library."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from fsdplint.interpreter.values import Class, Function, Partial, Symbol, Value
from fsdplint.migration.analysis.variables import calls_of, definitions, home_of, return_values
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.constructor.policy_methods import PolicyMethods, written
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend


class PolicySources:
    """Finds the policies that an argument can hold."""

    migration: Migration
    source: Source

    def _made(self, node: cst.BaseExpression) -> list[NodeSite] | None:
        """Where the policies that a node can hold are made; none where a library makes them, None
        where some of them cannot be seen.
        """
        sites: dict[cst.CSTNode, NodeSite] = {}
        unknown = False
        for part in _arms(node):
            found = self._values_made(part)
            for site in self._written(part):
                found.setdefault(site.node, site)
            unknown = unknown or not found
            sites.update(found)
        if any(self.source_of(site) is None for site in sites.values()):
            return None
        if unknown:
            return None if sites or not self._from_library(node) else []
        return list(sites.values())

    def _unseen(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The part of an argument that holds a policy which cannot be seen."""
        parts = _arms(node)
        return next((p for p in parts if not self._values_made(p) and not self._written(p)), node)

    def _values_made(self, node: cst.BaseExpression) -> dict[cst.CSTNode, NodeSite]:
        """Where the values that reach a node are made, if all of them are policies."""
        sites: dict[cst.CSTNode, NodeSite] = {}
        for value in self.migration.values(node):
            if _none(value):
                continue
            site = value.created_at
            if site is None or not _is_policy(value):
                return {}
            sites[site.node] = site
        return sites

    def _written(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies that the code gives a node, also where the traces do not come by."""
        if self._is_written_policy(node):
            return [NodeSite(self.source, node)]
        found = [*self._returned(self.source, node), *self._unpacked(node), *self._handed(node)]
        found += self._of_methods(node)
        items = definitions(self.source, node) if isinstance(node, cst.Name) else None
        for item in items or ():
            for value in _arms(item.value):
                if self._is_written_policy(value):
                    found.append(NodeSite(self.source, value))
                else:
                    found += self._returned(self.source, value) + self._of_methods(value)
        return found

    def _of_methods(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies that a called method of these files may return.

        Raises:
            Blocked: some of them cannot be seen, and no trace comes by.
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

    def _from_library(self, node: cst.BaseExpression) -> bool:
        """Whether a policy is what a library's function returns."""
        items = definitions(self.source, node) if isinstance(node, cst.Name) else None
        made = [item.value for item in items] if items else [node]
        return all(isinstance(call, cst.Call) and self._of_library(call.func) for call in made)

    def _of_library(self, func: cst.BaseExpression) -> bool:
        name = self.migration.symbol(func)
        followed = any(isinstance(v, Function | Class) for v in self.migration.values(func))
        if not name or name.startswith("builtins.") or followed:
            return False
        folder = Path(self.source.path).resolve().parent
        first = name.partition(".")[0]
        near = [folder, *folder.parents[:3]]
        return not any((x / first).is_dir() or (x / f"{first}.py").is_file() for x in near)

    def _returned(
        self, source: Source, node: cst.BaseExpression, depth: int = 0, part: int | None = None
    ) -> list[NodeSite]:
        """The policies that a called function of these files may return, also where the traces
        do not come by; `part` is the position in a tuple that it returns.
        """
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or depth > 3:
            return []
        found = [
            (other, statement)
            for other in self.migration.program.sources.values()
            for statement in other.tree.body
            if isinstance(statement, cst.FunctionDef) and statement.name.value == node.func.value
        ]
        if len(found) != 1:
            return []
        other, function = found[0]
        sites = []
        for value in return_values(function):
            given: cst.BaseExpression = value
            if part is not None:
                parts = elements(value)
                if parts is None or part >= len(parts):
                    continue
                given = parts[part]
            values = [given]
            if isinstance(given, cst.Name) and other.parent(given) is not None:
                values = [item.value for item in definitions(other, given) or ()]
            for item in values:
                if self._is_written_policy(item):
                    sites.append(NodeSite(other, item))
                else:
                    sites += self._returned(other, item, depth + 1)
        return sites

    def _unpacked(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies of `precision, policy = get_policies()`."""
        if not isinstance(node, cst.Name):
            return []
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        sites = []
        for target in scope.others.get(node.value, ()) if scope is not None else ():
            element = self.source.parent(target)
            group = self.source.parent(element) if element is not None else None
            place = self.source.parent(group) if isinstance(group, cst.Tuple) else None
            statement = self.source.parent(place) if isinstance(place, cst.AssignTarget) else None
            if isinstance(statement, cst.Assign) and isinstance(group, cst.Tuple):
                number = [part.value for part in group.elements].index(target)  # type: ignore[arg-type]
                sites += self._returned(self.source, statement.value, part=number)
        return sites

    def _handed(self, node: cst.BaseExpression) -> list[NodeSite]:
        """The policies that the calls of a function give its parameter, if each call gives one that
        is written in it or is None.
        """
        sites = []
        for source, given in self._given(node):
            for part in _arms(given):
                if not self._is_written_policy(part):
                    return []
                sites.append(NodeSite(source, part))
        return sites

    def _given(self, node: cst.BaseExpression) -> list[tuple[Source, cst.BaseExpression]]:
        """What the calls of a function of the top level give its parameter; nothing where a use of
        the function cannot be read.
        """
        function = home_of(self.source, node) if isinstance(node, cst.Name) else None
        if not isinstance(node, cst.Name) or not isinstance(function, cst.FunctionDef):
            return []
        plain = [*function.params.posonly_params, *function.params.params]
        bindings = bindings_of(self.source)
        scope = bindings.owner(bindings.scope_at(node), node.value)
        bound = scope.others.get(node.value, []) if scope is not None else []
        parameter = bound[0] if len(bound) == 1 else None
        if parameter not in (*plain, *function.params.kwonly_params):
            return []
        if function not in self.source.tree.body or not isinstance(parameter, cst.Param):
            return []
        values = []
        for source, call in calls_of(self.migration.program.sources.values(), function):
            if call is None:
                return []
            named, rest = arguments(call, [param.name.value for param in plain])
            value = named[node.value].value if node.value in named else parameter.default
            if rest or value is None:
                return []
            values.append((source, value))
        return values

    def _is_written_policy(self, node: cst.BaseExpression) -> bool:
        return written(self.migration, node)

    def source_of(self, site: NodeSite) -> Source | None:
        return site.source if site.source in self.migration.sources else None

    def _may_be_none(self, node: cst.BaseExpression) -> bool:
        values = self.migration.values(node)
        if any(_none(value) for value in values):
            return True
        if given := self._given(node):
            return any(is_constant(part, "None") for _, value in given for part in descend(value))
        found = definitions(self.source, node) if isinstance(node, cst.Name) else None
        made = [item.value for item in found] if found else [node]
        if not values and any(self._method_gives_none(call) for call in made):
            return True
        if not values and not found and isinstance(node, cst.Name):
            return True  # of a tuple, in code that is not reached
        return any(is_constant(item.value, "None") for item in found or ())

    def _method_gives_none(self, node: cst.BaseExpression) -> bool:
        if not isinstance(node, cst.Call):
            return False
        found = PolicyMethods(self.migration).read(self.source, node)
        return found is not None and found.none


def _arms(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What an expression may give, arm by arm, without None."""
    if isinstance(node, cst.IfExp):
        return [*_arms(node.body), *_arms(node.orelse)]
    return [] if is_constant(node, "None") else [node]


def _none(value: Value) -> bool:
    from fsdplint.interpreter.values import is_none

    return is_none(value)


def _is_policy(value: Value) -> bool:
    from fsdplint.interpreter.values import Made

    return isinstance(value, Partial | Made | Symbol | Function)
