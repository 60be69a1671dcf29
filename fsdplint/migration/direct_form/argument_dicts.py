"""Dicts of arguments that calls of FSDP1 spread, and all of their uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.variables import (
    Definition,
    ancestors,
    definitions,
    function_of,
    home_of,
    reads,
)
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form.meaning import constant_key, display_items
from fsdplint.migration.names import FSDP, PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

KEYS = PARAMETERS[1:]
SPREADING = {FSDP, "enable_wrap"}
LOOPS = cst.For | cst.While
Items = dict[str, cst.BaseExpression]


@dataclass(frozen=True)
class Store:
    """A statement that sets keys of the dict after it was made."""

    statement: cst.BaseSmallStatement
    items: Items


@dataclass
class ArgumentDict:
    """A dict in a variable with one assignment.

    Attributes:
        name: the variable.
        items: the items that the dict is made with.
        stores: the statements that set keys later.
        spreads: the arguments `**name` of calls of FSDP1.
        loads: the reads `name["key"]`.
    """

    source: Source
    definition: Definition
    name: str
    items: Items
    stores: list[Store] = field(default_factory=list)
    spreads: list[cst.Arg] = field(default_factory=list)
    loads: list[cst.Subscript] = field(default_factory=list)

    def reaching(self, key: str, spread: cst.Arg) -> list[Store]:
        """The later statements whose value of a key a call may get."""
        return [one for one in self.stores if key in one.items and self._reaches(one, spread)]

    def keys(self, spread: cst.Arg) -> list[str]:
        """The keys that a call may get, in the order of the program."""
        found = dict.fromkeys([*self.items, *(key for one in self.stores for key in one.items)])
        return [key for key in found if key in self.items or self.reaching(key, spread)]

    def is_certain(self, key: str, spread: cst.Arg) -> bool:
        """Whether a call gets a value for a key in any case."""
        return key in self.items or any(
            self._precedes(one, spread) for one in self.reaching(key, spread)
        )

    def _precedes(self, store: Store, spread: cst.Arg) -> bool:
        """Whether a statement runs before a call in any case."""
        block = self._block(store.statement)
        return (
            block is self._block(self.definition.statement) or block in self._around(spread)
        ) and not self._is_elsewhere(store, spread)

    def _reaches(self, store: Store, spread: cst.Arg) -> bool:
        """Whether a statement may run before a call, after the dict was made."""
        around = self._around(spread)
        common = [node for node in ancestors(self.source, store.statement) if node in around]
        outer = set(ancestors(self.source, self.definition.statement))
        if any(isinstance(node, LOOPS) and node not in outer for node in common):
            return True
        if function_of(self.source, spread) is not function_of(self.source, store.statement):
            return True
        return not self._is_elsewhere(store, spread)

    def _is_elsewhere(self, store: Store, spread: cst.Arg) -> bool:
        """Whether a statement stands below a call, or in the other arm of an `if`."""
        source = self.source
        if function_of(source, spread) is not function_of(source, store.statement):
            return False
        if source.span(store.statement)[0] > source.span(spread)[0]:
            return True
        around = self._around(spread)
        inner: cst.CSTNode = store.statement
        for node in ancestors(source, store.statement):
            if node in around:
                return isinstance(node, cst.If) and inner is node.body
            inner = node
        return False

    def _around(self, spread: cst.Arg) -> set[cst.CSTNode]:
        return set(ancestors(self.source, spread))

    def _block(self, statement: cst.CSTNode) -> cst.CSTNode | None:
        line = self.source.parent(statement)
        return self.source.parent(line) if line is not None else None


def argument_dicts(
    migration: Migration,
    source: Source,
    is_named_elsewhere: Callable[[str], bool],
    handing_on: frozenset[cst.CSTNode],
) -> Iterator[ArgumentDict]:
    """The dicts of a file that calls of FSDP1 spread, and that have no other uses.

    handing_on: calls of functions that hand their keywords on to FSDP1.
    """
    seen: set[cst.CSTNode] = set()
    calls = frozenset([*fsdp1_calls(migration, source), *handing_on])
    for spread in spreads_of(source, calls):
        name = spread.value
        assert isinstance(name, cst.Name)
        found = definitions(source, name)
        home = home_of(source, name)
        if not found or len(found) != 1 or found[0].statement in seen:
            continue
        seen.add(found[0].statement)
        if home is None or isinstance(home, cst.ClassDef):
            continue
        if home is source.tree and is_named_elsewhere(name.value):
            continue
        one = _read(source, calls, name.value, found[0], home)
        if one is not None:
            yield one


def fsdp1_calls(migration: Migration, source: Source) -> list[cst.CSTNode]:
    """The calls of a file that take the arguments of FSDP1's constructor."""
    calls = (source.parent(node) for node in migration.names)
    return [call for call in calls if call and migration.called_name(call) in SPREADING]


def fsdp1_spreads(migration: Migration, source: Source) -> list[cst.Arg]:
    """The arguments `**name` of these calls."""
    return spreads_of(source, frozenset(fsdp1_calls(migration, source)))


def spreads_of(source: Source, calls: frozenset[cst.CSTNode]) -> list[cst.Arg]:
    """The arguments `**name` of some calls, in the order of the file."""
    args = (arg for call in calls if isinstance(call, cst.Call) for arg in call.args)
    found = [arg for arg in args if arg.star == "**" and isinstance(arg.value, cst.Name)]
    return sorted((arg for arg in found if source.parent(arg)), key=source.span)


def _read(
    source: Source,
    calls: frozenset[cst.CSTNode],
    name: str,
    definition: Definition,
    home: cst.CSTNode,
) -> ArgumentDict | None:
    """A dict with all of its uses; None if it has other uses than to set and spread its items."""
    items = named_items(definition.value)
    if items is None:
        return None
    result = ArgumentDict(source, definition, name, items)
    function = function_of(source, definition.statement)
    for use in reads(source, home, name):
        if home_of(source, use) is not home:
            continue
        parent = source.parent(use)
        outer = source.parent(parent) if parent is not None else None
        store = _store(source, use)
        if store is not None and function_of(source, use) is function:
            result.stores.append(store)
        elif isinstance(parent, cst.Arg) and parent.star == "**" and outer in calls:
            result.spreads.append(parent)
        elif isinstance(parent, cst.Subscript) and _is_load(source, parent, items):
            result.loads.append(parent)
        else:
            return None
    keys = {*items, *(key for store in result.stores for key in store.items)}
    return result if keys <= set(KEYS) else None


def named_items(node: cst.BaseExpression) -> Items | None:
    """The items of `{"name": value}` or `dict(name=value)`."""
    if isinstance(node, cst.Call):
        if not is_constant(node.func, "dict"):
            return None
        named = {a.keyword.value: a.value for a in node.args if a.keyword is not None}
        return named if len(named) == len(node.args) else None
    found = display_items(node) if isinstance(node, cst.Dict) else None
    if found is None or not all(str(key).isidentifier() for key, _ in found):
        return None
    return {str(key): value for key, value in found}


def _store(source: Source, use: cst.Name) -> Store | None:
    """`name["key"] = value`, or `name.update(key=value)` as a statement of its own."""
    parent = source.parent(use)
    outer = source.parent(parent) if parent is not None else None
    if isinstance(parent, cst.Subscript) and isinstance(outer, cst.AssignTarget):
        statement = source.parent(outer)
        key = constant_key(parent)
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            if isinstance(key, str) and key.isidentifier():
                return Store(statement, {key: statement.value})
    if isinstance(parent, cst.Attribute) and isinstance(outer, cst.Call) and outer.func is parent:
        statement = source.parent(outer)
        if isinstance(statement, cst.Expr) and parent.attr.value == "update":
            items = _updated(outer)
            return Store(statement, items) if items else None
    return None


def _updated(call: cst.Call) -> Items | None:
    """The items of `update({"key": value})` or `update(key=value)`."""
    if len(call.args) == 1 and call.args[0].keyword is None:
        return named_items(call.args[0].value) if not call.args[0].star else None
    named = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    return named if len(named) == len(call.args) else None


def _is_load(source: Source, node: cst.Subscript, items: Items) -> bool:
    """Whether an expression reads an item that the dict always has."""
    changes = cst.AssignTarget | cst.AugAssign | cst.Del
    return constant_key(node) in items and not isinstance(source.parent(node), changes)
