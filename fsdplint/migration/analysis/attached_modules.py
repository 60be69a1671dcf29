"""Trained modules that the program puts into a model after FSDP1 has wrapped it.

Neither FSDP1 nor FSDP2 shards them. With FSDP1 such a program trains, with unsynchronised gradients.
With FSDP2 the parameters are plain tensors beside DTensors, which clipping, gradient scalers and the
kernels of optimizers for several tensors refuse (seen with torch 2.13). Other optimizers take them.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import ATTACHED_AFTERWARDS
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.trace import Clipped, ModuleAttached, OptimizerBuilt, ScalerStepped, Trace, Wrapped
from fsdplint.trace.groups import Groups
from fsdplint.trace.queries.attached import (
    enclosing_shard,
    training_optimizer,
    unsharded_new_modules,
)


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a blocker for each statement that puts a trained module into a wrapped model."""
    found: set[NodeSite] = set()
    for trace in migration.program.traces:
        groups = Groups(trace)
        for event in trace.of(ModuleAttached):
            site = event.site
            if not isinstance(site, NodeSite) or site in found:
                continue
            new = unsharded_new_modules(trace, event, in_this_run=False)
            if not new or not isinstance(enclosing_shard(groups, event), Wrapped):
                continue
            built = training_optimizer(trace, event, new)
            if built is not None and _mixes(trace, event, new, built):
                found.add(site)
                migration.blockers.append(Blocked(site.source, site.node, ATTACHED_AFTERWARDS()))


def _mixes(trace: Trace, event: ModuleAttached, new: set[str], built: OptimizerBuilt) -> bool:
    """Whether code takes the gradients of new modules together with others."""
    scaled = any(one.optimizer == built.optimizer for one in trace.after(built, ScalerStepped))
    return (
        scaled
        or _is_fused(built)
        or any(
            new & {part for module in clip.modules for part in trace.submodules(module)}
            for clip in trace.after(event, Clipped)
        )
    )


def _is_fused(built: OptimizerBuilt) -> bool:
    """Whether an optimizer uses kernels for several tensors."""
    call = built.site.node if isinstance(built.site, NodeSite) else None
    return isinstance(call, cst.Call) and any(
        arg.keyword is not None
        and arg.keyword.value in ("foreach", "fused")
        and not is_constant(arg.value, "False", "None")
        for arg in call.args
    )
