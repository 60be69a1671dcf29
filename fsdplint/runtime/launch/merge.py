"""Merges the records of all ranks into one trace.

What several ranks did becomes one event. An event is partial if a rank skipped it, that is, if the
rank went past its place without it. A rank that crashed before that place skipped nothing.

`alignment` aligns the lines of the ranks, `participation` decides which ranks skipped an event, and
`event_schema` computes the fields of the event from its lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsdplint.runtime.launch.alignment import AlignedEvent, Key, align
from fsdplint.runtime.launch.event_schema import hashable
from fsdplint.runtime.launch.owned_modules import largest_owned_modules
from fsdplint.runtime.launch.participation import Participation
from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.trace import Event, FixedSite, Location, Module, Ranks, Trace, Wrapped


def merge(records: Sequence[RankRecord], rebase: Mapping[str, str] | None = None) -> Trace:
    """One runtime trace of the records of all ranks.

    rebase: folders to replace by others in all paths, so that the trace of a copied program has
        the paths of the original.
    """
    names = _module_names(records)
    events = align(records, names)
    result = Trace(producer="runtime", complete=True)
    for record in records:
        result.ends[record.rank] = str((record.end or {}).get("status", "stopped"))
    tree = _modules(records, names)
    result.modules.update({name: _module(line) for name, line in tree.items()})
    ranks = Participation(records, events)
    place = _Places(rebase or {})
    by_number: dict[tuple[int, int], Event] = {}
    added: list[tuple[Event, AlignedEvent]] = []
    for item in events:
        event = result.add(_event(item, ranks.of(item), tree, place))
        by_number.update({(rank, line["n"]): event for rank, line in item.lines.items()})
        added.append((event, item))
    for event, item in added:
        for name in item.schema.event_numbers:
            other = by_number.get((min(item.lines), item.first.get(name, 0)))
            setattr(event, name, other.index if other is not None else None)
    return result


# Names --------------------------------------------------------------------------------------------


def _module_names(records: Iterable[RankRecord]) -> dict[int, dict[str, str]]:
    """For each rank, maps its names of modules to the names in the merged trace."""
    by_key: dict[Key, str] = {}
    names: dict[int, dict[str, str]] = {}
    for record in records:
        own = names[record.rank] = {}
        for name, line in record.modules.items():
            key = hashable(line.get("key") or [name])
            fresh = name if not by_key or record.rank == 0 else f"{name}@{record.rank}"
            own[name] = by_key.setdefault(key, fresh)
    return names


# Events and modules -------------------------------------------------------------------------------


class _Places:
    def __init__(self, rebase: Mapping[str, str]) -> None:
        self.rebase = rebase

    def site(self, span: Sequence[Any] | None) -> FixedSite:
        if span is None:
            return FixedSite(Location("", 1))
        path, line, column, end_line, end_column = span
        for old, new in self.rebase.items():
            if path == old or path.startswith(old.rstrip("/") + "/"):
                path = new.rstrip("/") + path[len(old.rstrip("/")) :]
                break
        return FixedSite(Location(path, line, column, end_line, end_column))


def _event(item: AlignedEvent, ranks: Ranks, tree: dict[str, Line], place: _Places) -> Event:
    line = item.first

    def largest(owners: list[str]) -> list[str]:
        return largest_owned_modules(tree, owners, _wrapped_later(tree, line))

    values = item.schema.values([item.lines[rank] for rank in sorted(item.lines)], largest)
    return item.schema.kind(
        place.site(line["at"]),
        ranks=ranks,
        in_loop=item.in_loop,
        stack=tuple(place.site(span) for span in line.get("stack", ())),
        took_part=tuple(sorted(item.lines)),
        **values,
    )


def _modules(records: Iterable[RankRecord], names: dict[int, dict[str, str]]) -> dict[str, Line]:
    tree: dict[str, Line] = {}
    for record in records:
        own = names[record.rank]
        wrapped = {e["module"]: e["n"] for e in record.events if e["kind"] == Wrapped.kind}
        for name, line in record.modules.items():
            if own[name] in tree:
                continue
            line = dict(line)
            line["wrapped_at"] = wrapped.get(name)
            line["children"] = {k: own.get(v, v) for k, v in line["children"].items()}
            line["inner"] = own.get(line["inner"], line["inner"])
            tree[own[name]] = line
        for event in record.events:
            if event["kind"] == Wrapped.kind:
                _add_incomplete_wrapper(tree, own, event)
    return tree


def _add_incomplete_wrapper(tree: dict[str, Line], own: dict[str, str], event: Line) -> None:
    """Add a wrapper whose constructor raised before the record described it."""
    wrapper, inside = str(event["module"]), str(event["inner"])
    name, inner = own.get(wrapper, wrapper), own.get(inside, inside)
    if name not in tree and inner in tree:
        tree[name] = {
            "id": name,
            "class_name": "FullyShardedDataParallel",
            "qualified_class": None,
            "children": {},
            "parameters": 0,
            "own": 0,
            "container": False,
            "wrapper": "fsdp1",
            "inner": inner,
            "flat": False,
            "wrapped_at": event["n"],
        }


def _module(line: Line) -> Module:
    return Module(
        id=line["id"],
        class_name=line["class_name"],
        qualified_class=line["qualified_class"],
        children=line["children"],
        own_parameters=line["own"] > 0,
        frozen=line["parameters"] > 0 and line.get("trainable") == 0,
        container=line["container"],
        wrapper=line["wrapper"],
        inner=line["inner"],
    )


def _wrapped_later(tree: dict[str, Line], line: Line) -> set[str]:
    """The FSDP1 wrappers that were created after the event."""
    return {name for name, m in tree.items() if (m.get("wrapped_at") or 0) > line["n"]}
