"""Losses that the program sums up over the ranks, in place, before it runs backward from them."""

from __future__ import annotations

from typing import Any

_MAX_NODES = 8


class SummedLosses:
    """The losses that were summed since the last backward, by their nodes of autograd's graph."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []

    def note(self, tensor: Any) -> None:
        """`dist.all_reduce(tensor)` sums: the graph does not know of it, so the node is kept."""
        node = getattr(tensor, "grad_fn", None)
        if node is not None:
            self._nodes.append(node)

    def averaged(self, loss: Any) -> bool:
        """Whether a loss was summed up in place and then divided by the number of ranks."""
        nodes, self._nodes = self._nodes, []
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
