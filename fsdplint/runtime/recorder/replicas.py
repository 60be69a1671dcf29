"""Digests of parameters that must be equal on several ranks.

These are the replicas of a 2-D mesh (HSDP) and the parameters that FSDP2 ignores. Each rank records
digests of its values at the first steps, and a rule compares them.
"""

from __future__ import annotations

from collections import Counter
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.digests import digest
from fsdplint.runtime.recorder.final_state import plain_name
from fsdplint.runtime.recorder.measures import Measures
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.recorder import Recorder
from fsdplint.trace import CopiesSeen

_LOOKS = 3  # steps of an optimizer that are examined
_NAMES = 100  # parameters of a model that are recorded


class Replicas:
    """Examines the steps of all optimizers of the program."""

    def __init__(self, recorder: Recorder, objects: Objects, measures: Measures) -> None:
        self._recorder = recorder
        self._objects = objects
        self._measures = measures
        self._looks: Counter[str] = Counter()

    def before_step(self, optimizer: Any, name: str, frame: FrameType | None) -> None:
        """Record the copies before an optimizer's step."""
        if self._recorder.world < 2 or self._looks[name] >= _LOOKS:
            return
        self._looks[name] += 1
        optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for root in _roots(self._objects):
            copies = {
                plain_name(key): (part, digest(parameter))
                for key, parameter in list(root.named_parameters())
                if id(parameter) in optimized and (part := _part(parameter)) is not None
            }
            if copies:
                self._recorder.event(
                    CopiesSeen,
                    frame,
                    module=self._objects.module(root),
                    optimizer=name,
                    look=self._looks[name],
                    exchanged=self._measures.exchanged,
                    each={self._recorder.rank: dict(list(copies.items())[:_NAMES])},
                )


def _roots(objects: Objects) -> list[Any]:
    """The outermost modules that FSDP2 shards."""
    sharded = [module for module, kind in objects.sharded.items() if kind == "fsdp2"]
    below = {id(part) for module in sharded for part in list(module.modules())[1:]}
    return [module for module in sharded if id(module) not in below]


def _part(parameter: Any) -> str | None:
    """The part that this rank holds, if other ranks hold the same part; else None."""
    placements = getattr(parameter, "placements", None)
    if placements is None:
        return None if parameter.is_meta else "ignored"
    if not any(placement.is_replicate() for placement in placements):
        return None
    place = parameter.device_mesh.get_coordinate()
    return "replica " + " ".join(
        str(at)
        for at, placement in zip(place or (), placements, strict=True)
        if not placement.is_replicate()
    )
