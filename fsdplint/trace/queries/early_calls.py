"""Parts of sharded models that are called before the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Called,
    Fsdp1Used,
    Gathered,
    Sharded,
    Sharding,
    StateLoaded,
    StateTaken,
    Trace,
    Wrapped,
)
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import is_under_varying_test


@dataclass(frozen=True)
class Early:
    """A sharded part, the sharded module that holds it, and the first calls of the two."""

    part: str
    holder: str
    call: Called
    later: Called


def early_calls(groups: Groups, *, as_fsdp2: bool = False) -> Iterator[Early]:
    """The parts that are certainly called first and so become roots; may contain duplicates.

    as_fsdp2: treat modules of FSDP1 as modules of FSDP2. With FSDP1 any use makes a module the
        root, with FSDP2 only a call.
    """
    trace = groups.trace
    sharded: set[str] = set()
    begun: set[str] = set()
    early: dict[str, Called] = {}  # modules that were called as if they were roots
    for event in trace:
        if isinstance(event, Sharded | Wrapped):
            sharded.update(sharded_by(event))
            if as_fsdp2 and isinstance(event, Wrapped):
                sharded.update(event.units or ())
        elif isinstance(event, Gathered) and event.gathered:
            begun.add(event.module)
        elif isinstance(event, StateTaken | StateLoaded | Fsdp1Used) and not as_fsdp2:
            begun.update(_used_module(trace, event, sharded))
        if not isinstance(event, Called) or not groups.gathers(event):
            continue
        module = trace.unwrapped_to(event.module, sharded)
        if module is None or module in begun:
            continue
        begun.add(module)
        if _is_first(groups, event, module, begun):
            early[module] = event
        below = set(trace.submodules(module)) - {module}
        for part, call in early.items():
            if part in below and not is_under_varying_test(event):
                yield Early(part, module, call, event)


def _used_module(
    trace: Trace, event: StateTaken | StateLoaded | Fsdp1Used, sharded: set[str]
) -> Iterator[str]:
    """The FSDP1 module that an event uses."""
    name = event.of if isinstance(event, StateTaken) else getattr(event, "into", None)
    name = event.module if isinstance(event, Fsdp1Used) else name
    module = trace.unwrapped_to(name, sharded) if name is not None else None
    if module is not None and trace.sharding(module, event) is Sharding.FSDP1:
        yield module


def _is_first(groups: Groups, event: Called, module: str, begun: set[str]) -> bool:
    """Whether a call certainly is the first that reaches a module, with no module around it
    begun.
    """
    above = set(groups.ancestors(module))
    return not (
        above & begun
        or any(outer.module in above for outer in groups.enclosing_calls(event))
        or is_under_varying_test(event)
        or event.ranks.partial
        or groups.trace.escaped(module, event)
    )
