"""State dicts in functions that a `state_dict_type` block calls. The block sets their type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.values import Bound, Function, Value
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import CONFIG_AT_RUN_TIME
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.state_dicts.kinds import Config, Kind
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend


def functions(migration: Migration, call: cst.Call) -> list[Function] | None:
    """The functions of these files that a call in a block runs, directly or indirectly.

    Only functions that get a wrapped model count. None if a function is not known, or if other code
    calls it as well.
    """
    found: list[Function] = []
    pending = [call]
    calls: list[cst.CSTNode] = []
    while pending:
        node = pending.pop()
        values = [_function_of(value) for value in migration.values(node.func)]
        if not values or not (isinstance(node.func, cst.Name) or _has_one_meaning(migration, node)):
            return None
        calls.append(node.func)
        for value in values:
            if not isinstance(value, Function) or value.site.source not in migration.sources:
                return None
            if any(value.node is other.node for other in found):
                continue
            if not isinstance(value.node, cst.FunctionDef) or value.decorators:
                return None
            found.append(value)
            pending += _calls_with_models(migration, value)
    if any(_is_mentioned_elsewhere(migration, function, calls) for function in found):
        return None
    return found


def _function_of(value: Value) -> Value:
    """The function behind a method of an object."""
    return value.function if isinstance(value, Bound) else value


def _has_one_meaning(migration: Migration, call: cst.Call) -> bool:
    """Whether a call is of a method, and no other class has a method of this name."""
    if not isinstance(call.func, cst.Attribute):
        return False
    name = call.func.attr.value
    defined = [
        node
        for source in migration.program.sources.values()
        for node in nodes(source)
        if isinstance(node, cst.FunctionDef) and node.name.value == name
    ]
    return len(defined) == 1


def _calls_with_models(migration: Migration, function: Function) -> Iterator[cst.Call]:
    """The calls in a function that get a wrapped model, or that save it themselves."""
    for node in descend(function.node.body):
        if not isinstance(node, cst.Call):
            continue
        if isinstance(node.func, cst.Attribute) and node.func.attr.value.startswith("save"):
            if migration.wrapping_of(node.func.value):
                yield node
        if any(migration.wrapping_of(arg.value) for arg in node.args):
            name = node.func.value if isinstance(node.func, cst.Name) else ""
            library = migration.symbol(node.func).startswith("torch.")
            if not library and name not in ("isinstance", "print", "type", "hasattr", "getattr"):
                yield node


def _is_mentioned_elsewhere(
    migration: Migration, function: Function, calls: list[cst.CSTNode]
) -> bool:
    """Whether code other than these calls mentions a function."""
    for source in migration.program.sources.values():
        for node in nodes(source):
            if isinstance(node, cst.Name) and node.value == function.name and node not in calls:
                if node is not getattr(function.node, "name", None):
                    return True
            if isinstance(node, cst.Attribute) and node.attr.value == function.name:
                if node in calls:
                    continue
                values = [_function_of(value) for value in migration.values(node)]
                ours = any(isinstance(v, Function) and v.node is function.node for v in values)
                if ours or not (values or migration.symbol(node)):
                    return True
    return False


def kind_in_function(migration: Migration, kind: Kind, source: Source, node: cst.CSTNode) -> Kind:
    """The kind for code in another function, where the block's variables are not visible.

    Raises:
        Blocked: one of those variables decides which state is taken.
    """

    def without_name(config: Config) -> Config:
        return replace(config, name="", variable=None)

    if kind.tests:
        raise Blocked(source, node, CONFIG_AT_RUN_TIME())
    return replace(
        kind, model=without_name(kind.model), optimizer=without_name(kind.optimizer), options=""
    )
