"""Replaces CUDA devices in arguments by the CPU.

A function mode sees every function and tensor method of torch, also with the device of `with
torch.device("cuda")` and `torch.set_default_device`, so no list of factory functions is needed.
"""

from __future__ import annotations

from typing import Any

from fsdplint.runtime.emulation.switch import called_by_program
from fsdplint.runtime.recorder.patching import argument

_GPU = ("cuda", "hip")


def is_cuda(value: Any) -> bool:
    """Whether a value names a CUDA device: "cuda:0", torch.device("cuda")."""
    import torch

    if isinstance(value, str):
        return value.split(":")[0] in _GPU
    return isinstance(value, torch.device) and value.type in _GPU


def on_cpu(value: Any) -> Any:
    """The CPU for a CUDA device, also one given as a number; other values unchanged."""
    if is_cuda(value) or isinstance(value, int) and not isinstance(value, bool):
        return "cpu"
    return value


def _contiguous(source: Any, result: Any) -> Any:
    """The result of a copy to the device, which is contiguous."""
    if result is source and not source.is_contiguous():
        return _distinct_copy(source, result)
    return result


def _distinct_copy(source: Any, result: Any) -> Any:
    """The result of a copy from the device, which has its own memory."""
    import torch

    if result is source and type(source) in (torch.Tensor, torch.nn.Parameter):
        return result.clone(memory_format=torch.preserve_format)
    return result


def switch_on() -> None:
    """Enter the function mode for the rest of the process."""
    import torch
    from torch.overrides import TorchFunctionMode

    to, cuda, cpu = torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu
    type_ = torch.Tensor.type
    pin_memory = torch.Tensor.pin_memory
    # The original rejects emulated streams before the mode sees the call.
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None

    class CpuMode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is to:
                device = argument(args, kwargs or {}, 1, "device")
                if on_cpu(device) is not device:
                    return _contiguous(args[0], self._run(func, args, kwargs))
            elif func is cuda or func is pin_memory:
                return _contiguous(args[0], args[0])
            elif func is cpu and called_by_program():
                return _distinct_copy(args[0], func(*args, **(kwargs or {})))
            elif func is type_ and len(args) > 1 and isinstance(args[1], str):
                args = (args[0], args[1].replace("torch.cuda.", "torch."), *args[2:])
            return self._run(func, args, kwargs)

        def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
            if func is to and len(args) > 1:
                args = (args[0], on_cpu(args[1]), *args[2:])
            if kwargs:
                device = kwargs.get("device")
                if device is not None:
                    kwargs["device"] = on_cpu(device)
                if kwargs.get("pin_memory"):
                    kwargs["pin_memory"] = False
                return func(*args, **kwargs)
            return func(*args)

    mode: Any = CpuMode()
    mode.__enter__()
