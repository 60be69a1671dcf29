"""Changes of gradients in place, by a number."""

from __future__ import annotations

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
            setattr(torch.Tensor, name, patching.add_watcher(original, _record_scaling))
    for name in ("_foreach_mul_", "_foreach_div_"):
        patching.watch_function(torch, name, _record_scaling)


def _record_scaling(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record the number by which a sharded gradient is multiplied or divided."""
    tensor = argument(args, kwargs, 0, "self")
    tensor = tensor[0] if isinstance(tensor, (list, tuple)) and tensor else tensor
    other = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
    number = _number(other)
    local = getattr(tensor, "_local_tensor", tensor)
    if number is not None and current().objects.is_local_gradient(local):
        current().recorder.event(GradientScaled, frame, differs=of_this_rank(number))


def _number(value: Any) -> float | None:
    if hasattr(value, "placements"):
        return None
    if hasattr(value, "item"):
        return float(value.item()) if value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
