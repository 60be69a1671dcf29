"""Optimizers, their states, and whole states that are loaded, after a forward without a backward.

FSDP2 leaves parameters gathered there. torch's functions do not find gathered parameters in the
optimizer (`KeyError`, seen with 2.13), nor the shards that take a whole state (`RuntimeError`). An optimizer
over gathered parameters never updates the shards. So the model is sharded again before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.gathered import left_gathered
from fsdplint.migration.analysis.units import Units
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import STATE_WHILE_GATHERED
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.reshard_loop import has_place, reshard_loop
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.layout import statement_of
from fsdplint.trace import Event, Fsdp1Used, OptimizerBuilt, StateLoaded, StateTaken, Trace


def reshard_before(
    migration: Migration,
    source: Source,
    node: cst.Call,
    model: cst.BaseExpression,
    use: cst.Call | None = None,
) -> bool:
    """Shard a model again before a call that needs its shards; whether a forward left it gathered.

    use: the call of FSDP1's method that converts the state, if that is another one.

    Raises:
        Blocked: the model is computed in the call, or no line may be put right before the call.
    """
    roots = [
        only_root
        for trace in migration.program.traces
        for only_root in _gathered(migration, trace, (node, use), model)
    ]
    if not roots:
        return False
    if not is_repeatable(model) or not has_place(source, node):
        raise Blocked(source, node, STATE_WHILE_GATHERED())
    text = expression(migration, source, model)
    if all(roots) and migration.wrapping_of(model) == "always":
        lines = [f"{text}.reshard()"]
    else:
        lines = reshard_loop(migration, source, node, text)
    comment = "# A forward without a backward leaves parameters gathered."
    migration.rewrite.insert_before(source, statement_of(source, node), [comment, *lines])
    return True


def _gathered(
    migration: Migration,
    trace: Trace,
    calls: tuple[cst.Call | None, ...],
    model: cst.BaseExpression,
) -> Iterator[bool]:
    """The runs of some calls while the model is gathered: whether only its root is."""
    ids = {value.id for value in migration.values(model) if isinstance(value, ModuleValue)}
    units = Units(trace)
    for event in trace.of(StateTaken, StateLoaded, Fsdp1Used, OptimizerBuilt):
        if not isinstance(event.site, NodeSite) or event.site.node not in calls:
            continue
        found = gathered_units(units, event, _modules(trace, event))
        if found:
            yield len(found) == 1 and any(
                event.module in ids and event.inner in found for event in units.wraps.values()
            )


def gathered_units(units: Units, event: Event, modules: Iterable[str]) -> set[str | None]:
    """The units of some modules that FSDP2 leaves gathered until an event."""
    trace = units.trace
    parts = [
        part
        for module in modules
        for part in trace.submodules(module)
        if not trace.modules[part].wrapper and trace.modules[part].own_parameters is not False
    ]
    gathered = [part for part in parts if units.may_stay_gathered(part)]
    if not gathered or not left_gathered(units, event, gathered[0]):
        return set()
    return {units.unit(part) for part in gathered}


def _modules(trace: Trace, event: Event) -> list[str]:
    """The modules whose parameters have the state of an event."""
    match event:
        case Fsdp1Used():
            return [event.module] if event.module in trace.modules else []
        case OptimizerBuilt():
            return [module for module in event.modules if module in trace.modules]
        case StateTaken():
            return _updated(trace, event.of)
        case StateLoaded() if event.into in trace.modules:
            return [event.into]
        case StateLoaded():
            return _updated(trace, event.into)
    return []


def _updated(trace: Trace, optimizer: str) -> list[str]:
    return [
        module
        for built in trace.of(OptimizerBuilt)
        if built.optimizer == optimizer
        for module in built.modules
        if module in trace.modules
    ]
