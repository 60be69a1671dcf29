"""The collectives of a trace that only some ranks reach.

The ranks of a trace form two sides: the ranks of a rank test, and the other ranks. Between two
collectives of all ranks, the sequences of both sides are compared. A collective of one side without
a counterpart (in order) is unmatched. So `if rank == 0: barrier() else: barrier()`
matches, and so does "rank 0 first": `if rank != 0: barrier()`, the work, `if rank == 0: barrier()`.
A collective that each rank runs in its own turns of a loop (`if i % world_size == rank:`) matches
if the loop has no collective of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsdplint.trace import (
    Called,
    Clipped,
    Collective,
    Event,
    Gathered,
    GuardKind,
    Loaded,
    Location,
    OptimizerBuilt,
    Ranks,
    Saved,
    Site,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.replicated import gathers_nothing

# Collectives by which one rank tells the others something.
_MESSAGES = {"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"}


def unmatched_events(trace: Trace) -> list[Event]:
    """The collectives that only one side of a rank test reaches, in order."""
    return trace.answer(_unmatched_events)


def _unmatched_events(trace: Trace) -> list[Event]:
    result: list[Event] = []
    one: list[Event] = []
    others: list[Event] = []
    some: list[Event] = []
    found = collectives(trace)
    in_turn = _in_own_turns(found)
    for event in [*found, None]:
        if event is not None and event.index in in_turn:
            continue
        if event is not None and event.ranks.partial:
            {Ranks.ONE: one, Ranks.OTHERS: others}.get(event.ranks, some).append(event)
            continue
        result.extend(_without_counterpart(trace, one, others, some))
        one, others, some = [], [], []
    elsewhere = _of_unknown_groups(trace)
    return [event for event in result if _other_side(trace, event) not in elsewhere]


def _in_own_turns(events: list[Event]) -> set[int]:
    """The collectives that each rank runs in its own turns of loops without one of all ranks."""
    found: dict[Site, list[Event]] = {}
    for event in events:
        tests = [g for g in event.guards if g.kind is GuardKind.RANK and g.ranks.partial]
        if tests and all(guard.loop is not None for guard in tests):
            assert tests[0].loop is not None
            found.setdefault(tests[0].loop, []).append(event)
    if not found:
        return set()
    of_all = [event for event in events if not event.ranks.partial]
    return {
        event.index
        for loop, inside in found.items()
        if not any(_is_in(loop.location(), event) for event in of_all)
        for event in inside
    }


def _is_in(loop: Location, event: Event) -> bool:
    """Whether code of a loop runs an event, or calls what runs it."""
    places = (site.location() for site in (event.site, *event.stack))
    return any(
        place.path == loop.path and loop.line <= place.line <= loop.end_line for place in places
    )


_Place = tuple[type[Event], Site, str | None]
_Side = tuple[object, Ranks, tuple[str, ...]]


def _of_unknown_groups(trace: Trace) -> set[_Side]:
    """The collectives under tests of the rank whose group may be that of all ranks."""
    return {
        (_place_of_test(event), event.ranks, signature(trace, event))
        for event in trace.of(Collective)
        if event.unknown_group and event.ranks.partial
    }


def _other_side(trace: Trace, event: Event) -> _Side:
    """The same collective on the other side of the test that guards the event."""
    other = {Ranks.ONE: Ranks.OTHERS, Ranks.OTHERS: Ranks.ONE}.get(event.ranks, event.ranks)
    return _place_of_test(event), other, signature(trace, event)


def ran_out(trace: Trace, event: Event) -> bool:
    """Whether a one-sided event of a recorded trace is a further turn of a loop that all ranks
    began.

    Then some rank had fewer turns to make, and no test of the rank keeps it away.
    """
    return (
        event.in_loop
        and trace.answer(_first_of_all_ranks).get(_place(event), event.index) < event.index
    )


def _first_of_all_ranks(trace: Trace) -> dict[_Place, int]:
    """The first event of all ranks at each place."""
    first: dict[_Place, int] = {}
    for event in trace:
        if event.took_part and not event.ranks.partial:
            first.setdefault(_place(event), event.index)
    return first


def same_place(one: Event, other: Event) -> bool:
    """Whether two events have the same kind, place and module."""
    return _place(one) == _place(other)


def _place(event: Event) -> _Place:
    return type(event), event.site, getattr(event, "module", None)


def collectives(trace: Trace) -> list[Event]:
    """The collectives of a trace for which some rank waits, in order."""
    return trace.answer(_collectives)


def _collectives(trace: Trace) -> list[Event]:
    within: set[int] = set()  # calls that are collectives themselves, or run in one
    found = []
    for event in trace:
        nested = isinstance(event, Called) and event.inside in within
        if isinstance(event, Called) and (event.collective or nested):
            within.add(event.index)
        if nested and isinstance(event, Called) and _is_chosen_within(trace, event):
            nested = False
        if event.collective and not nested and not _never_wait(trace, event):
            found.append(event)
    return found


def _is_chosen_within(trace: Trace, event: Called) -> bool:
    """Whether a test in the forward around a call keeps some ranks from it.

    A unit of FSDP gathers its parameters by itself, and the ranks that skip it do not take part.
    """
    outer = trace.events[event.inside].guards if event.inside is not None else ()
    return any(
        guard not in outer and (guard.own_data is not None or guard.kind is GuardKind.RANK)
        for guard in event.guards
    )


def _never_wait(trace: Trace, event: Event) -> bool:
    """Whether no rank waits for another: each has all of it, or it was sharded by some ranks
    only.
    """
    modules = set(_modules(trace, event))
    if not modules or next(trace.shards_before(event), None) is None:
        return False
    if gathers_nothing(trace, event, modules):
        return True
    inside = {part for module in modules for part in trace.submodules(module)}
    return any(
        shard.ranks.partial and shard.module in inside for shard in trace.shards_before(event)
    )


def _modules(trace: Trace, event: Event) -> tuple[str, ...]:
    if isinstance(event, Called | Gathered):
        return (event.module,)
    if isinstance(event, Clipped | Saved):
        return event.modules
    name = ""
    if isinstance(event, StateTaken):
        name = event.of
    elif isinstance(event, StateLoaded):
        name = event.into
    for built in trace.of(OptimizerBuilt):
        if built.optimizer == name:
            return built.modules
    return (name,) if name in trace.modules else ()


def signature(trace: Trace, event: Event) -> tuple[str, ...]:
    """What has to be the same on both sides of a test."""
    if isinstance(event, Collective | Saved | Loaded):
        return event.kind, event.api.rpartition(".")[2]
    return event.kind, *_modules(trace, event)


def _without_counterpart(
    trace: Trace, one: list[Event], others: list[Event], some: list[Event]
) -> list[Event]:
    """The events of either side that are not part of a longest common sequence of the two."""
    left = [signature(trace, event) for event in one]
    right = [signature(trace, event) for event in others]
    pairs = longest_common(left, right)
    matched = {one[i].index for i, _ in pairs} | {others[j].index for _, j in pairs}
    # Tests of different ranks (`rank == 0`, `rank == 1`) or of a part of them may be each other's
    # counterparts; how many ranks there are is not known.
    elsewhere = {signature(trace, event) for event in some}
    rest = [event for event in (*one, *others) if event.index not in matched]
    of_each_node = [
        event
        for event in some
        if _is_of_each_node(event)
        and not any(
            signature(trace, other) == signature(trace, event)
            and rank_test(other) != rank_test(event)
            for other in (*one, *others, *some)
        )
        and not follows_messages(event, some)
    ]
    by_members = [event for event in some if _is_made_by_members(trace, event)]
    return (
        of_each_node
        + by_members
        + [
            event
            for event in sorted(rest, key=lambda event: event.index)
            if signature(trace, event) not in elsewhere
            and not any(
                signature(trace, other) == signature(trace, event)
                and other.ranks is event.ranks
                and _may_be_of_other_ranks(other, event)
                for other in rest
            )
            and not follows_messages(event, (*one, *others))
        ]
    )


def _is_made_by_members(trace: Trace, event: Event) -> bool:
    """Whether only its own ranks make a process group, and not all make the same number of groups.

    torch numbers the groups. What ranks have of one number is one group, and they wait for each
    other when they use it for the first time (as seen with torch 2.13).
    """
    if not isinstance(event, Collective) or not event.by_members:
        return False
    others = [one for one in trace.of(Collective) if one.api == "new_group" and one is not event]
    tests = {(guard.site, guard.holds) for guard in event.guards}
    elsewhere = any((g.site, not g.holds) in tests for one in others for g in one.guards)
    return bool(others) and not elsewhere


def follows_messages(event: Event, events: Iterable[Event]) -> bool:
    """Whether one rank tells the others what to run, in the branches of one test.

    The branch of the event communicates by messages, and further tests decide what it runs. What
    the messages say is not known, and neither is what the other ranks run.
    """
    test = _place_of_test(event)
    messages = [
        other
        for other in events
        if isinstance(other, Collective)
        and other.api in _MESSAGES
        and other.ranks is event.ranks
        and _place_of_test(other) == test
    ]
    return test is not None and bool(messages) and any(map(_tests_further, (event, *messages)))


def _place_of_test(event: Event) -> object:
    """The place of the outermost rank test that guards the event."""
    guards = (g for g in event.guards if g.kind is GuardKind.RANK and g.ranks.partial)
    return next((guard.site or guard.text for guard in guards), None)


def _tests_further(event: Event) -> bool:
    """Whether a test of something else than the rank follows the outermost test of the rank."""
    ranks = [guard.kind is GuardKind.RANK and guard.ranks.partial for guard in event.guards]
    return any(not rank for rank in ranks[ranks.index(True) :])


def longest_common(left: Sequence[object], right: Sequence[object]) -> list[tuple[int, int]]:
    """The positions of a longest common subsequence of two sequences, in both of them."""
    rows = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in reversed(range(len(left))):
        for j in reversed(range(len(right))):
            rows[i][j] = (
                rows[i + 1][j + 1] + 1
                if left[i] == right[j]
                else max(rows[i + 1][j], rows[i][j + 1])
            )
    pairs = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def rank_test(event: Event) -> tuple[str, bool] | None:
    """The innermost rank test that guards the event, as text and outcome."""
    for guard in reversed(event.guards):
        if guard.kind is GuardKind.RANK and guard.ranks.partial:
            return guard.text, guard.holds
    return None


def _may_be_of_other_ranks(one: Event, other: Event) -> bool:
    """Whether the innermost tests of two events of one side may tell different ranks apart."""
    tested = _tested_rank(one)
    if tested is not None and tested == _tested_rank(other):
        return False
    return rank_test(one) != rank_test(other)


def _tested_rank(event: Event) -> int | None:
    """The rank that the innermost test of the rank tells from the others; None if unknown."""
    for guard in reversed(event.guards):
        if guard.kind is GuardKind.RANK and guard.ranks.partial:
            return guard.rank
    return None


def _is_of_each_node(event: Event) -> bool:
    """Whether the event is one rank's of each machine; other parts of the ranks may be groups."""
    return any(
        guard.each_node
        for guard in event.guards
        if guard.kind is GuardKind.RANK and guard.ranks.partial
    )
