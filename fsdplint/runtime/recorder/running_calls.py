"""The running calls of modules."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import Called


class RunningCalls:
    """The running calls, innermost last: (module, event, name of the method)."""

    def __init__(self) -> None:
        self.stack: list[tuple[Any, Entry[Called], str]] = []
        # Method calls that are written only if they go on to call a module, or raise.
        self.waiting: list[Entry[Called]] = []
        # The number of the event of the last `summon_full_params`, and whether it writes back.
        self.summoning: tuple[int, bool] | None = None

    def summoned_by(self, module: Any) -> tuple[int | None, bool | None]:
        """The same if it has gathered a unit of FSDP1 that is about to run; else None twice."""
        state = getattr(module, "training_state", None)
        if self.summoning is None or getattr(state, "name", "") != "SUMMON_FULL_PARAMS":
            return None, None
        return self.summoning

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

    def bypasses_call(self) -> bool:
        """Whether the innermost call did not go through `__call__`, so that its calls matter."""
        return bool(self.stack) and self.stack[-1][2] != "call"

    def flush(self) -> None:
        """Write the waiting method calls: they call a module or raise."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call.write()
