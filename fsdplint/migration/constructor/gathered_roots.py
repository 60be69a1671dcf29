"""Models whose parameters the program sets after a forward without a backward, such as averages.

After such a forward FSDP1 shows the shards again, but its root computes with the old values in the next
forward (seen with torch 2.13). FSDP2 leaves the parameters of the root gathered: the program would set
whole tensors, which fails beside DTensors, and which are lost. So the new root is sharded again.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import BackwardRun, Called, GradMode, StateTaken, Trace, WeightsSet, Wrapped


def sets_gathered(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Whether a run sets parameters of the model of a constructor call while FSDP2 has them
    gathered; adds a note if so."""
    found = any(_sets_gathered(trace, call) for trace in migration.program.traces)
    if found:
        migration.note(
            "forwards without a backward use the parameters that the program has set before",
            source,
            call,
            detail="FSDP1 computed with the root's parameters from before.",
        )
    return found


def _sets_gathered(trace: Trace, call: cst.Call) -> bool:
    wrapped: dict[str, str] = {}  # and the module inside of each
    gathered: dict[str, bool] = {}  # and whether a backward shards it again
    for event in trace:
        if isinstance(event, Wrapped):
            if isinstance(event.site, NodeSite) and event.site.node is call:
                wrapped[event.module] = event.inner
        elif isinstance(event, Called) and event.module in wrapped:
            before = gathered.get(event.module, False)
            gathered[event.module] = before or event.grad is GradMode.ON
        elif isinstance(event, BackwardRun):
            gathered = {module: False for module, trains in gathered.items() if not trains}
        elif isinstance(event, StateTaken):
            gathered.pop(event.of, None)
        elif isinstance(event, WeightsSet):
            if any({one, wrapped[one]} & set(event.modules) for one in gathered):
                return True
    return False
