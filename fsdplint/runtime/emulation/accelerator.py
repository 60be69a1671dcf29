"""torch.accelerator and its streams, which do not name a kind of device."""

from __future__ import annotations

import contextlib
from typing import Any

from fsdplint.runtime.emulation.devices import is_cuda

# Functions of torch.accelerator, with the names that torch.cuda has for them.
_CUDA_NAMES = {
    name: name
    for name in (
        "synchronize",
        "empty_cache",
        "current_stream",
        "set_stream",
        "memory_stats",
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
        "get_device_capability",
    )
} | {
    "current_device_index": "current_device",
    "current_device_idx": "current_device",
    "get_memory_info": "mem_get_info",
}


def switch_on() -> None:
    """Use the emulated functions of torch.cuda for torch.accelerator."""
    import torch

    own: Any = getattr(torch, "accelerator", None)
    for name, other in _CUDA_NAMES.items():
        if hasattr(own, name):
            setattr(own, name, _same_function(getattr(torch.cuda, other)))
    if hasattr(own, "device_index"):
        own.device_index = lambda device: contextlib.nullcontext(device)
    for name in ("Stream", "Event"):
        setattr(torch, name, _class(getattr(torch, name), getattr(torch.cuda, name)))


def _same_function(function: Any) -> Any:
    """A function that does the same: torch.compile does not accept two names of a function."""
    return lambda *args, **kwargs: function(*args, **kwargs)


class _DeviceClass(type):
    """A class for torch's class and the emulated one: CUDA devices get the emulated one."""

    original: Any
    emulated: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (cls.original, cls.emulated))

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device is None or isinstance(device, int) or is_cuda(device):
            return cls.emulated(*args, **kwargs)
        return cls.original(device, *args, **kwargs)


def _class(original: Any, emulated: Any) -> type:
    names = {"original": original, "emulated": emulated, "__module__": "torch"}
    return _DeviceClass(original.__name__, (), names)
