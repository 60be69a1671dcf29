"""What happened at the line of a fix, before and after, and which comparisons are about it."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fsdplint.runtime.proof.checks import Check, Comparison
from fsdplint.trace import Event, Trace

_SHARDING = (
    "sharded modules",
    "placement",
    "bytes of",
    "mixed precision",
    "types of",
    "trained parameters",
    "gradient divide factor",
    "losses",
    "parameters",
)
# What the events at a line have to do with: the beginnings of the names of checks.
_ABOUT: Mapping[str, tuple[str, ...]] = {
    "module-wrapped": _SHARDING,
    "module-sharded": _SHARDING,
    "gradients-clipped": ("gradient norms", "gradient clipping", "clipping arguments"),
    "gradient-sync-switched": ("gradient reductions", "gradient norms"),
    "optimizer-built": ("steps", "parameter groups", "optimizers", "parameters"),
    "optimizer-stepped": ("steps", "parameters", "optimizer state"),
    "scaler-built": ("steps", "losses", "loss scale", "parameters"),
    "scaler-stepped": ("steps", "losses", "loss scale", "parameters"),
    "state-taken": ("checkpoint", "optimizer state", "resumed"),
    "saved": ("checkpoint", "resumed"),
    "state-loaded": ("losses", "parameters", "optimizer state", "resumed"),
    "loaded": ("losses", "parameters", "optimizer state", "resumed"),
    "module-called": ("losses",),
}
_ANYTHING = ("losses", "gradient norms", "parameters")


def events_at(trace: Trace, path: str, lines: Collection[int]) -> list[Event]:
    """The events at some lines of a file, in the order in which they happened."""
    found = []
    for event in trace.events:
        at = event.site.location()
        if at.line in lines and os.path.realpath(at.path) == path:
            found.append(event)
    return found


def in_words(events: Iterable[Event]) -> str:
    """Events by kind with their number, "module-sharded x3, gradients-clipped"."""
    counts = Counter(_named(event) for event in events)
    return ", ".join(name if n == 1 else f"{name} x{n}" for name, n in counts.items())


def _named(event: Event) -> str:
    api = str(getattr(event, "api", "") or getattr(event, "via", ""))
    return f"{event.kind} ({api.rpartition('.')[2]})" if api and api != "call" else event.kind


def related_checks(events: Sequence[Event], comparison: Comparison | None) -> list[Check]:
    """The comparisons that these events could have spoilt."""
    if comparison is None:
        return []
    wanted = {name for event in events for name in _ABOUT.get(event.kind, ())}
    names = tuple(wanted) or _ANYTHING
    return [check for check in comparison.checks if check.name.startswith(names)]


class LineMap:
    """Where the lines of the original files stand in the fixed ones."""

    def __init__(self, texts: Mapping[Path, tuple[str, str]]) -> None:
        """texts: each file's original and fixed text."""
        self.lines: dict[str, dict[int, int]] = {}
        self.blocks: dict[str, list[tuple[range, range]]] = {}
        for path, both in texts.items():
            old, new = (text.splitlines() for text in both)
            matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
            lines = self.lines[str(path)] = {}
            blocks = self.blocks[str(path)] = []
            for tag, start, end, new_start, new_end in matcher.get_opcodes():
                for offset in range(end - start):
                    if tag == "equal" or offset < new_end - new_start:
                        lines[start + offset + 1] = new_start + offset + 1
                if tag != "equal":
                    blocks.append((range(start + 1, end + 1), range(new_start + 1, new_end + 1)))

    def after(self, place: tuple[str, int]) -> tuple[str, int] | None:
        """The place in the fixed file, None where the line is gone."""
        path, line = place
        if path not in self.lines:
            return place
        there = self.lines[path].get(line)
        return (path, there) if there is not None else None

    def replaced(self, place: tuple[str, int]) -> tuple[range, range]:
        """The change that a line is in, before and after; the line itself where it is in none."""
        path, line = place
        for old, new in self.blocks.get(path, ()):
            if line in old:
                return old, new
        there = self.after(place)
        number = there[1] if there is not None else line
        return range(line, line + 1), range(number, number + 1)
