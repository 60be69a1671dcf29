"""Modules that are built on the meta device."""

from __future__ import annotations

from fsdplint.trace import ModuleBuilt, ModuleMoved, StateLoaded, Trace, Wrapped


def wrapped_on_meta(trace: Trace, event: Wrapped, *, on_all_ranks: bool = False) -> bool:
    """Whether all of a model was built on the meta device, and not moved or loaded since.

    on_all_ranks: ask the same of each rank, not only of those that built it there.
    """
    built = [
        one for one in trace.before(event, ModuleBuilt) if trace.related(one.module, event.inner)
    ]
    if on_all_ranks and any(one.ranks.partial for one in built):
        return False
    moved = any(trace.related(one.module, event.inner) for one in trace.before(event, ModuleMoved))
    loaded = any(trace.related(one.into, event.inner) for one in trace.before(event, StateLoaded))
    return bool(built) and all(one.on_meta for one in built) and not moved and not loaded
