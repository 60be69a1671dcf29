"""Reads the records of the ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass
class RankRecord:
    """The record of one rank.

    Attributes:
        events: the events in order, with their updates applied.
        modules: the last description of each module; `own` is the largest number of its own
            parameters (without FSDP1's flat parameter), `flat` whether it ever had a flat one.
        reached_lines: (path, line) of the lines in question that were executed.
        layouts: which part of each parameter the rank holds from the step of the line on.
        held: the bytes of gradients and optimizer state of each unit from the step of the line on.
        accounts: what the rank held and sent in each step, if this was counted.
        outside_files: the files that the rank wrote outside of the copy of its project.
        end: the line that tells how the program ended; None if the rank was killed or aborted.
    """

    rank: int
    world: int
    head: Line
    events: list[Line] = field(default_factory=list)
    modules: dict[str, Line] = field(default_factory=dict)
    measures: list[Line] = field(default_factory=list)
    layouts: list[Line] = field(default_factory=list)
    held: list[Line] = field(default_factory=list)
    accounts: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    end: Line | None = None
    reached_lines: set[tuple[str, int]] = field(default_factory=set)
    outside_files: list[str] = field(default_factory=list)

    @property
    def ended_ok(self) -> bool:
        """Whether the program ended without an error on this rank."""
        return self.end is not None and self.end.get("status") == "ok"


def read_records(folder: str | Path) -> list[RankRecord]:
    """The records in a folder, ordered by rank, without incomplete last lines."""
    paths = Path(folder).glob("rank*.jsonl")
    records = [record for path in paths if (record := _read_record(path)) is not None]
    return sorted(records, key=lambda record: record.rank)


def by_step(records: Sequence[RankRecord]) -> list[list[Line]]:
    """The measures of every step, with one line for each rank."""
    count = max((len(record.measures) for record in records), default=0)
    return [
        [record.measures[step] for record in records if step < len(record.measures)]
        for step in range(count)
    ]


def _read_record(path: Path) -> RankRecord | None:
    match = re.fullmatch(r"rank(\d+)\.jsonl", path.name)
    if match is None:
        return None
    record = RankRecord(rank=int(match[1]), world=1, head={})
    by_number: dict[int, Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        _add_line(record, line, by_number)
    record.events.sort(key=lambda line: int(line["n"]))
    return record


def _add_line(record: RankRecord, line: Line, by_number: dict[int, Line]) -> None:
    kind = line.get("t")
    if kind == "event":
        record.events.append(line)
        by_number[line["n"]] = line
    elif kind == "update":
        event = by_number.get(line["n"])
        if event is not None:
            event.update({key: value for key, value in line.items() if key not in ("t", "n")})
    elif kind == "module":
        _add_module(record, line)
    elif kind == "measure":
        record.measures.append(line)
    elif kind == "layout":
        record.layouts.append(line)
    elif kind == "held":
        record.held.append(line)
    elif kind == "account":
        record.accounts.append(line)
    elif kind == "head":
        record.head, record.world = line, int(line["world"])
    elif kind == "end":
        record.end = line
    elif kind == "reached":
        record.reached_lines.add((line["path"], int(line["line"])))
    elif kind == "wrote":
        record.outside_files.append(line["path"])
    elif kind == "note":
        record.notes.append(line["text"])
    elif kind == "trouble":
        record.troubles.append(line["text"])


def _add_module(record: RankRecord, line: Line) -> None:
    flat = bool(line["flat"])
    line["own"] = line["parameters"] - (1 if flat else 0)
    previous = record.modules.get(line["id"])
    if previous is not None:
        line["own"] = max(line["own"], previous["own"])
        line["flat"] = flat or previous["flat"]
        line.setdefault("key", previous.get("key"))
    record.modules[line["id"]] = line
