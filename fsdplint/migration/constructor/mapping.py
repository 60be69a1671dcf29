"""`FSDP(model, **kwargs)`: the definition of the dict is rewritten, item by item."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration import text
from fsdplint.migration.analysis.reaching import Reach, reach
from fsdplint.migration.analysis.variables import home_of
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
from fsdplint.migration.constructor.argument_comments import lines_of_items
from fsdplint.migration.constructor.displayed_values import is_displayed
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.reader import Reader
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision
from fsdplint.migration.text import dict_display
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import comments_at, statement_of


@dataclass
class Item:
    """One item of the dict.

    Attributes:
        statement: the assignment that sets it later, None for an item of the display.
    """

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

    rest: the arguments of the call without a name.
    values: the values of the other arguments.

    Raises:
        Blocked: the dict is made in another function, or has other uses.
    """
    if len(rest) != 1 or rest[0].star != "**" or not isinstance(rest[0].value, cst.Name):
        raise Blocked(source, rest[0], ARGUMENTS_UNREADABLE())
    name = rest[0].value
    found = _reach(source, at, name)
    items = _display_items(source, found.definition.value)
    items += _later_items(migration, source, found, name)
    _check_keys(migration, source, name, items, values)
    by_key = {item.key: item.value for item in items}
    if "device_id" in by_key:
        values.setdefault("device_id", by_key["device_id"])
    rewriter = _Items(migration, source, at, name, found, items, values, keywords, precision)
    rewriter.run()
    if "device_id" in by_key:
        values.pop("device_id", None)


def _reach(source: Source, at: cst.Call, name: cst.Name) -> Reach:
    found = reach(source, name) if home_of(source, name) is function_around(source, at) else None
    if found is None:
        raise Blocked(source, name, KEYWORDS_UNSEEN(name=name.value))
    return found


def _display_items(source: Source, display: cst.BaseExpression) -> list[Item]:
    """The items of `{...}` or `dict(...)`."""
    items: list[Item] = []
    if isinstance(display, cst.Dict):
        for element in display.elements:
            key = _key(element)
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


def _key(element: cst.BaseDictElement) -> object:
    if isinstance(element, cst.DictElement) and isinstance(element.key, cst.SimpleString):
        return element.key.evaluated_value
    return None


def _later_items(migration: Migration, source: Source, found: Reach, name: cst.Name) -> list[Item]:
    """The items of `kwargs["key"] = value` statements.

    Raises:
        Blocked: the dict has another use than these statements, printing and logging.
    """
    items = []
    for use in found.reads:
        if use is name or is_displayed(migration, source, use):
            continue
        item = _item_statement(source, use)
        if item is None:
            parent = source.parent(use)
            if isinstance(parent, cst.Arg) and parent.star == "**":
                raise Blocked(source, use, ARGUMENTS_OF_SEVERAL_CALLS(name=name.value))
            raise Blocked(source, use, ARGUMENTS_USED_ELSEWHERE(name=name.value))
        items.append(item)
    return items


def _check_keys(
    migration: Migration,
    source: Source,
    name: cst.Name,
    items: list[Item],
    values: dict[str, cst.BaseExpression],
) -> None:
    """Block on a key that is set twice, unless the later strategy covers the earlier one.

    A strategy becomes up to two keys. No key of the earlier strategy may remain.
    """
    by_key: dict[str, list[Item]] = {}
    for item in items:
        by_key.setdefault(item.key, []).append(item)
    has_processes = {"process_group", "device_mesh"} & {*values, *by_key}
    for key, repeated in by_key.items():
        if len(repeated) == 1:
            continue
        names = [strategy.literal(migration, item.value) for item in repeated]
        if key == "sharding_strategy" and not has_processes and None not in names:
            keys = [strategy.keys(x) for x in names if x is not None]
            if all(earlier <= later for earlier, later in pairwise(keys)):
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
    """Rewrites the items of the dict and its definition."""

    def __init__(
        self,
        migration: Migration,
        source: Source,
        at: cst.Call,
        name: cst.Name,
        found: Reach,
        items: list[Item],
        values: dict[str, cst.BaseExpression],
        keywords: Keywords,
        precision: Precision,
    ) -> None:
        self.migration = migration
        self.source = source
        self.at = at
        self.name = name
        self.definition = found.definition
        self.reads = found.reads
        self.items = items
        self.keywords = keywords
        self.values = {**values, **{item.key: item.value for item in items}}
        self.precision = precision
        self.removed: list[cst.BaseExpression] = []  # values of items that leave no text

    def run(self) -> None:
        """Rewrite all items.

        Raises:
            Blocked: an item has no rewrite.
        """
        pairs: list[tuple[str, str]] = []
        spread = ""
        has_later = False
        keys: set[str] | None = set()
        meshes: list[Item] = []
        for item in self.items:
            found, more = self._translate(item)
            keys = None if more or keys is None else keys | set(dict(found))
            if "mesh" in dict(found):
                meshes.append(item)
            if item.statement is None:
                pairs += found
                spread = spread or more
                if not found and not more:
                    self.removed.append(item.value)
            else:
                has_later = self._rewrite_later(item, found, more) or has_later
        if meshes and all(map(self._is_conditional, meshes)):
            mesh = self._reader(self.keywords).default_mesh()
            pairs[:0] = [("mesh", mesh)] if mesh else []
        self.keywords.spreads_mesh |= bool(meshes)
        self.migration.account_for(self.source, self.definition.value)
        displayed = self._note_displays()
        if not pairs and not spread and not has_later and not displayed:
            self.migration.delete_statement(self.source, self.definition.statement)
            return
        if pairs or spread or has_later:
            self.keywords.mapping = self.name.value
            self.keywords.mapped_keys = keys
        self._replace_definition(pairs, spread)

    def _replace_definition(self, pairs: list[tuple[str, str]], spread: str) -> None:
        statement = self.definition.statement
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
        head = f"{self.source.code(target)} = " if target is not None else f"{self.name.value} = "
        if not pairs:
            lines = [head + (spread or "{}")]
        elif isinstance(self.definition.value, cst.Call):
            arguments = [text.spread_text(spread)] if spread else []
            arguments += [f"{key}={value}" for key, value in pairs]
            lines = [text.call(self.source, statement, f"{head}dict", arguments)]
        else:
            lines = dict_display(self.source, head, pairs, spread)
        self.migration.own(self.source, statement)
        self.migration.rewrite.replace_statement(
            self.source, statement, [*self._comments(statement, lines), *lines], comments=False
        )

    def _comments(self, statement: cst.CSTNode, lines: list[str]) -> list[str]:
        """The comments in the definition, except those beside or above removed items."""
        new, end = "\n".join(lines), self.source.span(statement)[1]
        removed = lines_of_items(self.source, self.removed)
        return [
            comment
            for at, comment in comments_at(self.source, statement)
            if at < end and comment not in new and self.source.position(at)[0] not in removed
        ]

    def _note_displays(self) -> bool:
        """Add a note for each place that prints or logs the dict; whether there is one."""
        uses = [use for use in self.reads if is_displayed(self.migration, self.source, use)]
        for use in uses:
            self.migration.note(
                "the arguments that the program prints or logs are those of `fully_shard`",
                self.source,
                use,
                detail="They have FSDP2's names and values. Arguments that FSDP2 does not have are "
                "missing.",
            )
        return bool(uses)

    def _blocked_by_condition(self, item: Item) -> Blocked:
        return Blocked(self.source, item.value, KEY_UNDER_CONDITION(key=item.key))

    def _translate(self, item: Item) -> tuple[list[tuple[str, str]], str]:
        """The pairs and the spread for an item; policy and device go to the call's keywords."""
        scratch = Keywords(self.migration, self.source, self.at)
        self._reader(scratch).read(item.key, item.value)
        if scratch.initialize:
            raise Blocked(self.source, item.value, PARAM_INIT_FN_IN_DICT(key=item.key))
        always = scratch.sync or scratch.buffers or scratch.materialize or scratch.has_ignored
        if always and self._is_conditional(item):
            raise self._blocked_by_condition(item)
        self.keywords.merge(scratch)
        if "mp_policy" in dict(scratch.items):
            self.keywords.mapped_policy = True
            if self._is_conditional(item) and not self.precision.casts_inner:
                raise self._blocked_by_condition(item)
        if scratch.policy is not None:
            self.keywords.policy = scratch.policy
            if self._is_conditional(item):
                self._guard(item)
        self.migration.account_for(self.source, item.value)
        spread = scratch.spread
        if scratch.no_reshard_if:
            spread = strategy.conditional(self.source, scratch.no_reshard_if)
        return scratch.items, spread

    def _reader(self, keywords: Keywords) -> Reader:
        return Reader(self.migration, self.source, self.at, keywords, self.precision, self.values)

    def _is_conditional(self, item: Item) -> bool:
        return self._condition(item) is not None

    def _condition(self, item: Item) -> cst.If | None:
        """The `if` around the assignment of an item that is not around the call, too."""
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
        """Put the loop under the condition under which the policy is set."""
        condition = self._condition(item)
        policy = self.keywords.policy
        assert condition is not None and policy is not None and item.statement is not None
        inside = self.source.parent(statement_of(self.source, item.statement))
        in_block = isinstance(condition.body, cst.IndentedBlock) and inside is not None
        if condition.orelse is not None or not in_block or policy.guard:
            raise Blocked(self.source, item.value, POLICY_FROM_BRANCHES())
        policy.guard = self.migration.text(self.source, condition.test)

    def _rewrite_later(self, item: Item, found: list[tuple[str, str]], spread: str) -> bool:
        """Rewrite `kwargs["key"] = value`; whether an assignment remains."""
        assert item.statement is not None
        name = self.name.value
        if item.key == "sharding_strategy":  # the lines of its mesh are indented for a dict display
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
