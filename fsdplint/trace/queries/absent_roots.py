"""Calls of a module in a wrapper of FSDP1, in which its wrapped parts have no root."""

from __future__ import annotations

from fsdplint.trace import (
    BackwardRun,
    Called,
    Event,
    Fsdp1Used,
    GradMode,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)
from fsdplint.trace.trace import first


def use_of_absent_root(trace: Trace, event: Called, wrapper: Wrapped) -> Event | None:
    """The use of a wrapper that a call of the module in it disagrees with; None if there is none.

    In their first forward, the wrapped parts take themselves for roots unless the wrapper has been
    used before. A later use of the wrapper then fails. If it has been used before, the parts wait
    for its end of a backward, which never comes: from the second step on they are not reduced and
    gathered as they should be (seen with torch 2.13).
    """
    if event.via != "call" or event.module != wrapper.inner:
        return None
    if not _has_wrapped_parts(trace, event, wrapper):
        return None
    uses = [
        one
        for one in trace.of(Called, Fsdp1Used, StateTaken, StateLoaded)
        if one.index > wrapper.index and _uses(one, wrapper)
    ]
    earlier = first(one for one in uses if one.index < event.index)
    if earlier is None:
        return first(one for one in uses if one.index > event.index)
    return earlier if event.grad is GradMode.ON and _trains_again(trace, event) else None


def _has_wrapped_parts(trace: Trace, event: Called, wrapper: Wrapped) -> bool:
    """Whether the policy of a wrapper, or the program, has wrapped parts of the module."""
    parts = set(trace.submodules(wrapper.inner))
    return bool(wrapper.units) or any(one.module in parts for one in trace.before(event, Wrapped))


def _uses(event: Event, wrapper: Wrapped) -> bool:
    """Whether an event makes FSDP1 set up a wrapper and its parts."""
    match event:
        case Called():
            return event.module == wrapper.module and event.via in ("call", "forward")
        case Fsdp1Used():
            return event.module == wrapper.module and event.api == "summon_full_params"
        case StateTaken():
            return event.of == wrapper.module
        case StateLoaded():
            return event.into == wrapper.module
    return False


def _trains_again(trace: Trace, event: Called) -> bool:
    """Whether the module is called once more after a backward through this call."""
    backward = first(trace.after(event, BackwardRun))
    return backward is not None and any(
        one.module == event.module and one.via == "call" and one.inside is None
        for one in trace.after(backward, Called)
    )
