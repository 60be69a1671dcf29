"""The calls of modules that are running now."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import Called


class RunningCalls:
    """The calls that are running now, innermost last: (module, event, how entered)."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, Entry[Called], str]] = []
        # Method calls that are written only if they go on to call a module, or raise.
        self.waiting: list[Entry[Called]] = []

    def inside(self) -> int | None:
        return self.stack[-1][1].number if self.stack else None

    def communicates(self) -> None:
        """The innermost call is about to run a collective of all ranks."""
        if self.stack:
            _, call, _ = self.stack[-1]
            if not call.event.communicated:
                call.event.communicated = True
                if call not in self.waiting:
                    call.write()

    def ungathered(self) -> bool:
        """Whether what runs was not entered through `__call__`: what it calls in turn matters."""
        return bool(self.stack) and self.stack[-1][2] != "call"

    def flush(self) -> None:
        """Write the method calls that turned out to compute something."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call.write()
