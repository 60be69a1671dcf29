"""The places that read the text of a prefix: by itself, by a variable, or as an element that a loop takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.value_uses import Use, Uses
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors

Row = tuple[cst.BaseExpression, ...]


@dataclass(frozen=True)
class PrefixRead:
    """A place that reads a prefix.

    Attributes:
        node: the expression that has the prefix: the string, or a name.
        text: the prefix.
        texts: what other names of the same loop stand for while this one has the prefix.
    """

    source: Source
    node: cst.CSTNode
    text: str
    texts: Mapping[str, str] = field(default_factory=dict)


def reads_of(
    migration: Migration, source: Source, node: cst.SimpleString
) -> list[PrefixRead] | None:
    """The places that read a string; None if they are not all known."""
    found: list[PrefixRead] = []
    text = text_of(node)
    for use in uses_of(migration, source, node) or ():
        if (pattern := _pattern_of(migration, use)) is not None:
            held = uses_of(migration, use.source, pattern)
            if not held:
                return None
            found += [PrefixRead(one.source, one.node, text) for one in held]
            continue
        display = _display_of(use)
        if display is None:
            found.append(PrefixRead(use.source, use.node, text))
            continue
        more = _reads_in_loops(migration, use, *display)
        if more is None:
            return None
        found += more
    return found or None


def _pattern_of(migration: Migration, use: Use) -> cst.Call | None:
    """The call `re.compile(text)` that gets a text, or None."""
    call = use.source.parent(use.place) if isinstance(use.place, cst.Arg) else None
    if isinstance(call, cst.Call) and call.args[0] is use.place:
        if migration.symbol(call.func) == "re.compile":
            return call
    return None


def text_of(node: cst.CSTNode) -> str:
    """The text of a string; "" of other code."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else ""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def uses_of(migration: Migration, source: Source, node: cst.CSTNode) -> list[Use] | None:
    """The uses of a value; None if the value goes where nothing follows it."""
    uses = _KnownUses(migration)
    found = uses.of(source, node)
    return None if uses.lost else found


class _KnownUses(Uses):
    """Follows a value, and knows whether it was lost."""

    lost = False

    def _follow_target(self, source: Source, target: cst.CSTNode) -> None:
        self.lost = self.lost or not isinstance(target, cst.Name | cst.Attribute)
        super()._follow_target(source, target)

    def of_variable(self, source: Source, name: cst.Name) -> list[Use] | None:
        """The uses of what a variable holds."""
        self._follow_variable(source, name)
        found = [use for use in self._all() if use.node not in _bound(source, name)]
        return None if self.lost else found


def _display_of(use: Use) -> tuple[cst.BaseExpression, Row, int] | None:
    """The display that has a string as an element, the element's row, and the string's place in it."""
    holder = use.place
    if isinstance(holder, cst.DictElement) and holder.key is use.node:
        display = use.source.parent(holder)
        return (display, (holder.key, holder.value), 0) if isinstance(display, cst.Dict) else None
    if not isinstance(holder, cst.Element):
        return None
    display = use.source.parent(holder)
    if not isinstance(display, cst.Tuple | cst.List | cst.Set):
        return None
    row: Row = (holder.value,)
    index = 0
    outer = use.source.parent(display)
    if isinstance(outer, cst.Element):
        row = tuple(one.value for one in display.elements)
        index = next(n for n, one in enumerate(display.elements) if one is holder)
        around = use.source.parent(outer)
        if not isinstance(around, cst.Tuple | cst.List | cst.Set):
            return None
        display = around
    return display, row, index


def _reads_in_loops(
    migration: Migration, use: Use, display: cst.BaseExpression, row: Row, index: int
) -> list[PrefixRead] | None:
    """The reads of an element by the loops over its display; None if other code reads the display."""
    found: list[PrefixRead] = []
    for held in uses_of(migration, use.source, display) or ():
        names = _loop_names(held, isinstance(display, cst.Dict), len(row))
        name = names[index] if names else None
        reads = name and _KnownUses(migration).of_variable(held.source, name)
        if not reads:
            return None
        texts = {
            one.value: text_of(value)
            for one, value in zip(names, row, strict=True)
            if one is not None and isinstance(value, cst.SimpleString)
        }
        text = text_of(row[index])
        found += [PrefixRead(one.source, one.node, text, texts) for one in reads]
    return found or None


def _loop_names(held: Use, is_dict: bool, width: int) -> list[cst.Name | None]:
    """The variables that a loop over a display gives a row of it; [] if it is no such loop.

    None stands for a variable that the loop itself changes.
    """
    node, loop = held.node, held.place
    if is_dict:
        if not isinstance(loop, cst.Attribute) or loop.attr.value != "items":
            return []
        node = held.source.parent(loop) or node
        loop = held.source.parent(node)
    if not isinstance(loop, cst.For | cst.CompFor) or loop.iter is not node:
        return []
    target = loop.target
    parts: list[cst.CSTNode] = [target]
    if isinstance(target, cst.Tuple | cst.List):
        parts = [one.value for one in target.elements]
    if len(parts) != width:
        return []
    return [
        one if isinstance(one, cst.Name) and _is_kept(held.source, one, loop) else None
        for one in parts
    ]


def _is_kept(source: Source, name: cst.Name, loop: cst.CSTNode) -> bool:
    """Whether only the head of a loop assigns its variable within the loop."""
    return not any(
        one is not name and loop in ancestors(source, one) for one in _bound(source, name)
    )


def _bound(source: Source, name: cst.Name) -> list[cst.CSTNode]:
    """The places that give a variable its value."""
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(name), name.value)
    return scope.others.get(name.value, []) if scope is not None else []
