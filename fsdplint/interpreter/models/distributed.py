"""torch.distributed: collectives, meshes, local ranks; and devices."""

from __future__ import annotations

import re
from dataclasses import replace

from fsdplint.interpreter import (
    amounts,
    gathered_rows,
    losses,
    meta_device,
    own_quotients,
    own_roots,
    pending_results,
    rank_means,
    repeated_totals,
)
from fsdplint.interpreter.collective_arguments import wrong_argument
from fsdplint.interpreter.escape import modules_in
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.local_libraries import works_within_process
from fsdplint.interpreter.meshes import (
    GroupRanks,
    ranks_of_group,
    waits_for_others,
)
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.process_groups import note_use
from fsdplint.interpreter.models.randomness import note_weights_set
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.own_sizes import gathers_own_sizes, has_own_size
from fsdplint.interpreter.position_tests import is_for_members, tested_position
from fsdplint.interpreter.rank_agreement import forget_rank, note_agreement, note_sum_of_one_rank
from fsdplint.interpreter.rank_local import split_of
from fsdplint.interpreter.ranks import note_rank_use
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.scalars import is_dimensionless
from fsdplint.interpreter.torch_values import (
    RankValue,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Const,
    Context,
    Dict,
    LibraryObject,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import (
    Collective,
    DeviceSet,
    JoinUsed,
    Ranks,
)

DIST = "torch.distributed"
# name -> position of the `group` argument
COLLECTIVES = {
    "barrier": 0, "all_reduce": 2, "broadcast": 2, "reduce": 3, "all_gather": 2, "gather": 3,
    "scatter": 3, "reduce_scatter": 3, "all_to_all": 2, "all_to_all_single": 4,
    "all_gather_into_tensor": 2, "reduce_scatter_tensor": 3, "all_gather_object": 2,
    "broadcast_object_list": 2, "gather_object": 3, "scatter_object_list": 3,
    "monitored_barrier": 0, "all_reduce_coalesced": 2, "all_gather_coalesced": 2, "new_group": 99,
}  # fmt: skip
# The name of the first argument, if it is not "tensor".
_FIRST = {
    "all_gather": "tensor_list",
    "all_gather_into_tensor": "output_tensor",
    "all_gather_object": "object_list",
    "broadcast_object_list": "object_list",
}
# After these, all ranks have the same first argument.
AGREED = {
    "all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "broadcast_object_list", "all_reduce_coalesced", "all_gather_coalesced",
}  # fmt: skip

_REDUCTION = re.compile(r"^(all_)?(reduce|gather)")


def note_reduction(run: Run, name: str, call: Call, library: str = "") -> Collective | None:
    """Record an unknown function whose name is that of a reduction. Returns the event, if any.

    library: the dotted name of a function of a library.
    """
    if works_within_process(library):
        return None
    if call.values and _REDUCTION.search(name):
        return run.emit(Collective, call.node, api=name)
    return None


@function(f"{DIST}.")
def unmodelled_function(run: Run, name: str, call: Call) -> Value:
    """Names without a model: process groups, constants, helpers, functional collectives."""
    event = note_reduction(run, name.rpartition(".")[2], call)
    if call.values:  # `recv(tensor, src)`
        run.may_have_waited_at = len(run.trace.events)
        for value in call.values if run.has_own_data else ():
            note_agreement(run.settle(value))
    meta_device.leave_meta_in_arguments(run, call.values, keeps_dtype=True)
    note_weights_set(run, call.node, call.values)
    result = Unknown(origin="")
    if event is not None:
        gathered_rows.note_differentiable_gather(run, name, event, result)
    return result


@function(f"{DIST}.get_node_local_rank", "torch.distributed.get_group_rank")
def get_local_rank(run: Run, name: str, call: Call) -> Value:
    return RankValue("local")


@function("torch.accelerator.current_device_index", "torch.accelerator.current_device_idx",
          *(f"torch.{kind}.current_device" for kind in ("cuda", "xpu", "mtia")))  # fmt: skip
def current_device(run: Run, name: str, call: Call) -> Value:
    """The device number of the process, which is unique among the ranks of a machine."""
    return Unknown(origin=f"{name}()", by_process=True)


@function(f"{DIST}.algorithms.Join", f"{DIST}.algorithms.join.Join")
def join(run: Run, name: str, call: Call) -> Value:
    joinables = run.settle(call.arg(0, "joinables") or Unknown())
    modules = modules_in(run, joinables)
    items = joinables.items if isinstance(joinables, Sequence) else []
    held = [item for item in map(run.settle, items) if isinstance(item, OptimizerValue)]
    run.emit(
        JoinUsed,
        call.node,
        modules=tuple(module.id for module in modules),
        optimizers=tuple(optimizer.id for optimizer in held),
    )
    return Context("harmless")


@function(f"{DIST}.is_available")
def is_available(run: Run, name: str, call: Call) -> Value:
    return Const(True)


def _gradient_of(run: Run, tensor: Value) -> tuple[str, ...]:
    """The modules of whose parameters a tensor is a gradient, or several gradients in one."""
    if tensor in run.joined_gradients:
        return run.joined_gradients[tensor]
    if not isinstance(tensor, ShardTensor) or tensor.source != "gradient" or tensor.reduction:
        return ()
    return tuple(module.id for module in tensor.modules)


@function(*(f"{DIST}.{name}" for name in COLLECTIVES))
def collective(run: Run, name: str, call: Call) -> Value:
    """A collective; all ranks take part unless it is in a subgroup."""
    last = name.rpartition(".")[2]
    group = call.arg(COLLECTIVES[last], "group")
    group = run.settle(group) if group is not None else None
    default = group is None or is_none(group)
    whole = default and not call.open and not _needs_members_only(call)
    ranks = GroupRanks(unknown=call.open) if default else ranks_of_group(run, group)
    if whole:
        note_use(run, name, call)
    tensor = run.settle(call.arg(0, _FIRST.get(last, "tensor")) or Unknown())
    few = is_dimensionless(tensor) or (
        isinstance(tensor, Unknown | TensorValue) and tensor.few_elements
    )
    if not few:  # it may hold parameters
        note_weights_set(run, call.node, call.values)
    event = run.emit(
        Collective,
        call.node,
        api=last,
        collective=whole or (not call.open and waits_for_others(run, ranks)),
        of_position=tested_position(run) if whole else "",
        by_members=last == "new_group" and whole and is_for_members(run, call.arg(0, "ranks")),
        unknown_group=ranks.unknown,
        of_output=losses.is_output(tensor),
        gradient_of=_gradient_of(run, tensor),
        own_gradient=isinstance(tensor, ShardTensor) and tensor.own,
        few_elements=few,
        on_cpu=isinstance(tensor, Unknown | TensorValue) and tensor.on_cpu,
        sizes_differ=_sizes_differ(run, last, tensor, call),
        wrong=wrong_argument(run, last, call),
        of_global_count=last == "all_reduce" and _adds_up_count(run, tensor, call),
    )
    if event.of_global_count:
        amounts.note(run, tensor, sum_of_counts=event)
    pending = pending_results.note_begun(run, last, tensor, call, event)
    mean, split = amounts.is_mean_of_share(run, tensor), split_of(run, tensor)
    if last == "all_reduce" and whole and run.own_roots:
        op = call.arg(1, "op")
        own_roots.note_reduction(run, tensor, run.settle(op) if op is not None else None)
    if last in AGREED or last == "reduce":
        amounts.forget_share(run, tensor)
    own_quotients.note_reduction(run, tensor)
    if last in AGREED:
        note_agreement(tensor)
        forget_rank(tensor)
        run.same_noise.pop(tensor, None)  # it is the same on all ranks on purpose
    if last == "reduce" and whole and _gives_sum_to_one(run, call):
        note_sum_of_one_rank(run, tensor, run.site(call.node))
    gathered_rows.note_gather(run, event, call)
    if last == "all_reduce" and whole:
        tensors.note_shard_reduction(run, call.arg(0, "tensor"), call.node)
        losses.sum_in_place(run.settle(call.arg(0, "tensor") or Unknown()), call.arg(1, "op"))
    if last in ("all_reduce", "reduce") and whole:
        op = call.arg(1 if last == "all_reduce" else 2, "op")
        rank_means.note_reduction(run, tensor, op, call, mean)
        repeated_totals.note_reduction(run, tensor, op, split)
    if last == "broadcast_object_list" and call.args:
        if isinstance(tensor, Sequence):
            tensor.items = [_sent(run, item) for item in tensor.items]
        return Const(None)
    return LibraryObject(f"{DIST}.Work") if pending else Unknown()


@function(*(f"torch.{device}.synchronize" for device in ("accelerator", "cuda", "npu", "xpu")))
def synchronize(run: Run, name: str, call: Call) -> Value:
    run.pending.clear()
    return Const(None)


def _gives_sum_to_one(run: Run, call: Call) -> bool:
    """Whether a call of `reduce` on all ranks leaves the tensor of one rank unlike the others.

    The largest of equal numbers is the same number, but their sum is another one.
    """
    op = call.arg(2, "op")
    adds = losses.is_sum(run.settle(op) if op is not None else None)
    return adds and run.ranks() is Ranks.ALL and not run.decisions.single_rank


def _adds_up_count(run: Run, tensor: Value, call: Call) -> bool:
    """Whether a call adds up what each rank has counted over all ranks already."""
    op = call.arg(1, "op")
    op = run.settle(op) if op is not None else None
    return losses.is_sum(op) and amounts.counts_all(run, tensor)


def _needs_members_only(call: Call) -> bool:
    """Whether a call of `new_group` waits for the ranks of the new group only."""
    local = call.kwargs.get("use_local_synchronization")
    return local is not None and constant(local) is not False


def _sizes_differ(run: Run, api: str, first: Value, call: Call) -> bool:
    """Whether ranks certainly give a collective tensors of different size, which it cannot use."""
    if api == "all_gather":
        return gathers_own_sizes(first, run.settle(call.arg(1, "tensor") or Unknown()))
    return api in Collective.OF_ONE_SIZE and has_own_size(first)


def _sent(run: Run, item: Value, depth: int = 0) -> Value:
    """What all ranks have of an object that one of them has sent: a state becomes another one."""
    item = run.settle(item)
    if isinstance(item, StateValue):
        return replace(item, id=run.new_id("state"), on_one_rank=False)
    if isinstance(item, Sequence) and depth <= 2:
        return replace(item, items=[_sent(run, part, depth + 1) for part in item.items])
    if isinstance(item, Dict) and depth <= 2:
        sent = {key: _sent(run, part, depth + 1) for key, part in item.items.items()}
        return replace(item, items=sent, empty_elsewhere=False)
    return item


@function("torch.cuda.set_device", "torch.accelerator.set_device_index", "torch.npu.set_device",
          "torch.xpu.set_device")  # fmt: skip
def set_device(run: Run, name: str, call: Call) -> Value:
    text = run.text(call.node)
    note_rank_use(run, call.node, *call.values)
    run.emit(DeviceSet, call.node, device=text.partition("(")[2].rstrip(")"))
    return Const(None)
