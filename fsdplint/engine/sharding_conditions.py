"""The conditions under which a model is sharded, for findings that do not name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fsdplint.diagnostics.finding import Finding, configuration_of
from fsdplint.trace import Event, Sharded, Site, Trace, Wrapped
from fsdplint.trace.queries.common import sharded_here

Key = tuple[str, object]  # the rule and the place of a finding


@dataclass(frozen=True)
class FoundIn:
    """A finding, what it has in common with those of other traces, and its trace."""

    key: Key
    finding: Finding
    trace: Trace


def add_sharding_conditions(found: Sequence[FoundIn], traces: Iterable[Trace]) -> None:
    """Add the conditions of the sharding to the findings that depend on it.

    A finding depends on the sharding if another trace has the same event, but neither the sharding
    nor the finding.
    """
    shown: dict[int, set[Key]] = {}
    for one in found:
        shown.setdefault(id(one.trace), set()).add(one.key)
    others = [_Summary(trace, shown.get(id(trace), set())) for trace in traces]
    for one in found:
        finding = one.finding
        shard = _shard_of(one.trace, finding.events[0]) if finding.events else None
        if shard is None:
            continue
        known = set(finding.configuration)
        added = tuple(guard for guard in configuration_of([shard]) if guard not in known)
        if added and any(other.lacks(one.key, finding.events[0], shard) for other in others):
            finding.configuration = (*added, *finding.configuration)


class _Summary:
    """What a trace shows: the places of its events, and its findings."""

    def __init__(self, trace: Trace, shown: set[Key]) -> None:
        self._places: set[tuple[type[Event], Site]] = {(type(e), e.site) for e in trace.events}
        self._shown = shown

    def lacks(self, key: Key, event: Event, shard: Event) -> bool:
        """Whether it has the event, but neither the sharding nor the finding."""
        return (
            key not in self._shown
            and (type(event), event.site) in self._places
            and (type(shard), shard.site) not in self._places
        )


def _shard_of(trace: Trace, event: Event) -> Event | None:
    """The event that sharded what an event is about, else the last one that sharded anything."""
    for field in ("module", "of", "into"):
        module = getattr(event, field, None)
        if module in trace.modules:
            return next((shard for shard, _ in sharded_here(trace, module, event)), None)
    return max(trace.before(event, Sharded, Wrapped), key=lambda e: e.index, default=None)
