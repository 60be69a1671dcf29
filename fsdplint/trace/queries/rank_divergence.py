"""The forwards of a recorded run in which the ranks gather different modules."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import Called, Event, Trace
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.rank_matching import unmatched_events

# What each rank does there: the module that it gathers, or None where it gathers nothing more.
Divergence = dict[int, "Called | None"]


def divergences(trace: Trace) -> Iterator[tuple[Called, Divergence]]:
    """The forwards of all ranks in which they part, each with what the ranks do there."""
    if len(trace.ends) < 2:
        return
    groups = Groups(trace)
    for outer in trace.of(Called):
        if outer.inside is None and set(outer.took_part) == set(trace.ends):
            found = _divergence(trace, groups, outer)
            if found is not None:
                yield outer, found


def unmatched_collectives(trace: Trace) -> list[Event]:
    """The one-sided collectives of a trace.

    Where a run broke after the ranks had parted in a forward, what came then says nothing.
    """
    return trace.answer(_unmatched_collectives)


def _unmatched_collectives(trace: Trace) -> list[Event]:
    found = unmatched_events(trace)
    if not found or all(end == "ok" for end in trace.ends.values()):
        return found
    parted = next(divergences(trace), None)
    return found if parted is None else [e for e in found if e.index < parted[0].index]


def _divergence(trace: Trace, groups: Groups, outer: Called) -> Divergence | None:
    """What each rank does where the ranks first gather different modules, None if they never do.

    A rank that ended within the forward may have been about to do the same as the others.
    """
    inner = sorted(
        (call for call in groups.nested_calls(outer) if call.communicated),
        key=lambda call: call.index,
    )
    order = {rank: [c for c in inner if rank in c.took_part] for rank in sorted(trace.ends)}
    for place in range(max(len(calls) for calls in order.values())):
        found: Divergence = {}
        for rank, calls in order.items():
            if place < len(calls):
                found[rank] = calls[place]
            elif _came_out(trace, groups, outer, rank):
                found[rank] = None
        if len({call.module if call is not None else None for call in found.values()}) > 1:
            return found
    return None


def _came_out(trace: Trace, groups: Groups, outer: Called, rank: int) -> bool:
    """Whether the rank came out of this forward."""
    if trace.ends.get(rank) == "ok":
        return True
    inside = {call.index for call in groups.nested_calls(outer)}
    return any(
        rank in event.took_part and event.index not in inside
        for event in trace.events[outer.index + 1 :]
        if not (isinstance(event, Called) and event.inside is not None)
    )
