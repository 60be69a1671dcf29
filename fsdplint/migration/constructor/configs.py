"""Config objects wherever they are made: mixed precision, offloading, prefetching."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration import symbols
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CONFIG_HANDED_ON, CPU_OFFLOAD_ARGUMENTS
from fsdplint.migration.constructor import enum_lookups, enum_tests, precision
from fsdplint.migration.constructor.enum_tests import MEMBERS
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.names import FSDP
from fsdplint.migration.rewriters import rewrites
from fsdplint.migration.text import atom
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import ancestors, annotation_around

NEW = {"MixedPrecision": "MixedPrecisionPolicy", "CPUOffload": "CPUOffloadPolicy"}
PREFETCH, STATE_TYPES = MEMBERS["BackwardPrefetch"], MEMBERS["StateDictType"]
OWN = ("functools.", "torch.distributed.fsdp.", "dataclasses.", "argparse.", "typing.")


@rewrites("MixedPrecision", "CPUOffload")
def rewrite(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Rewrite a mention of `MixedPrecision` or `CPUOffload`.

    Raises:
        Blocked: it is neither called nor an annotation, or goes to another library.
    """
    parent = source.parent(node)
    if isinstance(parent, cst.Call) and parent.func is node:
        check_consumer(migration, source, parent)
        if name == "MixedPrecision":
            precision.convert(migration, source, parent, migration.precision)
        else:
            _offload(migration, source, parent)
        return
    if annotation_around(source, node):
        new = migration.need(source, "torch.distributed.fsdp", NEW[name], node)
        migration.account_for(source, node)
        migration.substitute(source, node, new)
        return
    raise Blocked(source, node, symbols.reason(name))


def _offload(migration: Migration, source: Source, call: cst.Call) -> None:
    named, rest = arguments(call, ("offload_params",))
    if rest or not set(named) <= {"offload_params"}:
        raise Blocked(source, call, CPU_OFFLOAD_ARGUMENTS())
    chosen = named.get("offload_params")
    if chosen is None or is_constant(chosen.value, "False"):
        if _goes_to_constructor(migration, source, call):
            return  # the constructor's rewrite leaves it out
        text = migration.need(source, "torch.distributed.fsdp", "OffloadPolicy", call) + "()"
    elif is_constant(chosen.value, "True"):
        text = migration.need(source, "torch.distributed.fsdp", "CPUOffloadPolicy", call) + "()"
    else:
        on = migration.need(source, "torch.distributed.fsdp", "CPUOffloadPolicy", call)
        off = migration.need(source, "torch.distributed.fsdp", "OffloadPolicy", call)
        test = expression(migration, source, chosen.value)
        text = f"{on}() if {test} else {off}()"
        if isinstance(source.parent(call), cst.IfExp | cst.BooleanOperation):
            text = atom(text)
    migration.account_for(source, call)
    migration.substitute(source, call, text)


def _goes_to_constructor(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Whether a config is an argument of a constructor call, directly or through a variable.

    A variable that may also hold another config keeps both: the call reads the variable.
    """
    parent = source.parent(call)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        target = parent.targets[0].target
        home = home_of(source, target) if isinstance(target, cst.Name) else None
        if home is None or not isinstance(target, cst.Name):
            return False
        uses = reads(source, home, target.value)
        if len(uses) != 1 or len(definitions(source, target) or ()) != 1:
            return False
        parent = source.parent(uses[0])
    return isinstance(parent, cst.Arg) and migration.called_name(source.parent(parent)) == FSDP


@rewrites("BackwardPrefetch")
def prefetch(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Rewrite `BackwardPrefetch` outside of a constructor call, where nothing reads it any longer."""
    parent = source.parent(node)
    member = name.partition(".")[2]
    if isinstance(parent, cst.Arg) and not member.startswith("__"):
        if not _is_item(migration, source, parent):
            return
    if not _in_constructor(migration, source, node):
        _write_string(migration, source, node, member, PREFETCH)


def _is_item(migration: Migration, source: Source, arg: cst.Arg) -> bool:
    """Whether an argument is an item of a dict, as in `dict(key=value)` and `x.update(key=value)`."""
    call = source.parent(arg)
    if not isinstance(call, cst.Call) or arg.keyword is None:
        return False
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "update":
        return not migration.symbol(call.func)
    return is_constant(call.func, "dict")


@rewrites("StateDictType")
def state_type(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Rewrite `StateDictType` outside of `state_dict_type(...)`, where the program compares it."""
    arg = source.parent(node)
    if isinstance(arg, cst.Arg):
        called = migration.called_name(source.parent(arg))
        if called.endswith("state_dict_type"):
            return
    _write_string(migration, source, node, name.partition(".")[2], STATE_TYPES)


def _write_string(
    migration: Migration, source: Source, node: cst.CSTNode, member: str, members: Sequence[str]
) -> None:
    """Replace a member of an enum by its name, and the enum itself by `str` or its names."""
    if member in members:
        migration.account_for(source, node)
        migration.substitute(source, node, string_literal(source, member))
        enum_tests.rewrite_identity(migration, source, node)
    elif not member and annotation_around(source, node):
        migration.account_for(source, node)
        migration.substitute(source, node, "str")
    elif enum_lookups.rewrite(migration, source, node, member, members):
        migration.account_for(source, node)


def _in_constructor(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    return any(migration.called_name(parent) == FSDP for parent in ancestors(source, node))


def check_consumer(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Check that no other library gets a config object: it would expect FSDP1's class.

    Raises:
        Blocked: a library gets it.
    """
    for parent in ancestors(source, node):
        if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return
        if isinstance(parent, cst.Call) and node is not parent.func:
            name = migration.symbol(parent.func)
            if name and not name.startswith(OWN) and not name.startswith("builtins"):
                raise Blocked(source, node, CONFIG_HANDED_ON(function=name))
