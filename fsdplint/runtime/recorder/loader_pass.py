"""The current pass over a data loader."""

from __future__ import annotations

import hashlib
from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.recorder import Entry, of_this_rank
from fsdplint.trace import LoaderIterated

MAX_INPUTS = 2  # model calls of a pass whose inputs are compared between ranks
MAX_BYTES = 1 << 20  # bytes of a tensor that are compared


class LoaderPass:
    """The current pass over a loader, with the first inputs of the model in it."""

    def __init__(self) -> None:
        self.entry: Entry[LoaderIterated] | None = None
        self.inputs: tuple[str, ...] = ()
        self.open: dict[int, str] = {}  # the loader of each iterator that has not ended
        self.samplers: list[Any] = []  # all DistributedSamplers
        self._orders: dict[str, tuple[int, int]] = {}  # of each sampler: epoch and seed

    def begin(self, entry: Entry[LoaderIterated]) -> None:
        self.entry, self.inputs = entry, ()

    def note_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The sharded model is called from outside with these arguments."""
        if self.entry is None or len(self.inputs) >= MAX_INPUTS:
            return
        self.inputs = (*self.inputs, _digest((args, kwargs)))
        self.entry.event.same_batches = of_this_rank(self.inputs)
        self.entry.write()

    def is_new_order(self, sampler: str, order: tuple[int, int]) -> bool:
        """Whether a sampler begins a pass with another epoch or seed than the last time."""
        previous = self._orders.get(sampler, order)
        self._orders[sampler] = order
        return previous != order


def _digest(value: Any) -> str:
    """A short text that is equal for equal tensors."""
    import torch

    found = hashlib.sha256()
    for tensor in values.tensors(value):
        plain = tensor.detach()
        if hasattr(plain, "to_local"):
            plain = plain.to_local()
        found.update(f"{tuple(plain.shape)} {plain.dtype}".encode())
        content = plain.contiguous().view(-1).view(torch.uint8)[:MAX_BYTES].cpu()
        found.update(content.numpy().tobytes())
    return found.hexdigest()[:16]
