"""`parameter.data = values` on a wrapped model, which FSDP1 supports and FSDP2 does not.

FSDP1 with `use_orig_params=True` writes such values back into its flat parameter before the next
all-gather. FSDP2 gathers from the memory of its shard and never reads the new tensor: the forward uses
the old values, without an error.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import DATA_REPLACED
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Trace, WeightsSet, Wrapped


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a blocker for each assignment."""
    found: dict[cst.CSTNode, Source] = {}
    for trace in migration.program.traces:
        for event in trace.of(WeightsSet):
            site = event.site
            if isinstance(site, NodeSite) and _assigns(site.node) and _is_wrapped(trace, event):
                found[site.node] = site.source
    for node, source in found.items():
        if {node, *ancestors(source, node)} & migration.blocks.whole_parameters:
            continue  # writes to whole parameters have their own blocker
        reason = DATA_REPLACED(code=source.code(node))
        migration.blockers.append(Blocked(source, node, reason))


def _assigns(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Attribute) and node.attr.value == "data"


def _is_wrapped(trace: Trace, event: WeightsSet) -> bool:
    """Whether FSDP1 has wrapped one of the modules whose parameters an event sets."""
    return any(
        module in (wrap.module, *trace.submodules(wrap.inner))
        for wrap in trace.of(Wrapped)
        if wrap.index < event.index
        for module in event.modules
    )
