"""Whether the program catches the errors of what is executed."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import is_in_try
from fsdplint.interpreter.values import Context
from fsdplint.trace import GuardKind

SUPPRESS = "suppress"  # the kind of the context `contextlib.suppress(...)`


def catches_errors(run: Run, node: cst.CSTNode) -> bool:
    """Whether errors of a node may be caught, as far as that is seen, by a `try` of its function or
    by a context that is open now."""
    suppressed = any(isinstance(one, Context) and one.kind == SUPPRESS for one in run.contexts)
    return suppressed or is_in_try(run.source, node)


def note_failure(run: Run) -> None:
    """An error is raised here: it ends the program, if nothing around it catches it.

    Ranks or turns of a loop that do not come here would go on.
    """
    loops = run.loop_depth or any(frame.loop_depth for frame in run.frames)
    if run.trace.fails_at is not None or loops or run.callbacks:
        return
    if any(entry.guard.kind is not GuardKind.CONFIG for entry in run.guards):
        return
    caught = any(isinstance(one, Context) and one.kind == SUPPRESS for one in run.contexts)
    if not caught and not any(frame.handlers for frame in run.frames):
        run.trace.fails_at = len(run.trace.events)
