"""Schedulers and gradient scalers that get their own state back after a checkpoint was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    HelperStateLoaded,
    HelperStateTaken,
    Loaded,
    ScalerStepped,
    SchedulerStepped,
    Trace,
)


@dataclass(frozen=True)
class OwnState:
    """A state that a scheduler or scaler gave after a checkpoint was read, and that it loads."""

    event: HelperStateLoaded
    taken: HelperStateTaken
    read: Loaded


def own_states_loaded(trace: Trace) -> Iterator[OwnState]:
    """The loads that change nothing: since it was taken, nothing was read into the state."""
    for event in trace.of(HelperStateLoaded):
        if not event.unchanged or event.callbacks:
            continue
        taken = next(
            (one for one in trace.before(event, HelperStateTaken) if one.state == event.state), None
        )
        if taken is None or taken.of != event.into:
            continue
        if any(event.state in one.helper_states for one in trace.before(event, Loaded)):
            continue
        if _steps_between(trace, taken, event):
            continue
        read = [one for one in trace.before(event, Loaded) if not one.callbacks]
        if read:
            yield OwnState(event, taken, read[-1])


def _steps_between(trace: Trace, taken: HelperStateTaken, event: HelperStateLoaded) -> bool:
    steps = [
        *(step for step in trace.of(SchedulerStepped) if step.scheduler == event.into),
        *(step for step in trace.of(ScalerStepped) if step.scaler == event.into),
    ]
    return any(taken.index < step.index < event.index for step in steps)
