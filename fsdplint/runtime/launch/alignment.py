"""The lines of all ranks about one event, together, in an order that keeps every rank's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fsdplint.runtime.launch.code_order import is_before
from fsdplint.runtime.launch.event_schema import EventSchema, hashable, schemas
from fsdplint.runtime.launch.records import Line, RankRecord

Key = tuple[Any, ...]


@dataclass
class Merged:
    """One event of the merged trace and the line of each rank that took part."""

    schema: EventSchema
    lines: dict[int, Line] = field(default_factory=dict)
    position: int = 0
    repeated: bool = False

    @property
    def first(self) -> Line:
        return self.lines[min(self.lines)]


def align(records: Sequence[RankRecord], names: dict[int, dict[str, str]]) -> list[Merged]:
    """The events of all ranks; the n-th of its key on one rank is the n-th on another.

    names: for each rank, its names of objects with those in the merged trace. What an event makes
        is added.
    """
    merged: list[Merged] = []
    known: dict[Key, Merged] = {}
    for record in records:
        own = names[record.rank]
        counts: Counter[Key] = Counter()
        after: dict[int, list[Merged]] = {}
        last: int = -1
        for line in record.events:
            schema = schemas().get(line["kind"])
            if schema is None:
                continue  # of another version
            line = schema.renamed(line, own)
            key = _key(schema, line)
            counts[key] += 1
            number = (*key, counts[key])
            item = known.get(number)
            if item is None:
                item = known[number] = Merged(schema)
                after.setdefault(last, []).append(item)
                if record.rank != records[0].rank:
                    _define(schema, line, own, f"@{record.rank}")
            else:
                last = max(last, item.position)
                _define_as(schema, line, own, item.first)
            item.lines[record.rank] = line
            item.repeated = item.repeated or counts[key] > 1
        merged = _inserted(merged, after, record.rank)
        for key, count in counts.items():
            first = (*key, 1)
            known[first].repeated = known[first].repeated or count > 1
    return merged


def _key(schema: EventSchema, line: Line) -> Key:
    """What is equal for the same event on all ranks: its kind, its place, and distinct fields."""
    distinct = tuple(str(line.get(name)) for name in schema.distinct)
    return line["kind"], hashable(line["at"]), distinct


def _define(schema: EventSchema, line: Line, own: dict[str, str], suffix: str) -> None:
    """Name what the event makes on a rank, which no rank before it has made."""
    name = line.get(schema.definition or "")
    if schema.definition and isinstance(name, str):
        own[name] = line[schema.definition] = name + suffix


def _define_as(schema: EventSchema, line: Line, own: dict[str, str], first: Line) -> None:
    """Name what the event makes as on the first rank."""
    if schema.definition:
        own[line[schema.definition]] = line[schema.definition] = first[schema.definition]


def _inserted(merged: list[Merged], after: dict[int, list[Merged]], rank: int) -> list[Merged]:
    """The merged events with those put in that so far only `rank` has, by the position before."""
    result = list(after.get(-1, ()))
    waiting: list[Merged] = []
    base: Line | None = None
    for index, item in enumerate(merged):
        if waiting and (rank in item.lines or not is_before(item.first, waiting[0].first, base)):
            result.extend(waiting)
            waiting = []
        result.append(item)
        if index in after:
            waiting = after[index]
            base = item.lines.get(rank)
    result.extend(waiting)
    for index, item in enumerate(result):
        item.position = index
    return result
