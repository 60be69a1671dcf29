"""A member of an enum that code looks up by its name, which is a string after the migration."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.constructor import enum_tests
from fsdplint.migration.constructor.enum_tests import WITHOUT_PARENTHESES
from fsdplint.migration.context import Migration
from fsdplint.migration.text import atom
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant

_GET = "__members__.get"
_ALL_MEMBERS = ("__members__", "__members__.keys", _GET)
_READERS = {"list", "tuple", "set", "sorted", "len"}
_COLLECTING = {"list", "tuple", "set", "len"}
_METHODS = {"get", "lower", "strip", "upper"}  # of strings and dicts; they change nothing


def rewrite(
    migration: Migration,
    source: Source,
    node: cst.CSTNode,
    attribute: str,
    members: Sequence[str] = (),
) -> bool:
    """Replace `Enum[name]` and `getattr(Enum, name)` around an enum by the name.

    With a default (`getattr(Enum, name, default)`, `Enum.__members__.get(name)`), the name becomes
    the default if it is none of the members. Where code only reads the names of all members, a
    tuple of them replaces the enum or its `__members__`. `hasattr(Enum, name)` becomes a test of the name.
    For `isinstance(value, Enum)` see `enum_tests`.

    Args:
        migration: the migration.
        source: the file.
        node: the enum, or an attribute of it.
        attribute: the name of the attribute; "" for the enum itself.
        members: the names of the members, if they are known.

    Returns:
        Whether the enum is used in a way that can be rewritten.
    """
    if attribute not in ("", *_ALL_MEMBERS):
        return False
    if attribute == _GET:
        return bool(members) and _get(migration, source, node, members)
    place: cst.CSTNode | None = node
    if attribute.endswith(".keys"):
        place = source.parent(node)
        if not isinstance(place, cst.Call) or place.func is not node:
            return False
    assert place is not None
    if members and (_reads_names(source, place, attribute) or _loops(migration, source, node)):
        names = ", ".join(string_literal(source, one) for one in members)
        migration.substitute(source, place, f"({names})")
        return True
    parent = source.parent(node)
    if isinstance(parent, cst.Subscript) and parent.value is node:
        index = parent.slice[0].slice
        if not isinstance(index, cst.Index):
            return False
        migration.substitute(source, parent, migration.text(source, index.value))
        return True
    if not attribute and enum_tests.rewrite(migration, source, node):
        return True
    call = source.parent(parent) if isinstance(parent, cst.Arg) else None
    if attribute or not isinstance(call, cst.Call):
        return False
    if call.args[0] is not parent:
        return False
    if is_constant(call.func, "hasattr") and len(call.args) == 2 and members:
        return _is_member(migration, source, call, members)
    if not isinstance(call.func, cst.Name) or call.func.value != "getattr":
        return False
    if len(call.args) == 2:
        migration.substitute(source, call, migration.text(source, call.args[1].value))
        return True
    if len(call.args) != 3 or not members:
        return False
    return _with_default(migration, source, call, call.args[1], call.args[2], members)


def _is_member(
    migration: Migration, source: Source, call: cst.Call, members: Sequence[str]
) -> bool:
    """Rewrite `hasattr(Enum, name)`, which asks whether a member has this name."""
    name = atom(migration.text(source, call.args[1].value))
    known = ", ".join(string_literal(source, one) for one in members)
    place: cst.BaseExpression = call
    operator = "in"
    outer = source.parent(call)
    if isinstance(outer, cst.UnaryOperation) and isinstance(outer.operator, cst.Not):
        place, operator = outer, "not in"
    text = f"{name} {operator} ({known})"
    plain = isinstance(source.parent(place), (*WITHOUT_PARENTHESES, cst.If, cst.Assert))
    migration.substitute(source, place, text if plain or place.lpar else f"({text})")
    return True


def _get(migration: Migration, source: Source, node: cst.CSTNode, members: Sequence[str]) -> bool:
    """Rewrite `Enum.__members__.get(name, default)`; whether it has this form."""
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node or not 1 <= len(call.args) <= 2:
        return False
    if any(arg.star or arg.keyword is not None for arg in call.args):
        return False
    name, *default = call.args
    return _with_default(migration, source, call, name, default[0] if default else None, members)


def _reads_names(source: Source, place: cst.CSTNode, attribute: str) -> bool:
    """Whether code only goes over the names in `Enum.__members__`, or looks for one among them."""
    parent = source.parent(place)
    if not attribute:
        return isinstance(parent, cst.Arg) and _lists_members(source, parent)
    if isinstance(parent, cst.ComparisonTarget):
        return isinstance(parent.operator, cst.In | cst.NotIn)
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if parent.keyword is not None:
            return parent.keyword.value == "choices"
        called = call.func if isinstance(call, cst.Call) else None
        if isinstance(called, cst.Attribute):
            return called.attr.value == "join"
        return isinstance(called, cst.Name) and called.value in _READERS
    return isinstance(parent, cst.For | cst.CompFor) and parent.iter is place


def _lists_members(source: Source, arg: cst.Arg) -> bool:
    """Whether an enum is an argument that only its members matter for: `list(Enum)`, `choices=Enum`."""
    if arg.keyword is not None:
        return arg.keyword.value == "choices"
    call = source.parent(arg)
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or len(call.args) != 1:
        return False
    loop = isinstance(source.parent(call), cst.For | cst.CompFor)
    return call.func.value in _COLLECTING and not loop


def _loops(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Rewrite a loop over the members that reads no attribute but their names; whether it is one."""
    parent = source.parent(node)
    if not isinstance(parent, cst.For | cst.CompFor) or parent.iter is not node:
        return False
    target = parent.target
    scope = source.parent(parent) if isinstance(parent, cst.CompFor) else parent
    if not isinstance(target, cst.Name) or scope is None:
        return False
    uses = [
        one
        for one in source.descend(scope)
        if isinstance(one, cst.Name) and one.value == target.value and one is not target
    ]
    parents = [source.parent(one) for one in uses if not _is_attribute(source, one)]
    reads = [one for one in parents if isinstance(one, cst.Attribute)]
    if any(read.attr.value != "name" for read in reads):
        return False
    for read in reads:
        migration.substitute(source, read, target.value)
    return True


def _is_attribute(source: Source, name: cst.Name) -> bool:
    """Whether a name is the one of an attribute or of a keyword."""
    parent = source.parent(name)
    if isinstance(parent, cst.Attribute):
        return parent.attr is name
    return isinstance(parent, cst.Arg) and parent.keyword is name


def _with_default(
    migration: Migration,
    source: Source,
    call: cst.Call,
    key: cst.Arg,
    otherwise: cst.Arg | None,
    members: Sequence[str],
) -> bool:
    """Rewrite the code around the default, which may name a member itself; without one, it is None."""
    name, default = key.value, otherwise.value if otherwise is not None else None
    if not _reads_only(name) or (default is not None and default.lpar):
        return False
    read = atom(migration.text(source, name))
    known = ", ".join(string_literal(source, one) for one in members)
    plain = isinstance(source.parent(call), WITHOUT_PARENTHESES)
    head = f"{read} if {read} in ({known}) else "
    if default is None:
        migration.substitute(source, call, f"{head}None" if plain else f"({head}None)")
        return True
    (start, end), (left, right) = source.span(call), source.span(default)
    migration.substitute_span(source, start, left, head if plain else f"({head}")
    migration.substitute_span(source, right, end, "" if plain else ")")
    return True


def _is_plain(arg: cst.Arg) -> bool:
    return not arg.star and _reads_only(arg.value)


def _reads_only(node: cst.BaseExpression) -> bool:
    """Whether an expression may be evaluated twice."""
    if isinstance(node, cst.Call):
        method = node.func
        if not isinstance(method, cst.Attribute) or method.attr.value not in _METHODS:
            return False
        return all(map(_is_plain, node.args)) and _reads_only(method.value)
    if isinstance(node, cst.Subscript):
        index = node.slice[0].slice
        read = isinstance(index, cst.Index) and _reads_only(index.value)
        return len(node.slice) == 1 and read and _reads_only(node.value)
    if isinstance(node, cst.Attribute):
        return _reads_only(node.value)
    return isinstance(node, cst.Name | cst.SimpleString)
