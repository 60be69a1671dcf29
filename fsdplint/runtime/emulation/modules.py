"""Moving modules, data parallelism and data loading."""

from __future__ import annotations

import importlib
from typing import Any

from fsdplint.runtime.emulation.devices import is_cuda, on_cpu
from fsdplint.runtime.emulation.switch import when_emulated


def install() -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    module: Any = torch.nn.Module
    module.to = when_emulated(module.to, _to)
    module.cuda = when_emulated(module.cuda, _cuda)
    module.to_empty = when_emulated(module.to_empty, _to_empty)
    # `with torch.device("cuda")` and torch.set_default_device
    context: Any = importlib.import_module("torch.utils._device").DeviceContext
    context.__init__ = when_emulated(context.__init__, _context)
    ddp: Any = DistributedDataParallel
    ddp.__init__ = when_emulated(ddp.__init__, _ddp)
    loader: Any = torch.utils.data.DataLoader
    loader.__init__ = when_emulated(loader.__init__, _loader)


def _context(original: Any, self: Any, device: Any) -> None:
    original(self, on_cpu(device))


def _to(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    args = tuple(on_cpu(value) for value in args)
    if "device" in kwargs:
        kwargs["device"] = on_cpu(kwargs["device"])
    return original(self, *args, **kwargs)


def _cuda(original: Any, self: Any, device: Any = None) -> Any:
    return self.cpu()


def _to_empty(original: Any, self: Any, *, device: Any, recurse: bool = True) -> Any:
    return original(self, device=on_cpu(device), recurse=recurse)


def _ddp(original: Any, self: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("device_ids", None)
    kwargs.pop("output_device", None)
    return original(self, module, *args[2:], **kwargs)


def _loader(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs["pin_memory"] = False
    if is_cuda(kwargs.get("pin_memory_device", "")):
        kwargs["pin_memory_device"] = ""
    return original(self, *args, **kwargs)
