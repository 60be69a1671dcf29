"""The conditions under which a model is sharded, and with which options, for findings that do not
name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fsdplint.diagnostics.finding import Finding, configuration_of
from fsdplint.trace import Event, Guard, GuardKind, Sharded, Site, Trace, Wrapped
from fsdplint.trace.decided_tests import DecidedTest
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


def add_option_conditions(found: Sequence[FoundIn], traces: Sequence[Trace]) -> None:
    """Add the decisions of the options of the sharding to the findings that depend on them.

    A finding depends on a decision if another trace, which differs in no other decision, has the
    same event but not the finding.
    """
    by_key: dict[Key, list[FoundIn]] = {}
    for one in found:
        by_key.setdefault(one.key, []).append(one)
    places = _Places()
    for ones in by_key.values():
        shown = {id(one.trace) for one in ones}
        others = [trace for trace in traces if id(trace) not in shown]
        needed = {key for one in ones for key in _needed_decisions(one, others, places)}
        for key in needed:
            values = {one.trace.decisions.get(key) for one in ones}
            if len(values) == 1:
                for one in ones:
                    _add(one.finding, _guard(one.trace, key))


def _needed_decisions(one: FoundIn, others: Sequence[Trace], places: _Places) -> Iterator[str]:
    decisions = one.trace.decisions
    if not one.finding.events or one.trace.sharding_keys.isdisjoint(decisions):
        return
    for other in others:
        both = decisions.keys() & other.decisions.keys()
        different = [key for key in both if decisions[key] != other.decisions[key]]
        is_of_options = len(different) == 1 and different[0] in one.trace.sharding_keys
        if is_of_options and _place(one.finding.events[0]) in places.of(other):
            yield different[0]


def _guard(trace: Trace, key: str) -> Guard:
    test = trace.tests.get(key, DecidedTest(key))
    return Guard(GuardKind.CONFIG, test.text, trace.decisions[key] != test.negated)


def _add(finding: Finding, guard: Guard) -> None:
    if guard not in finding.configuration:
        finding.configuration = (*finding.configuration, guard)


_Place = tuple[type[Event], Site]


def _place(event: Event) -> _Place:
    return type(event), event.site


class _Places:
    """The places of the events of traces."""

    def __init__(self) -> None:
        self._known: dict[int, set[_Place]] = {}

    def of(self, trace: Trace) -> set[_Place]:
        if id(trace) not in self._known:
            self._known[id(trace)] = set(map(_place, trace.events))
        return self._known[id(trace)]


class _Summary:
    """What a trace shows: the places of its events, and its findings."""

    def __init__(self, trace: Trace, shown: set[Key]) -> None:
        self._places = set(map(_place, trace.events))
        self._shown = shown

    def lacks(self, key: Key, event: Event, shard: Event) -> bool:
        """Whether it has the event, but neither the sharding nor the finding."""
        return (
            key not in self._shown
            and _place(event) in self._places
            and _place(shard) not in self._places
        )


def _shard_of(trace: Trace, event: Event) -> Event | None:
    """The event that sharded what an event is about, else the last one that sharded anything."""
    for field in ("module", "of", "into"):
        module = getattr(event, field, None)
        if module in trace.modules:
            return next((shard for shard, _ in sharded_here(trace, module, event)), None)
    return max(trace.before(event, Sharded, Wrapped), key=lambda e: e.index, default=None)
