"""Losses that the program sums up over the ranks, in place, before it runs backward from them."""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.recorder.patching import argument

_MAX_NODES = 8
_summed: list[Any] = []  # the graph nodes of the tensors that were summed since the last backward


def note_summed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`dist.all_reduce(tensor)`: the graph does not know of it, so its node is remembered."""
    import torch.distributed as dist

    tensor = argument(args, kwargs, 0, "tensor")
    op = argument(args, kwargs, 1, "op", dist.ReduceOp.SUM)
    node = getattr(tensor, "grad_fn", None)
    if node is not None and op == dist.ReduceOp.SUM:
        _summed.append(node)


def averaged(loss: Any) -> bool:
    """Whether a loss was summed up in place and then divided by the number of ranks."""
    nodes, _summed[:] = list(_summed), []
    if not nodes:
        return False
    import torch.distributed as dist

    divided = False
    node = getattr(loss, "grad_fn", None)
    for _ in range(_MAX_NODES):
        if node is None:
            return False
        if any(node is known for known in nodes):
            return divided
        if not node.name().startswith("DivBackward"):
            return False
        divisor = getattr(node, "_saved_other", None)
        if divisor is not None and divisor.numel() == 1:
            divided = divided or divisor.item() == dist.get_world_size()
        node = node.next_functions[0][0]
    return False
