"""The most memory that this rank has held since the last time it was asked.

On CUDA what the allocator gave to tensors; on the CPU what the process had in memory at all, torch
itself included, which only Linux tells.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fsdplint.runtime.emulation.switch import EMULATION

_STATUS = "/proc/self/status"
_RESET = "/proc/self/clear_refs"


class Peak:
    """Asked once a step."""

    def __init__(self) -> None:
        self._works = os.access(_RESET, os.W_OK)

    def restart(self) -> None:
        """Begin anew from what is held now."""
        cuda = _cuda()
        if cuda is not None:
            cuda.reset_peak_memory_stats()
        elif self._works:
            with contextlib.suppress(OSError):
                descriptor = os.open(_RESET, os.O_WRONLY)
                try:
                    os.write(descriptor, b"5")  # forgets the high-water mark, and nothing else
                finally:
                    os.close(descriptor)

    def take(self) -> int | None:
        """Bytes since `restart`; None where nothing tells them."""
        cuda = _cuda()
        if cuda is not None:
            return int(cuda.max_memory_allocated())
        if not self._works:
            return None
        with contextlib.suppress(OSError, ValueError), open(_STATUS, encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None


def _cuda() -> Any:
    if EMULATION.on:
        return None
    import torch

    cuda: Any = torch.cuda
    return cuda if cuda.is_available() and cuda.is_initialized() else None
