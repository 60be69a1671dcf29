"""FSDP136: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, OptimizerStepped, SchedulerBuilt, SchedulerStepped, Trace
from fsdplint.trace.queries.common import is_under_varying_test, optimizer_named, optimizer_of


class SchedulerOfReplacedOptimizer(Rule):
    """A scheduler changes the learning rate of an optimizer other than the one that steps.

    ## What it does
    Finds schedulers of torch over an optimizer that never steps, if another optimizer over the same sharded
    model is built and steps: for example, the optimizer was built again after `fully_shard`, and the
    scheduler was not.

    A scheduler that never steps is fine if a scheduler of the optimizer that steps has replaced it.

    Also finds the scheduler of an optimizer that has stepped and no longer does, if the same code has built another
    optimizer with a scheduler, and the new optimizer steps while its scheduler never does.

    ## Why is this bad?
    The scheduler keeps its optimizer. It changes the learning rate of the old one, and the new one trains
    with its first learning rate for ever. There is no error: after three steps of
    `StepLR(optimizer, 1, gamma=0.5)` the learning rate was 0.1, as at the beginning.

    Build the scheduler after the optimizer that steps.

    ## Since
    All versions.

    ## References
    - https://docs.pytorch.org/docs/stable/optim.html (how to adjust learning rate)
    - FSDP103, whose fix builds the optimizer after the sharding
    """

    code = "FSDP136"
    name = "scheduler-of-replaced-optimizer"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        if not trace.complete:
            return
        seen = set()
        stepping = {event.optimizer for event in trace.of(OptimizerStepped)}
        for event in trace.of(SchedulerBuilt):
            old = optimizer_of(trace, event.optimizer)
            if old is None or event.site in seen or old.optimizer in stepping or not old.complete:
                continue
            new = _successor(trace, old, stepping)
            other = new or _predecessor(trace, old, stepping)
            if other is None or _gave_way(trace, event, other):
                continue
            seen.add(event.site)
            instead = "has replaced it" if new is not None else "over the same model steps"
            yield self.finding(
                event,
                f"this scheduler changes the learning rate of an {optimizer_named(old)} that never steps; "
                f"another optimizer {instead}",
                help="Build the scheduler over the optimizer that steps.",
                because=[(old, "never steps"), (other, "steps instead")],
            )
        for step, built, used in _left_behind(trace):
            if step.site in seen:
                continue
            seen.add(step.site)
            new = optimizer_of(trace, built.optimizer)
            name = optimizer_named(new) if new is not None else "optimizer"
            yield self.finding(
                step,
                f"this changes the learning rate of an {name} that no longer steps; another one has replaced it, and its "
                "scheduler never steps",
                help="Step the scheduler of the optimizer that steps.",
                because=[(built, "this scheduler never steps"), (used, "steps instead")],
            )


def _gave_way(trace: Trace, old: SchedulerBuilt, other: OptimizerBuilt) -> bool:
    """Whether a scheduler never steps, and another one for the optimizer that steps does."""
    steps = list(trace.of(SchedulerStepped))
    if any(one.optimizer == old.optimizer for one in steps):
        return False
    return any(one.optimizer == other.optimizer for one in steps)


def _left_behind(
    trace: Trace,
) -> Iterator[tuple[SchedulerStepped, SchedulerBuilt, OptimizerStepped]]:
    """The steps of schedulers whose optimizers have no step since the same code has built others.

    Also yields the new scheduler, which never steps, and a step of its optimizer before.
    """
    built = [one for one in trace.of(SchedulerBuilt) if one.scheduler and not one.ranks.partial]
    stepped = {one.scheduler for one in trace.of(SchedulerStepped)}
    for new in built:
        if new.scheduler in stepped:
            continue
        old = {one.scheduler: one.optimizer for one in built if _replaces(new, one)}
        after = list(trace.after(new, OptimizerStepped, SchedulerStepped))
        steps = [one for one in after if isinstance(one, OptimizerStepped)]
        if any(one.optimizer in old.values() for one in steps):
            continue
        for event in after:
            if isinstance(event, SchedulerStepped) and event.scheduler in old:
                before = [one for one in steps if one.index < event.index]
                used = [one for one in before if one.optimizer == new.optimizer]
                if used and len(used) == len(before):
                    yield event, new, used[0]


def _replaces(new: SchedulerBuilt, old: SchedulerBuilt) -> bool:
    """Whether one call has built both schedulers, the old one before, for another optimizer."""
    return old.site == new.site and old.index < new.index and old.optimizer != new.optimizer


def _successor(trace: Trace, old: OptimizerBuilt, stepping: set[str]) -> OptimizerBuilt | None:
    """The later optimizer over the same sharded model that steps."""
    for new in trace.after(old, OptimizerBuilt):
        if new.optimizer == old.optimizer:
            return None  # `__init__` was called again
        if is_under_varying_test(new) or new.in_loop:
            return None  # the old one may have trained before
        if new.optimizer in stepping and new.complete and _same_model(trace, old, new):
            return new
    return None


def _predecessor(trace: Trace, old: OptimizerBuilt, stepping: set[str]) -> OptimizerBuilt | None:
    """The earlier optimizer over the same sharded model with whose steps the scheduler steps."""
    steps = [one for one in trace.of(SchedulerStepped) if one.optimizer == old.optimizer]
    if not steps or is_under_varying_test(old) or old.in_loop:
        return None
    for other in trace.before(old, OptimizerBuilt):
        if other.optimizer in stepping and other.complete and _same_model(trace, old, other):
            before = trace.before(steps[-1], OptimizerStepped)
            if any(one.optimizer == other.optimizer and one.index > old.index for one in before):
                return other
    return None


def _same_model(trace: Trace, old: OptimizerBuilt, new: OptimizerBuilt) -> bool:
    """Whether both optimizers have the parameters of one sharded model."""
    return bool(old.modules) and all(
        any(trace.related(module, other) for other in new.modules)
        and any(trace.sharded_within(other) is not None for other in new.modules)
        for module in old.modules
    )
