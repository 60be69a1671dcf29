"""Collectives that return their result: torch's functional ones, and those of libraries."""

from __future__ import annotations

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.meshes import one_rank_differs, waits_for_others
from fsdplint.interpreter.models.randomness import note_weights_set
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Unknown, Value
from fsdplint.trace import Collective

FUNCTIONAL = "torch.distributed._functional_collectives"
# name -> position of the `group` argument, which may be a mesh
_FUNCTIONS = {
    "all_reduce": 2, "broadcast": 2, "all_gather_tensor": 2, "reduce_scatter_tensor": 3,
    "all_to_all_single": 3,
}  # fmt: skip
# Functions of libraries that reduce a number over a mesh.
_OVER_MESH = ("dist_max", "dist_mean", "dist_sum")


@function(*(f"{FUNCTIONAL}.{name}" for name in _FUNCTIONS))
def functional_collective(run: Run, name: str, call: Call) -> Value:
    group = call.arg(_FUNCTIONS[name.rpartition(".")[2]], "group")
    waits = waits_for_others(run, run.settle(group) if group is not None else None)
    return _collective(run, name, call, waits=waits)


@function(*(f"torchtitan.distributed.utils.{name}" for name in _OVER_MESH))
def reduction_over_mesh(run: Run, name: str, call: Call) -> Value:
    """The number of each rank is reduced over a mesh that has this rank and others."""
    return _collective(run, name, call, waits=one_rank_differs(run))


def _collective(run: Run, name: str, call: Call, *, waits: bool) -> Value:
    api = name.rpartition(".")[2]
    run.emit(Collective, call.node, api=api, collective=waits and not call.open)
    meta_device.leave_meta_in_arguments(run, call.values, keeps_dtype=True)
    note_weights_set(run, call.node, call.values)
    return Unknown(origin="")
