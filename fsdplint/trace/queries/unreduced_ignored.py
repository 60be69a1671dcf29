"""Ignored parameters that the program trains without reducing their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Collective,
    Event,
    Loaded,
    MeshBuilt,
    OptimizerBuilt,
    OptimizerStepped,
    ParameterMarked,
    Seeded,
    StateLoaded,
    TensorParallel,
    Trace,
    WeightsSet,
)
from fsdplint.trace.groups import Shard, shard_events
from fsdplint.trace.queries.data_parallelism import is_of_data

_WITHOUT_TENSORS = ("barrier", "monitored_barrier")


@dataclass(frozen=True)
class Unreduced:
    """Ignored parameters that each rank trains for itself.

    Attributes:
        shard: the sharding that ignores them.
        module: the module that has them.
        step: the step that trains them.
    """

    shard: Shard
    module: str
    step: OptimizerStepped


def unreduced_ignored(trace: Trace) -> Iterator[Unreduced]:
    """The ignored modules that start equal on all ranks and then are trained on each by itself.

    Nothing is found in a program that may reduce or exchange them somehow: by hooks, by other
    groups of ranks, or from time to time.
    """
    if not trace.complete or any(True for _ in trace.of(ParameterMarked, TensorParallel)):
        return
    if not all(is_of_data(trace, mesh) for mesh in trace.of(MeshBuilt)):
        return
    if any(one.api == "new_group" or "all_to_all" in one.api for one in trace.of(Collective)):
        return
    seen: set[str] = set()
    for shard in shard_events(trace):
        seeds = [event.per_rank for event in trace.before(shard, Seeded)]
        for module in shard.ignored:
            sent = _sent_from_one_rank(trace, module, shard)
            step = _step(trace, module, sent)
            equal = sent is not None or seeds[-1:] == [False]
            if step is not None and equal and not shard.ranks.partial and module not in seen:
                seen.add(module)
                yield Unreduced(shard, module, step)


def _sent_from_one_rank(trace: Trace, module: str, shard: Shard) -> WeightsSet | None:
    """The last broadcast of all parameters of a module to all ranks before its sharding."""
    sites = {
        one.site
        for one in trace.before(shard, Collective)
        if one.api == "broadcast" and one.collective and not one.ranks.partial
    }
    found = [
        one
        for one in trace.before(shard, WeightsSet)
        if one.site in sites
        and not one.ranks.partial
        and any(trace.contains(holder, module) for holder in one.modules)
        and not any(guard.of_tensor for guard in one.guards)
    ]
    return found[-1] if found else None


def _step(trace: Trace, module: str, sent: WeightsSet | None) -> OptimizerStepped | None:
    """A step that trains a module without a reduction before it; None if there may be one."""
    parts = _trained_parts(trace, module)
    steps = [one for one in trace.of(OptimizerStepped) if _holds(trace, one, parts)]
    if not parts or not steps or _may_be_set(trace, parts, steps[-1], sent):
        return None
    if trace.any_escaped(trace.family(module), steps[-1]) or _is_replicated(trace, module):
        return None
    if any(one.ranks.partial or one.callbacks for one in steps):
        return None
    if not all(_follows_backward(trace, one) for one in steps):
        return None
    return next((one for one in steps if one.in_loop), None)  # a single step is a trial


def _trained_parts(trace: Trace, module: str) -> set[str]:
    """The parts of a module with own parameters that are certainly not frozen."""
    parts = trace.submodules(module)
    if not all(trace.modules[part].children_known for part in parts):
        return set()
    return {
        part
        for part in parts
        if trace.modules[part].own_parameters is True and not trace.modules[part].frozen
    }


def _holds(trace: Trace, step: OptimizerStepped, parts: set[str]) -> bool:
    for built in trace.before(step, OptimizerBuilt):
        if built.optimizer == step.optimizer and built.complete and not built.selected_by_name:
            return bool(parts & _modules_of(trace, built))
    return False


def _modules_of(trace: Trace, built: OptimizerBuilt) -> set[str]:
    """The modules of which an optimizer may have parameters."""
    if not built.parts:
        return set(trace.submodules(*built.modules))
    return {
        module
        for part in built.parts
        for module in set(trace.submodules(*part.modules)) - {one.owner for one in part.left_out}
    }


def _may_be_set(
    trace: Trace, parts: set[str], last: OptimizerStepped, sent: WeightsSet | None
) -> bool:
    """Whether the parameters get values other than by steps, as by an average from time to time.

    What they have before rank 0 sends its own does not count, and neither do changes during a
    training in which no rank gets tensors of another one.
    """
    begin = sent.index if sent is not None else -1
    started = next(trace.of(BackwardRun), last)
    exchanges = _exchanges(trace, started)
    return any(
        not event.modules or parts & set(trace.submodules(*event.modules))
        for event in trace.before(last, WeightsSet)
        if not event.same_values
        and event.index > begin
        and (event.index < started.index or exchanges)
    )


def _exchanges(trace: Trace, started: Event) -> bool:
    """Whether a rank may get a tensor of another one after an event, directly or in a file."""
    for event in trace.after(started, Collective, Loaded, StateLoaded):
        if not isinstance(event, Collective):
            return True
        if event.api not in _WITHOUT_TENSORS and not event.of_metric:
            return True
    return False


def _is_replicated(trace: Trace, module: str) -> bool:
    """Whether DDP may reduce the gradients of a module."""
    family = trace.family(module)
    return any(
        info.wrapper == "ddp" and (name in family or info.inner in family)
        for name, info in trace.modules.items()
    )


def _follows_backward(trace: Trace, step: OptimizerStepped) -> bool:
    """Whether a backward pass comes before a step, and no reduction of gradients between them."""
    after = False
    for event in trace.before(step, BackwardRun, Collective):
        if isinstance(event, BackwardRun):
            after = True
        elif isinstance(event, Collective) and not event.of_metric:
            after = False
    return after
