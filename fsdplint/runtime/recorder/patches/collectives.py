"""Counts all collectives, and records those that the user's code calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import Collective, GroupMissed, ShardReduced

_DIST = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
_FUNCTIONAL = (
    "all_gather_single",
    "all_gather_tensor",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
)
# The kind of a collective by its function.
_KINDS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_tensor": "all_gather",
    "all_gather_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "all_reduce_coalesced": "all_reduce",
    "all_to_all_single": "all_to_all",
}
_inside = [0]


def install() -> None:
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    import torch.distributed.tensor as tensor

    for name in _DIST:
        original = getattr(dist, name, None)
        if original is not None:
            patching.replace(original, _watched_collective(original, name))
    for name in _FUNCTIONAL:
        original = getattr(functional, name, None)
        if original is not None:
            patching.replace(original, _watched_collective(original, name))
    patching.watch_method(
        tensor.DTensor, "full_tensor", functools.partial(_record_collective, "full_tensor")
    )
    patching.watch_function(
        tensor, "distribute_tensor", functools.partial(_record_collective, "distribute_tensor")
    )


def _watched_collective(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    import torch
    import torch.distributed as dist

    is_compiling = torch.compiler.is_compiling
    kind = _KINDS.get(name, name)

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not (recording := current()).recorder.on or _inside[0]:
            return original(*args, **kwargs)
        try:
            if name != "new_group":
                recording.measures.collective(kind, _size(args, kwargs))
                if recording.recorder.listening() and not _in_subgroup(args, kwargs):
                    recording.calls.communicates()
            frame = sys._getframe(1)
            if is_direct(frame) and recording.recorder.listening():
                recording.recorder.event(
                    Collective,
                    frame,
                    api=f"torch.distributed.{name}",
                    collective=not _in_subgroup(args, kwargs),
                    sizes_differ=of_this_rank(_own_size(name, args, kwargs)),
                )
                if not _in_subgroup(args, kwargs) and not dist.is_initialized():
                    api = f"torch.distributed.{name}"
                    recording.recorder.event(GroupMissed, frame, api=api)
                if name == "all_reduce" and not _in_subgroup(args, kwargs):
                    if argument(args, kwargs, 2, "group") is None:
                        _record_shard(frame, argument(args, kwargs, 0, "tensor"))
                    if argument(args, kwargs, 1, "op", dist.ReduceOp.SUM) == dist.ReduceOp.SUM:
                        recording.losses.note(argument(args, kwargs, 0, "tensor"))
            del frame
        except Exception:
            recording.recorder.record_error()
        _inside[0] += 1
        try:
            return original(*args, **kwargs)
        finally:
            _inside[0] -= 1

    return collective


def _own_size(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The number of elements that all ranks need to have; 0 for a function without such a rule.

    An `all_gather` needs the same number if its buffers have the size of this rank's tensor.
    """
    if name == "all_gather" and not _in_subgroup(args, kwargs):
        buffers, own = argument(args, kwargs, 0, "tensor_list"), argument(args, kwargs, 1, "tensor")
        shapes = {getattr(buffer, "shape", None) for buffer in buffers}
        return int(own.numel()) if shapes == {getattr(own, "shape", None)} else 0
    if name not in Collective.OF_ONE_SIZE or _in_subgroup(args, kwargs):
        return 0
    first = "output_tensor" if name == "all_gather_into_tensor" else "tensor"
    first = "output" if name == "reduce_scatter_tensor" else first
    tensor = argument(args, kwargs, 0, first)
    return int(tensor.numel()) if hasattr(tensor, "numel") else 0


def _record_shard(frame: FrameType, tensor: Any) -> None:
    """Record an `all_reduce` of a sharded gradient."""
    recording = current()
    if values.is_sharded(tensor):
        recording.recorder.event(ShardReduced, frame, local=False)
    elif recording.objects.is_local_gradient(tensor):
        recording.recorder.event(ShardReduced, frame, local=True)


def _in_subgroup(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a collective has only some of the ranks."""
    import torch.distributed as dist

    for value in (*args, *kwargs.values()):
        if value is dist.GroupMember.NON_GROUP_MEMBER:
            return True
        if isinstance(value, dist.ProcessGroup):
            return bool(value.size() < dist.get_world_size())
    return False


def _size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes of the largest tensor argument, which is what this rank sends or receives."""
    largest = 0
    for value in (*args, *kwargs.values()):
        items = value if isinstance(value, (list, tuple)) else (value,)
        total = sum(i.numel() * i.element_size() for i in items if hasattr(i, "element_size"))
        largest = max(largest, total)
    return largest


def _record_collective(
    api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    current().recorder.event(Collective, frame, api=api, collective=True)
