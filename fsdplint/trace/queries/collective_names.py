"""What a collective is called in messages, where its event has no name of an API."""

from __future__ import annotations

from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    Gathered,
    MeshBuilt,
    ProcessGroupDestroyed,
    ProcessGroupInit,
    Replicated,
    Sharded,
    Trace,
    Wrapped,
)
from fsdplint.trace.queries.common import class_name

_TEXTS: dict[type[Event], str] = {
    BackwardRun: "the backward of a sharded model",
    MeshBuilt: "`init_device_mesh`",
    ProcessGroupDestroyed: "`destroy_process_group`",
    ProcessGroupInit: "`init_process_group`",
}


def collective_text(trace: Trace, event: Event, *, short: bool = False) -> str:
    """A collective in words of the program. short: without the owner of its function."""
    if isinstance(event, Called):
        return f"the forward of sharded `{class_name(trace, event.module)}`"
    if isinstance(event, Wrapped):
        return f"the sharding of `{class_name(trace, event.inner)}`"
    if isinstance(event, Sharded):
        return f"the sharding of `{class_name(trace, event.module)}`"
    if isinstance(event, Replicated):
        return f"`DistributedDataParallel` of `{class_name(trace, event.inner)}`"
    if isinstance(event, Gathered):
        return f"`unshard()` of `{class_name(trace, event.module)}`"
    api = getattr(event, "api", "")
    if api:
        return f"`{api.rpartition('.')[2] if short else api}`"
    return _TEXTS.get(type(event), "a collective")
