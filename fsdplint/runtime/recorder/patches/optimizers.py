"""Records how optimizers and gradient scalers are built and stepped."""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import OwnerNames
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import USER, kind_of
from fsdplint.trace import (
    GradientsZeroed,
    MixedParameters,
    OptimizerBuilt,
    OptimizerStepped,
    ScalerBuilt,
    ScalerStepped,
    ScalerUnscaled,
    ScalerUpdated,
)


def install() -> None:
    import torch
    import torch.optim.optimizer as optim
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    _watch_building(torch.optim.Optimizer)
    optim.register_optimizer_step_pre_hook(_before_step)
    optim.register_optimizer_step_post_hook(_after_step)
    patching.watch_method(torch.optim.Optimizer, "zero_grad", _record_zeroing)
    patching.watch_method(torch.amp.GradScaler, "__init__", _record_scaler, direct=False)
    patching.watch_method(torch.amp.GradScaler, "step", _record_scaler_step)
    for scaler in (torch.amp.GradScaler, ShardedGradScaler):
        patching.watch_method(scaler, "unscale_", _record_unscaling)
        patching.watch_method(scaler, "update", _record_update)


def _watch_building(cls: Any) -> None:
    original = cls.__init__

    @functools.wraps(original)
    def init(self: Any, params: Any = (), *args: Any, **kwargs: Any) -> None:
        recording = current()
        if not recording.recorder.listening():
            return original(self, params, *args, **kwargs)
        if not isinstance(params, (list, tuple, dict)) and not hasattr(params, "dim"):
            try:
                params = list(params)
            except TypeError:
                pass  # torch raises an error for it
        try:
            _record_optimizer(self, params, sys._getframe(1), argument(args, kwargs, 0, "defaults"))
        except Exception:
            recording.recorder.record_error()
        original(self, params, *args, **kwargs)
        recording.missed_parameters.add_optimizer(self)

    cls.__init__ = init


def parameters_of(params: Any) -> list[Any]:
    """The tensors in the argument of an optimizer: tensors, named tensors, or groups of them."""
    found: list[Any] = []
    for item in params if isinstance(params, (list, tuple)) else [params]:
        if isinstance(item, dict):
            inner = item.get("params", ())
            if not isinstance(inner, (list, tuple)) and not hasattr(inner, "dim"):
                inner = list(inner)
                item["params"] = inner
            found.extend(parameters_of(inner))
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            found.append(item[1])
        elif hasattr(item, "dim"):
            found.append(item)
    return found


def _record_optimizer(optimizer: Any, params: Any, frame: FrameType | None, defaults: Any) -> None:
    recording = current()
    while (
        frame is not None
        and frame.f_code.co_name == "__init__"
        and frame.f_code.co_varnames
        and frame.f_locals.get(frame.f_code.co_varnames[0]) is optimizer
    ):
        frame = frame.f_back
    parameters = parameters_of(params)
    owners, unknown = recording.objects.owner_names(parameters)
    if unknown:
        recording.objects.notice_parameters()
        owners, unknown = recording.objects.owner_names(parameters)
    recording.recorder.event(
        OptimizerBuilt,
        frame,
        optimizer=recording.objects.optimizer(optimizer),
        class_name=type(optimizer).__name__,
        library=_library(type(optimizer)),
        modules=OwnerNames(owners),
        complete=unknown == 0,
        empty_groups=_empty_groups(params),
        stale=tuple(recording.objects.stale_modules(parameters)),
    )
    modes = _modes(defaults) if isinstance(defaults, dict) else []
    groups = params if isinstance(params, list) and isinstance(params[0], dict) else [params]
    if modes and any(
        values.is_mixed(p for p in parameters_of(group) if p.requires_grad) for group in groups
    ):
        recording.recorder.event(MixedParameters, frame, api=modes[0])


def _modes(defaults: dict[str, Any]) -> list[str]:
    """How an optimizer steps its parameters, as the `api` of `MixedParameters`; empty if singly."""
    modes = [mode for mode in ("foreach", "fused") if defaults.get(mode)]
    if not modes and "foreach" in defaults and defaults["foreach"] is defaults.get("fused") is None:
        return ["default"]
    return modes


def _library(cls: type) -> str:
    """The package that has a class; "" for one of the program."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return "" if kind_of(file or "") == USER else cls.__module__.partition(".")[0]


def _empty_groups(params: Any) -> int:
    groups = params if isinstance(params, (list, tuple)) else ()
    return sum(1 for group in groups if isinstance(group, dict) and not parameters_of(group))


def _record_scaler(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    scaler = args[0]
    enabled = argument(args, kwargs, 6, "enabled", True)
    recording.recorder.event(
        ScalerBuilt,
        frame,
        scaler=recording.objects.scaler(scaler),
        class_name=type(scaler).__name__,
        enabled=bool(enabled),
    )


def _record_scaler_step(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    optimizer = argument(args, kwargs, 1, "optimizer")
    recording.recorder.event(
        ScalerStepped,
        frame,
        scaler=recording.objects.scaler(args[0]),
        optimizer=recording.objects.optimizer(optimizer),
    )
    recording.measures.note_scale(args[0])


def _record_unscaling(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    recording.recorder.event(
        ScalerUnscaled,
        frame,
        scaler=recording.objects.scaler(args[0]),
        optimizer=recording.objects.optimizer(argument(args, kwargs, 1, "optimizer")),
    )


def _record_update(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    recording.recorder.event(ScalerUpdated, frame, scaler=recording.objects.scaler(args[0]))


def _is_training(frame: FrameType | None) -> bool:
    """Whether the program makes a step; loading an optimizer's state also makes one."""
    while frame is not None and kind_of(frame.f_code.co_filename) != USER:
        if os.path.join("torch", "distributed", "checkpoint") in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return True


def _record_zeroing(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    name = recording.objects.optimizer(args[0])
    recording.recorder.event(GradientsZeroed, frame, optimizer=name)


def _is_nonzero(parameter: Any) -> bool:
    """Whether a parameter has a gradient, and this rank's part of it is not zero."""
    gradient = getattr(parameter.grad, "_local_tensor", parameter.grad)
    return gradient is not None and bool(gradient.detach().any())


def _before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    if not recording.recorder.listening() or not _is_training(sys._getframe(1)):
        return
    try:
        recording.recorder.event(
            OptimizerStepped,
            sys._getframe(1),
            optimizer=recording.objects.optimizer(optimizer),
            without_gradients=not any(map(_is_nonzero, parameters_of(optimizer.param_groups))),
        )
        recording.losses.before_step()
        recording.measures.before_step(optimizer, recording.objects.optimizer(optimizer))
        for watcher in (recording.missed_parameters, recording.replicas):
            watcher.before_step(optimizer, recording.objects.optimizer(optimizer), sys._getframe(1))
    except Exception:
        recording.recorder.record_error()


def _after_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    if not recording.recorder.listening() or not _is_training(sys._getframe(1)):
        return
    try:
        recording.measures.after_step(optimizer, recording.objects.optimizer(optimizer))
        recording.final_state.keep(optimizer)
    except Exception:
        recording.recorder.record_error()
    recording.measures.stop_if_enough()
