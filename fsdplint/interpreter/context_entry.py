"""Entering and leaving a context manager, by `with` or by a call."""

from __future__ import annotations

from fsdplint.interpreter.functions import call_method_if_any
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.summoned_modules import note_lost_edits
from fsdplint.interpreter.torch_values import Batches
from fsdplint.interpreter.values import Context, Instance, Lazy, Sequence, Unknown, Value

EXIT_STACK = "exit_stack"  # the kind of the context `contextlib.ExitStack()`


class Stopped(Exception):
    """A function stops for a while. The contexts that it has entered are not left."""


def enter(run: Run, context: Value) -> Value:
    """What a context does at its begin; the value of `with context as name`."""
    entered = _entered_value(run, context)
    run.contexts.append(context)
    return entered


def leave(run: Run, context: Value) -> None:
    """What a context does at its end. One that was not entered does nothing."""
    places = [n for n, one in enumerate(run.contexts) if one is context]
    if not places:
        return
    del run.contexts[places[-1]]
    if isinstance(context, Context):
        note_lost_edits(run, context)
    if isinstance(context, Context) and context.on_exit is not None:
        context.on_exit()
    if isinstance(context, Instance):
        call_method_if_any(run, context, "__exit__")


def _entered_value(run: Run, context: Value) -> Value:
    if isinstance(context, Instance):
        return call_method_if_any(run, context, "__enter__") or Unknown()
    if isinstance(context, Context):
        return context if context.kind == EXIT_STACK else context.module or Unknown()
    if isinstance(context, Unknown) and context.origin.startswith("open("):
        return context  # an opened file differs by rank if its path does
    if isinstance(context, Batches | Lazy | Sequence):
        return context  # a progress bar, which gives what it is over
    return Unknown()
