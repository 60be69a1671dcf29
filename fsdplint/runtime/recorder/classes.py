"""Watching the methods of sharded modules: `model.forward(x)`, `model.encode(x)`.

The functions of the user's own classes are wrapped in the class, so that the wrapper also sees
calls on the module inside an FSDP1 wrapper. What is not a sharded module passes through.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from fsdplint.runtime.recorder import values
from fsdplint.runtime.recorder.layout import LAYOUTS
from fsdplint.runtime.recorder.objects import OBJECTS, original_class
from fsdplint.runtime.recorder.recorder import RECORDER, Entry
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import Called

_MARK = "__fsdplint_watched__"


class Activity:
    """The calls that are running now, innermost last: (module, event, how entered)."""

    def __init__(self) -> None:
        self.running: list[tuple[Any, Entry[Called], str]] = []
        # Method calls that are written only if they go on to call a module, or raise.
        self.waiting: list[Entry[Called]] = []

    def clear(self) -> None:
        self.running.clear()
        self.waiting.clear()

    def inside(self) -> int | None:
        return self.running[-1][1].number if self.running else None

    def communicates(self) -> None:
        """The innermost call is about to run a collective of all ranks."""
        if self.running:
            _, call, _ = self.running[-1]
            if not call.event.communicated:
                call.event.communicated = True
                if call not in self.waiting:
                    call.write()

    def ungathered(self) -> bool:
        """Whether what runs was not entered through `__call__`: what it calls in turn matters."""
        return bool(self.running) and self.running[-1][2] != "call"

    def flush(self) -> None:
        """Write the method calls that turned out to compute something."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call.write()


ACTIVITY = Activity()


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
        # A class of torch's that was sharded itself: torch's own class stays as it is.
        cls.forward = _watched(cls.forward, "forward")


def _watch_class(cls: type) -> None:
    for name, function in list(vars(cls).items()):
        if name.startswith("__") or not inspect.isfunction(function):
            continue
        if hasattr(function, _MARK) or inspect.isgeneratorfunction(function):
            continue
        setattr(cls, name, _watched(function, name))


def _watched(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    import torch

    is_compiling = torch.compiler.is_compiling
    is_forward = name == "forward"
    enter = _enter_forward if is_forward else _enter_method

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or RECORDER.in_backward or not RECORDER.listening():
            return function(self, *args, **kwargs)
        if is_forward and OBJECTS.sharded.get(self) is not None:
            LAYOUTS.note_inputs(self, (args, kwargs))  # FSDP2's hook has cast them by now
        try:
            entered = enter(self, name, sys._getframe(1))
        except Exception:
            RECORDER.trouble()
            entered = None
        if entered is None:
            return function(self, *args, **kwargs)
        ACTIVITY.running.append((self, entered, name))
        try:
            return function(self, *args, **kwargs)
        except BaseException:
            if entered in ACTIVITY.waiting:
                ACTIVITY.flush()
            raise
        finally:
            ACTIVITY.running.pop()
            if entered in ACTIVITY.waiting:
                ACTIVITY.waiting.remove(entered)

    setattr(method, _MARK, True)
    return method


def _enter_forward(module: Any, name: str, frame: Any) -> Entry[Called] | None:
    """`module.forward(x)` written by the user, on a sharded module or on a part of one."""
    if not is_direct(frame) or OBJECTS.names.get(module) is None:
        return None
    if frame.f_code.co_name == "forward" and frame.f_locals.get("self") is module:
        return None  # super().forward(x)
    ACTIVITY.flush()
    return RECORDER.event(
        Called,
        frame,
        module=OBJECTS.module(_known_as(module)),
        via="forward",
        inside=ACTIVITY.inside(),
        grad=values.grad_mode(),
        collective=OBJECTS.sharded.get(_known_as(module)) is not None,
    )


def _enter_method(module: Any, name: str, frame: Any) -> Entry[Called] | None:
    known = _known_as(module)
    if OBJECTS.sharded.get(known) is None:
        return None
    if any(running is module or running is known for running, _, _ in ACTIVITY.running):
        return None
    call = RECORDER.prepare(
        Called,
        frame,
        module=OBJECTS.module(known),
        via=name,
        summoned=not ACTIVITY.running and OBJECTS.summons(),
        inside=ACTIVITY.inside(),
        grad=values.grad_mode(),
    )
    ACTIVITY.waiting.append(call)
    return call


def _known_as(module: Any) -> Any:
    """The FSDP1 wrapper of a module, through which the user reached it, or the module itself."""
    return OBJECTS.fsdp1_wrapper(module) or module
