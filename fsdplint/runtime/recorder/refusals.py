"""Records the parameters that torch refuses to shard, or to run after sharding."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import Refused

SCALAR, STRIDES, DTYPES, BATCHNORM = "scalar", "strides", "dtypes", "batchnorm"
INPUT = "input"


def record_sharding_error(modules: list[Any], error: BaseException) -> None:
    """`fully_shard` of these modules raised."""
    text = str(error)
    if isinstance(error, ValueError) and "scalar parameter" in text:
        reason = SCALAR
    elif isinstance(error, NotImplementedError) and "non-contiguous" in text:
        reason = STRIDES
    else:
        return
    found: list[tuple[str, str]] = []
    for module in modules:
        for name, parameter in module.named_parameters():
            if reason == SCALAR and parameter.dim() == 0:
                found.append((name, "a scalar"))
            elif reason == STRIDES and not parameter.is_contiguous():
                found.append((name, f"shape {_tuple_text(parameter.shape)}, {_order(parameter)}"))
    if found:
        _write(sys._getframe(2), reason, modules[0], found)


def _order(parameter: Any) -> str:
    import torch

    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        return "channels_last"
    return f"strides {_tuple_text(parameter.stride())}"


def _tuple_text(numbers: Any) -> str:
    return "(" + ", ".join(str(number) for number in numbers) + ")"


def record_call_error(error: Exception, frame: FrameType | None) -> None:
    """Record the module and its types if a forward raised an error about types."""
    if isinstance(error, AssertionError) and "uniform original parameter dtype" in str(error):
        _types_of_group(error, frame)
    elif isinstance(error, RuntimeError):
        _types_of_batchnorm(error, frame)
        _types_of_input(error, frame)


def _types_of_batchnorm(error: Exception, frame: FrameType | None) -> None:
    """Record a failed BatchNorm whose parameters and running statistics differ in type."""
    from torch.nn.modules.batchnorm import _NormBase

    module = None
    trace = error.__traceback__
    while trace is not None:
        own = trace.tb_frame.f_locals.get("self")
        module = own if isinstance(own, _NormBase) else module
        trace = trace.tb_next
    mean, weight = getattr(module, "running_mean", None), getattr(module, "weight", None)
    if mean is not None and weight is not None and mean.dtype != weight.dtype:
        found = [("running_mean", str(mean.dtype)), ("weight", str(weight.dtype))]
        _write(frame, BATCHNORM, module, found)


def _types_of_input(error: Exception, frame: FrameType | None) -> None:
    """Record the layer in which an error was raised, if its input has another type."""
    import torch

    found = None
    trace = error.__traceback__
    while trace is not None:
        names = trace.tb_frame.f_locals
        layer, given = names.get("self"), names.get("input")
        weight = getattr(layer, "weight", None) if isinstance(layer, torch.nn.Module) else None
        if isinstance(weight, torch.Tensor) and isinstance(given, torch.Tensor):
            found = layer, weight.dtype, given.dtype
        trace = trace.tb_next
    if found is not None and found[2].is_floating_point and found[1] != found[2]:
        types = [("weight", str(found[1])), ("input", str(found[2]))]
        _write(frame, INPUT, found[0], types)


def _types_of_group(error: Exception, frame: FrameType | None) -> None:
    group = _group(error.__traceback__)
    modules = getattr(group, "modules", None)
    if not modules:
        return
    dtypes = {
        id(held.sharded_param): str(held.orig_dtype)
        for held in group.fsdp_params
        if held.sharded_param.requires_grad
    }
    found = [
        (name, dtypes[id(parameter)])
        for module in modules
        for name, parameter in module.named_parameters()
        if id(parameter) in dtypes
    ]
    _write(frame, DTYPES, modules[0], found)


def _group(trace: TracebackType | None) -> Any:
    """FSDP2's parameter group in whose code an error was raised."""
    found = None
    while trace is not None:
        own = trace.tb_frame.f_locals.get("self")
        if hasattr(own, "fsdp_params"):
            found = own
        trace = trace.tb_next
    return found


def _write(frame: FrameType | None, reason: str, module: Any, found: list[tuple[str, str]]) -> None:
    recording = current()
    recording.recorder.event(
        Refused,
        frame,
        module=recording.objects.module(module),
        reason=reason,
        parameters=tuple(found[:100]),
    )
