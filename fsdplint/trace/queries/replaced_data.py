"""Assignments of `parameter.data` that change nothing, since the parameter is a DTensor."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import DataReplaced, Gathered, Sharded
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.gathered import MaybeGathered


def replaced_data(groups: Groups) -> Iterator[tuple[DataReplaced, Sharded]]:
    """The assignments to parameters that certainly are DTensors then, or of which some certainly
    are, each with what sharded them."""
    replaced = list(groups.trace.of(DataReplaced))
    gathered = MaybeGathered(groups) if replaced else None
    for event in replaced:
        shard = _shard(groups, gathered, event) if gathered is not None else None
        if shard is not None:
            yield event, shard


def _shard(groups: Groups, gathered: MaybeGathered, event: DataReplaced) -> Sharded | None:
    trace = groups.trace
    if event.at_rest:
        owners = {groups.owner(module, before=event) for module in event.modules}
        return next(
            (one for one in trace.before(event, Sharded) if owners & {*sharded_by(one)}), None
        )
    if any(trace.before(event, Gathered)) or any(map(trace.family_escaped, event.modules)):
        return None
    parts = [one for one in trace.submodules(*event.modules) if trace.modules[one].own_parameters]
    owners = {groups.owner(part, before=event) for part in parts}
    at_rest = {owner for owner in owners if owner and not gathered.at(owner, event)}
    for shard in trace.before(event, Sharded):
        ignores = any(name.startswith("ignored_") or name == "**" for name in shard.options)
        if at_rest & {*sharded_by(shard)} and not ignores:
            return shard
    return None
