"""Optimizers: built and stepped."""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import final_state, patching, values
from fsdplint.runtime.recorder.measures import MEASURES
from fsdplint.runtime.recorder.missed_parameters import MISSED
from fsdplint.runtime.recorder.objects import OBJECTS
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import RECORDER, Owners
from fsdplint.runtime.recorder.replicas import REPLICAS
from fsdplint.runtime.recorder.sites import USER, kind_of
from fsdplint.trace import (
    MixedParameters,
    OptimizerBuilt,
    OptimizerStepped,
    ScalerBuilt,
    ScalerStepped,
)


def install() -> None:
    import torch
    import torch.optim.optimizer as optim

    _watch_building(torch.optim.Optimizer)
    optim.register_optimizer_step_pre_hook(_stepping)
    optim.register_optimizer_step_post_hook(_stepped)
    patching.watch_method(torch.amp.GradScaler, "__init__", _scaler_built, direct=False)
    patching.watch_method(torch.amp.GradScaler, "step", _scaler_stepped)


def _watch_building(cls: Any) -> None:
    original = cls.__init__

    @functools.wraps(original)
    def init(self: Any, params: Any = (), *args: Any, **kwargs: Any) -> None:
        if not RECORDER.listening():
            return original(self, params, *args, **kwargs)
        if not isinstance(params, (list, tuple, dict)) and not hasattr(params, "dim"):
            try:
                params = list(params)
            except TypeError:
                pass  # torch says what is wrong with it
        try:
            _built(self, params, sys._getframe(1), argument(args, kwargs, 0, "defaults"))
        except Exception:
            RECORDER.trouble()
        original(self, params, *args, **kwargs)
        MISSED.built(self)

    cls.__init__ = init


def parameters_of(params: Any) -> list[Any]:
    """The tensors in what an optimizer was given: tensors, named tensors or groups of either."""
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


def _built(optimizer: Any, params: Any, frame: FrameType | None, defaults: Any) -> None:
    while (
        frame is not None
        and frame.f_code.co_name == "__init__"
        and frame.f_code.co_varnames
        and frame.f_locals.get(frame.f_code.co_varnames[0]) is optimizer
    ):
        frame = frame.f_back
    parameters = parameters_of(params)
    owners, unknown = OBJECTS.owner_names(parameters)
    if unknown:
        OBJECTS.notice_parameters()
        owners, unknown = OBJECTS.owner_names(parameters)
    RECORDER.event(
        OptimizerBuilt,
        frame,
        optimizer=OBJECTS.optimizer(optimizer),
        class_name=type(optimizer).__name__,
        modules=Owners(owners),
        complete=unknown == 0,
        empty_groups=_empty_groups(params),
        stale=tuple(OBJECTS.stale(parameters)),
    )
    ways = [way for way in ("foreach", "fused") if isinstance(defaults, dict) and defaults.get(way)]
    groups = params if isinstance(params, list) and isinstance(params[0], dict) else [params]
    if ways and any(
        values.mixed(p for p in parameters_of(group) if p.requires_grad) for group in groups
    ):
        RECORDER.event(MixedParameters, frame, api=ways[0])


def _empty_groups(params: Any) -> int:
    groups = params if isinstance(params, (list, tuple)) else ()
    return sum(1 for group in groups if isinstance(group, dict) and not parameters_of(group))


def _scaler_built(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scaler = args[0]
    enabled = argument(args, kwargs, 6, "enabled", True)
    RECORDER.event(
        ScalerBuilt,
        frame,
        scaler=OBJECTS.scaler(scaler),
        class_name=type(scaler).__name__,
        enabled=bool(enabled),
    )


def _scaler_stepped(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    optimizer = argument(args, kwargs, 1, "optimizer")
    RECORDER.event(
        ScalerStepped,
        frame,
        scaler=OBJECTS.scaler(args[0]),
        optimizer=OBJECTS.optimizer(optimizer),
    )
    MEASURES.note_scale(args[0])


def _is_training(frame: FrameType | None) -> bool:
    """Whether a step is the program's: loading an optimizer's state makes one to have a state."""
    while frame is not None and kind_of(frame.f_code.co_filename) != USER:
        if os.path.join("torch", "distributed", "checkpoint") in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return True


def _stepping(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not RECORDER.listening() or not _is_training(sys._getframe(1)):
        return
    try:
        RECORDER.event(OptimizerStepped, sys._getframe(1), optimizer=OBJECTS.optimizer(optimizer))
        MEASURES.before_step(optimizer, OBJECTS.optimizer(optimizer))
        for watcher in (MISSED, REPLICAS):
            watcher.stepping(optimizer, OBJECTS.optimizer(optimizer), sys._getframe(1))
    except Exception:
        RECORDER.trouble()


def _stepped(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not RECORDER.listening() or not _is_training(sys._getframe(1)):
        return
    try:
        MEASURES.after_step(optimizer, OBJECTS.optimizer(optimizer))
        final_state.keep(optimizer)
    except Exception:
        RECORDER.trouble()
    MEASURES.stop_if_enough()
