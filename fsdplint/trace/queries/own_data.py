"""The collectives that each rank runs or skips by a test of its own data."""

from __future__ import annotations

from fsdplint.trace import Event, Guard, GuardKind, Ranks, Trace
from fsdplint.trace.queries.rank_matching import (
    collectives,
    longest_common,
    signature,
    unmatched_events,
)


def undecided_collectives(trace: Trace) -> list[Event]:
    """The collectives on one side of such a test that have no counterpart on the other side.

    Of a collective that rank 0 and the other ranks write at two places, it is the one of rank 0.
    """
    return trace.answer(_undecided_collectives)


def _undecided_collectives(trace: Trace) -> list[Event]:
    result: list[Event] = []
    tested: list[Event] = []
    alone = {event.index for event in unmatched_events(trace)}
    for event in [*collectives(trace), None]:
        if event is not None and own_data_tests(event):
            in_two_places = event.ranks is Ranks.ONE and event.index not in alone
            if not event.ranks.partial or (in_two_places and _parts_inside(event)):
                tested.append(event)
            continue
        result += _both_sides(trace, tested, 0)[1]
        tested = []
    return sorted(result, key=lambda event: event.index)


def _parts_inside(event: Event) -> bool:
    """Whether the test of the rank stands inside all tests of own data."""
    of_rank = [guard.kind is GuardKind.RANK for guard in event.guards]
    own = [guard.own_data is not None for guard in event.guards]
    return True in of_rank and True not in own[of_rank.index(True) :]


def own_data_tests(event: Event) -> list[Guard]:
    """The tests of the rank's own data that guard an event, outermost first."""
    return [guard for guard in event.guards if guard.own_data is not None]


def _both_sides(trace: Trace, events: list[Event], depth: int) -> tuple[list[Event], list[Event]]:
    """The events that every rank runs or has a counterpart of, and the others.

    depth: the number of tests around all of the events.
    """
    common: list[Event] = []
    unmatched: list[Event] = []
    while events:
        tests = own_data_tests(events[0])
        if len(tests) == depth:
            common.append(events.pop(0))
            continue
        sides: dict[bool, list[Event]] = {True: [], False: []}
        while events and _stands_under(events[0], tests[depth], depth):
            event = events.pop(0)
            sides[own_data_tests(event)[depth].holds].append(event)
        yes, rest = _both_sides(trace, sides[True], depth + 1)
        no, others = _both_sides(trace, sides[False], depth + 1)
        pairs = longest_common(
            [signature(trace, event) for event in yes], [signature(trace, event) for event in no]
        )
        common += [yes[one] for one, _ in pairs]
        matched = {yes[one].index for one, _ in pairs} | {no[other].index for _, other in pairs}
        unmatched += rest + others + [e for e in (*yes, *no) if e.index not in matched]
    return common, unmatched


def _stands_under(event: Event, test: Guard, depth: int) -> bool:
    tests = own_data_tests(event)
    return len(tests) > depth and tests[depth].site == test.site
