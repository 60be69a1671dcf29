"""Records how modules are built, moved, copied, compiled and checkpointed."""

from __future__ import annotations

import copy
import functools
import os
import sys
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import (
    Checkpointed,
    Compiled,
    ModuleAttached,
    ModuleCopied,
    ModuleMoved,
    ParameterAttached,
    ParametersTied,
)

_MOVES = ("to", "cuda", "cpu", "to_empty", "half", "bfloat16", "float", "double", "type")


def install() -> None:
    import torch
    import torch.distributed.algorithms._checkpoint.checkpoint_wrapper as checkpoints
    import torch.optim.swa_utils as swa
    from torch.nn.modules.module import register_module_module_registration_hook

    _watch_building(torch.nn.Module)
    register_module_module_registration_hook(_record_attachment)
    for name in _MOVES:
        patching.watch_method(
            torch.nn.Module, name, functools.partial(_record_move, name), _note_emptied
        )
    _watch_deepcopy()
    patching.watch_method(
        swa.AveragedModel, "__init__", _record_averaged_model, _name_averaged_model
    )
    patching.watch_method(torch.nn.Module, "compile", _record_compile_in_place)
    patching.watch_function(torch, "compile", _record_compile, _name_compiled)
    patching.watch_method(
        checkpoints.ActivationWrapper,
        "__init__",
        _record_checkpointing,
        _invalidate_tree,
        direct=False,
    )
    patching.watch_function(
        checkpoints,
        "apply_activation_checkpointing",
        _record_checkpointing_within,
        _invalidate_tree,
    )
    composable = sys.modules.get("torch.distributed._composable")
    if composable is not None:
        patching.watch_function(composable, "checkpoint", _record_checkpointing_within)


def _watch_building(cls: Any) -> None:
    """Note the place where each module is built, and the first module of each parameter."""
    import torch

    original_init = cls.__init__
    original_register = cls.register_parameter
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not is_compiling() and (recording := current()).recorder.listening():
            try:
                recording.objects.note_built(self, sys._getframe(1))
            except Exception:
                recording.recorder.record_error()
        original_init(self, *args, **kwargs)

    @functools.wraps(original_register)
    def register_parameter(self: Any, name: str, param: Any) -> None:
        watching = not is_compiling() and (recording := current()).recorder.listening()
        if watching:
            try:
                _record_tie(self, name, param, sys._getframe(1))
                _record_parameter(self, name, param, sys._getframe(1))
            except Exception:
                recording.recorder.record_error()
        original_register(self, name, param)
        if watching and param is not None:
            recording.objects.owners.register(param, self)

    cls.__init__ = init
    cls.register_parameter = register_parameter


_MODULES = os.path.join("torch", "nn", "modules", "")


def _record_attachment(module: Any, name: str, child: Any) -> None:
    """Record that a module gets a submodule; torch calls this before it registers it."""
    recording = current()
    if (
        child is None
        or not recording.recorder.listening()
        or recording.objects.names.get(module) is None
    ):
        return
    try:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _MODULES in frame.f_code.co_filename:
            frame = frame.f_back
        if is_direct(frame):
            _write_attachment(module, child, frame)
    except Exception:
        recording.recorder.record_error()


def _sharded_parts() -> set[int]:
    """The identities of the modules that are sharded, themselves or with a module around them."""
    return {id(part) for root, _ in current().objects.sharded.items() for part in root.modules()}


def _record_parameter(module: Any, name: str, param: Any, frame: FrameType | None) -> None:
    """Record that a sharded module gets a parameter that is a plain tensor."""
    if param is None or not param.requires_grad or hasattr(param, "placements"):
        return
    if frame is not None and frame.f_code.co_name == "__setattr__":  # of nn.Module
        frame = frame.f_back
    if frame is None or not is_direct(frame) or id(module) not in _sharded_parts():
        return
    recording = current()
    name_of_module = recording.objects.module(module)
    recording.recorder.event(ParameterAttached, frame, module=name_of_module, name=name)


def _write_attachment(module: Any, child: Any, frame: FrameType | None) -> None:
    recording = current()
    sharded_parts = _sharded_parts()
    if id(module) not in sharded_parts:
        return
    new = [part for part in child.modules() if id(part) not in sharded_parts and part._parameters]
    parent = recording.objects.module(module)
    recording.objects.describe(child)
    recording.objects.invalidate()
    if new:
        names = tuple(
            name for part in new if (name := recording.objects.names.get(part)) is not None
        )
        recording.recorder.event(ModuleAttached, frame, module=parent, new=names)


def _record_tie(module: Any, name: str, param: Any, frame: FrameType | None) -> None:
    """Record that a parameter, before it is registered, is that of another module, or was."""
    recording = current()
    if frame is not None and frame.f_code.co_name == "__setattr__":  # of nn.Module
        frame = frame.f_back
    if frame is None or not is_direct(frame):
        return
    other = recording.objects.owners.get(param) if param is not None else None
    if other is not None and other is not module:
        if any(own is param for own in other._parameters.values()):
            recording.objects.tied.set(module, {*(recording.objects.tied.get(module) or ()), name})
            _write_tie(module, name, recording.objects.module(other), frame)
    elif name in (recording.objects.tied.get(module) or ()):
        _write_tie(module, name, None, frame)


def _write_tie(module: Any, name: str, other: str | None, frame: FrameType) -> None:
    recording = current()
    recording.recorder.event(
        ParametersTied, frame, module=recording.objects.module(module), other=other, name=name
    )


def _has_parameters(module: Any) -> bool:
    return next(module.parameters(), None) is not None


_CASTS = {
    "half": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "float": "torch.float32",
    "double": "torch.float64",
}


def _record_move(
    method: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    import torch

    recording = current()
    module = args[0]
    if not _has_parameters(module):
        return None
    device, dtype = None, _CASTS.get(method)
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
    entry = recording.recorder.event(
        ModuleMoved,
        frame,
        module=recording.objects.module(module),
        method=method,
        device=device,
        dtype=dtype,
        from_meta=method != "to_empty"
        and device not in (None, "meta")
        and any(parameter.is_meta for parameter in module.parameters()),
        recurse=method != "to_empty" or bool(kwargs.get("recurse", True)),
    )
    on_meta = {name for name, parameter in module.named_parameters() if parameter.is_meta}
    before = (entry, module, list(module.buffers()), on_meta)
    return before if method == "to_empty" else None


def _note_emptied(note: tuple[Entry[ModuleMoved], Any, list[Any], set[str]], result: Any) -> None:
    *buffers, parameters = note
    current().untouched_buffers.add(*buffers)
    current().uninitialized.add(note[1], parameters)


# Copies -------------------------------------------------------------------------------------------


def _watch_deepcopy() -> None:
    def before(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch

        recording = current()
        value = argument(args, kwargs, 0, "x")
        if not isinstance(value, torch.nn.Module):
            return None
        return recording.recorder.event(ModuleCopied, frame, module=recording.objects.module(value))

    def after(copied: Entry[ModuleCopied], result: Any) -> None:
        copied.event.copy = current().objects.module(result)
        copied.write()

    copy.deepcopy = patching.add_watcher(copy.deepcopy, before, after)


def _record_averaged_model(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recording = current()
    model = argument(args, kwargs, 1, "model")
    copied = recording.recorder.event(
        ModuleCopied,
        frame,
        module=recording.objects.module(model),
        api="torch.optim.swa_utils.AveragedModel",
    )
    return copied, args[0]


def _name_averaged_model(note: tuple[Entry[ModuleCopied], Any], result: Any) -> None:
    copied, averaged = note
    copied.event.copy = current().objects.module(averaged)
    copied.write()


# Compiling and activation checkpointing -----------------------------------------------------------


def _record_compile(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    recording = current()
    model = argument(args, kwargs, 0, "model")
    if not isinstance(model, torch.nn.Module):
        return None
    return recording.recorder.event(Compiled, frame, module=recording.objects.module(model))


def _name_compiled(compiled: Entry[Compiled], result: Any) -> None:
    recording = current()
    recording.objects.invalidate()
    compiled.event.result = recording.objects.module(result)
    compiled.write()


def _record_compile_in_place(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    recording = current()
    name = recording.objects.module(args[0])
    recording.recorder.event(Compiled, frame, module=name, result=name)


def _record_checkpointing(frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    recording = current()
    module = argument(args, kwargs, 1, "mod")
    recording.recorder.event(Checkpointed, frame, module=recording.objects.module(module))
    return True


def _record_checkpointing_within(
    frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    recording = current()
    module = argument(args, kwargs, 0, "model", kwargs.get("module"))
    recording.recorder.event(Checkpointed, frame, module=recording.objects.module(module))
    return True


def _invalidate_tree(note: Any, result: Any) -> None:
    current().objects.invalidate()
