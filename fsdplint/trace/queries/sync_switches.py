"""What a switch of FSDP2's (`set_requires_gradient_sync`, ...) that is off does until the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    Event,
    Gathered,
    Guard,
    GuardKind,
    MeshBuilt,
    OptimizerStepped,
    Sharded,
    Sharding,
    SyncSwitched,
    Trace,
)
from fsdplint.trace.queries.common import only_fsdp2, optimizers_over
from fsdplint.trace.queries.meshes import sizes_of, whole_mesh_of
from fsdplint.trace.queries.wrappers import prepared_by_framework


@dataclass(frozen=True)
class LeftOff:
    """A step that comes after backward passes under a switch that is off, and none with it on.

    in_last_window: whether this is so only where the last micro-batches of the data are fewer.
    """

    switch: SyncSwitched
    backward: BackwardRun
    step: OptimizerStepped
    in_last_window: bool = False


def left_off(trace: Trace, api: str) -> Iterator[LeftOff]:
    """The optimizer steps before which a switch was off for every backward since the last step."""
    targets = dict.fromkeys(
        event.module
        for event in trace.of(SyncSwitched)
        if event.api == api and event.enabled is False and only_fsdp2(trace, event.module, event)
    )
    for module in targets:
        if not out_of_sight(trace, api, module):
            yield from _Watch(trace, api, module).steps()


def reduces_fsdp2(trace: Trace, event: SyncSwitched) -> bool:
    """Whether a switch decides if `fully_shard` reduces the gradients of its module.

    `set_requires_all_reduce` has an effect with replicas only.
    """
    if event.api == "set_requires_all_reduce":
        if mesh_with_replicas(trace, event.module) is None:
            return False
    elif event.api != "set_requires_gradient_sync":
        return False
    return only_fsdp2(trace, event.module, event)


def mesh_with_replicas(trace: Trace, module: str) -> MeshBuilt | None:
    """The mesh over which a module is sharded, if it has two dimensions and not one replica."""
    for shard in trace.of(Sharded):
        sizes = sizes_of(trace, shard)
        if trace.related(shard.module, module) and sizes:
            replicates = len(sizes) == 2 and sizes[0] != 1
            return whole_mesh_of(trace, shard) if replicates else None
    return None


def fsdp1_left_off(trace: Trace) -> Iterator[LeftOff]:
    """The optimizer steps before which each backward since the last step ran under `no_sync()`."""
    for module in dict.fromkeys(m for event in trace.of(BackwardRun) for m in event.unsynchronized):
        if not reduced_by_fsdp1(trace, module) or out_of_sight(trace, "no_sync", module):
            continue
        related = optimizers_over(trace, module)
        switch: SyncSwitched | None = None
        under: BackwardRun | None = None
        other = False  # a backward with synchronisation
        for event in trace.of(SyncSwitched, BackwardRun, OptimizerStepped):
            if isinstance(event, SyncSwitched):
                switch = event if event.module == module else switch
            elif isinstance(event, BackwardRun):
                if any(trace.contains(one, module) for one in event.unsynchronized):
                    under = event
                else:
                    other = True
            elif isinstance(event, OptimizerStepped) and event.optimizer in related:
                if waits_for_turn(trace, event):
                    continue
                if under is not None and not other and switch is not None:
                    yield LeftOff(switch, under, event)
                under, other = None, False


def waits_for_turn(trace: Trace, step: OptimizerStepped) -> bool:
    """Whether only some turn of a loop reaches a step, and a later one is shown.

    What the program tested in the first turn says nothing about the turn that steps.
    """
    return any(True for _ in _varying_guards(step)) and any(
        one.site == step.site and one.optimizer == step.optimizer
        for one in trace.after(step, OptimizerStepped)
    )


def reduced_by_fsdp1(trace: Trace, module: str) -> bool:
    """Whether FSDP1, or the strategy of a framework, reduces the gradients of a module."""
    by_fsdp1 = trace.sharding(module) is Sharding.FSDP1
    return by_fsdp1 or prepared_by_framework(trace, module) is not None


def out_of_sight(trace: Trace, api: str, module: str) -> bool:
    """Whether the switch of a module may be turned on by code that is not seen.

    Another object may be the same as a module of unknown structure, or a part of it.
    """
    family = trace.family(module)
    if not trace.complete or trace.any_escaped(family, trace.last_step):
        return True
    if all(trace.modules[name].children_known for name in family):
        return False
    switches = [event for event in trace.of(SyncSwitched) if event.api == api]
    return any(event.enabled is not False and event.module not in family for event in switches)


class _Watch:
    """Goes through a trace with an eye on one module's switch."""

    def __init__(self, trace: Trace, api: str, module: str) -> None:
        self.trace, self.api, self.module = trace, api, module
        self.off: SyncSwitched | None = None
        # A backward with the switch off, and where it was turned off.
        self.under: tuple[SyncSwitched, BackwardRun] | None = None
        self.other = False  # a backward with it on, or perhaps on
        self.related = optimizers_over(trace, module)
        self.switches = [
            event
            for event in trace.of(SyncSwitched)
            if event.api == api and trace.related(event.module, module)
        ]
        self.ever_on = any(event.enabled is not False for event in self.switches)
        backwards = [set(_varying_guards(event)) for event in trace.of(BackwardRun)]
        self.around: set[Guard] = set.intersection(*backwards) if backwards else set()

    def steps(self) -> Iterator[LeftOff]:
        for event in self.trace:
            if isinstance(event, SyncSwitched):
                if event in self.switches:
                    self._switch(event)
            elif isinstance(event, BackwardRun):
                if self.off is not None:
                    self.under = self.off, event
                else:
                    self.other = True
            elif isinstance(event, Gathered):
                if not event.gathered and self.trace.related(event.module, self.module):
                    self.under = None if self.api == "set_reshard_after_backward" else self.under
            elif isinstance(event, OptimizerStepped) and event.optimizer in self.related:
                certain = not waits_for_turn(self.trace, event)
                if self.under is not None and not self.other and certain:
                    yield LeftOff(*self.under, event)
                if not self._may_be_off(event):
                    self.under, self.other = None, False

    def _switch(self, event: SyncSwitched) -> None:
        if event.enabled is False:
            if not self.trace.contains(event.module, self.module):
                return
            if not self._may_be_off(event) or not self.ever_on:
                self.off = event
        else:
            self.off = None

    def _may_be_off(self, event: Event) -> bool:
        """Whether an event happens at times only, or on some ranks, unlike the backward passes."""
        return event.ranks.partial or any(
            guard not in self.around for guard in _varying_guards(event)
        )


def _varying_guards(event: Event) -> Iterator[Guard]:
    return (guard for guard in event.guards if guard.kind is GuardKind.VARYING)
