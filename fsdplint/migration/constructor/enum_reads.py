"""Code that reads the attributes of an enum's member, which becomes a string.

The string is the member's name. A string does not have the member's other attributes.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.value_uses import Uses
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import ENUM_MEMBER_READ
from fsdplint.migration.constructor import enum_tests
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

ENUMS = ("ShardingStrategy", "StateDictType")
NAMES_OF_CLASSES = {"__name__", "__qualname__", "__module__"}
ITERATING = (cst.Subscript, cst.Attribute, cst.For, cst.CompFor, cst.StarredElement)
OF_STRINGS = {"lower", "upper", "title", "format", "startswith", "endswith", "replace", "split"}


def rewrite(migration: Migration) -> None:
    """Replace `strategy.name` by `strategy` if `strategy` holds a member; block other attributes."""
    done: set[cst.CSTNode] = set()
    for source in migration.sources:
        for node in nodes(source):
            enum, _, member = migration.fsdp1(node).partition(".")
            if enum not in ENUMS or not member or "." in member:
                continue
            for use in Uses(migration).of(source, node):
                if use.place is not None and use.node is not node:
                    _read(migration, use.source, use.place, enum, done)
    for source, read, enum in enum_tests.guarded_members(migration):
        place = source.parent(read)
        if place is not None:
            _read(migration, source, place, enum, done)


def _read(
    migration: Migration, source: Source, place: cst.CSTNode, enum: str, done: set[cst.CSTNode]
) -> None:
    """Rewrite a place that reads a member, if it depends on what a member is."""
    if place in done or place in migration.symbols:
        return
    done.add(place)
    if isinstance(place, cst.Attribute):
        _attribute(migration, source, place, enum)
    elif isinstance(place, cst.Arg):
        call = source.parent(place)
        if isinstance(call, cst.Call) and is_constant(call.func, "type"):
            _type(migration, source, call, enum)


def _type(migration: Migration, source: Source, call: cst.Call, enum: str) -> None:
    """Rewrite `type(member)[name]`, which is the other member with this name."""
    place = source.parent(call)
    if isinstance(place, cst.Subscript) and source in migration.sources:
        index = place.slice[0].slice
        if isinstance(index, cst.Index):
            migration.substitute(source, place, migration.text(source, index.value))
            migration.step(source, place, "Use the strategy itself, which is its name now")
            return
    reads_name = isinstance(place, cst.Attribute) and place.attr.value in NAMES_OF_CLASSES
    if not reads_name and isinstance(place, ITERATING):
        reason = ENUM_MEMBER_READ(code=source.code(call), enum=enum)
        migration.blockers.append(Blocked(source, call, reason))


def _attribute(migration: Migration, source: Source, place: cst.Attribute, enum: str) -> None:
    name = place.attr.value
    if name == "name" and source in migration.sources:
        migration.substitute(source, place, migration.text(source, place.value))
        migration.step(source, place, "Use the strategy itself, which is its name now")
    elif name not in OF_STRINGS:
        reason = ENUM_MEMBER_READ(code=source.code(place), enum=enum)
        migration.blockers.append(Blocked(source, place, reason))
