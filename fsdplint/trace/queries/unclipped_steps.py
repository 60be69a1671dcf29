"""Steps whose gradients are not clipped, because the clipping gets another model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Called,
    Clipped,
    GradMode,
    OptimizerBuilt,
    OptimizerStepped,
    Trace,
    WeightsSet,
)
from fsdplint.trace.queries.clipping import turns_of


@dataclass(frozen=True)
class Unclipped:
    """A clipping that gets another model than the step after it.

    Attributes:
        clipped: the clipping.
        backward: the backward pass before it.
        step: the step after it.
        other: a module that it gets.
        trained: a sharded module of the step's optimizer.
    """

    clipped: Clipped
    backward: BackwardRun
    step: OptimizerStepped
    other: str
    trained: str


def steps_without_clipping(trace: Trace) -> Iterator[Unclipped]:
    """Each clipping of an untrained model between a backward pass and the step of a sharded one."""
    if not trace.complete:
        return
    for clipped in trace.of(Clipped):
        if clipped.max_norm == float("inf") or clipped.ranks.partial:
            continue
        around = _around(trace, clipped)
        if around is None:
            continue
        backward, step = around
        if not _is_untrained(trace, clipped, step):
            continue
        trained = _module_of(trace, step)
        if trained is not None:
            yield Unclipped(clipped, backward, step, clipped.modules[0], trained)


def _around(trace: Trace, clipped: Clipped) -> tuple[BackwardRun, OptimizerStepped] | None:
    """The backward pass and the step around a clipping, if nothing else is clipped between them."""
    last = None
    for event in trace.before(clipped, BackwardRun, OptimizerStepped, Clipped):
        last = event
    if not isinstance(last, BackwardRun):
        return None
    for event in trace.after(clipped, BackwardRun, OptimizerStepped, Clipped):
        if not isinstance(event, OptimizerStepped) or event.callbacks != clipped.callbacks:
            return None
        same = turns_of(clipped) == turns_of(event) and last.callbacks == clipped.callbacks
        return (last, event) if same else None
    return None


def _is_untrained(trace: Trace, clipped: Clipped, step: OptimizerStepped) -> bool:
    """Whether no optimizer of the program has the clipped parameters.

    They have no gradients, or the optimizer of the step is one of two for another model.
    """
    parts = set(trace.submodules(*clipped.modules))
    if not clipped.modules or any(trace.family_escaped(module) for module in clipped.modules):
        return False
    for built in trace.of(OptimizerBuilt):
        if not built.complete or not built.modules or parts & set(_of(trace, built)):
            return False
    own = [trace.modules[part] for part in parts]
    frozen = all(one.frozen for one in own if one.own_parameters is not False)
    calls = [one for one in trace.of(Called) if one.module in parts]
    off = bool(calls) and all(one.grad is not GradMode.ON for one in calls)
    return (
        (frozen and all(one.children_known for one in own)) or off or _is_other(trace, step, parts)
    )


def _is_other(trace: Trace, step: OptimizerStepped, parts: set[str]) -> bool:
    """Whether two optimizers certainly have the parameters of the same models, and both step.

    parts: the clipped modules, whose weights nothing else sets.
    """
    own = [built for built in trace.of(OptimizerBuilt) if built.optimizer == step.optimizer]
    stepped = {one.optimizer for one in trace.of(OptimizerStepped)} - {step.optimizer}
    others = [built for built in trace.of(OptimizerBuilt) if built.optimizer in stepped]
    if len(own) != 1 or not any(set(built.modules) == set(own[0].modules) for built in others):
        return False
    edits = [one for one in trace.of(WeightsSet) if one.index > own[0].index]
    return not any(not one.modules or parts & set(one.modules) for one in edits)


def _of(trace: Trace, built: OptimizerBuilt) -> list[str]:
    """The modules whose parameters an optimizer has, their parts and what they are parts of."""
    above = [one for module in built.modules for one in trace.ancestors(module)]
    return [*trace.submodules(*built.modules), *above]


def _module_of(trace: Trace, step: OptimizerStepped) -> str | None:
    """A sharded module that an optimizer trains."""
    for built in trace.before(step, OptimizerBuilt):
        if built.optimizer != step.optimizer:
            continue
        for module in built.modules:
            if trace.sharded_within(module, step) is not None:
                return module
    return None
