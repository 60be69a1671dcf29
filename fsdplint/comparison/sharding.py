"""What a run shards, and how."""

from __future__ import annotations

from fsdplint.comparison.facts import Plan
from fsdplint.comparison.model_names import ModelNames
from fsdplint.comparison.options import Options, of_fsdp1, of_fsdp2
from fsdplint.comparison.states import RANK_0
from fsdplint.trace import (
    Checkpointed,
    Compiled,
    Event,
    MeshBuilt,
    ModuleMoved,
    RequiresGradSet,
    Sharded,
    Trace,
    WeightsSet,
    Wrapped,
)
from fsdplint.trace.arguments import Argument, Arguments, Built, Constant, OneOf, Opaque
from fsdplint.trace.groups import shard_events, sharded_by, shards_unknown_part

UNIT = "unit"


def add_sharding(plan: Plan, trace: Trace, names: ModelNames) -> None:
    """Add what is sharded, checkpointed, compiled and frozen."""
    _add_units(plan, trace, names)
    for event in trace.of(Checkpointed):
        _add_part(plan, names, "activation checkpointing", event.module, event)
    for compiled in trace.of(Compiled):
        _add_part(plan, names, "torch.compile", compiled.module, compiled)
    for frozen in trace.of(RequiresGradSet):
        given = trace.arguments.get(frozen.index, Arguments()).get("requires_grad", "0")
        for module in frozen.modules:
            _add_part(plan, names, "requires_grad is set", module, frozen)
            if given is not None and module in trace.modules:
                plan.add("requires_grad", names.path(module), given, frozen)
    for moved in trace.of(ModuleMoved):
        if moved.dtype is not None and moved.module in trace.modules:
            plan.add("cast of a module", names.path(moved.module), _dtype(moved.dtype), moved)


def _dtype(name: str) -> Argument:
    return Constant(name) if name.startswith("torch.") else Opaque(code=name)


def _add_part(plan: Plan, names: ModelNames, topic: str, module: str, event: Event) -> None:
    if module not in names.trace.modules:
        return
    if names.is_opaque(names.root(module)):
        plan.gaps[topic] = "a part of the model is unknown"
    plan.add(topic, names.path(module), "yes", event)


def _add_units(plan: Plan, trace: Trace, names: ModelNames) -> None:
    if shards_unknown_part(trace):
        plan.gaps[UNIT] = "a part of the model that is sharded is unknown"
    sharded = shard_events(trace)
    for event in sharded:
        if isinstance(event, Wrapped):
            if event.units is None:
                plan.gaps[UNIT] = "the wrap policy is unknown"
            elif names.is_opaque(event.inner):
                plan.gaps[UNIT] = "a part of the model is unknown"
        elif any(map(names.is_opaque, sharded_by(event))):
            plan.gaps.setdefault(UNIT, "a part of the model is unknown")
    inside = sharded_units(trace)
    paths = {unit: names.path(unit) for unit in inside}
    for unit, path in paths.items():
        event = inside[unit]
        root = not any(path.startswith(f"{other}.") for other in paths.values())
        plan.add(UNIT, path, "sharded", event)
        for option, value in unit_options(trace, event, root=root).items():
            plan.add(option, path, value, event)
    _add_groups(plan, trace, names)
    _add_same_weights(plan, trace, sharded)


def sharded_units(trace: Trace) -> dict[str, Wrapped | Sharded]:
    """The modules that are sharded by themselves, each with the event that shards it."""
    found: dict[str, Wrapped | Sharded] = {}
    for event in shard_events(trace):
        if isinstance(event, Wrapped):
            found.update(dict.fromkeys((*(event.units or ()), event.inner), event))
        else:
            found.update(dict.fromkeys(sharded_by(event), event))
    return {unit: event for unit, event in found.items() if unit in trace.modules}


def unit_options(trace: Trace, event: Wrapped | Sharded, *, root: bool) -> Options:
    """The options of a unit that an event shards. root: whether it is in no other unit."""
    given = trace.arguments.get(event.index, Arguments(complete=False))
    given = _with_mesh(trace, event, given)
    return (of_fsdp1 if isinstance(event, Wrapped) else of_fsdp2)(given, root=root)


def _with_mesh(trace: Trace, event: Wrapped | Sharded, given: Arguments) -> Arguments:
    """The arguments with the shape of the mesh that they name."""
    mesh = next((one for one in trace.of(MeshBuilt) if one.mesh and one.mesh == event.mesh), None)
    if mesh is None:
        return given
    described = trace.arguments.get(mesh.index)
    if described is None:
        return given
    built = Built("torch.init_device_mesh", tuple(described.given.items()), described.complete)
    name = "device_mesh" if isinstance(event, Wrapped) else "mesh"
    return Arguments({**given.given, name: built}, given.complete)


def _add_groups(plan: Plan, trace: Trace, names: ModelNames) -> None:
    for event in trace.of(Sharded):
        if len(event.group) > 1:
            members = ", ".join(sorted(map(names.path, event.group)))
            plan.add("modules in one group", members, "yes", event)


def _add_same_weights(plan: Plan, trace: Trace, sharded: list[Wrapped | Sharded]) -> None:
    """Whether all ranks get the weights of rank 0."""
    for event in sharded:
        if isinstance(event, Wrapped):
            given = trace.arguments.get(event.index, Arguments()).get("sync_module_states", "10")
            if given == Constant(True):
                plan.add(RANK_0, "", "yes", event)
    if any(isinstance(one, Sharded) for one in sharded):
        for weights in trace.of(WeightsSet):
            plan.add(RANK_0, "", OneOf((Constant("yes"), Constant("no"))), weights)
