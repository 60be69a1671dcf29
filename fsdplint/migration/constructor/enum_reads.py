"""Code that reads the attributes of an enum's member, which becomes a string.

The string is the member's name. A string does not have the member's other attributes.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.value_uses import Uses
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import ENUM_MEMBER_READ
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import Source

ENUMS = ("ShardingStrategy", "StateDictType")
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
                place = use.place
                if not isinstance(place, cst.Attribute) or place in done:
                    continue
                if place in migration.symbols or use.node is node:
                    continue
                done.add(place)
                _attribute(migration, use.source, place, enum)


def _attribute(migration: Migration, source: Source, place: cst.Attribute, enum: str) -> None:
    name = place.attr.value
    if name == "name" and source in migration.sources:
        migration.substitute(source, place, migration.text(source, place.value))
        migration.step(source, place, "Use the strategy itself, which is its name now")
    elif name not in OF_STRINGS:
        reason = ENUM_MEMBER_READ(code=source.code(place), enum=enum)
        migration.blockers.append(Blocked(source, place, reason))
