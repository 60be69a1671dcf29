"""The history of shardings in a trace: how modules were sharded before an event.

There is one history for a trace. A table for each event would grow with the square of the number
of models.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from fsdplint.trace.base import Sharding
from fsdplint.trace.modules import Sharded, Wrapped


class History:
    """For each module that was itself wrapped or sharded: the events and the kind of sharding."""

    def __init__(self, events: Iterable[Wrapped | Sharded]) -> None:
        self.steps: dict[str, list[tuple[int, Sharding]]] = {}
        for event in events:
            if isinstance(event, Wrapped):
                self._add(event.module, event.index, Sharding.FSDP1)
            else:
                for module in event.group or (event.module,):
                    self._add(module, event.index, Sharding.FSDP2)

    def _add(self, module: str, index: int, sharding: Sharding) -> None:
        self.steps.setdefault(module, []).append((index, sharding))


class Shardings(Mapping[str, Sharding]):
    """The modules that were themselves wrapped or sharded before a place in the trace."""

    def __init__(self, history: History, end: int | None = None) -> None:
        """end: the index of the event that is the place; None for the end of the trace."""
        self._steps = history.steps
        self._end = end

    def __getitem__(self, module: str) -> Sharding:
        steps = self._steps[module]
        last = len(steps) if self._end is None else bisect_left(steps, (self._end,))
        if not last:
            raise KeyError(module)
        return steps[last - 1][1]

    def __contains__(self, module: object) -> bool:
        steps = self._steps.get(module)  # type: ignore[call-overload]
        return steps is not None and (self._end is None or steps[0][0] < self._end)

    def __iter__(self) -> Iterator[str]:
        return (module for module in self._steps if module in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None
