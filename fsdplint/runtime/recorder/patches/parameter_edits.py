"""Changes in place of parameters that a forward of FSDP2 has left gathered."""

from __future__ import annotations

from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.layouts import groups_of
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import WeightsSet

_METHODS = ("copy_", "lerp_", "add_", "sub_", "mul_", "div_", "clamp_", "zero_", "fill_",
            "addcmul_", "addcdiv_", "__iadd__", "__isub__", "__imul__", "__itruediv__")  # fmt: skip
_FUNCTIONS = ("copy_", "lerp_", "add_", "sub_", "mul_", "div_", "zero_")


def install() -> None:
    import torch

    for name in _METHODS:
        watcher = patching.add_watcher(getattr(torch.Tensor, name), _record)
        setattr(torch.Tensor, name, watcher)
    for name in _FUNCTIONS:
        patching.watch_function(torch, f"_foreach_{name}", _record)


def _record(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    target = argument(args, kwargs, 0, "self")
    owner = next(filter(None, map(_gathered_owner, _tensors(target))), None)
    if owner is None:
        return
    others = [one for value in (*args[1:], *kwargs.values()) for one in _tensors(value)]
    recording = current()
    recording.recorder.event(
        WeightsSet,
        frame,
        modules=(recording.objects.module(owner),),
        in_place=True,
        extent="own",
        with_sharded=any(hasattr(one, "placements") for one in others),
    )


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _gathered_owner(parameter: Any) -> Any:
    """The module of a gathered parameter of FSDP2; None for any other tensor."""
    import torch

    if not isinstance(parameter, torch.nn.Parameter) or hasattr(parameter, "placements"):
        return None
    for root, kind in current().objects.sharded.items():
        for group in groups_of(root) if kind == "fsdp2" else ():
            for part in group.fsdp_params:
                if getattr(part, "_unsharded_param", None) is parameter:
                    return part._module_info.module
    return None
