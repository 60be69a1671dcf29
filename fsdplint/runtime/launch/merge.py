"""The records of all ranks as one trace.

What the ranks did alike becomes one event. An event that some rank did not take part in, although
it went past that point, is marked as partial; a rank that crashed or was killed before it got
there makes no event partial.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsdplint import trace as vocabulary
from fsdplint.runtime.launch.covering import covering
from fsdplint.runtime.launch.records import Line, RankRecord
from fsdplint.runtime.recorder.loops import only_one_in_loop
from fsdplint.trace import Event, FixedSite, GradMode, Layout, Location, Module, Ranks, Trace

# Fields that name an object in the event that makes it; the name is only good on its rank.
_DEFINED = {
    "optimizer-built": "optimizer",
    "scaler-built": "scaler",
    "state-taken": "state",
    "loaded": "state",
    "mesh-built": "mesh",
}
# Fields that tell apart events at the same place.
_TELLING = (
    "module",
    "inner",
    "of",
    "into",
    "optimizer",
    "scaler",
    "via",
    "api",
    "method",
    "gathered",
)
_NAMES = (
    "module",
    "other",
    "inner",
    "of",
    "into",
    "copy",
    "result",
    "optimizer",
    "scaler",
    "state",
    "mesh",
)
_NAME_LISTS = ("group", "modules", "owners", "states", "new", "stale")

# The end of a loop is noted at its head, which is no place that the program goes on from.
_AT_THE_HEAD = ("batches-ended", "loader-left")

Key = tuple[Any, ...]


def _kinds() -> dict[str, type[Event]]:
    found = {}
    for value in vars(vocabulary).values():
        if isinstance(value, type) and issubclass(value, Event) and value is not Event:
            found[value.kind] = value
    return found


@dataclass
class _Merged:
    """One event of the merged trace and the line of each rank that took part."""

    lines: dict[int, Line] = field(default_factory=dict)
    position: int = 0
    repeated: bool = False

    @property
    def first(self) -> Line:
        return self.lines[min(self.lines)]


def merge(records: Sequence[RankRecord], rebase: Mapping[str, str] | None = None) -> Trace:
    """One runtime trace of the records of all ranks.

    rebase: folders to put in place of others in all paths, so that a program that was run as a
        copy is spoken of where it came from.
    """
    names = _module_names(records)
    events = _align(records, names)
    result = Trace(producer="runtime", complete=True)
    for record in records:
        result.ends[record.rank] = str((record.end or {}).get("status", "stopped"))
    tree = _modules(records, names)
    result.modules.update({name: _module(line) for name, line in tree.items()})
    ranks = _Participation(records, events)
    place = _Places(rebase or {})
    by_number: dict[tuple[int, int], Event] = {}
    pending: list[tuple[Event, int, Line]] = []
    for item in events:
        event = _event(item, ranks.of(item), tree, place)
        if event is None:
            continue
        result.add(event)
        for rank, line in item.lines.items():
            by_number[rank, line["n"]] = event
        pending.append((event, min(item.lines), item.first))
    for event, rank, line in pending:
        if isinstance(event, vocabulary.Called) and line.get("inside") is not None:
            outer = by_number.get((rank, line["inside"]))
            event.inside = outer.index if outer is not None else None
    return result


# Names --------------------------------------------------------------------------------------------


def _hashable(value: Any) -> Any:
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


def _module_names(records: Iterable[RankRecord]) -> dict[int, dict[str, str]]:
    """For each rank, its names of modules with the names that they have in the merged trace."""
    by_key: dict[Key, str] = {}
    names: dict[int, dict[str, str]] = {}
    for record in records:
        own = names[record.rank] = {}
        for name, line in record.modules.items():
            key = _hashable(line.get("key") or [name])
            fresh = name if not by_key or record.rank == 0 else f"{name}@{record.rank}"
            own[name] = by_key.setdefault(key, fresh)
    return names


def _renamed(line: Line, names: dict[str, str]) -> Line:
    line = dict(line)
    for key in _NAMES:
        if isinstance(line.get(key), str):
            line[key] = names.get(line[key], line[key])
    for key in _NAME_LISTS:
        if isinstance(line.get(key), list):
            line[key] = [names.get(name, name) for name in line[key]]
    return line


# Aligning -----------------------------------------------------------------------------------------


def _align(records: Sequence[RankRecord], names: dict[int, dict[str, str]]) -> list[_Merged]:
    """The events of all ranks, alike ones together, in an order that keeps every rank's own.

    The n-th occurrence of something on one rank is the n-th occurrence on another.
    """
    merged: list[_Merged] = []
    known: dict[Key, _Merged] = {}
    for record in records:
        own = names[record.rank]
        counts: Counter[Key] = Counter()
        after: dict[int, list[_Merged]] = {}
        last: int = -1
        for line in record.events:
            line = _renamed(line, own)
            kind = line["kind"]
            defined = _DEFINED.get(kind)
            key: Key = (
                kind,
                _hashable(line["at"]),
                tuple(str(line.get(name)) for name in _TELLING if name != defined),
            )
            counts[key] += 1
            repeated = counts[key] > 1
            this = (*key, counts[key])
            item = known.get(this)
            if item is None:
                item = known[this] = _Merged()
                after.setdefault(last, []).append(item)
                if defined and record.rank != records[0].rank and isinstance(line[defined], str):
                    fresh = f"{line[defined]}@{record.rank}"
                    own[line[defined]] = line[defined] = fresh
            else:
                if item.position > last:
                    last = item.position
                if defined and item.lines:
                    own[line[defined]] = line[defined] = item.first[defined]
            item.lines[record.rank] = line
            item.repeated = item.repeated or repeated
        merged = _inserted(merged, after, record.rank)
        for key, count in counts.items():
            first = (*key, 1)
            if count > 1:
                known[first].repeated = True
    return merged


def _inserted(merged: list[_Merged], after: dict[int, list[_Merged]], rank: int) -> list[_Merged]:
    """The merged events with those put in that so far only `rank` has, by the position before."""
    result = list(after.get(-1, ()))
    waiting: list[_Merged] = []
    base: Line | None = None
    for index, item in enumerate(merged):
        if waiting and (rank in item.lines or not _is_before(item.first, waiting[0].first, base)):
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


# Who took part ------------------------------------------------------------------------------------


class _Participation:
    """Works out on which ranks an event happened, with regard to ranks that never got there."""

    def __init__(self, records: Sequence[RankRecord], events: Sequence[_Merged]) -> None:
        self.ranks = [record.rank for record in records]
        self.finished = {record.rank for record in records if record.finished}
        self.events = events
        self.last_shared: dict[tuple[int, int], int] = {}
        for item in events:
            for one in item.lines:
                if item.lines[one].get("handling"):
                    continue  # a rank gets to its `finally` blocks from anywhere
                for other in item.lines:
                    self.last_shared[one, other] = item.position

    def of(self, item: _Merged) -> Ranks:
        took_part = set(item.lines)
        skipped = {
            rank for rank in self.ranks if rank not in took_part and self._passed(rank, item)
        }
        if not skipped:
            return Ranks.ALL
        if took_part == {0}:
            return Ranks.ONE
        if skipped == {0}:
            return Ranks.OTHERS
        if len(took_part) == 1:
            return Ranks.ONE
        return Ranks.OTHERS if len(skipped) == 1 else Ranks.SOME

    def _passed(self, rank: int, item: _Merged) -> bool:
        """Whether a rank that did not take part in an event has gone past it."""
        if rank in self.finished:
            return True
        for other in item.lines:
            shared = self.last_shared.get((rank, other), -1)
            if shared > item.position:
                return True
            if self._turned_away(rank, other, item, shared):
                return True
        return False

    def _turned_away(self, rank: int, other: int, item: _Merged, shared: int) -> bool:
        """Whether the first thing that `rank` did on its own lies behind the event in the code."""
        following = next(
            (
                e
                for e in self.events[shared + 1 :]
                if rank in e.lines and other not in e.lines and e.first["kind"] not in _AT_THE_HEAD
            ),
            None,
        )
        if following is None:
            return False
        before = self.events[shared].lines[rank] if shared >= 0 else None
        return _is_before(item.lines[other], following.lines[rank], before)


def _frames(line: Line) -> list[tuple[Any, ...]]:
    """(path, first line of the function, line, column) of each frame, outermost first."""
    spans = [*line.get("stack", ()), line["at"]] if line.get("at") else []
    return [
        (span[0], first, span[1], span[2])
        for span, first in zip(spans, line.get("functions", ()), strict=False)
    ]


def _is_before(one: Line, other: Line, base: Line | None) -> bool:
    """Whether, going on from `base`, the program reaches the code of `one` before `other`'s.

    Both are compared in the function in which their ways part. A place at or above `base` is
    reached only after another turn of the loop; what is in a loop with the base is reached before
    what stands behind that loop.
    """
    ones, others = _frames(one), _frames(other)
    bases = _frames(base) if base is not None else []
    for index, (a, b) in enumerate(zip(ones, others, strict=False)):
        if a == b:
            continue
        if a[:2] != b[:2]:
            return False
        start = (0, 0)
        if len(bases) > index and bases[:index] == ones[:index] and bases[index][:2] == a[:2]:
            start = bases[index][2:]
            turning = only_one_in_loop(a[0], start[0], a[2], b[2])
            if turning:
                return turning == 1
        again = _again(ones[index:], bases[index:], start), a[2:]
        return again < (_again(others[index:], bases[index:], start), b[2:])
    return False


def _again(frames: list[tuple[Any, ...]], bases: list[tuple[Any, ...]], start: Any) -> bool:
    """Whether the first frame is at or above the place `start`: another turn of the loop.

    A frame that is in the call that the base is in, further down, is not.
    """
    place = frames[0][2:]
    if place != start:
        return bool(place < start)
    for frame, base in zip(frames[1:], bases[1:], strict=False):
        if frame != base:
            return frame[:2] != base[:2] or bool(frame[2:] < base[2:])
    return True


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


_KINDS = _kinds()
_NOT_RECORDED = ("site", "ranks", "guards", "in_loop", "stack", "took_part", "index", "inside")
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "grad": GradMode,
    "layout": Layout,
    "layouts": lambda values: tuple(Layout(value) for value in values),
    "path": lambda path: path or "",
}


def _event(item: _Merged, ranks: Ranks, tree: dict[str, Line], place: _Places) -> Event | None:
    line = item.first
    cls = _KINDS.get(line["kind"])
    if cls is None:
        return None
    values: dict[str, Any] = {}
    for spec in dataclasses.fields(cls):
        if spec.name in _NOT_RECORDED:
            continue
        if spec.name in line:
            value = _CONVERT.get(spec.name, _hashable)(line[spec.name])
            values[spec.name] = value
    if cls is vocabulary.Called:
        values["on_meta"] = any(other.get("on_meta") for other in item.lines.values())
    if "owners" in line:
        values["modules"] = tuple(covering(tree, line["owners"], _wrapped_later(tree, line)))
    if "each" in line:
        values["each"] = {rank: other["each"] for rank, other in item.lines.items()}
    if "path" in line:
        values["per_rank"] = len({other["path"] for other in item.lines.values()}) > 1
    if "inputs" in line:
        values["alike"] = _alike([other.get("inputs", []) for other in item.lines.values()])
    if "seed" in line:
        values["per_rank"] = len({other["seed"] for other in item.lines.values()}) > 1
    if line.get("weights") is not None and len(item.lines) > 1:
        values["alike"] = len({other.get("weights") for other in item.lines.values()}) == 1
    return cls(
        site=place.site(line["at"]),
        ranks=ranks,
        in_loop=item.repeated,
        stack=tuple(place.site(span) for span in line.get("stack", ())),
        took_part=tuple(sorted(item.lines)),
        **values,
    )


def _alike(inputs: Sequence[Sequence[str]]) -> bool | None:
    """Whether all ranks' models got the same; None where it is the same in every call, or where
    there is only one call: then it says nothing of where the data came from."""
    first = inputs[0]
    if len(inputs) < 2 or len(set(first)) < 2:
        return None
    return all(other == first for other in inputs)


def _modules(records: Iterable[RankRecord], names: dict[int, dict[str, str]]) -> dict[str, Line]:
    tree: dict[str, Line] = {}
    for record in records:
        own = names[record.rank]
        wrapped = {e["module"]: e["n"] for e in record.events if e["kind"] == "module-wrapped"}
        for name, line in record.modules.items():
            if own[name] in tree:
                continue
            line = dict(line)
            line["wrapped_at"] = wrapped.get(name)
            line["children"] = {k: own.get(v, v) for k, v in line["children"].items()}
            line["inner"] = own.get(line["inner"], line["inner"])
            tree[own[name]] = line
        for event in record.events:
            if event["kind"] == "module-wrapped":
                _add_unfinished(tree, own, event)
    return tree


def _add_unfinished(tree: dict[str, Line], own: dict[str, str], event: Line) -> None:
    """A wrapper whose constructor raised was never described."""
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
    """FSDP1 wrappers that did not exist yet when the event happened."""
    return {name for name, m in tree.items() if (m.get("wrapped_at") or 0) > line["n"]}
