"""States of optimizers that a program keeps in memory and loads again.

FSDP1's states are copies. Those of `get_optimizer_state_dict` share tensors with the optimizer, such as
its `step` on the CPU, so they change while training goes on (seen with torch 2.13).
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.torch_values import StateValue
from fsdplint.migration.context import Migration
from fsdplint.source.source import NodeSite
from fsdplint.trace import Event, Fsdp1Used, OptimizerStepped, StateTaken, Trace

LOADS = {
    "scatter_full_optim_state_dict",
    "shard_full_optim_state_dict",
    "optim_state_dict_to_load",
    "flatten_sharded_optim_state_dict",
}


def is_kept(migration: Migration, call: cst.Call) -> bool:
    """Whether the program loads the state that a call takes, after further steps and without a file."""
    for trace in migration.program.traces:
        for taken in trace.of(StateTaken):
            if not isinstance(taken.site, NodeSite) or taken.site.node is not call:
                continue
            step = next(iter(trace.after(taken, OptimizerStepped)), None)
            if step is not None and _is_loaded(migration, trace, step, taken.state):
                return True
    return False


def _is_loaded(migration: Migration, trace: Trace, after: Event, state: str) -> bool:
    """Whether a run loads a state after an event."""
    return any(
        isinstance(value, StateValue) and value.id == state
        for event in trace.after(after, Fsdp1Used)
        if isinstance(event.site, NodeSite) and isinstance(event.site.node, cst.Call)
        if _loads(migration, event.site.node)
        for arg in event.site.node.args
        for value in migration.values(arg.value)
    )


def _loads(migration: Migration, call: cst.Call) -> bool:
    name = migration.fsdp1(call.func) or ""
    if not name and isinstance(call.func, cst.Attribute):
        name = call.func.attr.value
    return name.rpartition(".")[2] in LOADS
