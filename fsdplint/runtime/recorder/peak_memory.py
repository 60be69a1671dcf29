"""The peak memory of this rank since the last measurement.

On CUDA it is the memory that the allocator gave to tensors. On the CPU it is the resident memory of
the process, including torch itself, which only Linux reports.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fsdplint.runtime.emulation.switch import EMULATION

_STATUS = "/proc/self/status"
_RESET = "/proc/self/clear_refs"


class Peak:
    """Measures the peak memory between two calls of `restart`."""

    def __init__(self) -> None:
        self._works = os.access(_RESET, os.W_OK)

    def restart(self) -> None:
        """Reset the peak to the memory in use."""
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
        """The peak in bytes since `restart`; None if the system does not report it."""
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
