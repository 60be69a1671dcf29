"""Backward, gradient synchronisation, clipping."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.measures import Clip
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.patches.sharding import record_recent_api
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import OwnerNames
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import BackwardRun, Clipped, MixedParameters, SyncSwitched
from fsdplint.trace.torch_versions import METHODS

_SWITCHES = (
    "set_requires_gradient_sync",
    "set_requires_all_reduce",
    "set_is_last_backward",
    "set_reshard_after_backward",
    "set_reshard_after_forward",
    "set_gradient_divide_factor",
    "set_reduce_scatter_divide_factor",
)


def install() -> None:
    import torch
    import torch.nn.utils.clip_grad as clip_grad
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel

    _watch_backward(torch)
    for owner in (FullyShardedDataParallel, DistributedDataParallel):
        patching.watch_method(owner, "no_sync", _record_no_sync)
    for name in _SWITCHES:
        patching.watch_method(FSDPModule, name, functools.partial(_record_switch, name))
    patching.watch_method(FullyShardedDataParallel, "clip_grad_norm_", _record_clipping_by_method)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patching.watch_function(
            clip_grad, name, functools.partial(_record_clipping_by_function, name)
        )


def _watch_backward(torch: Any) -> None:
    original = torch.Tensor.backward
    original_function = torch.autograd.backward
    is_compiling = torch.compiler.is_compiling

    def run(function: Any, frame: FrameType, loss: Any, args: Any, kwargs: Any) -> Any:
        recording = current()
        entry = None
        try:
            recording.measures.loss(loss)
            recording.layouts.before_backward()
            entry = recording.recorder.event(
                BackwardRun,
                frame,
                collective=recording.objects.generation > 0,
                averaged=recording.losses.is_averaged(loss),
                multiplied=recording.losses.is_multiplied(loss),
                unsynchronized=tuple(_modules_in_no_sync(recording.objects)),
                divided_by=recording.losses.divided_by(loss, frame)
                if not (args[1:] or kwargs)
                else "",
            )
        except Exception:
            recording.recorder.record_error()
        recording.recorder.in_backward += 1
        try:
            result = function(*args, **kwargs)
            if entry is not None:
                recording.losses.after_backward(entry, recording.objects)
            return result
        except RuntimeError as error:
            recording.output_views.note_backward_error(error)
            raise
        finally:
            recording.recorder.in_backward -= 1
            recording.output_views.clear()

    import sys

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not current().recorder.listening_to_forward():
            return original(*args, **kwargs)
        return run(original, sys._getframe(1), args[0] if args else None, args, kwargs)

    @functools.wraps(original_function)
    def autograd_backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not current().recorder.listening_to_forward():
            return original_function(*args, **kwargs)
        tensors = argument(args, kwargs, 0, "tensors")
        first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        return run(original_function, sys._getframe(1), first, args, kwargs)

    torch.Tensor.backward = backward
    patching.replace(original_function, autograd_backward)


def _modules_in_no_sync(objects: Objects) -> Iterator[str]:
    """The outermost FSDP1 modules under whose `no_sync()` a backward pass begins."""
    for module, kind in objects.sharded.items():
        if kind == "fsdp1" and getattr(module, "_sync_gradients", True) is False:
            if getattr(module, "_is_root", False):
                yield objects.module(module)


def _record_no_sync(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    recording.recorder.event(
        SyncSwitched,
        frame,
        module=recording.objects.module(args[0]),
        api="no_sync",
        enabled=False,
    )


def _record_switch(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    recording = current()
    value = next((v for v in (*args[1:], *kwargs.values()) if isinstance(v, bool)), None)
    recording.recorder.event(
        SyncSwitched,
        frame,
        module=recording.objects.module(args[0]),
        api=name,
        enabled=value,
    )
    if name in METHODS:
        record_recent_api(name, args[0], frame)


def _record_clipping_by_method(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    recording = current()
    module = args[0]
    bound = argument(args, kwargs, 1, "max_norm")
    recording.recorder.event(
        Clipped,
        frame,
        api="method",
        modules=(recording.objects.module(module),),
        max_norm=bound if isinstance(bound, (int, float)) else "?",
        collective=True,
    )
    recording.measures.note_clipping(list(module.parameters()), _clip("norm", args, kwargs))


def _record_clipping_by_function(
    name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    import torch

    recording = current()
    value = argument(args, kwargs, 0, "parameters")
    if isinstance(value, torch.Tensor):
        parameters = [value]
    elif isinstance(value, (list, tuple)):
        parameters = list(value)
    else:
        parameters = _peek(frame, value)
    owners, _ = recording.objects.owner_names(parameters)
    sharded = any(hasattr(p, "placements") for p in parameters)
    if "norm" in name and values.is_mixed(p for p in parameters if p.grad is not None):
        recording.recorder.event(MixedParameters, frame, api=name)
    bound = argument(args, kwargs, 1, "max_norm")
    recording.recorder.event(
        Clipped,
        frame,
        api="utils",
        modules=OwnerNames(owners),
        stale=tuple(recording.objects.stale_modules(parameters)),
        by_norm="norm" in name,
        max_norm=bound if isinstance(bound, (int, float)) else "?",
        collective=sharded,
    )
    if parameters:
        recording.measures.note_clipping(
            parameters, _clip("norm" if "norm" in name else "value", args, kwargs)
        )


def _clip(by: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Clip:
    """The kind and bound of a clipping; the bound is None if it is not a number."""
    bound = "max_norm" if by == "norm" else "clip_value"
    arguments = dict(zip((bound, "norm_type"), args[1:], strict=False)) | kwargs
    clip = {"by": by, "bound": _number(arguments.get(bound))}
    return {**clip, "norm_type": _number(arguments.get("norm_type", 2.0))} if by == "norm" else clip


def _number(value: Any) -> float | None:
    if hasattr(value, "item") and not hasattr(value, "placements") and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, (int, float, str)) else None


def _peek(frame: FrameType, iterator: Any) -> list[Any]:
    """The parameters that `module.parameters()` will give, without consuming the iterator.

    The frame of the generator holds the module.
    """
    inner = getattr(iterator, "gi_frame", None)
    while inner is not None:
        module = inner.f_locals.get("self")
        if hasattr(module, "parameters"):
            return list(module.parameters())
        return []
    return []
