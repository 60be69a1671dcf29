"""Watches the methods of sharded modules: `model.forward(x)`, `model.encode(x)`.

The functions are replaced in the user's classes, so calls on the module inside an FSDP1 wrapper
are recorded, too. Calls on modules that are not sharded are not.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.objects import original_class
from fsdplint.runtime.recorder.recorder import Entry
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import Called

_MARK = "__fsdplint_watched__"


def watch(module: Any) -> None:
    """Watch the methods of a module that is about to be, or just was, sharded."""
    import torch

    for part in module.modules():
        cls = original_class(part)
        for owner in cls.__mro__:
            if owner is torch.nn.Module:
                break
            if not owner.__module__.startswith("torch."):
                _watch_class(owner)
    cls = type(module)
    original = original_class(module)
    library = original.__module__.startswith("torch.")
    if library and cls is not original and "forward" not in vars(cls):
        # A sharded module of a class of torch: the class of torch stays unchanged.
        cls.forward = _watched_method(cls.forward, "forward")


def _watch_class(cls: type) -> None:
    for name, function in list(vars(cls).items()):
        if name.startswith("__") or not inspect.isfunction(function):
            continue
        if hasattr(function, _MARK) or inspect.isgeneratorfunction(function):
            continue
        setattr(cls, name, _watched_method(function, name))


def _watched_method(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    import torch

    is_compiling = torch.compiler.is_compiling
    is_forward = name == "forward"
    enter = _enter_forward if is_forward else _enter_method

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not (recording := current()).recorder.listening_to_forward():
            return function(self, *args, **kwargs)
        if is_forward and recording.objects.sharded.get(self) is not None:
            recording.layouts.note_inputs(self, (args, kwargs))  # FSDP2's hook has cast them by now
        try:
            entry = enter(self, name, sys._getframe(1))
        except Exception:
            recording.recorder.record_error()
            entry = None
        if entry is None:
            return function(self, *args, **kwargs)
        recording.calls.stack.append((self, entry, name))
        try:
            return function(self, *args, **kwargs)
        except BaseException:
            if entry in recording.calls.waiting:
                recording.calls.flush()
            raise
        finally:
            recording.calls.stack.pop()
            if entry in recording.calls.waiting:
                recording.calls.waiting.remove(entry)

    setattr(method, _MARK, True)
    return method


def _enter_forward(module: Any, name: str, frame: Any) -> Entry[Called] | None:
    """Record `module.forward(x)` of a sharded module, or of a part of one, in the user's code."""
    recording = current()
    if not is_direct(frame) or recording.objects.names.get(module) is None:
        return None
    if frame.f_code.co_name == "forward" and frame.f_locals.get("self") is module:
        return None  # super().forward(x)
    recording.calls.flush()
    return recording.recorder.event(
        Called,
        frame,
        module=recording.objects.module(_wrapper_or_self(module)),
        via="forward",
        inside=recording.calls.inside(),
        grad=values.grad_mode(),
        collective=recording.objects.sharded.get(_wrapper_or_self(module)) is not None,
    )


def _enter_method(module: Any, name: str, frame: Any) -> Entry[Called] | None:
    recording = current()
    outer = _wrapper_or_self(module)
    if recording.objects.sharded.get(outer) is None:
        return None
    if any(running is module or running is outer for running, _, _ in recording.calls.stack):
        return None
    call = recording.recorder.prepare(
        Called,
        frame,
        module=recording.objects.module(outer),
        via=name,
        summoned=not recording.calls.stack and recording.objects.summons(),
        inside=recording.calls.inside(),
        grad=values.grad_mode(),
    )
    recording.calls.waiting.append(call)
    return call


def _wrapper_or_self(module: Any) -> Any:
    """The FSDP1 wrapper of a module, or the module itself."""
    return current().objects.fsdp1_wrapper(module) or module
