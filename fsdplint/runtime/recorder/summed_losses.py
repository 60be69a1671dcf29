"""Losses that the program sums over the ranks in place before backward."""

from __future__ import annotations

from typing import Any

_MAX_NODES = 8


class SummedLosses:
    """The autograd nodes of the losses that were summed since the last backward."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []

    def note(self, tensor: Any) -> None:
        """Store the node of a tensor that `dist.all_reduce` sums; autograd does not record that."""
        node = getattr(tensor, "grad_fn", None)
        if node is not None:
            self._nodes.append(node)

    def is_averaged(self, loss: Any) -> bool:
        """Whether a loss was summed in place and then divided by the number of ranks."""
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
