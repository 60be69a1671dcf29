"""Building, moving, copying, compiling and checkpointing modules."""

from __future__ import annotations

import copy
import functools
import os
import sys
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.objects import OBJECTS
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import RECORDER, Entry
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.runtime.recorder.untouched_buffers import UNTOUCHED
from fsdplint.trace import (
    Checkpointed,
    Compiled,
    ModuleAttached,
    ModuleCopied,
    ModuleMoved,
    ParametersTied,
)

_MOVES = ("to", "cuda", "cpu", "to_empty", "half", "bfloat16", "float", "double", "type")


def install() -> None:
    import torch
    import torch.distributed.algorithms._checkpoint.checkpoint_wrapper as checkpoints
    import torch.optim.swa_utils as swa
    from torch.nn.modules.module import register_module_module_registration_hook

    _watch_building(torch.nn.Module)
    register_module_module_registration_hook(_attached)
    for name in _MOVES:
        patching.watch_method(torch.nn.Module, name, functools.partial(_moved, name), _was_moved)
    _watch_deepcopy()
    patching.watch_method(swa.AveragedModel, "__init__", _averaged, _averaged_made)
    patching.watch_method(torch.nn.Module, "compile", _compiled_in_place)
    patching.watch_function(torch, "compile", _compiled, _compiled_made)
    patching.watch_method(
        checkpoints.ActivationWrapper, "__init__", _checkpointed, _tree_changed, direct=False
    )
    patching.watch_function(
        checkpoints, "apply_activation_checkpointing", _checkpointed_within, _tree_changed
    )
    composable = sys.modules.get("torch.distributed._composable")
    if composable is not None:
        patching.watch_function(composable, "checkpoint", _checkpointed_within)


def _watch_building(cls: Any) -> None:
    """Note where each module is built, and which module a parameter is first registered in."""
    import torch

    original_init = cls.__init__
    original_register = cls.register_parameter
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not is_compiling() and RECORDER.listening():
            try:
                OBJECTS.note_built(self, sys._getframe(1))
            except Exception:
                RECORDER.trouble()
        original_init(self, *args, **kwargs)

    @functools.wraps(original_register)
    def register_parameter(self: Any, name: str, param: Any) -> None:
        watching = not is_compiling() and RECORDER.listening()
        if watching:
            try:
                _tied(self, name, param, sys._getframe(1))
            except Exception:
                RECORDER.trouble()
        original_register(self, name, param)
        if watching and param is not None:
            OBJECTS.owners.register(param, self)

    cls.__init__ = init
    cls.register_parameter = register_parameter


_MODULES = os.path.join("torch", "nn", "modules", "")


def _attached(module: Any, name: str, child: Any) -> None:
    """A module gets a submodule; torch calls this before it has it."""
    if child is None or not RECORDER.listening() or OBJECTS.names.get(module) is None:
        return
    try:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _MODULES in frame.f_code.co_filename:
            frame = frame.f_back
        if is_direct(frame):
            _note_attached(module, child, frame)
    except Exception:
        RECORDER.trouble()


def _note_attached(module: Any, child: Any, frame: FrameType | None) -> None:
    covered = {id(part) for root, _ in OBJECTS.sharded.items() for part in root.modules()}
    if id(module) not in covered:
        return
    new = [part for part in child.modules() if id(part) not in covered and part._parameters]
    parent = OBJECTS.module(module)
    OBJECTS.describe(child)
    OBJECTS.changed()
    if new:
        names = tuple(name for part in new if (name := OBJECTS.names.get(part)) is not None)
        RECORDER.event(ModuleAttached, frame, module=parent, new=names)


def _tied(module: Any, name: str, param: Any, frame: FrameType | None) -> None:
    """A parameter is about to be registered: does another module have it, or did one until now?"""
    if frame is not None and frame.f_code.co_name == "__setattr__":  # nn.Module's own
        frame = frame.f_back
    if frame is None or not is_direct(frame):
        return
    other = OBJECTS.owners.get(param) if param is not None else None
    if other is not None and other is not module:
        if any(own is param for own in other._parameters.values()):
            OBJECTS.tied.set(module, {*(OBJECTS.tied.get(module) or ()), name})
            _write_tie(module, name, OBJECTS.module(other), frame)
    elif name in (OBJECTS.tied.get(module) or ()):
        _write_tie(module, name, None, frame)


def _write_tie(module: Any, name: str, other: str | None, frame: FrameType) -> None:
    RECORDER.event(ParametersTied, frame, module=OBJECTS.module(module), other=other, name=name)


def _has_parameters(module: Any) -> bool:
    return next(module.parameters(), None) is not None


def _moved(method: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    module = args[0]
    if not _has_parameters(module):
        return None
    device = dtype = None
    for value in (*args[1:], *kwargs.values()):
        if isinstance(value, torch.dtype):
            dtype = str(value)
        elif isinstance(value, torch.device) or (
            isinstance(value, (str, int)) and value is not True and value is not False
        ):
            device = str(value)
        elif isinstance(value, torch.Tensor):
            device, dtype = str(value.device), str(value.dtype)
    if method in ("cuda", "cpu") and device is None:
        device = method
    elif method == "cuda":
        device = f"cuda:{device}" if device.isdigit() else device  # type: ignore[union-attr]
    moved = RECORDER.event(
        ModuleMoved,
        frame,
        module=OBJECTS.module(module),
        method=method,
        device=device,
        dtype=dtype,
    )
    return (moved, module, list(module.buffers())) if method == "to_empty" else None


def _was_moved(note: tuple[Entry[ModuleMoved], Any, list[Any]], result: Any) -> None:
    UNTOUCHED.emptied(*note)


# Copies -------------------------------------------------------------------------------------------


def _watch_deepcopy() -> None:
    def before(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch

        value = argument(args, kwargs, 0, "x")
        if not isinstance(value, torch.nn.Module):
            return None
        return RECORDER.event(ModuleCopied, frame, module=OBJECTS.module(value))

    def after(copied: Entry[ModuleCopied], result: Any) -> None:
        copied.event.copy = OBJECTS.module(result)
        copied.write()

    copy.deepcopy = patching.watched(copy.deepcopy, before, after)


def _averaged(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    model = argument(args, kwargs, 1, "model")
    copied = RECORDER.event(
        ModuleCopied,
        frame,
        module=OBJECTS.module(model),
        api="torch.optim.swa_utils.AveragedModel",
    )
    return copied, args[0]


def _averaged_made(note: tuple[Entry[ModuleCopied], Any], result: Any) -> None:
    copied, averaged = note
    copied.event.copy = OBJECTS.module(averaged)
    copied.write()


# Compiling and activation checkpointing -----------------------------------------------------------


def _compiled(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    model = argument(args, kwargs, 0, "model")
    if not isinstance(model, torch.nn.Module):
        return None
    return RECORDER.event(Compiled, frame, module=OBJECTS.module(model))


def _compiled_made(compiled: Entry[Compiled], result: Any) -> None:
    OBJECTS.changed()
    compiled.event.result = OBJECTS.module(result)
    compiled.write()


def _compiled_in_place(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name = OBJECTS.module(args[0])
    RECORDER.event(Compiled, frame, module=name, result=name)


def _checkpointed(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = argument(args, kwargs, 1, "mod")
    RECORDER.event(Checkpointed, frame, module=OBJECTS.module(module))
    return True


def _checkpointed_within(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = argument(args, kwargs, 0, "model", kwargs.get("module"))
    RECORDER.event(Checkpointed, frame, module=OBJECTS.module(module))
    return True


def _tree_changed(note: Any, result: Any) -> None:
    OBJECTS.changed()
