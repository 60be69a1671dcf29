"""Gradients over several meshes, which no operation of DTensors takes together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import BackwardRun, Clipped, Sharding, TensorParallel, Trace, first
from fsdplint.trace.groups import Groups


@dataclass(frozen=True)
class SeveralMeshes:
    """A clipping of gradients on the mesh of FSDP2 alone, and on that of tensor parallelism, too.

    Attributes:
        clipped: the clipping.
        parallel: the tensor parallelism.
        part: a module whose parameters it distributes.
        other: a module whose parameters FSDP2 alone shards.
    """

    clipped: Clipped
    parallel: TensorParallel
    part: str
    other: str


def several_meshes(trace: Trace) -> Iterator[SeveralMeshes]:
    """The clippings by norm that stack norms on several meshes, which raises an error."""
    events = list(trace.of(TensorParallel))
    if not events or not all(one.whole_plan and one.parts and one.dims for one in events):
        return
    groups = Groups(trace)
    # A style distributes the parameters of the modules in its module, too.
    split = {below: one for one in events for part in one.parts for below in trace.submodules(part)}
    for clipped in trace.of(Clipped):
        if not (clipped.by_norm and clipped.whole and clipped.api == "utils"):
            continue
        if first(trace.before(clipped, BackwardRun)) is None or trace.complete is False:
            continue
        below = trace.submodules(*clipped.modules)
        parts = [one for one in below if one in split and _is_trained(trace, groups, one)]
        others = [one for one in below if one not in split and _is_trained(trace, groups, one)]
        if parts and others:
            yield SeveralMeshes(clipped, split[parts[0]], parts[0], others[0])


def _is_trained(trace: Trace, groups: Groups, module: str) -> bool:
    """Whether a module has own parameters that FSDP2 certainly shards, and that are trained."""
    info = trace.modules[module]
    owner = groups.owner(module)
    if info.own_parameters is not True or info.frozen or owner is None:
        return False
    if trace.sharding(owner) is not Sharding.FSDP2:
        return False
    return not info.perhaps_chosen and not trace.any_escaped([module], trace.last_step)
