"""The keys of a dict that a call spreads, as the runs of the program show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.interpreter.spread_dicts import spread_dict
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors

# Keys whose default is None, and for which the new code takes None: they need not be there.
MAY_BE_NONE = {"sharding_strategy", "mixed_precision", "cpu_offload"}
CLASSES = {"mixed_precision": "MixedPrecision", "cpu_offload": "CPUOffload"}
KEY_METHODS = ("update", "setdefault")  # of a dict, which give it keys


@dataclass(frozen=True)
class SpreadKeys:
    """The keys of a dict.

    Attributes:
        always: those that it has in each run, without those of `MAY_BE_NONE`.
        sometimes: those that it has in some runs, or that code which no run reaches may give it.
    """

    always: list[str]
    sometimes: list[str]


def spread_keys(
    migration: Migration, arg: cst.Arg, parameters: tuple[str, ...]
) -> SpreadKeys | None:
    """The keys of a dict that a call spreads; None if a run may have others.

    parameters: the parameters of the call, in whose order the keys are given.
    """
    found = migration.program.evaluations.spread(arg)
    keys = {key for one in found if one is not None for key in one.keys}
    if not found or None in found or not keys <= set(parameters):
        return None
    always = {key for key in keys if all(one and key in one.keys for one in found)}
    never = {key for key in keys if all(one and key in one.none for one in found)}
    names = set(parameters) - keys
    keys |= _unreached(migration, names) | (_left_out(migration) & names)
    keys -= {key for key in never if _is_never_made(migration, key)}
    certain = (always & keys) - MAY_BE_NONE - _conditional(migration, always)
    return SpreadKeys(
        [key for key in parameters if key in certain],
        [key for key in parameters if key in keys - certain],
    )


def _is_never_made(migration: Migration, key: str) -> bool:
    """Whether no file makes an object of the class that a key needs."""
    old = CLASSES.get(key)
    return old is not None and all(name != old for name in migration.names.values())


def _left_out(migration: Migration) -> set[str]:
    """The keys of dicts of which a comprehension takes some, as in `if value is not None`."""
    found: set[str] = set()
    for source in migration.program.sources.values():
        for node in source.descend(source.tree):
            if not isinstance(node, cst.DictComp) or not node.for_in.ifs:
                continue
            read = node.for_in.iter
            if isinstance(read, cst.Call) and isinstance(read.func, cst.Attribute):
                dicts = map(spread_dict, migration.values(read.func.value))
                found |= {key for one in dicts if one is not None for key in one.keys}
    return found


def _unreached(migration: Migration, names: set[str]) -> set[str]:
    """Those of some keys that only code gives dicts which no run reaches."""
    executed = full_program(migration.program).executed
    reached = executed.sharded | executed.unsharded
    found = set()
    for source in migration.program.sources.values():
        if not any(name in source.text for name in names):
            continue
        for key, at in _keys_given(source):
            if key not in names:
                continue
            is_chosen = any(isinstance(x, cst.IfExp) for x in _ancestors_in_statement(source, at))
            if source.statement(at) not in reached or (is_chosen and not migration.values(at)):
                found.add(key)
    return found


def _conditional(migration: Migration, names: set[str]) -> set[str]:
    """Those of some keys that all code gives dicts under a condition, such as an unknown setting."""
    places: dict[str, list[tuple[Source, cst.CSTNode]]] = {}
    for source in migration.program.sources.values():
        if any(name in source.text for name in names):
            for key, at in _keys_given(source):
                if key in names:
                    places.setdefault(key, []).append((source, at))
    return {key for key, given in places.items() if not _is_given(given)}


def _is_given(places: list[tuple[Source, cst.CSTNode]]) -> bool:
    """Whether one of some places is executed in any case, or both arms of an `if` have one."""
    arms: dict[cst.CSTNode, set[cst.CSTNode]] = {}
    for source, at in places:
        inner, under = at, False
        for outer in ancestors(source, at):
            if isinstance(outer, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                break
            if isinstance(outer, cst.If) and inner is not outer.test:
                arms.setdefault(outer, set()).add(inner)
                under = True
            inner = outer
        if not under:
            return True
    return any(
        one.orelse is not None and len(arms[one]) > 1 for one in arms if isinstance(one, cst.If)
    )


def _ancestors_in_statement(source: Source, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The expressions around a node."""
    for one in ancestors(source, node):
        if isinstance(one, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return
        yield one


def _keys_given(source: Source) -> Iterator[tuple[str, cst.CSTNode]]:
    """The keys that code gives dicts, each with a place that is evaluated with it."""
    for node in source.descend(source.tree):
        if isinstance(node, cst.SimpleString):
            if isinstance(node.evaluated_value, str) and _is_key(source, node):
                outer = source.parent(node)
                yield (
                    node.evaluated_value,
                    outer.value if isinstance(outer, cst.DictElement) else node,
                )
        elif isinstance(node, cst.Arg) and node.keyword is not None:
            if _makes_dict(source.parent(node)):
                yield node.keyword.value, node.value


def _is_key(source: Source, node: cst.SimpleString) -> bool:
    """Whether a string is the key in `{"key": ...}`, `x["key"] = ...` or `x.setdefault("key", ...)`."""
    parent = source.parent(node)
    if isinstance(parent, cst.DictElement):
        return parent.key is node
    outer = source.parent(parent) if parent is not None else None
    if isinstance(parent, cst.Arg):
        return _makes_dict(outer)
    subscript = source.parent(outer) if isinstance(outer, cst.SubscriptElement) else None
    return isinstance(subscript, cst.Subscript) and isinstance(
        source.parent(subscript), cst.AssignTarget | cst.AugAssign
    )


def _makes_dict(call: cst.CSTNode | None) -> bool:
    """Whether a call makes a dict, or gives one keys."""
    if not isinstance(call, cst.Call):
        return False
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value in KEY_METHODS
    return is_constant(call.func, "dict")
