"""Optimizers of libraries whose kernels refuse FSDP2's sharded parameters.

FSDP1 gives an optimizer plain tensors, FSDP2 gives it DTensors. The operators of bitsandbytes have no
sharding strategy, so that a step raises (seen with 0.50.2 on the CPU; for GPUs see
bitsandbytes-foundation/bitsandbytes#1633).
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Symbol
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import KERNEL_OPTIMIZER
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import OptimizerBuilt, Trace, Wrapped
from fsdplint.trace.queries.common import PLAIN_OPTIMIZERS


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a blocker for each such optimizer that updates a model which FSDP1 wraps."""
    found = {
        site.node: (site.source, name)
        for trace in migration.program.traces
        for site in _of_wrapped_models(trace)
        if isinstance(site.node, cst.Call)
        and (name := _library_class(migration, site.node.func))
        and not migration.is_blocked(site.node)
    }
    migration.blockers += [
        Blocked(source, node, KERNEL_OPTIMIZER(name=name)) for node, (source, name) in found.items()
    ]


def _of_wrapped_models(trace: Trace) -> Iterator[NodeSite]:
    """Where a run builds the optimizers of models that FSDP1 wraps."""
    wrapped: set[str] = set()
    for event in trace.of(Wrapped):
        wrapped |= {event.module, event.inner, *trace.submodules(event.inner)}
    for built in trace.of(OptimizerBuilt):
        if wrapped.intersection(built.modules) and isinstance(built.site, NodeSite):
            yield built.site


def _library_class(migration: Migration, called: cst.BaseExpression) -> str:
    """The last part of the name of such an optimizer's class that an expression may be, or ""."""
    values = [value.name for value in migration.values(called) if isinstance(value, Symbol)]
    for name in (migration.symbol(called), *values):
        if name.partition(".")[0] in PLAIN_OPTIMIZERS:
            return name.rpartition(".")[2]
    return ""
