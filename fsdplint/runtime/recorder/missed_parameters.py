"""Parameters that get gradients while no optimizer holds them.

Looked for at the first steps of each optimizer, between two of them: a parameter that the program
updates by hand changes in between and is not missed.
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

_LOOKS = 4  # steps of an optimizer at which it is looked
_NAMES = 50  # written down of the parameters


@dataclass
class _Look:
    """What one step of an optimizer saw: the digests of the parameters that nobody holds."""

    steps: int = 0
    missed: dict[int, int] = field(default_factory=dict)
    reported: bool = False


class MissedParameters:
    """The looks of all optimizers of the program."""

    def __init__(self, recorder: Recorder, objects: Objects) -> None:
        self._recorder = recorder
        self._objects = objects
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._looks: dict[str, _Look] = {}

    def built(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)

    def stepping(self, optimizer: Any, name: str, frame: FrameType | None) -> None:
        """An optimizer is about to step; the gradients are there."""
        look = self._looks.setdefault(name, _Look())
        if look.reported or look.steps >= _LOOKS:
            return
        look.steps += 1
        self._optimizers.add(optimizer)
        previous, look.missed = look.missed, {}
        held = {id(p) for one in self._optimizers for p in _parameters(one)}
        for root in _roots(optimizer, self._objects):
            named = list(root.named_parameters())
            unheld = [(key, p) for key, p in named if _is_unheld(p, held)]
            look.missed.update((id(p), digest(p)) for _, p in unheld)
            again = [key for key, p in unheld if previous.get(id(p)) == look.missed[id(p)]]
            if again:
                look.reported = True
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

    None where it holds some that sharding or loading has replaced: that is another mistake.
    """
    mine = {id(p) for p in _parameters(optimizer)}
    sharded = [module for module, _ in objects.sharded.items()]
    below = {id(part) for module in sharded for part in list(module.modules())[1:]}
    found = []
    for module in sharded:
        if id(module) in below:
            continue
        owned = {id(p) for p in module.parameters()}
        if owned & mine:
            found.append(module)
            mine -= owned
    stale = (objects.owners.get(p) for p in _parameters(optimizer) if id(p) in mine)
    within = {id(part) for module in found for part in module.modules()}
    return [] if any(id(owner) in within for owner in stale) else found
