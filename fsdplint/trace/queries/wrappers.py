"""Queries about the wrappers of FSDP1."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.trace import Event, Prepared, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.trace import first

SHARDING = {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}

# The strategies with which a unit frees its parameters after its forward.
FREEING = {"FULL_SHARD", "HYBRID_SHARD"}


def strategy(event: Wrapped) -> str | None:
    """The name of the sharding strategy of a wrapper; None if unknown."""
    given = event.options.get("sharding_strategy", "?" if "**" in event.options else None)
    if given is None:
        return "FULL_SHARD"
    name = str(given).rpartition(".")[2]
    return name if name in SHARDING or name == "NO_SHARD" else None


def shards(event: Wrapped) -> bool:
    """Whether the wrapper certainly shards its parameters.

    On a single rank FSDP1 never shards.
    """
    return strategy(event) in SHARDING


def wrappers_of(trace: Trace, module: str, before: Event) -> list[Wrapped]:
    """The FSDP1 wrappers in and right around a module, in the order of their making."""
    parts = set(trace.submodules(module))
    return [
        event
        for event in trace.before(before, Wrapped)
        if event.module in parts or event.inner == module
    ]


def prepared_by_framework(
    trace: Trace, module: str, before: Event | None = None, *, version: int = 1
) -> Prepared | None:
    """Where a framework shards the module, or one that contains it, by a version of FSDP."""
    events = trace.of(Prepared) if before is None else trace.before(before, Prepared)
    return first(
        event
        for event in events
        if event.version == version
        and any(trace.contains(prepared, module) for prepared in event.modules)
    )


def wrapper_around(trace: Trace, module: str, before: Event) -> Wrapped | None:
    """The wrapper whose unit certainly has the parameters of a part of what it wraps."""
    groups = Groups(trace)
    made = {event.module: event for event in trace.before(before, Wrapped)}
    for above in groups.ancestors(module):
        if above in made:
            event = made[above]
            ignores = any(name.startswith("ignored_") for name in event.options)
            return None if ignores or "**" in event.options else event
    return None


def unit_around(trace: Trace, module: str) -> Wrapped | None:
    """The wrapper above a module that now shards some of its parameters with it; None if unknown.

    The module is no wrapper itself. `model.module` of `model = FSDP(net)` is one: a method of it
    sees this rank's shards.
    """
    made = {event.module: event for event in trace.of(Wrapped)}
    groups = Groups(trace)
    event = next((made[above] for above in groups.ancestors(module) if above in made), None)
    if event is None or module in made or not shards(event):
        return None
    if any(name.startswith("ignored_") or name == "**" for name in event.options):
        return None
    if event.units is None:
        return event if event.keeps_rest and module == event.inner else None
    parts = unit_of(groups, event, trace.events[-1]) & set(trace.submodules(module))
    return event if any(trace.modules[part].own_parameters for part in parts) else None


def holds_units(trace: Trace, module: str, before: Event | None = None) -> bool:
    """Whether the policy of a wrapper of FSDP1 has certainly wrapped a part of a module."""
    parts = set(trace.submodules(module))
    made = trace.of(Wrapped) if before is None else trace.before(before, Wrapped)
    return any(shards(one) and parts & set(one.units or ()) for one in made)


def uses_original_parameters(event: Wrapped) -> bool | None:
    """Whether `use_orig_params` is on; None if unknown."""
    given = event.options.get("use_orig_params", "?" if "**" in event.options else False)
    return given if isinstance(given, bool) else None


def unit_of(groups: Groups, event: Wrapped, before: Event) -> set[str]:
    """The modules whose own parameters are in the wrapper's unit, as far as that is known."""
    return part_of_unit(groups, event, event.inner, before)


def is_known_unit(event: Wrapped) -> bool:
    """Whether it is known which parameters a wrapper shards."""
    return shards_all(event) and (event.units is not None or event.keeps_rest)


def has_unknown_units(event: Wrapped) -> bool:
    """Whether a wrapper certainly has a policy, of which it is not known what it wraps."""
    policy = event.options.get("auto_wrap_policy")
    return event.units is None and policy is not None


def shards_all(event: Wrapped) -> bool:
    """Whether a wrapper certainly shards all parameters that its module has, in whatever units."""
    ignores = any(name.startswith("ignored_") for name in event.options)
    return shards(event) and not ignores and "**" not in event.options


def part_of_unit(
    groups: Groups, event: Wrapped, root: str, before: Event | None = None
) -> set[str]:
    """The modules from `root` down whose own parameters share a unit with those of `root`."""
    unit_ids = set(event.units or ()) - {root}
    sharded = groups.trace.shardings(before)
    found: set[str] = set()
    stack = [root]
    while stack:
        current = stack.pop()
        info = groups.trace.modules.get(current)
        nested = current in unit_ids or (current in sharded and current != root)
        if info is None or current in found or nested:
            continue
        found.add(current)
        stack.extend(info.children.values())
        if info.inner is not None:
            stack.append(info.inner)
    return found


def outermost(trace: Trace, events: Iterable[Wrapped]) -> list[Wrapped]:
    """Of some wrappers, those that lie in none of the others."""
    chosen = list(events)
    return [
        event
        for event in chosen
        if not any(
            other.module != event.module and trace.contains(other.module, event.module)
            for other in chosen
        )
    ]


# For fixes ----------------------------------------------------------------------------------------
