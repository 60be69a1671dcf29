"""Records schedulers, and the states of schedulers and gradient scalers."""

from __future__ import annotations

from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import Entry, of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import HelperStateLoaded, HelperStateTaken, SchedulerBuilt, SchedulerStepped


def install() -> None:
    import torch
    import torch.optim.lr_scheduler as lr_scheduler

    base = lr_scheduler.LRScheduler
    patching.watch_method(base, "__init__", _record_building, direct=False)
    for stepping in (base, lr_scheduler.ReduceLROnPlateau):
        patching.watch_method(stepping, "step", _record_step)
    found = [one for one in vars(lr_scheduler).values() if isinstance(one, type)]
    for owner in [*(one for one in found if issubclass(one, base)), torch.amp.GradScaler]:
        patching.watch_method(owner, "state_dict", _record_taking, _note_state)
        patching.watch_method(owner, "load_state_dict", _record_loading, direct=False)


def _name(helper: Any) -> str:
    import torch

    objects = current().objects
    if isinstance(helper, torch.amp.GradScaler):
        return objects.scaler(helper)
    return objects.scheduler(helper)


def _record_building(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    recording.recorder.event(
        SchedulerBuilt,
        frame,
        optimizer=recording.objects.optimizer(argument(args, kwargs, 1, "optimizer")),
        scheduler=_name(args[0]),
        class_name=type(args[0]).__name__,
        goes_on=argument(args, kwargs, 2, "last_epoch", -1) != -1,
    )


def _record_step(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    metric = kwargs.get("metrics", args[1] if len(args) > 1 else None)
    if _is_set_by_hand(args[0]):
        recording.recorder.event(HelperStateLoaded, frame, into=_name(args[0]))
    by_metric = "metrics" in kwargs or type(args[0]).__name__ == "ReduceLROnPlateau"
    recording.recorder.event(
        SchedulerStepped,
        frame,
        optimizer=recording.objects.optimizer(args[0].optimizer),
        scheduler=_name(args[0]),
        metric_differs=of_this_rank(float(metric) if metric is not None else None),
        with_epoch="epoch" in kwargs or len(args) > (2 if by_metric else 1),
    )


def _is_set_by_hand(scheduler: Any) -> bool:
    """Whether the program gives a scheduler that has not stepped yet the epoch to go on from."""
    return getattr(scheduler, "_step_count", 0) == 1 and scheduler.last_epoch > 0


def _record_taking(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Entry[HelperStateTaken]:
    recording = current()
    return recording.recorder.event(
        HelperStateTaken, frame, state=recording.objects.new_state(), of=_name(args[0])
    )


def _note_state(entry: Entry[HelperStateTaken], result: Any) -> None:
    current().objects.remember_helper_state(entry.event.state, result)


def _record_loading(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    value = argument(args, kwargs, 1, "state_dict")
    recording.recorder.event(
        HelperStateLoaded,
        frame,
        into=_name(args[0]),
        state=recording.objects.file_of(value),
    )
