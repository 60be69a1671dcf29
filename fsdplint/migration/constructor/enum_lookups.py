"""A member of an enum that code looks up by its name, which is a string after the migration."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.context import Migration
from fsdplint.migration.text import atom
from fsdplint.source.source import Source

_WITHOUT_PARENTHESES = (cst.Arg, cst.Assign, cst.AnnAssign, cst.Return)
_METHODS = {"get", "lower", "strip", "upper"}  # of strings and dicts; they change nothing


def rewrite(
    migration: Migration, source: Source, node: cst.CSTNode, members: Sequence[str] = ()
) -> bool:
    """Replace `Enum[name]` and `getattr(Enum, name)` around an enum by the name.

    With a default (`getattr(Enum, name, default)`), the name becomes the default if it is none of
    the members. Returns whether the enum is looked up in a way that can be rewritten.
    """
    parent = source.parent(node)
    if isinstance(parent, cst.Subscript) and parent.value is node:
        index = parent.slice[0].slice
        if not isinstance(index, cst.Index):
            return False
        migration.substitute(source, parent, migration.text(source, index.value))
        return True
    call = source.parent(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(call, cst.Call) or call.args[0] is not parent:
        return False
    if not isinstance(call.func, cst.Name) or call.func.value != "getattr":
        return False
    if len(call.args) == 2:
        migration.substitute(source, call, migration.text(source, call.args[1].value))
        return True
    return len(call.args) == 3 and bool(members) and _with_default(migration, source, call, members)


def _with_default(
    migration: Migration, source: Source, call: cst.Call, members: Sequence[str]
) -> bool:
    """Rewrite the code around the default, which may name a member itself."""
    name, default = call.args[1].value, call.args[2].value
    if not _reads_only(name) or default.lpar:
        return False
    read = atom(migration.text(source, name))
    known = ", ".join(string_literal(source, one) for one in members)
    plain = isinstance(source.parent(call), _WITHOUT_PARENTHESES)
    (start, end), (left, right) = source.span(call), source.span(default)
    head = f"{read} if {read} in ({known}) else "
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
