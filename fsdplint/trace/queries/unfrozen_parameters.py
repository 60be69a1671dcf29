"""Frozen parameters that get gradients after the optimizer was built, and that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Called,
    GradMode,
    KnownParameter,
    OptimizerBuilt,
    OptimizerStepped,
    ParameterMarked,
    RequiresGradSet,
    Trace,
    WeightsSet,
)
from fsdplint.trace.groups import Groups


@dataclass(frozen=True)
class UnfrozenParameters:
    """Parameters that are trained and that no optimizer has.

    Attributes:
        change: where they get `requires_grad`.
        built: an optimizer of other parameters of the model, from before.
        step: a step of it after a backward pass that gives them gradients.
        parameters: the parameters.
    """

    change: RequiresGradSet
    built: OptimizerBuilt
    step: OptimizerStepped
    parameters: tuple[KnownParameter, ...]


def unfrozen_parameters(trace: Trace) -> Iterator[UnfrozenParameters]:
    """The parameters that are unfrozen for no optimizer."""
    builds = list(trace.of(OptimizerBuilt))
    if not trace.complete or not builds or any(True for _ in trace.of(ParameterMarked)):
        return
    if not all(map(_is_known, builds)):
        return
    held = [(one, set(trace.submodules(*one.modules))) for one in builds]
    for change in trace.of(RequiresGradSet):
        if change.ranks.partial or change.callbacks:
            continue
        found: dict[int, list[KnownParameter]] = {}
        for parameter in change.unfrozen_parameters:
            if any(_has(built, modules, parameter) for built, modules in held):
                continue
            after = _step_after(trace, change, parameter)
            if after is not None:
                found.setdefault(after.index, []).append(parameter)
        for index, parameters in found.items():
            step = trace.events[index]
            assert isinstance(step, OptimizerStepped)
            built = next((one for one in builds if one.optimizer == step.optimizer), None)
            if built is not None and built.index < change.index:
                ordered = sorted(parameters, key=lambda one: one.path)
                yield UnfrozenParameters(change, built, step, tuple(ordered))


def _is_known(built: OptimizerBuilt) -> bool:
    doubtful = built.stale or built.callbacks or built.regrouped
    return built.complete and bool(built.modules) and not doubtful


def _has(built: OptimizerBuilt, modules: set[str], parameter: KnownParameter) -> bool:
    return parameter.owner in modules and all(one.key != parameter.key for one in built.lacks)


def _step_after(
    trace: Trace, change: RequiresGradSet, parameter: KnownParameter
) -> OptimizerStepped | None:
    """The first step after a backward pass that certainly gives a parameter a gradient.

    None if the program may set the parameter by other means.
    """
    family = trace.family(parameter.owner)
    if trace.any_escaped(family, trace.events[-1]):
        return None
    if Groups(trace).owner(parameter.owner) is None:
        return None
    if any(not one.modules or family & set(one.modules) for one in trace.after(change, WeightsSet)):
        return None
    called = backward = False
    for event in trace.events[change.index + 1 :]:
        if isinstance(event, RequiresGradSet) and family & set(event.modules):
            return None
        if isinstance(event, Called) and event.module == parameter.owner:
            called = called or event.grad is GradMode.ON
        elif isinstance(event, BackwardRun):
            backward = backward or called
        elif isinstance(event, OptimizerStepped) and backward:
            return event if event.in_loop and _trains(trace, event, parameter) else None
    return None


def _trains(trace: Trace, step: OptimizerStepped, parameter: KnownParameter) -> bool:
    """Whether an optimizer has other parameters of the same model."""
    around = {parameter.owner, *trace.ancestors(parameter.owner)}
    built = (one for one in trace.of(OptimizerBuilt) if one.optimizer == step.optimizer)
    return any(
        around & {module, *trace.ancestors(module)} for one in built for module in one.modules
    )
