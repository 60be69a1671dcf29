"""The units of FSDP1 in a model, each of which becomes a group of FSDP2."""

from __future__ import annotations

from functools import cached_property

from fsdplint.trace import Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.wrappers import strategy

KEEPS = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2", "NO_SHARD")


class Units:
    """Finds the unit that holds a module's own parameters, in one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.groups = Groups(trace)

    @cached_property
    def wraps(self) -> dict[str, Wrapped]:
        """The call that creates each unit, by the unit's module."""
        found: dict[str, Wrapped] = {}
        for event in self.trace.of(Wrapped):
            found.setdefault(event.inner, event)
            for unit in event.units or ():
                found.setdefault(unit, event)
        return found

    def unit(self, module: str) -> str | None:
        """The module of the unit that holds a module's own parameters.

        None if it is not known, or if FSDP1 does not wrap the module.
        """
        between: list[str] = []
        for candidate in (module, *self.groups.ancestors(module)):
            event = self.wraps.get(candidate)
            if event is not None:
                unknown = event.units is None and candidate == event.inner
                if unknown and not set(between) <= set(event.outside):
                    return None  # an unreadable policy may wrap a module in between
                return candidate
            between.append(candidate)
        return None

    def outermost_wrap(self, module: str) -> Wrapped | None:
        """The outermost constructor call whose model contains a module."""
        found = [m for m in (module, *self.groups.ancestors(module)) if m in self.wraps]
        return self.wraps[found[-1]] if found else None

    def may_stay_gathered(self, module: str) -> bool:
        """Whether FSDP2 may keep the unit of a module gathered after a forward."""
        unit = self.unit(module)
        if unit is None:
            return self.outermost_wrap(module) is not None
        event = self.wraps[unit]
        root = self.outermost_wrap(module)
        is_root = root is not None and root.inner == unit
        return is_root or strategy(event) is None or strategy(event) in KEEPS
