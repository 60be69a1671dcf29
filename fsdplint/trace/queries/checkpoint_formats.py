"""The formats in which a program writes and reads a checkpoint."""

from __future__ import annotations

from fsdplint.trace import Loaded, Saved, Trace

_DISTRIBUTED = "torch.distributed.checkpoint."


def is_distributed(event: Saved | Loaded) -> bool:
    """Whether a function writes or reads a distributed checkpoint."""
    return event.api.startswith(_DISTRIBUTED)


def other_format(trace: Trace, event: Loaded) -> Saved | None:
    """Where the program writes what is read, in a format that the reader does not know.

    None if it also writes the same path in the format that is read. A path that is only the name of
    a variable may be another one in each function.
    """
    if not event.path or event.path.isidentifier():
        return None
    distributed = is_distributed(event)
    if not distributed and not event.api.startswith("torch.load"):
        return None
    written = [saved for saved in trace.of(Saved) if saved.path == event.path]
    for saved in written:
        known = is_distributed(saved) if not distributed else saved.api.startswith("torch.save")
        if not known:
            return None
    return next(iter(written), None)
