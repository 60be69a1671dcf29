"""Models that nothing wraps, whose gradients a program may handle as it likes."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.migration.analysis.variables import calls_of
from fsdplint.migration.context import Migration, is_fsdp1
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import statement_of
from fsdplint.trace import ModuleBuilt, Wrapped


def is_never_sharded(
    migration: Migration, source: Source, function: cst.FunctionDef, node: cst.BaseExpression
) -> bool:
    """Whether a node is a parameter of models that nothing wraps.

    The function makes them, or all of its calls give it models that are known.
    """
    values = _values(migration, source, node)
    if isinstance(node, cst.Attribute) and values and not any(map(_is_parameters, values)):
        owners = migration.program.values(node.value)
        return bool(owners) and all(
            isinstance(owner, ModuleValue)
            and _is_outside(migration, owner)
            and _is_made_in(migration, source, function, owner)
            for owner in owners
        )
    return bool(values) and all(
        isinstance(value, ParametersOf)
        and bool(value.modules)
        and value.complete
        and all(_is_plain(migration, module) for module in value.modules)
        and all(
            _is_made_in(migration, source, function, module)
            or _is_given(migration, function, module)
            for module in value.modules
        )
        for value in values
    )


def _values(migration: Migration, source: Source, node: cst.BaseExpression) -> list[Value]:
    """The values of a node; in an arm that no run has taken, those of its name in the statement."""
    values = migration.program.values(node)
    if values or not isinstance(node, cst.Name):
        return values
    scope = bindings_of(source).scope_at(node)
    return [
        value
        for one in source.descend(statement_of(source, node))
        if isinstance(one, cst.Name) and one.value == node.value
        if bindings_of(source).scope_at(one) is scope
        for value in migration.program.values(one)
    ]


def _is_parameters(value: Value) -> bool:
    return isinstance(value, ParametersOf)


def _is_outside(migration: Migration, module: ModuleValue) -> bool:
    """Whether the own parameters of a module are in no wrapped module; its parts may be wrapped."""
    if module.synthetic_for is not None or module.stands_for_parts or is_fsdp1(module):
        return False
    runs = [trace for trace in migration.program.traces if module.id in trace.modules]
    if not runs or any(trace.family_escaped(module.id) for trace in runs):
        return False
    return not any(
        module.id in trace.submodules(event.module, event.inner)
        for trace in runs
        for event in trace.of(Wrapped)
    )


def _is_plain(migration: Migration, module: ModuleValue) -> bool:
    """Whether nothing wraps a module, a module around it, or a part of it."""
    if module.synthetic_for is not None or module.stands_for_parts or is_fsdp1(module):
        return False
    runs = [trace for trace in migration.program.traces if module.id in trace.modules]
    if not runs or any(trace.family_escaped(module.id) for trace in runs):
        return False
    return not any(
        trace.related(event.module, module.id) or trace.related(event.inner, module.id)
        for trace in runs
        for event in trace.of(Wrapped)
    )


def _is_made_in(
    migration: Migration, source: Source, function: cst.FunctionDef, module: ModuleValue
) -> bool:
    """Whether a function makes a module, or one whose constructor makes it."""
    made = module.created_at
    if made is None:
        return False
    if _is_within(source, made, function):
        return True
    constructor = function_around(made.source, made.node)
    if not isinstance(constructor, cst.FunctionDef) or constructor.name.value != "__init__":
        return False
    runs = [trace for trace in migration.program.traces if module.id in trace.modules]
    return all(
        any(
            isinstance(event.site, NodeSite)
            and event.module in trace.ancestors(module.id)
            and _is_within(source, event.site, function)
            for event in trace.of(ModuleBuilt)
        )
        for trace in runs
    )


def _is_given(migration: Migration, function: cst.FunctionDef, module: ModuleValue) -> bool:
    """Whether each call of a function gives it a known model, one of which has a module."""
    calls = list(calls_of(migration.program.sources.values(), function))
    given = [_models_in(migration, call) for _, call in calls if call is not None]
    return (
        all(given)
        and len(given) == len(calls) > 0
        and any(
            trace.contains(one, module.id)
            for trace in migration.program.traces
            for models in given
            for one in models
            if one in trace.modules
        )
    )


def _models_in(migration: Migration, call: cst.Call) -> set[str]:
    """The models that a call gives to a function, or whose parameters it gives."""
    values = [value for arg in call.args for value in migration.values(arg.value)]
    models = {value.id for value in values if isinstance(value, ModuleValue)}
    parameters = [value for value in values if isinstance(value, ParametersOf) and value.complete]
    return models.union(module.id for value in parameters for module in value.modules)


def _is_within(source: Source, site: NodeSite, function: cst.FunctionDef) -> bool:
    return site.source is source and function in ancestors(source, site.node)
