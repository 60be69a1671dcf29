"""Checkpoints that are read into copies of a model's state, which nothing puts back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    Layout,
    Loaded,
    MeshBuilt,
    OptimizerStepped,
    ProcessGroupInit,
    Saved,
    Sharded,
    Sharding,
    Site,
    StateLoaded,
    StateTaken,
    Trace,
    WeightsSet,
)
from fsdplint.trace.queries.backends import ONLY_ACCELERATORS
from fsdplint.trace.queries.common import optimizers_over, whole_file


@dataclass(frozen=True)
class DroppedLoad:
    """A load that a model gets nothing of.

    taken: where the program takes the copy that is loaded into.
    step: the first step of an optimizer of the model.
    """

    loaded: Loaded
    taken: StateTaken
    step: OptimizerStepped


def dropped_loads(trace: Trace) -> Iterator[DroppedLoad]:
    """The loads into copies of the state of a model that begins to train after them."""
    if not trace.complete:
        return
    for loaded in trace.of(Loaded):
        if whole_file(loaded.api) or loaded.callbacks or loaded.ranks.partial:
            continue
        for taken in trace.before(loaded, StateTaken):
            if taken.state in loaded.states and taken.state not in loaded.read_later:
                step = _first_step(trace, taken.of, loaded)
                if step is not None and _is_copy(trace, taken) and not _is_used(trace, taken):
                    yield DroppedLoad(loaded, taken, step)


def puts_back(trace: Trace, site: Site) -> bool:
    """Whether a trace loads a state into a model after a load at a place."""
    return any(
        one.into in trace.modules
        for loaded in trace.of(Loaded)
        if loaded.site == site
        for one in trace.after(loaded, StateLoaded)
    )


def _is_copy(trace: Trace, taken: StateTaken) -> bool:
    """Whether a state certainly has copies of the parameters of a sharded model.

    Only FSDP2 gives the parameters themselves, and FSDP1 in a local state. On the CPU there are
    copies of parameters that are on an accelerator.
    """
    sharding = trace.sharded_within(taken.of, taken) if taken.of in trace.modules else None
    if sharding is None:
        return False
    if taken.layout is Layout.FULL or (taken.on_cpu and _are_on_accelerators(trace, taken)):
        return True
    return sharding is Sharding.FSDP1 and taken.layout is Layout.SHARDED


def _are_on_accelerators(trace: Trace, taken: StateTaken) -> bool:
    """Whether FSDP2 has certainly put all parameters of a module on a device other than the CPU.

    It moves them to the device of its mesh, which is an accelerator where the ranks communicate
    with NCCL alone.
    """
    begun = [event.backend for event in trace.before(taken, ProcessGroupInit)]
    kinds = {event.mesh: event.device_type for event in trace.of(MeshBuilt)}
    family = trace.family(taken.of)
    shards = [one for one in trace.before(taken, Sharded) if {one.module, *one.group} & family]
    return bool(shards) and all(
        not {"offload_policy", "**"} & one.options.keys()
        and (
            kinds.get(one.whole_mesh) in ONLY_ACCELERATORS.values()
            or (begun and begun[-1] in ONLY_ACCELERATORS and one.whole_mesh in ("", *kinds))
        )
        for one in shards
    )


def _first_step(trace: Trace, module: str, loaded: Loaded) -> OptimizerStepped | None:
    """The first step with the parameters of a model, if it comes after the load."""
    if module not in trace.modules:
        return None
    optimizers = optimizers_over(trace, module)
    steps = [one for one in trace.of(OptimizerStepped) if one.optimizer in optimizers]
    return steps[0] if steps and steps[0].index > loaded.index else None


def _is_used(trace: Trace, taken: StateTaken) -> bool:
    """Whether the model gets weights otherwise, or the copy is there for a file.

    Code out of sight cannot put a copy back that it does not get.
    """
    family = trace.family(taken.of)
    if any(taken.state in saved.states for saved in trace.of(Saved)):
        return True
    loads = trace.after(taken, StateLoaded)
    edits = trace.after(taken, WeightsSet)
    return any(one.into in family for one in loads) or any(
        not one.modules or not family.isdisjoint(one.modules) for one in edits
    )
