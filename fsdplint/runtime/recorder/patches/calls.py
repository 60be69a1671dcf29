"""Calls of modules through `__call__`."""

from __future__ import annotations

import functools
import sys
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.refusals import record_call_error
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import Called, GradMode


def install() -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    cls: Any = torch.nn.Module
    original = cls.__call__
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not (recording := current()).recorder.listening_to_forward():
            return original(self, *args, **kwargs)
        if recording.objects.fsdp1_of.get(self) is not None:
            _note_inputs(self, args, kwargs)
        inner = bool(recording.calls.stack) and recording.objects.sharded.get(self) is None
        if inner and not recording.calls.bypasses_call():
            if recording.calls.waiting:
                recording.calls.flush()
            return original(self, *args, **kwargs)
        try:
            entry = _enter(self, sys._getframe(1))
            if (
                entry is not None
                and not recording.calls.stack
                and recording.objects.sharded_within(self)
            ):
                recording.loader_pass.note_inputs(args, kwargs)
        except Exception:
            recording.recorder.record_error()
            entry = None
        if entry is None:
            return original(self, *args, **kwargs)
        waiting_buffers = (
            recording.untouched_buffers.waiting
            and not recording.calls.stack
            and recording.untouched_buffers.before_call(self)
        )
        recording.calls.stack.append((self, entry, "call"))
        try:
            result = original(self, *args, **kwargs)
            if recording.objects.sharded.get(self) is not None:
                recording.layouts.note_outputs(getattr(self, "_fsdp_wrapped_module", self), result)
            if recording.objects.sharded.get(self) == "fsdp2":
                recording.output_views.add_result(entry, result)
            return result
        except (AssertionError, RuntimeError) as error:
            if len(recording.calls.stack) == 1:
                try:
                    record_call_error(error, sys._getframe(1))
                except Exception:
                    recording.recorder.record_error()
            raise
        finally:
            recording.calls.stack.pop()
            if waiting_buffers:
                recording.untouched_buffers.after_call(waiting_buffers)
            if not recording.calls.stack:
                recording.output_views.settle()

    cls.__call__ = call
    patching.watch_method(FullyShardedDataParallel, "forward", _fsdp1_forward)


def _note_inputs(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note what the forward of a module in an FSDP1 wrapper gets.

    FSDP1 casts the inputs of a wrapper before it calls the module, except for the classes that its
    mixed precision leaves out: hooks of the module cast those.
    """
    if not module._forward_pre_hooks:
        current().layouts.note_inputs(module, (args, kwargs))
        return

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        handle.remove()
        current().layouts.note_inputs(module, (args, kwargs))

    # It runs last, and only for this call: a copy of the model does not have it.
    handle = module.register_forward_pre_hook(note, with_kwargs=True)


def _enter(module: Any, frame: Any) -> Entry[Called] | None:
    recording = current()
    recording.calls.flush()
    sharded = recording.objects.sharded.get(module)
    if sharded is None:
        if next(module.parameters(), None) is None:
            return None
    name = recording.objects.module(module)
    recording.measures.note_autocast()
    summoned_by, written_back = recording.calls.summoned_by(module)
    return recording.recorder.event(
        Called,
        frame,
        module=name,
        via="call",
        inside=recording.calls.inside(),
        grad=values.grad_mode(),
        summoned=not recording.calls.stack and recording.objects.summons(),
        summoned_by=summoned_by,
        written_back=written_back,
        on_meta=not recording.calls.stack
        and recording.objects.sharded_within(module)
        and recording.objects.on_meta(module),
        uninitialized=not recording.calls.stack
        and values.grad_mode() is GradMode.ON
        and recording.objects.sharded_within(module)
        and recording.uninitialized.are_used(module),
        training=None if recording.calls.stack else _mode_of(module),
        collective=sharded is not None or recording.objects.sharded_within(module),
    )


def _mode_of(module: Any) -> bool | None:
    """Whether a module is in training mode, if one of its layers depends on it."""
    import torch.nn as nn

    dropout, norm = nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm
    for part in module.modules():
        if isinstance(part, norm) or (isinstance(part, dropout) and part.p > 0):
            return bool(getattr(module, "_fsdp_wrapped_module", module).training)
    return None


def _fsdp1_forward(frame: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record `wrapper.forward(x)` in the user's code; torch's own call is part of `wrapper(x)`."""
    recording = current()
    if is_direct(frame):
        recording.recorder.event(
            Called,
            frame,
            module=recording.objects.module(args[0]),
            via="forward",
            inside=recording.calls.inside(),
            grad=values.grad_mode(),
            collective=True,
        )
