"""Modules that are put into a model after it was sharded."""

from __future__ import annotations

from fsdplint.trace import (
    BackwardRun,
    Escaped,
    GuardKind,
    ModuleAttached,
    OptimizerBuilt,
    OptimizerStepped,
    ParameterAttached,
    RequiresGradSet,
    Trace,
    first,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by


def _sharded_modules(trace: Trace, shard: Shard) -> set[str]:
    return {part for module in sharded_by(shard) for part in trace.submodules(module)}


def enclosing_shard(groups: Groups, event: ModuleAttached | ParameterAttached) -> Shard | None:
    """What sharded the module, or the nearest one around it, before something was put into it."""
    shards = shard_events(groups.trace, before=event)
    for module in (event.module, *groups.ancestors(event.module)):
        found = first(shard for shard in shards if module in sharded_by(shard))
        if found is not None:
            return found
    return None


def unsharded_new_modules(
    trace: Trace, event: ModuleAttached, *, in_this_run: bool = True
) -> set[str]:
    """The new modules that are trained and that nothing shards, or may shard, afterwards.

    in_this_run: whether only this run counts. Otherwise code out of sight shards nothing, and what
        a setting freezes is trained in another run, which may not have been tried.
    """
    later = [_sharded_modules(trace, shard) for shard in shard_events(trace, after=event)]
    training = next(trace.after(event, BackwardRun), None)
    escaped = [] if training is None or not in_this_run else trace.before(training, Escaped)
    lost = [set(trace.submodules(e.module)) for e in escaped if e.index > event.index]
    removed = set().union(*later, *lost)
    return {
        part
        for part in event.new
        if part not in removed
        and part in trace.modules
        and not (
            trace.modules[part].frozen and (in_this_run or not _is_setting(trace, event, part))
        )
    }


def _is_setting(trace: Trace, event: ModuleAttached, part: str) -> bool:
    """Whether a setting of the program decides that a new module is frozen."""
    return any(
        guard.kind is GuardKind.CONFIG and guard not in event.guards
        for change in trace.after(event, RequiresGradSet)
        if any(part in trace.submodules(module) for module in change.modules)
        for guard in change.guards
    )


def training_optimizer(
    trace: Trace, event: ModuleAttached | ParameterAttached, parts: set[str]
) -> OptimizerBuilt | None:
    """An optimizer that holds and steps one of the modules."""
    for built in trace.after(event, OptimizerBuilt):
        held = {part for module in built.modules for part in trace.submodules(module)}
        stepped = any(
            step.optimizer == built.optimizer for step in trace.after(built, OptimizerStepped)
        )
        if stepped and held & parts and any(True for _ in trace.after(event, BackwardRun)):
            return built
    return None
