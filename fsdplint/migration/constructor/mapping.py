"""`FSDP(model, **kwargs)`: the dict's own definition is rewritten, item by item."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import libcst as cst

from fsdplint.migration import text
from fsdplint.migration.analysis.variables import (
    Definition,
    ancestors,
    definitions,
    function_of,
    home_of,
    reads,
)
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import (
    ARGUMENTS_OF_SEVERAL_CALLS,
    ARGUMENTS_UNREADABLE,
    ARGUMENTS_USED_ELSEWHERE,
    DICT_UNREADABLE,
    KEY_TWICE,
    KEY_UNDER_CONDITION,
    KEYWORDS_UNSEEN,
    PARAM_INIT_FN_IN_DICT,
)
from fsdplint.migration.blockers.policies import POLICY_FROM_BRANCHES
from fsdplint.migration.constructor import strategy
from fsdplint.migration.constructor.displayed_values import is_shown
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.reader import Reader
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision
from fsdplint.migration.text import dict_display, string_literal
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.layout import statement_of


@dataclass
class Item:
    """One item of the dict: from its display (statement None) or set on its own later."""

    key: str
    value: cst.BaseExpression
    statement: cst.Assign | None = None


def read_mapping(
    migration: Migration,
    source: Source,
    at: cst.Call,
    rest: list[cst.Arg],
    values: dict[str, cst.BaseExpression],
    keywords: Keywords,
    precision: Precision,
) -> None:
    """Rewrite the dict that a constructor call spreads; its policy and device go to `keywords`.

    Raises:
        Blocked: the dict is not one of this function's own, or is used for something else too.
    """
    if len(rest) != 1 or rest[0].star != "**" or not isinstance(rest[0].value, cst.Name):
        raise Blocked(source, rest[0], ARGUMENTS_UNREADABLE())
    name = rest[0].value
    made = _definition(migration, source, at, name)
    display = made.value
    items = _display_items(migration, source, display)
    items += _later_items(migration, source, at, name)
    later = {item.key: item for item in items}
    _check_repeated(migration, source, name, items, values)
    for key, value in {**{i.key: i.value for i in items}}.items():
        if key == "device_id":
            values.setdefault("device_id", value)
    rewriter = _Items(migration, source, at, name, made, items, values, keywords, precision)
    rewriter.run()
    values.pop("device_id", None) if "device_id" in later else None


def _definition(migration: Migration, source: Source, at: cst.Call, name: cst.Name) -> Definition:
    found = definitions(source, name)
    if home_of(source, name) is not function_of(source, at) or not found or len(found) != 1:
        raise Blocked(source, name, KEYWORDS_UNSEEN(name=name.value))
    return found[0]


def _display_items(migration: Migration, source: Source, display: cst.BaseExpression) -> list[Item]:
    items: list[Item] = []
    if isinstance(display, cst.Dict):
        for element in display.elements:
            key = _word(element)
            if not isinstance(key, str):
                raise Blocked(source, display, DICT_UNREADABLE())
            items.append(Item(key, element.value))
        return items
    if (
        isinstance(display, cst.Call)
        and isinstance(display.func, cst.Name)
        and display.func.value == "dict"
    ):
        named, rest = arguments(display, ())
        if not rest:
            return [Item(key, arg.value) for key, arg in named.items()]
    raise Blocked(source, display, DICT_UNREADABLE())


def _word(element: cst.BaseDictElement) -> object:
    if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
        return element.key.evaluated_value
    return None


def _later_items(migration: Migration, source: Source, at: cst.Call, name: cst.Name) -> list[Item]:
    """`kwargs["key"] = value` statements; any other use of the dict blocks, but that it is
    shown.
    """
    items = []
    for use in reads(source, function_of(source, at), name.value):
        if use is name or is_shown(migration, source, use):
            continue
        item = _item_statement(source, use)
        if item is None:
            parent = source.parent(use)
            if isinstance(parent, cst.Arg) and parent.star == "**":
                raise Blocked(
                    source,
                    use,
                    ARGUMENTS_OF_SEVERAL_CALLS(name=name.value),
                )
            raise Blocked(source, use, ARGUMENTS_USED_ELSEWHERE(name=name.value))
        items.append(item)
    return items


def _check_repeated(
    migration: Migration,
    source: Source,
    name: cst.Name,
    items: list[Item],
    values: dict[str, cst.BaseExpression],
) -> None:
    """Block on a key that is set twice, but for strategies of which the later one covers the
    earlier.

    One strategy may become two keys or none: what an earlier one has set must not stay then.
    """
    by_key: dict[str, list[Item]] = {}
    for item in items:
        by_key.setdefault(item.key, []).append(item)
    for key, same in by_key.items():
        if len(same) == 1:
            continue
        given = {"process_group", "device_mesh"} & {*values, *by_key}
        names = [strategy.literal(migration, item.value) for item in same]
        if key == "sharding_strategy" and not given and None not in names:
            covered = [strategy.keys(one) for one in names if one is not None]
            if all(one <= after for one, after in pairwise(covered)):
                continue
        raise Blocked(source, name, KEY_TWICE(name=name.value))


def _item_statement(source: Source, use: cst.Name) -> Item | None:
    subscript = source.parent(use)
    target = source.parent(subscript) if isinstance(subscript, cst.Subscript) else None
    statement = source.parent(target) if isinstance(target, cst.AssignTarget) else None
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    assert isinstance(subscript, cst.Subscript)
    index = subscript.slice[0].slice
    if not isinstance(index, cst.Index) or not isinstance(index.value, cst.SimpleString):
        return None
    key = index.value.evaluated_value
    return Item(key, statement.value, statement) if isinstance(key, str) else None


class _Items:
    def __init__(
        self,
        migration: Migration,
        source: Source,
        at: cst.Call,
        name: cst.Name,
        made: Definition,
        items: list[Item],
        values: dict[str, cst.BaseExpression],
        keywords: Keywords,
        precision: Precision,
    ) -> None:
        self.migration = migration
        self.source = source
        self.at = at
        self.name = name
        self.made = made
        self.items = items
        self.keywords = keywords
        self.values = {**values, **{item.key: item.value for item in items}}
        self.precision = precision

    def run(self) -> None:
        kept: list[tuple[str, str]] = []
        spread = ""
        later = False
        meshes: list[Item] = []
        for item in self.items:
            found, more = self._translate(item)
            if "mesh" in dict(found):
                meshes.append(item)
            if item.statement is None:
                kept += found
                spread = spread or more
            else:
                later = self._set_later(item, found, more) or later
        if meshes and all(map(self._conditional, meshes)):
            made = self._reader(self.keywords).default_mesh()
            kept[:0] = [("mesh", made)] if made else []
        self.keywords.spreads_mesh |= bool(meshes)
        statement = self.made.statement
        self.migration.account_for(self.source, self.made.value)
        shown = self._shown()
        if not kept and not spread and not later and not shown:
            self.migration.delete_statement(self.source, statement)
            return
        if kept or spread or later:
            self.keywords.mapping = self.name.value
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
        head = f"{self.source.code(target)} = " if target is not None else f"{self.name.value} = "
        if not kept:
            lines = [head + (spread or "{}")]
        elif isinstance(self.made.value, cst.Call):
            given = [text.spread(spread)] if spread else []
            given += [f"{key}={value}" for key, value in kept]
            lines = [text.call(self.source, statement, f"{head}dict", given)]
        else:
            lines = dict_display(self.source, head, kept, spread)
        self.migration.replace_statement(self.source, statement, lines)

    def _shown(self) -> bool:
        """Whether the dict is printed or logged somewhere; a note says that it has other items
        then.
        """
        found = [
            use
            for use in reads(self.source, function_of(self.source, self.at), self.name.value)
            if is_shown(self.migration, self.source, use)
        ]
        for use in found:
            self.migration.note(
                "the arguments that the program shows are `fully_shard`'s",
                self.source,
                use,
                detail="What it prints or logs has FSDP2's names and values, without those that "
                "FSDP2 has no argument for.",
            )
        return bool(found)

    def _conditionally_set(self, item: Item) -> Blocked:
        return Blocked(
            self.source,
            item.value,
            KEY_UNDER_CONDITION(key=item.key),
        )

    def _translate(self, item: Item) -> tuple[list[tuple[str, str]], str]:
        """What an item becomes; policy, device and the like go straight to the call's keywords."""
        scratch = Keywords(self.migration, self.source, self.at)
        self._reader(scratch).read(item.key, item.value)
        self.keywords.buffers_as = self.keywords.buffers_as or scratch.buffers_as
        self.keywords.buffers_to = self.keywords.buffers_to or scratch.buffers_to
        if scratch.initialize:
            reason = PARAM_INIT_FN_IN_DICT(key=item.key)
            raise Blocked(self.source, item.value, reason)
        if scratch.sync or scratch.buffers or scratch.materialize:
            if self._conditional(item):
                raise self._conditionally_set(item)
            self.keywords.sync = self.keywords.sync or scratch.sync
            self.keywords.buffers = self.keywords.buffers or scratch.buffers
            self.keywords.materialize = self.keywords.materialize or scratch.materialize
        self.keywords.before += scratch.before
        self.keywords.offload = self.keywords.offload or scratch.offload
        if "mp_policy" in dict(scratch.items):
            self.keywords.mapped_policy = True
            if self._conditional(item) and not self.precision.casts_inner:
                raise self._conditionally_set(item)
        if scratch.policy is not None:
            self.keywords.policy = scratch.policy
            if self._conditional(item):
                self._guard(item)
        self.migration.account_for(self.source, item.value)
        self.keywords.spreads_mesh |= scratch.spreads_mesh
        spread = scratch.spread
        if scratch.kept:
            spread = strategy.conditional(self.source, scratch.kept)
        return scratch.items, spread

    def _reader(self, keywords: Keywords) -> Reader:
        return Reader(self.migration, self.source, self.at, keywords, self.precision, self.values)

    def _conditional(self, item: Item) -> bool:
        return self._condition(item) is not None

    def _condition(self, item: Item) -> cst.If | None:
        """The `if` that an item is set under, if the call does not stand under it too."""
        if item.statement is None:
            return None
        around = set(ancestors(self.source, self.at))
        for node in ancestors(self.source, item.statement):
            if node in around:
                return None
            if isinstance(node, cst.If):
                return node
        return None

    def _guard(self, item: Item) -> None:
        """A policy that is only set under a condition: the loop stands under the same one."""
        condition = self._condition(item)
        policy = self.keywords.policy
        assert condition is not None and policy is not None and item.statement is not None
        inside = self.source.parent(statement_of(self.source, item.statement))
        alone = isinstance(condition.body, cst.IndentedBlock) and inside is not None
        if condition.orelse is not None or not alone or policy.guard:
            raise Blocked(self.source, item.value, POLICY_FROM_BRANCHES())
        policy.guard = self.migration.text(self.source, condition.test)

    def _set_later(self, item: Item, found: list[tuple[str, str]], spread: str) -> bool:
        """Rewrite `kwargs["key"] = value`; whether something of it stays."""
        assert item.statement is not None
        name = self.name.value
        if item.key == "sharding_strategy":  # its mesh is laid out for the display of a dict
            found = [(key, value.replace("\n\t", "\n")) for key, value in found]
        lines = [f"{name}[{string_literal(self.source, key)}] = {value}" for key, value in found]
        if spread:
            lines.append(f"{name}.update({spread})")
        if lines:
            self.migration.replace_statement(self.source, item.statement, lines)
            return True
        condition = self._condition(item)
        if condition is not None and condition.orelse is None and len(condition.body.body) == 1:
            self.migration.delete_statement(self.source, condition)
        else:
            self.migration.delete_statement(self.source, item.statement)
        return False
