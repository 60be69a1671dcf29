"""Losses that the program sums over the ranks, or divides by their number, before backward."""

from __future__ import annotations

import linecache
import math
import re
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.trace import BackwardRun

_MAX_NODES = 8
# A division by the number of ranks; the number itself may also be that of the micro-batches.
_DIVISION = re.compile(r"[\w)\]]\s*/=?\s*[\w(]")
_BY_RANKS = re.compile(r"/=?[^/\n]*world_?size", re.IGNORECASE)


class SummedLosses:
    """What `dist.all_reduce` has summed since the last backward.

    Of a loss it keeps the autograd node, of a plain number the tensor.
    """

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._totals: list[Any] = []
        self._divided: list[tuple[Entry[BackwardRun], Any, int]] = []

    def note(self, tensor: Any) -> None:
        """Store a tensor that `dist.all_reduce` sums; autograd does not record that."""
        node = getattr(tensor, "grad_fn", None)
        if node is not None:
            self._nodes.append(node)
        elif tensor.numel() == 1:
            self._totals.append(tensor)

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
            divided = divided or _divisor(node) == dist.get_world_size()
            node = node.next_functions[0][0]
        return False

    def divided_by(self, loss: Any, frame: FrameType | None) -> str:
        """What a loss is divided by, see `BackwardRun`; "" if it is also multiplied."""
        totals, self._totals = self._totals, []
        import torch.distributed as dist

        if not dist.is_initialized() or dist.get_world_size() < 2:
            return ""
        sums = {float(total.item()) for total in totals if not hasattr(total, "placements")}
        found = ""
        node = getattr(loss, "grad_fn", None)
        for _ in range(_MAX_NODES):
            if node is None or node.name().startswith("MulBackward"):
                return found if node is None else ""
            divisor = _divisor(node) if node.name().startswith("DivBackward") else None
            if divisor is not None and divisor > 1:
                if divisor in sums:
                    found = "total"
                elif divisor == dist.get_world_size() and _divides_by_ranks(frame):
                    found = "ranks"
            node = node.next_functions[0][0] if node.next_functions else None
        return found

    def is_multiplied(self, loss: Any) -> bool:
        """Whether the end of a loss's graph multiplies it."""
        node = getattr(loss, "grad_fn", None)
        for _ in range(_MAX_NODES):
            if node is None:
                return False
            if node.name().startswith("MulBackward"):
                return True
            node = node.next_functions[0][0] if node.next_functions else None
        return False

    def is_total(self, number: float) -> bool:
        """Whether `dist.all_reduce` has summed this number since the last backward."""
        sums = [float(one.item()) for one in self._totals if not hasattr(one, "placements")]
        return number > 1 and any(math.isclose(number, one, rel_tol=1e-4) for one in sums)

    def after_backward(self, entry: Entry[BackwardRun], objects: Objects) -> None:
        """Remember a gradient after the backward of a divided loss."""
        self._divided = [(one, held, _version(held)) for one, held, _ in self._divided]
        if not entry.event.divided_by:
            return
        for module, _ in objects.sharded.items():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    self._divided.append((entry, parameter.grad, _version(parameter.grad)))
                    return

    def before_step(self) -> None:
        """Correct the events if the program has changed the gradients since."""
        divided, self._divided = self._divided, []
        for entry, held, version in divided:
            if _version(held) != version:
                entry.event.divided_by = ""
                entry.write()


def _version(tensor: Any) -> int:
    """A number that changes when a tensor, or the local tensor of a DTensor, changes."""
    return int(tensor._version + getattr(tensor, "_local_tensor", tensor)._version)


def _divisor(node: Any) -> float | None:
    """The number that a node of autograd divides by."""
    divisor = getattr(node, "_saved_other", None)
    if isinstance(divisor, int | float):
        return float(divisor)
    if divisor is None or divisor.numel() != 1 or hasattr(divisor, "placements"):
        return None
    return float(divisor.item())


def _divides_by_ranks(frame: FrameType | None) -> bool:
    """Whether the nearest function around a backward that divides does so by the number of ranks.

    If it also divides by something else, that may have the same value: the number of micro-batches.
    """
    while frame is not None:
        divisions = [line for line in _lines_of(frame) if _DIVISION.search(line)]
        if divisions:
            return all(map(_BY_RANKS.search, divisions))
        frame = frame.f_back
    return False


def _lines_of(frame: FrameType) -> list[str]:
    """The lines of the function that a frame runs, without comments."""
    code = frame.f_code
    numbers = {line for _, _, line in code.co_lines() if line is not None}
    lines = (linecache.getline(code.co_filename, number) for number in sorted(numbers))
    return [line.partition("#")[0] for line in lines]
