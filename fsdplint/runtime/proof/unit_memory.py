"""What a rank holds of each unit in the runs of a proof: the most of any rank, at the last step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fsdplint.comparison.unit_collectives import unit_collectives
from fsdplint.report.unit_picture import KINDS
from fsdplint.runtime.launch.launcher import Run
from fsdplint.runtime.launch.records import Line, RankRecord

PARAMETERS, GRADIENTS, STATE = KINDS
_NUMBER = re.compile(r"(?<=[.:])\d+(?=\.|$)|^\d+(?=\.|$)")  # the index of an element of a list


@dataclass
class HeldUnit:
    """The units of a run whose paths differ only in the indices of elements.

    Attributes:
        path: their path, with "*" for an index in which they differ; "" for a root, None for
            parameters without FSDP.
        lines: what the record of a rank says about each unit.
        sizes: the bytes of all of them by what they are for, the most of any rank.
    """

    path: str | None
    lines: list[Line]
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.lines)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(len(line["parameters"]) for line in self.lines)

    def collectives(self) -> dict[str, int] | None:
        """The calls of each collective in a forward and a backward of one unit."""
        (line, *_) = self.lines
        if self.path is None or (line["over"] and not line["backward"]):
            return None
        return unit_collectives(
            sharded=bool(line["over"]),
            replicated=bool(line["copies"]),
            whole_between=line["backward"] == "whole",
            trained=any(trained for _, _, trained in line["parameters"].values()),
        )


def held_units(run: Run) -> list[HeldUnit]:
    """The units of a run, those with alike units in one; empty without a recorded step."""
    records = [one for one in run.records if one.layouts]
    if not records:
        return []
    lines = [line for line in records[0].layouts[-1]["units"]]
    sizes = [dict(_sizes(record)) for record in records]
    return [
        HeldUnit(path, together, _largest_bytes(names, sizes))
        for path, names, together in _collapse(lines)
    ]


def _sizes(record: RankRecord) -> Iterator[tuple[str | None, dict[str, int]]]:
    """What a rank holds of each unit."""
    last = {line["optimizer"]: line["units"] for line in record.held}
    found: dict[str | None, dict[str, int]] = {}
    for line in record.layouts[-1]["units"]:
        of_unit = found.setdefault(line["name"], dict.fromkeys(KINDS, 0))
        of_unit[PARAMETERS] += line["bytes"]
    for units in last.values():
        for name, gradients, state in units:
            of_unit = found.setdefault(name, dict.fromkeys(KINDS, 0))
            of_unit[GRADIENTS] += gradients
            of_unit[STATE] += state
    yield from found.items()


def _largest_bytes(
    names: Iterable[str | None], ranks: Iterable[Mapping[str | None, dict[str, int]]]
) -> dict[str, int]:
    """The bytes of some units together on the rank that holds the most of each kind."""
    wanted = set(names)
    sums = [
        {kind: sum(held[name][kind] for name in wanted if name in held) for kind in KINDS}
        for held in ranks
    ]
    return {kind: max(one[kind] for one in sums) for kind in KINDS}


def _collapse(lines: Iterable[Line]) -> Iterator[tuple[str | None, list[str | None], list[Line]]]:
    """The path, the names and the lines of units that are alike except for indices."""
    groups: dict[tuple[object, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(_shape(line), []).append(line)
    for together in groups.values():
        names = [line["name"] for line in together]
        yield _common_path(names), names, together


def _shape(line: Line) -> tuple[object, ...]:
    """What alike units share: everything but indices and bytes."""
    name = line["name"]
    own = "" if name is None else f"{name}."
    parameters = tuple(
        (key.removeprefix(own), *map(str, about)) for key, about in line["parameters"].items()
    )
    pattern = name if name is None else _NUMBER.sub("*", name)
    keys = ("over", "copies", "flat", "dims", "offload", "backward")
    placed = [str(line.get(key)) for key in keys]  # "backward" is recorded only for units of FSDP
    return (pattern, *placed, parameters if name is not None else ())


def _common_path(names: list[str | None]) -> str | None:
    """A path with "*" where the names of several units differ."""
    first = names[0]
    if first is None or len(names) == 1:
        return first
    parts = [name.split(".") for name in names if name is not None]
    return ".".join(one[0] if len({*one}) == 1 else "*" for one in zip(*parts, strict=True))
