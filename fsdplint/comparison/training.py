"""What a run trains with: optimizers, the order of a step, clipping, accumulation, scalers."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.comparison.facts import Plan
from fsdplint.comparison.model_names import ModelNames
from fsdplint.comparison.steps import add_steps
from fsdplint.trace import (
    BackwardRun,
    Called,
    Clipped,
    Event,
    GradMode,
    GuardKind,
    OptimizerBuilt,
    OptimizerStepped,
    ScalerBuilt,
    ScalerStepped,
    SchedulerBuilt,
    SchedulerStepped,
    SyncSwitched,
    Trace,
    Wrapped,
)
from fsdplint.trace.arguments import Argument, Arguments, Built, Constant, Opaque, PartOfModel
from fsdplint.trace.groups import Groups, shard_events

# How an optimizer computes, not what.
_SPEED = {"foreach", "fused", "capturable", "differentiable"}
_POSITIONS = {"1": "lr"}
_UNSHARDED = {"ignored", "params", "0"}
_METHOD = ("max_norm", "norm_type")
_FUNCTION = ("parameters", "max_norm", "norm_type")
_BY_VALUE = ("parameters", "clip_value")
_NO_SYNC = ("no_sync", "set_requires_gradient_sync")
_REDUCTION = "reduction of gradients"
_ENABLED = "enabled"


def add_training(plan: Plan, trace: Trace, names: ModelNames) -> None:
    """Add the facts about training."""
    _add_optimizers(plan, trace, names)
    _add_clipping(plan, trace, names)
    _add_accumulation(plan, trace, names)
    _add_schedulers(plan, trace)
    _add_scheduler_steps(plan, trace)
    _add_scalers(plan, trace)
    _add_order(plan, trace)
    add_steps(plan, trace)


# Optimizers ---------------------------------------------------------------------------------------


def _add_optimizers(plan: Plan, trace: Trace, names: ModelNames) -> None:
    numbers: dict[str, int] = {}
    groups = Groups(trace)
    for event in trace.of(OptimizerBuilt):
        number = numbers.setdefault(event.optimizer, len(numbers) + 1)
        subject = "" if number == 1 else f"optimizer {number}"
        plan.add("optimizer", subject, event.class_name, event)
        parts = PartOfModel(tuple(sorted(map(names.path, event.modules))), event.complete)
        if event.modules:
            plan.add("parameters of the optimizer", subject, parts, event)
        else:
            plan.gaps["parameters of the optimizer"] = "the parameters are unknown"
        given = trace.arguments.get(event.index, Arguments(complete=False))
        for name, value in given.given.items():
            name = _POSITIONS.get(name, name)
            if name not in _UNSHARDED | _SPEED:
                plan.add(f"optimizer {name}", subject, value, event)
        if not given.complete:
            plan.gaps["optimizer "] = "an argument of the optimizer is unknown"
        _add_parameter_groups(plan, given, subject, event)
        later = shard_events(trace, after=event)
        late = [one for one in later if groups.replaces(one, event.modules)]
        # The optimizer of FSDP1 has no effect then. A migration builds it where it has one.
        useless = bool(late) and all(isinstance(one, Wrapped) for one in late)
        intended = Constant("after sharding") if useless else None
        when = "before sharding" if late else "after sharding"
        plan.add("optimizer is built", subject, when, event, intended)


def _add_parameter_groups(
    plan: Plan, given: Arguments, subject: str, event: OptimizerBuilt
) -> None:
    """The settings of groups, where a list of them is known."""
    params = given.get("params", "0")
    if isinstance(params, PartOfModel):
        plan.add("number of parameter groups", subject, 1, event)
    elif not isinstance(params, Built):
        plan.gaps["number of parameter groups"] = "the parameters are unknown"
    if not isinstance(params, Built) or not params.items:
        return
    for number, part in params.items:
        if not isinstance(part, Built) or part.name != "dict":
            return
        group = f"{subject} group {int(number) + 1}".strip()
        for name, value in part.items:
            if name not in ("params", "param_names"):
                plan.add(f"optimizer {name}", group, value, event)
    plan.add("number of parameter groups", subject, len(params.items), event)


# Steps --------------------------------------------------------------------------------------------


def _add_clipping(plan: Plan, trace: Trace, names: ModelNames) -> None:
    for event in trace.of(Clipped):
        if event.modules:
            clipped = ", ".join(sorted(map(names.path, event.modules)))
            plan.add("parameters that are clipped", "", clipped, event)
        else:
            plan.gaps["parameters that are clipped"] = "the parameters are unknown"
        given = trace.arguments.get(event.index)
        plan.add("gradient clipping", "", "by norm" if event.by_norm else "by value", event)
        bound, norm = _bound_of(event, given)
        plan.add("clipping bound", "", bound, event)
        plan.add("norm of clipping", "", norm, event)


def _bound_of(event: Clipped, given: Arguments | None) -> tuple[Argument, Argument]:
    """The bound, and the kind of norm."""
    if given is None:
        known = event.max_norm != "?" and not isinstance(event.max_norm, str)
        return (Constant(event.max_norm) if known else Opaque()), Opaque()
    names = (_METHOD if event.api == "method" else _FUNCTION) if event.by_norm else _BY_VALUE
    named = {
        names[int(name)] if name.isdecimal() and int(name) < len(names) else name: value
        for name, value in given.given.items()
    }
    found = Arguments(named, given.complete)
    bound = found.get("max_norm" if event.by_norm else "clip_value") or Opaque()
    return bound, _number(found.get("norm_type") or Constant(2.0))


def _number(value: Argument) -> Argument:
    """A norm as a number: `2` and `2.0` are the same norm, and so are "inf" and `math.inf`."""
    if isinstance(value, Constant) and isinstance(value.value, str | int | float):
        try:
            return Constant(float(value.value))
        except ValueError:
            return value
    return value


def _add_accumulation(plan: Plan, trace: Trace, names: ModelNames) -> None:
    found = [one for one in trace.of(SyncSwitched) if one.api in _NO_SYNC]
    switches = [one for one in found if not _is_of_unknown(one, names)]
    unknown = next((one for one in found if one not in switches), None)
    if unknown is not None:
        line = unknown.site.location().line
        plan.gaps[_REDUCTION] = f"the model in line {line} could not be followed"
    pausing = [one for one in switches if one.api == "no_sync" or one.enabled is not True]
    if not pausing:
        return
    resuming = any(one.api == "no_sync" or one.enabled is not False for one in switches)
    value = "paused for some passes" if resuming else "never done"
    whole = [one for one in pausing if not _pauses_a_part(trace, one, names)]
    plan.add(f"{_REDUCTION} is paused for", "", "all units" if whole else "some", pausing[0])
    is_known = resuming or unknown is None  # what is unknown may resume it
    plan.add(_REDUCTION, "", value if is_known else Opaque(code=value), pausing[0])
    if unknown is None and _pauses_last(trace, switches):
        plan.add(f"{_REDUCTION} in the last pass of a step", "", "paused", pausing[0])


def _pauses_a_part(trace: Trace, switch: SyncSwitched, names: ModelNames) -> bool:
    """Whether a switch certainly leaves units of its model as they are."""
    given = trace.arguments.get(switch.index, Arguments()).get("recurse", "1")
    return given == Constant(False) or names.root(switch.module) != trace.unwrap(switch.module)


def _is_of_unknown(switch: SyncSwitched, names: ModelNames) -> bool:
    """Whether the model of a switch is the result of code out of sight, which no call shards."""
    if switch.module not in names.trace.modules:
        return True
    root = names.root(switch.module)
    return root not in names.sharded_models and names.is_opaque(root)


def _pauses_last(trace: Trace, switches: Sequence[SyncSwitched]) -> bool:
    """Whether a switch of FSDP2 certainly pauses the last pass before a step, and not all passes.

    FSDP1's `no_sync` is a block, and FSDP1 reduces in the pass after it.
    """
    known = all(
        one.api != "no_sync"
        and one.enabled is not None
        and all(guard.kind is GuardKind.CONFIG for guard in one.guards)
        for one in switches
    )
    if not known or not switches:
        return False
    reducing = True
    last: bool | None = None
    for event in trace:
        if isinstance(event, SyncSwitched) and event.api in _NO_SYNC:
            reducing = event.enabled is True
        elif isinstance(event, BackwardRun):
            last = reducing
        elif isinstance(event, OptimizerStepped) and last is not None:
            return not last
    return False


def _add_schedulers(plan: Plan, trace: Trace) -> None:
    for event in trace.of(SchedulerBuilt):
        plan.add("learning rate scheduler", "", "built", event)
        given = trace.arguments.get(event.index, Arguments())
        for name, argument in given.given.items():
            if name not in ("optimizer", "0"):
                plan.add(f"scheduler {name}", "", argument, event)


def _add_scheduler_steps(plan: Plan, trace: Trace) -> None:
    """Whether the loop of the training changes the learning rate by a scheduler."""
    stepped = next((event for event in trace.of(SchedulerStepped) if event.in_loop), None)
    if stepped is not None:
        plan.add("learning rate scheduler steps", "", "in the loop", stepped)


def _add_scalers(plan: Plan, trace: Trace) -> None:
    for event in trace.of(ScalerBuilt):
        enabled = event.enabled
        plan.add("gradient scaler", "", "built", event)
        value = Opaque(_ENABLED) if enabled is None else Constant(enabled)
        plan.add("gradient scaler enabled", "", value, event)
        given = trace.arguments.get(event.index, Arguments())
        for name, argument in given.given.items():
            if not name.isdecimal() and name not in ("device", "enabled", "process_group"):
                plan.add(f"gradient scaler {name}", "", argument, event)


def _add_order(plan: Plan, trace: Trace) -> None:
    """Add the parts of a step in the order of their first execution."""
    order: list[str] = []
    first: Event | None = None
    for event in trace:
        name = _step_part(event)
        if name and name not in order:
            first = first or event
            order.append(name)
        if isinstance(event, OptimizerStepped | ScalerStepped) and "backward" in order:
            break
    if first is not None and "optimizer step" in order:
        text = ", ".join(order)
        known = order[0] == "forward"  # what comes before it could not be followed
        plan.add("order of a step", "", text if known else Opaque(code=text), first)


def _step_part(event: Event) -> str:
    match event:
        case Called(inside=None, grad=GradMode.ON):
            return "forward"
        case BackwardRun():
            return "backward"
        case Clipped():
            return "clipping"
        case OptimizerStepped() | ScalerStepped():
            return "optimizer step"
    return ""
