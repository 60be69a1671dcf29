"""Sharded states in files that `torch.save` wrote, one for each rank.

FSDP1 saves ShardedTensors in them, which `copy_` to a DTensor of FSDP2 rejects. With a `device_mesh`,
FSDP1 saves DTensors. A distributed checkpoint does not depend on the kind of tensor.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.torch_values import StateValue
from fsdplint.migration.analysis import external_wrapping
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import SHARDED_FILES_NOT_WRITTEN
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.trace import Layout, Saved
from fsdplint.trace.queries.common import whole_file

NOTE = "files of sharded states that FSDP1 wrote with `torch.save` cannot be loaded"


def check_load(
    migration: Migration, source: Source, node: cst.Call, state: cst.BaseExpression
) -> None:
    """Check a call that loads a sharded state.

    Raises:
        Blocked: `torch.load` has read the state, and the program does not write such files itself.
    """
    values = migration.values(state)
    if not any(isinstance(value, StateValue) and whole_file(value.api) for value in values):
        return
    if _have_meshes(migration):
        return
    if not _is_written(migration):
        raise Blocked(source, node, SHARDED_FILES_NOT_WRITTEN())
    migration.note(NOTE, source, node)


def _have_meshes(migration: Migration) -> bool:
    """Whether the models may be wrapped with a `device_mesh`."""
    return any(
        arg.star or (arg.keyword is not None and arg.keyword.value == "device_mesh")
        for _, call in external_wrapping.constructors(migration)
        for arg in call.args
    )


def _is_written(migration: Migration) -> bool:
    return any(
        whole_file(event.api) and Layout.SHARDED in event.layouts
        for trace in migration.program.traces
        for event in trace.of(Saved)
    )
