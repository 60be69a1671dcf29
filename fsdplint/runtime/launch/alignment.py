"""Aligns the records of all ranks: one entry for each event, in an order that fits every rank."""

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
class AlignedEvent:
    """An event of the merged trace, with the line of each rank that took part."""

    schema: EventSchema
    lines: dict[int, Line] = field(default_factory=dict)
    position: int = 0
    in_loop: bool = False

    @property
    def first(self) -> Line:
        return self.lines[min(self.lines)]


def align(records: Sequence[RankRecord], names: dict[int, dict[str, str]]) -> list[AlignedEvent]:
    """The events of all ranks; the n-th of its key on one rank is the n-th on another.

    names: for each rank, maps its names of objects to those in the merged trace. The names of
        objects that an event creates are added.
    """
    merged: list[AlignedEvent] = []
    known: dict[Key, AlignedEvent] = {}
    for record in records:
        own = names[record.rank]
        counts: Counter[Key] = Counter()
        after: dict[int, list[AlignedEvent]] = {}
        last: int = -1
        for line in record.events:
            schema = schemas().get(line["kind"])
            if schema is None:
                continue  # of another version
            line = schema.rename(line, own)
            key = _key(schema, line)
            counts[key] += 1
            number = (*key, counts[key])
            item = known.get(number)
            if item is None:
                item = known[number] = AlignedEvent(schema)
                after.setdefault(last, []).append(item)
                if record.rank != records[0].rank:
                    _define(schema, line, own, f"@{record.rank}")
            else:
                last = max(last, item.position)
                _define_as(schema, line, own, item.first)
            item.lines[record.rank] = line
            item.in_loop = item.in_loop or counts[key] > 1
        merged = _insert_new(merged, after, record.rank)
        for key, count in counts.items():
            first = (*key, 1)
            known[first].in_loop = known[first].in_loop or count > 1
    return merged


def _key(schema: EventSchema, line: Line) -> Key:
    """The key of an event, equal on all ranks: its kind, its place, and its distinct fields."""
    distinct = tuple(str(line.get(name)) for name in schema.distinct)
    return line["kind"], hashable(line["at"]), distinct


def _define(schema: EventSchema, line: Line, own: dict[str, str], suffix: str) -> None:
    """Name the object that an event creates, if no earlier rank has this event."""
    name = line.get(schema.definition or "")
    if schema.definition and isinstance(name, str):
        own[name] = line[schema.definition] = name + suffix


def _define_as(schema: EventSchema, line: Line, own: dict[str, str], first: Line) -> None:
    """Give the object that an event creates the name that it has on the first rank."""
    if schema.definition:
        own[line[schema.definition]] = line[schema.definition] = first[schema.definition]


def _insert_new(
    merged: list[AlignedEvent], after: dict[int, list[AlignedEvent]], rank: int
) -> list[AlignedEvent]:
    """Insert the events that only `rank` has so far.

    after: these events, by the position of the merged event before them.
    """
    result = list(after.get(-1, ()))
    waiting: list[AlignedEvent] = []
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
