"""Which parameters FSDP1 ignores: they stay whole on each rank in both versions."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf, is_new_parameter
from fsdplint.interpreter.values import ModuleValue, Sequence, Value
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP, IGNORED, PARAMETERS, WRAPPING
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Trace, Wrapped


def is_ignored(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is certainly a parameter that FSDP1 ignores."""
    values = migration.values(node)
    return (bool(values) and _are_ignored(migration, values)) or _visits_ignored(
        migration, source, node
    )


def _are_ignored(migration: Migration, values: list[Value]) -> bool:
    ignored = ignored_modules(migration)
    whole = [one for one in values if isinstance(one, ParametersOf) and one.complete]
    new = [one for one in values if is_new_parameter(one)]
    if len(whole) + len(new) < len(values):
        return False
    given = [value for _, values in given_ignored(migration) for value in values]
    items = [item for one in given if isinstance(one, Sequence) for item in one.items]
    return all(module.id in ignored for one in whole for module in one.modules) and all(
        any(one is item for item in items) for one in new
    )


def _visits_ignored(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is the variable of a loop over a list that FSDP1 ignores."""
    visited = _visited_list(source, node) if isinstance(node, cst.Name) else None
    target = _only_target(source, visited) if visited is not None else None
    return target is not None and any(
        source.parent(given) is not None and _only_target(source, given) is target
        for given, _ in given_ignored(migration)
    )


def _visited_list(source: Source, name: cst.Name) -> cst.BaseExpression | None:
    """What the loop visits that gives a variable its value; None if other code may set it, too."""
    for around in ancestors(source, name):
        if isinstance(around, cst.FunctionDef | cst.Lambda):
            return None
        if isinstance(around, cst.BaseComp):
            loop: cst.CompFor | None = around.for_in
            while loop is not None and not _is_named(loop.target, name):
                loop = loop.inner_for_in
            if loop is not None:
                return loop.iter
        if isinstance(around, cst.For) and _is_named(around.target, name):
            bindings = bindings_of(source)
            scope = bindings.owner(bindings.scope_at(name), name.value)
            others = scope.others.get(name.value, ()) if scope is not None else ()
            inside = [one for one in others if around.body in ancestors(source, one)]
            return None if inside or around.body not in ancestors(source, name) else around.iter
    return None


def _is_named(target: cst.CSTNode, name: cst.Name) -> bool:
    return isinstance(target, cst.Name) and target.value == name.value


def _only_target(source: Source, node: cst.BaseExpression) -> cst.CSTNode | None:
    """The only place that gives a variable its value; None for any other expression."""
    if not isinstance(node, cst.Name):
        return None
    bindings = bindings_of(source)
    scope = bindings.owner(bindings.scope_at(node), node.value)
    targets = scope.others.get(node.value, ()) if scope is not None else ()
    return targets[0] if len(targets) == 1 else None


def ignored_modules(migration: Migration) -> set[str]:
    """The modules that constructor calls ignore with all of their parameters, with their parts."""
    held = [
        id for _, values in given_ignored(migration) for value in values for id in modules_in(value)
    ]
    traces = migration.program.traces
    held += [id for trace in traces for event in trace.of(Wrapped) for id in event.ignored]
    found = {part for trace in traces for part in (*held, *trace.submodules(*held))}
    return found.difference(*(_sharded(trace) for trace in traces))


def _sharded(trace: Trace) -> set[str]:
    """The modules that constructor calls of a run wrap, which ignore nothing."""
    return {
        part
        for event in trace.of(Wrapped)
        if not any(name.startswith(("ignored_", "**")) for name in event.options)
        for part in trace.submodules(event.inner)
    }


def given_ignored(migration: Migration) -> list[tuple[cst.BaseExpression, list[Value]]]:
    """What constructor calls ignore, with its values."""
    return [
        (part, migration.values(part))
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call) and migration.called_name(node) in WRAPPING
        for value in _ignored_arguments(migration, node)
        for part in _summands(source, value)
    ]


def may_ignore(migration: Migration) -> bool:
    """Whether FSDP1 may ignore parameters of some model, which then stay plain tensors.

    Arguments with these names count in each call, such as `functools.partial(FSDP, ...)`, and so do
    these names as keys of dicts.
    """
    return any(
        _may_name_ignored(migration, node) for source in migration.sources for node in nodes(source)
    )


def _may_name_ignored(migration: Migration, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.SimpleString):
        return node.raw_value in IGNORED
    if not isinstance(node, cst.Call):
        return False
    if migration.called_name(node) in WRAPPING and any(arg.star for arg in node.args):
        return True
    return any(not is_constant(value, "None") for value in _ignored_arguments(migration, node))


def _ignored_arguments(migration: Migration, call: cst.Call) -> list[cst.BaseExpression]:
    """The arguments of a call that say what is ignored, also by their position in FSDP1's call."""
    order = PARAMETERS if migration.called_name(call) == FSDP else ()
    named, _ = arguments(call, order)
    return [named[name].value for name in IGNORED if name in named]


def _summands(source: Source, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The lists of a sum of lists, each of which has a more exact value than the sum."""
    found = definitions(source, node) if isinstance(node, cst.Name) else None
    if found and len(found) == 1 and isinstance(found[0].value, cst.BinaryOperation):
        node = found[0].value
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        yield from _summands(source, node.left)
        yield from _summands(source, node.right)
    else:
        yield node


def modules_in(value: Value) -> Iterator[str]:
    """The modules of which a value has all parameters."""
    if isinstance(value, ModuleValue):
        yield value.id
    elif isinstance(value, ParametersOf):
        chosen = value.name or value.element or value.filtered_by or value.by_name
        if value.stands_for_all or (value.complete and not chosen):
            yield from (module.id for module in value.modules)
    elif isinstance(value, Sequence):
        for item in value.items:
            yield from modules_in(item)
