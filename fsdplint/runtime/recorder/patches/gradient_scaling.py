"""Changes of gradients in place, by a number."""

from __future__ import annotations

import functools
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import GradientScaled

_METHODS = ("mul_", "multiply_", "div_", "divide_", "true_divide_", "__imul__", "__itruediv__")


def install() -> None:
    import torch

    for name in _METHODS:
        original = getattr(torch.Tensor, name, None)
        if original is not None:
            before = functools.partial(_record_scaling, "div" in name)
            setattr(torch.Tensor, name, patching.add_watcher(original, before))
    for name in ("_foreach_mul_", "_foreach_div_"):
        before = functools.partial(_record_scaling, "div" in name)
        patching.watch_function(torch, name, before)
    patching.watch_function(torch.nn.utils, "clip_grads_with_norm_", _record_clipping)


def _record_clipping(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record the number by which `clip_grads_with_norm_` multiplies sharded gradients."""
    parameters = argument(args, kwargs, 0, "parameters")
    norm = _number(argument(args, kwargs, 2, "total_norm"))
    one = parameters[0] if isinstance(parameters, (list, tuple)) and parameters else parameters
    gradient = getattr(one, "grad", None)
    local = getattr(gradient, "_local_tensor", gradient)
    recording = current()
    if norm is not None and local is not None and recording.objects.is_local_gradient(local):
        factor = min(1.0, float(argument(args, kwargs, 1, "max_norm")) / (norm + 1e-6))
        recording.recorder.event(GradientScaled, frame, differs=of_this_rank(factor))


def _record_scaling(
    divides: bool, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record the number by which a sharded gradient is multiplied or divided."""
    tensor = argument(args, kwargs, 0, "self")
    tensor = tensor[0] if isinstance(tensor, (list, tuple)) and tensor else tensor
    other = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
    number = _number(other)
    local = getattr(tensor, "_local_tensor", tensor)
    recording = current()
    if _has_elements_of(other, local):
        return
    holder = recording.objects.holder_of_gradient(local) if number is not None else None
    if number is not None and holder is not None:
        recording.recorder.event(
            GradientScaled,
            frame,
            differs=of_this_rank(number),
            by_total=number > 0 and recording.losses.is_total(number if divides else 1 / number),
            modules=(recording.objects.module(holder),),
        )


def _has_elements_of(factor: Any, gradient: Any) -> bool:
    """Whether a tensor with one element may have one for each row of the rank's part."""
    if not hasattr(factor, "dim") or not hasattr(gradient, "dim"):
        return False
    return bool(factor.dim() > 1 or (factor.dim() == 1 and gradient.numel() == 1))


def _number(value: Any) -> float | None:
    if hasattr(value, "placements"):
        return None
    if hasattr(value, "item"):
        return float(value.item()) if value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
