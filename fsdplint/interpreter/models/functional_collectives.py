"""Collectives that return their result: `torch.distributed._functional_collectives`,
`torch.distributed.nn.functional`, and the helpers of torchtitan that use them.

The tensor that they get stays as it is.
"""

from __future__ import annotations

from fsdplint.interpreter import gathered_rows, losses
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.meshes import GroupRanks, ranks_of_group, waits_for_others
from fsdplint.interpreter.models.process_groups import note_use
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.position_tests import tested_position
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Collective

_FUNCTIONAL = "torch.distributed._functional_collectives"
_DIFFERENTIABLE = ("torch.distributed.nn", "torch.distributed.nn.functional")
_TITAN = "torchtitan.distributed.utils"

# name -> position of the group
_GROUPS = {
    "all_gather_into_tensor_coalesced": 1,
    "all_gather_single": 2,
    "all_gather_tensor": 2,
    "all_gather_tensor_autograd": 2,
    "all_reduce": 2,
    "all_reduce_coalesced": 2,
    "all_to_all_single": 3,
    "all_to_all_single_autograd": 3,
    "broadcast": 2,
    "permute_tensor": 2,
    "reduce_scatter_single": 3,
    "reduce_scatter_tensor": 3,
    "reduce_scatter_tensor_autograd": 3,
    "reduce_scatter_tensor_coalesced": 3,
}
_DIFFERENTIABLE_GROUPS = {
    "all_gather": 1,
    "all_reduce": 2,
    "all_to_all": 2,
    "all_to_all_single": 4,
    "broadcast": 2,
    "gather": 2,
    "reduce": 3,
    "reduce_scatter": 3,
    "scatter": 2,
}
_SUM = {"sum", "SUM"}


@function(*(f"{_FUNCTIONAL}.{name}" for name in _GROUPS))
def functional(run: Run, name: str, call: Call) -> Value:
    last = name.rpartition(".")[2]
    group = _ranks(run, call.arg(_GROUPS[last], "group"), call)
    _emit(run, name, last, group, call)
    sums = last == "all_reduce" and constant(call.arg(1, "reduceOp")) in _SUM
    return Unknown(summed=sums and group.whole)


@function(
    *(f"{home}.{name}" for home in _DIFFERENTIABLE for name in _DIFFERENTIABLE_GROUPS),
)
def differentiable(run: Run, name: str, call: Call) -> Value:
    last = name.rpartition(".")[2]
    given = call.arg(_DIFFERENTIABLE_GROUPS[last], "group")
    group = GroupRanks(whole=not call.open) if _is_default(given) else _ranks(run, given, call)
    event = _emit(run, name, last, group, call)
    op = call.arg(1, "op")
    sums = last == "all_reduce" and losses.is_sum(run.settle(op) if op is not None else None)
    result = Unknown(summed=sums and group.whole)
    gathered_rows.note_differentiable_gather(run, name, event, result)
    return result


@function(*(f"{_TITAN}.{name}" for name in ("dist_max", "dist_mean", "dist_sum")))
def reduced_number(run: Run, name: str, call: Call) -> Value:
    """`dist_mean(loss, mesh)`: the number that all ranks get; without a mesh, that of the rank."""
    mesh = call.arg(1, "mesh")
    if mesh is None or is_none(run.settle(mesh)):
        return Unknown()
    group = _ranks(run, mesh, call)
    _emit(run, name, name.rpartition(".")[2], group, call)
    return Unknown(summed=name.endswith("_sum") and group.whole)


def _is_default(group: Value | None) -> bool:
    return group is None or is_none(group)


def _emit(run: Run, name: str, api: str, group: GroupRanks, call: Call) -> Collective:
    if group.whole:
        note_use(run, name, call)
    return run.emit(
        Collective,
        call.node,
        api=api,
        collective=waits_for_others(run, group),
        of_position=tested_position(run) if group.whole else "",
        unknown_group=group.unknown,
    )


def _ranks(run: Run, group: Value | None, call: Call) -> GroupRanks:
    return GroupRanks(unknown=True) if call.open else ranks_of_group(run, group)
