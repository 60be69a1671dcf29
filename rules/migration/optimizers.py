"""Plain `optimizer.state_dict()` of an FSDP1 model: in FSDP1 each rank's own part of the state."""

from __future__ import annotations

import libcst as cst

from fsdplint.program.source import NodeSite
from fsdplint.program.values import ModuleValue, OptimizerValue
from fsdplint.rules.migration.context import Migration, is_fsdp1
from fsdplint.rules.migration.state import States
from fsdplint.trace import Saved, StateTaken


def rewrite(migration: Migration, states: States, node: cst.Call) -> None:
    """Leave the state of each rank in its own file alone; block on the rest.

    Raises:
        Blocked: one rank's part was written as if it were the whole state.
    """
    assert isinstance(node.func, cst.Attribute)
    if not _is_of_fsdp1(migration, node.func.value):
        return
    source = states.source
    if node.func.attr.value == "load_state_dict":
        return
    for trace in migration.program.traces:
        taken = {
            event.state
            for event in trace.of(StateTaken)
            if isinstance(event.site, NodeSite) and event.site.node is node
        }
        for event in trace.of(Saved):
            if taken & set(event.states) and event.ranks.partial:
                migration.block(
                    source,
                    node,
                    "one rank's part of the optimizer's state is saved as if it were the whole "
                    "(take it with `FSDP.optim_state_dict`)",
                )


def _is_of_fsdp1(migration: Migration, node: cst.BaseExpression) -> bool:
    return any(
        isinstance(value, OptimizerValue) and any(_wrapped(m) for m in value.modules)
        for value in migration.values(node)
    )


def _wrapped(module: ModuleValue) -> bool:
    return is_fsdp1(module)
