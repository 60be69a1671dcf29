"""Code that reads the attributes of an enum's member, which becomes a string.

The string is the member's name. A string does not have the member's other attributes.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Class, Method, Symbol, Unknown
from fsdplint.migration.analysis.item_uses import ItemUses
from fsdplint.migration.analysis.value_uses import Use
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import ENUM_MEMBER_READ
from fsdplint.migration.constructor import enum_tests, enum_texts
from fsdplint.migration.constructor.enum_tests import MEMBERS
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors, annotation_around
from fsdplint.syntax.qualified_names import symbols_in

ENUMS = tuple(MEMBERS)
NAMES_OF_CLASSES = {"__name__", "__qualname__", "__module__"}
ITERATING = (cst.Subscript, cst.Attribute, cst.For, cst.CompFor, cst.StarredElement)
OF_STRINGS = {"lower", "upper", "title", "format", "startswith", "endswith", "replace", "split"}


def rewrite(migration: Migration) -> None:
    """Replace `strategy.name` by `strategy` if `strategy` holds a member; block other attributes."""
    done: set[cst.CSTNode] = set()
    for source in migration.sources:
        for node in nodes(source):
            enum, _, member = migration.fsdp1(node).partition(".")
            if enum not in ENUMS:
                continue
            for use in _uses(migration, source, node, member):
                if use.place is not None and use.node is not node:
                    _read(migration, use.source, use.place, enum, done)
    for source, read, enum in _values_of_enums(migration):
        for use in ItemUses(migration).of(source, read):
            if use.place is not None:
                _read(migration, use.source, use.place, enum, done)
    for source, read, enum in enum_tests.guarded_members(migration):
        place = source.parent(read)
        if place is not None:
            _read(migration, source, place, enum, done)


def _uses(migration: Migration, source: Source, node: cst.CSTNode, member: str) -> list[Use]:
    """The uses of a member, of one that is looked up, or of a variable that is one by its type."""
    if member in MEMBERS[migration.fsdp1(node).partition(".")[0]]:
        return ItemUses(migration).of(source, node)
    lookup = _lookup(source, node, member)
    if lookup is not None:
        return ItemUses(migration).of(source, lookup)
    target = (_loop_variable(source, node) or _annotated(source, node)) if not member else None
    return ItemUses(migration).of_target(source, target) if target is not None else []


def _loop_variable(source: Source, enum: cst.CSTNode) -> cst.CSTNode | None:
    """The variable of a loop over the members of an enum."""
    loop = source.parent(enum)
    if isinstance(loop, cst.For | cst.CompFor) and loop.iter is enum:
        return loop.target
    return None


def _values_of_enums(migration: Migration) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """`mode.value`, where `mode` is of an enum of the program whose values are members of FSDP1's."""
    enums = dict(_enums_of_members(migration))
    for source in migration.program.sources.values() if enums else ():
        for node in source.descend(source.tree):
            if isinstance(node, cst.Attribute) and node.attr.value == "value":
                classes = [one for one in migration.values(node.value) if isinstance(one, Class)]
                found = next((enums[one.node] for one in classes if one.node in enums), "")
                if found:
                    yield source, node, found


def _enums_of_members(migration: Migration) -> Iterator[tuple[cst.ClassDef, str]]:
    """The enums of the program with such values, and the name of FSDP1's enum."""
    for source in migration.sources:
        symbols = symbols_in(source)
        for node in nodes(source):
            enum, _, member = migration.fsdp1(node).partition(".")
            if enum not in ENUMS or not member:
                continue
            blocks = (cst.ClassDef, cst.FunctionDef, cst.Lambda)
            owner = next((one for one in ancestors(source, node) if isinstance(one, blocks)), None)
            if isinstance(owner, cst.ClassDef) and any(
                symbols.get(base.value, "").startswith("enum.") for base in owner.bases
            ):
                yield owner, enum


def _lookup(source: Source, enum: cst.CSTNode, member: str) -> cst.CSTNode | None:
    """The expression that gives a member of an enum by its name."""
    parent = source.parent(enum)
    if isinstance(parent, cst.Subscript) and parent.value is enum and member in ("", "__members__"):
        return parent
    if isinstance(parent, cst.Call) and parent.func is enum and member == "__members__.get":
        return parent
    call = source.parent(parent) if isinstance(parent, cst.Arg) and not member else None
    if isinstance(call, cst.Call) and call.args[0] is parent and is_constant(call.func, "getattr"):
        return call
    return None


def _annotated(source: Source, enum: cst.CSTNode) -> cst.CSTNode | None:
    """The variable, attribute or parameter whose type is an enum, or `Optional[...]` of it."""
    annotation = annotation_around(source, enum)
    if annotation is None:
        return None
    text = source.code(annotation.annotation).strip("\"'")
    name = source.code(enum)
    if text not in (name, f"{name} | None") and not text.endswith(f"Optional[{name}]"):
        return None
    place = source.parent(annotation)
    if isinstance(place, cst.AnnAssign):
        return place.target
    return place.name if isinstance(place, cst.Param) else None


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
        elif isinstance(call, cst.Call) and is_constant(call.func, "str"):
            enum_texts.rewrite(migration, source, call, enum)


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


def _is_other(migration: Migration, node: cst.BaseExpression, enum: str) -> bool:
    """Whether the runs show that an expression is something else than a member of an enum."""
    values = migration.values(node)
    names = [fsdp1_name(one.name) or "" for one in values if isinstance(one, Symbol)]
    unknown = any(isinstance(one, Unknown | Method) for one in values)
    return bool(values) and not unknown and not any(one.startswith(enum) for one in names)


def _attribute(migration: Migration, source: Source, place: cst.Attribute, enum: str) -> None:
    name = place.attr.value
    if _is_other(migration, place.value, enum):
        return
    if name == "name" and source in migration.sources:
        migration.substitute(source, place, migration.text(source, place.value))
        migration.step(source, place, "Use the strategy itself, which is its name now")
    elif name not in OF_STRINGS:
        reason = ENUM_MEMBER_READ(code=source.code(place), enum=enum)
        migration.blockers.append(Blocked(source, place, reason))
