"""Dicts of arguments that calls of FSDP1 spread, and all of their uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.reaching import reach
from fsdplint.migration.analysis.variables import Definition, home_of
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form.meaning import constant_key, display_items
from fsdplint.migration.names import FSDP, PARAMETERS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors, function_around

KEYS = (*PARAMETERS[1:], "wrapper_cls")
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
        returned: the statements `return name` of functions whose callers spread what they get.
        loads: the reads `name["key"]`.
        in_module: whether it is a variable of the module, which other files may import.
    """

    source: Source
    definition: Definition
    name: str
    items: Items
    stores: list[Store] = field(default_factory=list)
    spreads: list[cst.Arg] = field(default_factory=list)
    returned: list[cst.Return] = field(default_factory=list)
    loads: list[cst.Subscript] = field(default_factory=list)
    in_module: bool = False

    @property
    def uses(self) -> list[cst.Arg | cst.Return]:
        """The places that get all items."""
        return [*self.spreads, *self.returned]

    def reaching(self, key: str, use: cst.CSTNode) -> list[Store]:
        """The later statements whose value of a key a use may get."""
        return [one for one in self.stores if key in one.items and self._reaches(one, use)]

    def keys(self, use: cst.CSTNode) -> list[str]:
        """The keys that a use may get, in the order of the program."""
        found = dict.fromkeys([*self.items, *(key for one in self.stores for key in one.items)])
        return [key for key in found if key in self.items or self.reaching(key, use)]

    def is_certain(self, key: str, use: cst.CSTNode) -> bool:
        """Whether a use gets a value for a key in any case."""
        return key in self.items or any(self._precedes(one, use) for one in self.reaching(key, use))

    def _precedes(self, store: Store, use: cst.CSTNode) -> bool:
        """Whether a statement runs before a use in any case."""
        block = self._block(store.statement)
        if function_around(self.source, use) is not function_around(self.source, store.statement):
            return False
        return (
            block is self._block(self.definition.statement) or block in self._ancestors(use)
        ) and not self._is_elsewhere(store, use)

    def _reaches(self, store: Store, use: cst.CSTNode) -> bool:
        """Whether a statement may run before a use, after the dict was made."""
        around = self._ancestors(use)
        common = [node for node in ancestors(self.source, store.statement) if node in around]
        outer = set(ancestors(self.source, self.definition.statement))
        if any(isinstance(node, LOOPS) and node not in outer for node in common):
            return True
        if function_around(self.source, use) is not function_around(self.source, store.statement):
            return True
        return not self._is_elsewhere(store, use)

    def _is_elsewhere(self, store: Store, use: cst.CSTNode) -> bool:
        """Whether a statement stands below a use, or in the other arm of an `if`."""
        source = self.source
        if function_around(source, use) is not function_around(source, store.statement):
            return False
        if source.span(store.statement)[0] > source.span(use)[0]:
            return True
        around = self._ancestors(use)
        inner: cst.CSTNode = store.statement
        for node in ancestors(source, store.statement):
            if node in around:
                return isinstance(node, cst.If) and inner is node.body
            inner = node
        return False

    def _ancestors(self, use: cst.CSTNode) -> set[cst.CSTNode]:
        return set(ancestors(self.source, use))

    def _block(self, statement: cst.CSTNode) -> cst.CSTNode | None:
        line = self.source.parent(statement)
        return self.source.parent(line) if line is not None else None


@dataclass(frozen=True)
class Users:
    """What takes the arguments of FSDP1's constructor.

    Attributes:
        calls: calls of FSDP1, and of functions that hand their keywords on to it.
        functions: functions that return such arguments.
    """

    calls: frozenset[cst.CSTNode]
    functions: frozenset[cst.CSTNode] = frozenset()


def argument_dicts(
    source: Source,
    users: Users,
    is_named_elsewhere: Callable[[str], bool],
    imported: Iterable[cst.Name] = (),
) -> Iterator[ArgumentDict]:
    """The dicts of a file that calls of FSDP1 spread, and that have no other uses.

    imported: variables that other files import and spread.
    """
    seen: set[cst.CSTNode] = set()
    for name in (*_used_names(source, users), *imported):
        found = reach(source, name)
        if found is None or found.definition.statement in seen:
            continue
        seen.add(found.definition.statement)
        items = named_items(found.definition.value)
        if items is not None:
            one = read_dict(source, users, name, items, is_named_elsewhere)
            if one is not None:
                yield one


def _used_names(source: Source, users: Users) -> list[cst.Name]:
    """The variables that calls spread, or that functions return."""
    names = [spread.value for spread in spreads_of(source, users.calls)]
    for function in users.functions:
        names += [one.value for one in returns_of(function) if one.value is not None]
    return [name for name in names if isinstance(name, cst.Name) and source.parent(name)]


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


def read_dict(
    source: Source,
    users: Users,
    name: cst.Name,
    items: Items,
    is_named_elsewhere: Callable[[str], bool],
) -> ArgumentDict | None:
    """A dict with all of its uses; None if it has other uses than to set and spread its items.

    name: a use of a variable, or the target of its assignment.
    items: the items that the dict is made with.
    """
    found, home = reach(source, name), home_of(source, name)
    if found is None or home is None or isinstance(home, cst.ClassDef):
        return None
    if home is source.tree and is_named_elsewhere(name.value):
        return None
    result = ArgumentDict(
        source, found.definition, name.value, items, in_module=home is source.tree
    )
    if not all(_add_use(result, users, use) for use in found.reads if home_of(source, use) is home):
        return None
    keys = {*items, *(key for store in result.stores for key in store.items)}
    return result if keys <= set(KEYS) else None


def _add_use(found: ArgumentDict, users: Users, use: cst.Name) -> bool:
    """Add a use to a dict; whether it is of a known kind."""
    source = found.source
    parent = source.parent(use)
    outer = source.parent(parent) if parent is not None else None
    function = function_around(source, found.definition.statement)
    is_own = function_around(source, use) is function
    store = _store(source, use)
    if store is not None and is_own:
        found.stores.append(store)
    elif isinstance(parent, cst.Arg) and parent.star == "**" and outer in users.calls:
        found.spreads.append(parent)
    elif isinstance(parent, cst.Return) and is_own and function in users.functions:
        found.returned.append(parent)
    elif isinstance(parent, cst.Subscript) and _is_load(source, parent, found.items):
        found.loads.append(parent)
    else:
        return False
    return True


def returns_of(function: cst.CSTNode) -> list[cst.Return]:
    """The `return` statements of a function itself."""
    found: list[cst.Return] = []
    stack = list(function.children)
    while stack:
        node = stack.pop(0)
        if isinstance(node, cst.Return):
            found.append(node)
        elif not isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            stack.extend(node.children)
    return found


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
            items = _updated_items(outer)
            return Store(statement, items) if items else None
    return None


def _updated_items(call: cst.Call) -> Items | None:
    """The items of `update({"key": value})` or `update(key=value)`."""
    if len(call.args) == 1 and call.args[0].keyword is None:
        return named_items(call.args[0].value) if not call.args[0].star else None
    named = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    return named if len(named) == len(call.args) else None


def _is_load(source: Source, node: cst.Subscript, items: Items) -> bool:
    """Whether an expression reads an item that the dict always has."""
    changes = cst.AssignTarget | cst.AugAssign | cst.Del
    return constant_key(node) in items and not isinstance(source.parent(node), changes)
