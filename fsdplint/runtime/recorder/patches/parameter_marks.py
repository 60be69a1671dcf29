"""Records attributes and hooks on parameters, and changes to rows of sharded parameters.

Sharding replaces the parameters, which loses their attributes. The attributes are recorded when a
module is sharded, and each read of such an attribute of a new parameter later.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import ParameterMarked, ParameterMarkRead, RowEdited


def install() -> None:
    import torch

    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        patching.watch_method(
            torch.Tensor, name, functools.partial(_record_hook, name), _remember_hook
        )
    patching.watch_method(torch.utils.hooks.RemovableHandle, "remove", _record_hook_removal)
    _watch_rows()


def _record_hook(name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recording = current()
    owner = recording.objects.owners.get(args[0])
    if owner is None:
        return None
    module = recording.objects.module(owner)
    sharded = hasattr(args[0], "placements")
    recording.recorder.event(
        ParameterMarked, frame, modules=(module,), name=name, hook=True, sharded=sharded
    )
    return module, name


def _remember_hook(hook: tuple[str, str], handle: Any) -> None:
    current().marks.hooks.set(handle, hook)


def _record_hook_removal(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    recording = current()
    hook = recording.marks.hooks.get(args[0])
    if hook is not None:
        module, name = hook
        recording.recorder.event(
            ParameterMarked, frame, modules=(module,), name=name, hook=True, removed=True
        )


def record_attributes(module: Any, frame: FrameType) -> None:
    """Record the attributes of the parameters of a module before it is sharded."""
    recording = current()
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is None or hasattr(parameter, "placements"):
                continue
            for name in vars(parameter):
                owner = recording.objects.module(part)
                if owner not in recording.marks.attributes.setdefault(name, set()):
                    recording.marks.attributes[name].add(owner)
                    recording.recorder.event(ParameterMarked, frame, modules=(owner,), name=name)
    if recording.marks.attributes:
        _watch_reading()


def _watch_reading() -> None:
    """Watch reads of attributes that sharded parameters do not have."""
    from torch.distributed.tensor import DTensor

    cls: Any = DTensor
    if hasattr(cls, "__getattr__"):
        return

    def missing(self: Any, name: str) -> Any:
        recording = current()
        if name in recording.marks.attributes and recording.recorder.listening():
            try:
                _record_mark_read(self, name, sys._getframe(1))
            except Exception:
                recording.recorder.record_error()
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    cls.__getattr__ = missing


def _record_mark_read(parameter: Any, name: str, frame: FrameType) -> None:
    recording = current()
    owner = recording.objects.owners.get(parameter)
    if owner is None or not is_direct(frame):
        return
    module = recording.objects.module(owner)
    if module in recording.marks.attributes[name]:
        recording.recorder.event(ParameterMarkRead, frame, modules=(module,), name=name)


# Rows ---------------------------------------------------------------------------------------------

_EDITS = ("zero_", "fill_", "mul_", "normal_", "uniform_")


def _watch_rows() -> None:
    """Watch how rows are selected from DTensors and changed."""
    from torch.distributed.tensor import DTensor

    cls: Any = DTensor

    def before(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recording = current()
        owner = recording.objects.owners.get(args[0])
        first = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
        all_rows = first is None or first is Ellipsis or first == slice(None)
        return None if owner is None or all_rows else recording.objects.module(owner)

    def after(module: str, row: Any) -> None:
        current().marks.rows.set(row, module)

    cls.__getitem__ = patching.add_watcher(cls.__getitem__, before, after)
    for name in _EDITS:
        setattr(
            cls,
            name,
            patching.add_watcher(getattr(cls, name), functools.partial(_record_row_edit, name)),
        )


def _record_row_edit(
    api: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    recording = current()
    module = recording.marks.rows.get(args[0])
    if module is not None:
        recording.recorder.event(RowEdited, frame, module=module, api=api)
