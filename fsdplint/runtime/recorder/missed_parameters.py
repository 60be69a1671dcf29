"""Finds parameters that get gradients although no optimizer holds them.

Two of the first steps of each optimizer are compared: a parameter that the program updates by hand
changes between them and is not reported.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.digests import digest
from fsdplint.runtime.recorder.final_state import plain_name
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.recorder import Recorder
from fsdplint.trace import ParametersMissed

_LOOKS = 4  # steps of an optimizer that are examined
_NAMES = 50  # names of parameters that are recorded


@dataclass
class _Look:
    """The last examined step of an optimizer: the digests of parameters without an optimizer."""

    steps: int = 0
    digests: dict[int, int] = field(default_factory=dict)
    is_reported: bool = False


class MissedParameters:
    """Examines the steps of all optimizers of the program."""

    def __init__(self, recorder: Recorder, objects: Objects) -> None:
        self._recorder = recorder
        self._objects = objects
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._looks: dict[str, _Look] = {}

    def add_optimizer(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)

    def before_step(self, optimizer: Any, name: str, frame: FrameType | None) -> None:
        """Examine the gradients before an optimizer's step."""
        look = self._looks.setdefault(name, _Look())
        if look.is_reported or look.steps >= _LOOKS:
            return
        look.steps += 1
        self._optimizers.add(optimizer)
        previous, look.digests = look.digests, {}
        held = {id(p) for one in self._optimizers for p in _parameters(one)}
        for root in _roots(optimizer, self._objects):
            named = list(root.named_parameters())
            unheld = [(key, p) for key, p in named if _is_unheld(p, held)]
            look.digests.update((id(p), digest(p)) for _, p in unheld)
            again = [key for key, p in unheld if previous.get(id(p)) == look.digests[id(p)]]
            if again:
                look.is_reported = True
                self._recorder.event(
                    ParametersMissed,
                    frame,
                    module=self._objects.module(root),
                    optimizer=name,
                    parameters=tuple(plain_name(key) for key in again[:_NAMES]),
                    trained_count=sum(id(p) in held for _, p in named),
                )


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _is_unheld(parameter: Any, held: set[int]) -> bool:
    return parameter.requires_grad and parameter.grad is not None and id(parameter) not in held


def _roots(optimizer: Any, objects: Objects) -> list[Any]:
    """The outermost sharded modules of which the optimizer holds parameters.

    Empty if it holds parameters that sharding or loading has replaced: that is another error.
    """
    optimized = {id(p) for p in _parameters(optimizer)}
    sharded = [module for module, _ in objects.sharded.items()]
    below = {id(part) for module in sharded for part in list(module.modules())[1:]}
    found = []
    for module in sharded:
        if id(module) in below:
            continue
        owned = {id(p) for p in module.parameters()}
        if owned & optimized:
            found.append(module)
            optimized -= owned
    stale = (objects.owners.get(p) for p in _parameters(optimizer) if id(p) in optimized)
    within = {id(part) for module in found for part in module.modules()}
    return [] if any(id(owner) in within for owner in stale) else found
