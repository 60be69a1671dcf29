"""What a run shards, and how."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

import libcst as cst

from fsdplint.comparison.facts import Plan
from fsdplint.comparison.model_names import ModelNames
from fsdplint.comparison.module_selection import list_part, selection_test
from fsdplint.comparison.options import (
    Options,
    against_strategies,
    of_fsdp1,
    of_fsdp2,
    strategy_of,
)
from fsdplint.comparison.states import RANK_0
from fsdplint.comparison.strategies import allowed_strategies, conditions_of
from fsdplint.comparison.unit_classes import unit_classes
from fsdplint.migration.names import STRATEGIES
from fsdplint.source.source import NodeSite
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
from fsdplint.trace.arguments import (
    MESH_PART,
    Argument,
    Arguments,
    Built,
    Constant,
    OneOf,
    Opaque,
    PartOfModel,
)
from fsdplint.trace.groups import shard_events, sharded_by, shards_unknown_part
from fsdplint.trace.queries.meta_modules import wrapped_on_meta

UNIT = "unit"
CAST = "cast of a module"
UNKNOWN_MODEL = "a part of the model is unknown"
UNKNOWN_PART = ".*"  # the end of the path of some part of a model


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
            if given is None or module not in trace.modules:
                continue
            if not _is_model(frozen, given):
                plan.add("requires_grad", names.path(module), given, frozen)
    for moved in trace.of(ModuleMoved):
        if moved.dtype is not None and moved.module in trace.modules:
            plan.add(CAST, names.path(moved.module), _dtype(moved.dtype), moved)
    for wrapped in trace.of(Wrapped):
        if "param_init_fn" in trace.arguments.get(wrapped.index, Arguments()).given:
            plan.gaps[CAST] = "`param_init_fn` may cast the modules"


def _is_model(frozen: RequiresGradSet, given: Argument) -> bool:
    """Whether what a call gets first is the model: other functions freeze one, too."""
    node = frozen.site.node if isinstance(frozen.site, NodeSite) else None
    method = node.func if isinstance(node, cst.Call) else None
    of_module = isinstance(method, cst.Attribute) and method.attr.value == "requires_grad_"
    return isinstance(given, PartOfModel) or (method is not None and not of_module)


def _dtype(name: str) -> Argument:
    return Constant(name) if name.startswith("torch.") else Opaque(code=name)


def _add_part(plan: Plan, names: ModelNames, topic: str, module: str, event: Event) -> None:
    if module not in names.trace.modules:
        return
    if names.is_opaque(names.root(module)):
        plan.gaps[topic] = UNKNOWN_MODEL
    plan.add(topic, names.path(module), "yes", event)


def _add_units(plan: Plan, trace: Trace, names: ModelNames) -> None:
    if shards_unknown_part(trace):
        plan.gaps[UNIT] = "a part of the model that is sharded is unknown"
    sharded = shard_events(trace)
    for event in sharded:
        if isinstance(event, Wrapped):
            if event.units is None:
                unknown = names.is_opaque(event.inner)
                plan.gaps[UNIT] = UNKNOWN_MODEL if unknown else "the wrap policy is unknown"
            elif names.is_opaque(event.inner):
                plan.gaps[UNIT] = UNKNOWN_MODEL
        elif any(map(names.is_opaque, sharded_by(event))):
            plan.gaps.setdefault(UNIT, UNKNOWN_MODEL)
    inside = sharded_units(trace)
    strategies = allowed_strategies(conditions_of(trace))
    taken = _takes_modules(trace, inside.values())
    paths = {unit: names.path(unit) for unit in inside}
    roots = {path for path in paths.values() if not _is_inside(path, paths.values())}
    # Nothing is gathered for an inner unit without parameters, or reduced.
    paths = {
        unit: path
        for unit, path in paths.items()
        if path in roots or not _is_empty(trace, unit, inside)
    }
    by_class = unit_classes(plan, trace, names, sharded)
    for unit, path in paths.items():
        event = inside[unit]
        root = path in roots
        if not (path.endswith(UNKNOWN_PART) and any(event is one for _, one in by_class)):
            plan.add(UNIT, path, taken[event.index], event)
        options = unit_options(trace, event, unit, root=root, strategies=strategies)
        if isinstance(event, Sharded):
            for text in against_strategies(options, strategies or (), root=root):
                plan.add(f"{text} under {' or '.join(strategies or ())}", path, "yes", event)
        for option, value in options.items():
            plan.add(option, path, value, event)
    for name, event in by_class:
        options = unit_options(trace, event, "", root=False, strategies=strategies)
        for option, value in options.items():
            plan.add(option, f"each {name}", value, event)
    _add_groups(plan, trace, names)
    _add_same_weights(plan, trace, sharded)


def _is_inside(path: str, others: Iterable[str]) -> bool:
    return any(path.startswith(f"{other}.") for other in others)


def _is_empty(trace: Trace, unit: str, units: Container[str]) -> bool:
    """Whether all parameters in a module, if there are any, certainly are those of other units."""
    seen: set[str] = set()
    todo = [unit]
    while todo:
        current = todo.pop()
        info = trace.modules.get(current)
        if info is None or info.own_parameters is not False or not info.children_known:
            return False
        seen.add(current)
        below = [*info.children.values(), *([info.inner] if info.inner is not None else [])]
        todo += [one for one in below if one not in units and one not in seen]
    return True


def sharded_units(trace: Trace) -> dict[str, Wrapped | Sharded]:
    """The modules that are sharded by themselves, each with the event that shards it."""
    found: dict[str, Wrapped | Sharded] = {}
    for event in shard_events(trace):
        if isinstance(event, Wrapped):
            found.update(dict.fromkeys((*(event.units or ()), event.inner), event))
        else:
            found.update(dict.fromkeys(sharded_by(event), event))
    return {unit: event for unit, event in found.items() if unit in trace.modules}


def unit_options(
    trace: Trace,
    event: Wrapped | Sharded,
    unit: str,
    *,
    root: bool,
    strategies: Sequence[str] | None = None,
) -> Options:
    """The options of a unit that an event shards.

    root: whether it is in no other unit. strategies: those that the run may have; None for any.
    """
    given = trace.arguments.get(event.index, Arguments(complete=False))
    given = trace.unit_arguments.get((event.index, unit), given)
    given = _with_mesh(trace, event, given)
    if isinstance(event, Wrapped):
        return of_fsdp1(given, root=root, possible=strategies)
    return of_fsdp2(given, root=root)


def strategies_of(trace: Trace) -> frozenset[str]:
    """The strategies that the shardings of a run may have; all of them if nothing is known."""
    may_be = allowed_strategies(conditions_of(trace)) or STRATEGIES
    found: set[str] = set()
    for event in shard_events(trace):
        given = trace.arguments.get(event.index, Arguments(complete=False))
        strategy = strategy_of(given) if isinstance(event, Wrapped) else None
        found.update(may_be if strategy is None else (strategy,))
    return frozenset(found or STRATEGIES)


def _takes_modules(trace: Trace, events: Collection[Wrapped | Sharded]) -> dict[int, Argument]:
    """By the index of each sharding, whether it takes each module that it may get.

    Several shardings of parts of lists may take all elements together.
    """
    parts = {event.index: one for event in events if (one := list_part(trace, event)) is not None}
    in_one_list = len({site.node for site, _ in parts.values()}) == 1
    found: dict[int, Argument] = {}
    for event in events:
        if event.index in parts:
            found[event.index] = parts[event.index][1] if in_one_list else Opaque()
        else:
            selected = selection_test(event) is not None
            found[event.index] = Opaque() if selected else Constant("sharded")
    return found


def _with_mesh(trace: Trace, event: Wrapped | Sharded, given: Arguments) -> Arguments:
    """The arguments with the shape of the mesh that they name."""
    name = "device_mesh" if isinstance(event, Wrapped) else "mesh"
    mesh = given.given.get(name)
    if isinstance(mesh, Built):
        return Arguments({**given.given, name: _described_mesh(trace, mesh)}, given.complete)
    return given


def _described_mesh(trace: Trace, mesh: Built) -> Built:
    """A mesh, or the mesh that it is a part of, with its shape."""
    if mesh.name == MESH_PART:
        items = (
            (n, _described_mesh(trace, x) if isinstance(x, Built) else x) for n, x in mesh.items
        )
        return Built(mesh.name, tuple(items), mesh.complete)
    made = mesh.get("id")
    built = next((one for one in trace.of(MeshBuilt) if made == Constant(one.mesh)), None)
    described = None if built is None else trace.arguments.get(built.index)
    if described is None:
        return mesh
    return Built("torch.init_device_mesh", tuple(described.given.items()), described.complete)


def _add_groups(plan: Plan, trace: Trace, names: ModelNames) -> None:
    for event in trace.of(Sharded):
        if len(event.group) > 1:
            members = ", ".join(sorted(map(names.path, event.group)))
            plan.add("modules in one group", members, "yes", event)


def _add_same_weights(plan: Plan, trace: Trace, sharded: list[Wrapped | Sharded]) -> None:
    """Whether all ranks get the weights of rank 0."""
    either = OneOf((Constant("yes"), Constant("no")))
    for event in sharded:
        if isinstance(event, Wrapped):
            given = trace.arguments.get(event.index, Arguments()).get("sync_module_states", "10")
            if given == Constant(True):
                # Rank 0 may send the contents of memory that nobody has written to.
                empty = wrapped_on_meta(trace, event, on_all_ranks=True)
                plan.add(RANK_0, "", either if empty else "yes", event)
    if any(isinstance(one, Sharded) for one in sharded):
        for weights in trace.of(WeightsSet):
            plan.add(RANK_0, "", either, weights)
