"""The events at the line of a fix, before and after, and the checks that concern them."""

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
# The checks that an event may affect, by the beginnings of their names.
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
_DEFAULT_CHECKS = ("losses", "gradient norms", "parameters")


def events_at(trace: Trace, path: str, lines: Collection[int]) -> list[Event]:
    """The events at these lines of a file, in their order in the trace."""
    found = []
    for event in trace.events:
        at = event.site.location()
        if at.line in lines and os.path.realpath(at.path) == path:
            found.append(event)
    return found


def describe_events(events: Iterable[Event]) -> str:
    """Events by kind with their number: "module-sharded x3, gradients-clipped"."""
    counts = Counter(_event_name(event) for event in events)
    return ", ".join(name if n == 1 else f"{name} x{n}" for name, n in counts.items())


def _event_name(event: Event) -> str:
    api = str(getattr(event, "api", "") or getattr(event, "via", ""))
    return f"{event.kind} ({api.rpartition('.')[2]})" if api and api != "call" else event.kind


def related_checks(events: Sequence[Event], comparison: Comparison | None) -> list[Check]:
    """The checks that these events may affect."""
    if comparison is None:
        return []
    wanted = {name for event in events for name in _ABOUT.get(event.kind, ())}
    names = tuple(wanted) or _DEFAULT_CHECKS
    return [check for check in comparison.checks if check.name.startswith(names)]


class LineMap:
    """Maps lines of the original files to lines of the fixed files."""

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
        """The place in the fixed file; None if the line was removed."""
        path, line = place
        if path not in self.lines:
            return place
        fixed_line = self.lines[path].get(line)
        return (path, fixed_line) if fixed_line is not None else None

    def changed_ranges(self, place: tuple[str, int]) -> tuple[range, range]:
        """The lines, before and after, of the change at a place; the line itself if unchanged."""
        path, line = place
        for old, new in self.blocks.get(path, ()):
            if line in old:
                return old, new
        fixed_line = self.after(place)
        number = fixed_line[1] if fixed_line is not None else line
        return range(line, line + 1), range(number, number + 1)
