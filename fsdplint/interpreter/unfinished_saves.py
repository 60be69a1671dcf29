"""Asynchronous saves whose result the program keeps, and does not use in time."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.trace import Saved

_ASYNC = "async_save"


def note_use(run: Run) -> None:
    """Note that the program comes to something that needs the last save to be done."""
    last = next((event for event in reversed(run.trace.events) if isinstance(event, Saved)), None)
    if last is not None and last.api.endswith(_ASYNC) and not last.dropped:
        last.unawaited |= run.may_have_waited_at <= last.index
