"""`Module.to` and similar methods for fake parameters.

torch swaps a fake parameter with the converted one, which fails because the fake mode holds
references to it. Here a parameter gets new data, as a real one does, or is replaced if its device
changes.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """Replace the conversion of every module of this process."""
    module: Any = torch.nn.Module
    module._apply = _apply


def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    if recurse:
        for child in self.children():
            child._apply(fn)
    for name, parameter in self._parameters.items():
        if parameter is None:
            continue
        with torch.no_grad():
            converted = fn(parameter)
        if converted.device == parameter.device and not hasattr(parameter, "_local_tensor"):
            parameter.data = converted
            new = parameter
        else:
            new = torch.nn.Parameter(converted, parameter.requires_grad)
            self._parameters[name] = new
        if parameter.grad is not None:
            with torch.no_grad():
                new.grad = fn(parameter.grad)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = fn(buffer)
    return self
