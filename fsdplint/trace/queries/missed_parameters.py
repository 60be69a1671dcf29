"""Parameters of a sharded model that are trained, and that no optimizer gets."""

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
    ParameterPart,
    RequiresGradSet,
    Trace,
    WeightsSet,
)
from fsdplint.trace.groups import Groups


@dataclass(frozen=True)
class Missed:
    """Parameters that no optimizer gets.

    Attributes:
        built: an optimizer of other parameters of the model.
        step: its step.
        model: the model.
        paths: the names of the parameters.
    """

    built: OptimizerBuilt
    step: OptimizerStepped
    model: str
    paths: tuple[str, ...]


def missed_parameters(trace: Trace) -> Iterator[Missed]:
    """The parameters that tests keep out of each of several groups, so that no group has them.

    A program that selects one group, or that leaves out most parameters, may train only these on
    purpose.
    """
    builds = list(trace.of(OptimizerBuilt))
    parts = [part for built in builds for part in built.parts]
    if not trace.complete or len(parts) < 2 or not all(map(_is_known, builds)):
        return
    if any(True for _ in trace.of(ParameterMarked)):
        return  # a hook may update a parameter
    missed = _in_no_part(trace, parts)
    if 2 * len({one.key for one in missed}) > max(part.known for part in parts):
        return
    seen: set[tuple[str, str]] = set()
    for part in sorted(parts, key=lambda one: -one.known):  # the longest names first
        own = {one for one in part.left_out & missed if one.key not in seen}
        own = {one for one in own if _is_trained(trace, one, builds[-1])}
        stepped = _first_step(trace, part.modules, builds)
        if own and stepped is not None:
            seen |= {one.key for one in own}
            yield Missed(*stepped, part.modules[0], tuple(sorted(one.path for one in own)))


def _first_step(
    trace: Trace, modules: tuple[str, ...], builds: list[OptimizerBuilt]
) -> tuple[OptimizerBuilt, OptimizerStepped] | None:
    """The first optimizer of parameters of a model, with a step in the training."""
    for built in builds:
        if any(trace.related(one, other) for one in modules for other in built.modules):
            for step in trace.of(OptimizerStepped):
                if _steps(step, built):
                    return built, step
    return None


def _is_known(built: OptimizerBuilt) -> bool:
    return built.complete and bool(built.parts) and not built.stale and not built.callbacks


def _steps(step: OptimizerStepped, built: OptimizerBuilt) -> bool:
    return step.optimizer == built.optimizer and step.in_loop and not step.callbacks


def _in_no_part(trace: Trace, parts: list[ParameterPart]) -> set[KnownParameter]:
    """The parameters that tests leave out, and that no list of parameters has."""
    candidates = {one for part in parts for one in part.left_out}
    for part in parts:
        covered = set(trace.submodules(*part.modules))
        left_out = {one.key for one in part.left_out}
        candidates = {one for one in candidates if one.owner not in covered or one.key in left_out}
    return candidates


def _is_trained(trace: Trace, parameter: KnownParameter, built: OptimizerBuilt) -> bool:
    """Whether a parameter certainly gets gradients in FSDP2, and nothing else sets it."""
    owner = trace.modules[parameter.owner]
    family = trace.family(parameter.owner)
    if owner.frozen or owner.perhaps_chosen or trace.any_escaped(family, trace.events[-1]):
        return False
    if Groups(trace).owner(parameter.owner) is None:
        return False
    if any(family & set(event.modules) for event in trace.of(RequiresGradSet)):
        return False
    changes = (event for event in trace.after(built, WeightsSet) if not event.same_values)
    if any(not event.modules or family & set(event.modules) for event in changes):
        return False
    calls = (event for event in trace.after(built, Called) if event.module == parameter.owner)
    return any(
        event.grad is GradMode.ON and any(True for _ in trace.after(event, BackwardRun))
        for event in calls
    )
