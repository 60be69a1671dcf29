"""Entries that an object would restore from a checkpoint, and that it never saves."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import EntryNeverSaved, OptimizerStepped, Saved, Trace
from fsdplint.trace.queries.common import whole_file


def entries_never_saved(trace: Trace) -> Iterator[tuple[EntryNeverSaved, OptimizerStepped]]:
    """The entries of checkpoints that the program writes itself, each with the next step."""
    if all(whole_file(saved.api) for saved in trace.of(Saved)):
        return
    for event in trace.of(EntryNeverSaved):
        step = next(iter(trace.after(event, OptimizerStepped)), None)
        if step is not None and not event.callbacks and not event.ranks.partial:
            yield event, step
