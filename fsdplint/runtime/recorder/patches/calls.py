"""Calls of modules through `__call__`."""

from __future__ import annotations

import functools
import sys
from typing import Any

from fsdplint.runtime.recorder import patching, values
from fsdplint.runtime.recorder.classes import ACTIVITY
from fsdplint.runtime.recorder.layout import LAYOUTS
from fsdplint.runtime.recorder.measures import MEASURES
from fsdplint.runtime.recorder.objects import OBJECTS
from fsdplint.runtime.recorder.output_views import VIEWS
from fsdplint.runtime.recorder.patches.data import PASS
from fsdplint.runtime.recorder.recorder import RECORDER, Entry
from fsdplint.runtime.recorder.refusals import call_failed
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.runtime.recorder.untouched_buffers import UNTOUCHED
from fsdplint.trace import Called


def install() -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    cls: Any = torch.nn.Module
    original = cls.__call__
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or RECORDER.in_backward or not RECORDER.listening():
            return original(self, *args, **kwargs)
        if OBJECTS.fsdp1_of.get(self) is not None:
            LAYOUTS.note_inputs(self, (args, kwargs))
        inner = bool(ACTIVITY.running) and OBJECTS.sharded.get(self) is None
        if inner and not ACTIVITY.ungathered():
            if ACTIVITY.waiting:
                ACTIVITY.flush()
            return original(self, *args, **kwargs)
        try:
            entry = _enter(self, sys._getframe(1))
            if entry is not None and not ACTIVITY.running and _sharded_within(self):
                PASS.note_inputs(args, kwargs)
        except Exception:
            RECORDER.trouble()
            entry = None
        if entry is None:
            return original(self, *args, **kwargs)
        unwritten = UNTOUCHED.waiting and not ACTIVITY.running and UNTOUCHED.entered(self)
        ACTIVITY.running.append((self, entry, "call"))
        try:
            result = original(self, *args, **kwargs)
            if OBJECTS.sharded.get(self) is not None:
                LAYOUTS.note_outputs(getattr(self, "_fsdp_wrapped_module", self), result)
            if OBJECTS.sharded.get(self) == "fsdp2":
                VIEWS.returned(entry, result)
            return result
        except (AssertionError, RuntimeError) as error:
            if len(ACTIVITY.running) == 1:
                try:
                    call_failed(error, sys._getframe(1))
                except Exception:
                    RECORDER.trouble()
            raise
        finally:
            ACTIVITY.running.pop()
            if unwritten:
                UNTOUCHED.exited(unwritten)
            if not ACTIVITY.running:
                VIEWS.settle()

    cls.__call__ = call
    patching.watch_method(FullyShardedDataParallel, "forward", _fsdp1_forward)


def _enter(module: Any, frame: Any) -> Entry[Called] | None:
    ACTIVITY.flush()
    sharded = OBJECTS.sharded.get(module)
    if sharded is None:
        if next(module.parameters(), None) is None:
            return None
    name = OBJECTS.module(module)
    MEASURES.note_autocast()
    return RECORDER.event(
        Called,
        frame,
        module=name,
        via="call",
        inside=ACTIVITY.inside(),
        grad=values.grad_mode(),
        summoned=not ACTIVITY.running and OBJECTS.summons(),
        on_meta=not ACTIVITY.running and _sharded_within(module) and _on_meta(module),
        collective=sharded is not None or _sharded_within(module),
    )


_made: dict[int, int] = {}


def _on_meta(module: Any) -> bool:
    """Whether a sharded parameter of the module is on the meta device."""
    if _made.get(id(module)) == OBJECTS.generation:
        return False  # what has been made once is not looked at in every step
    if not any(p.is_meta and hasattr(p, "placements") for p in module.parameters()):
        _made[id(module)] = OBJECTS.generation
        return False
    return any(OBJECTS.sharded.get(part) == "fsdp2" for part in module.modules())


_within: dict[int, tuple[int, bool]] = {}


def _sharded_within(module: Any) -> bool:
    known = _within.get(id(module))
    if known is None or known[0] != OBJECTS.generation:
        found = any(OBJECTS.sharded.get(part) is not None for part in module.modules())
        known = _within[id(module)] = (OBJECTS.generation, found)
    return known[1]


def _fsdp1_forward(frame: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`wrapper.forward(x)` written by the user; called by torch it is part of `wrapper(x)`."""
    if is_direct(frame):
        RECORDER.event(
            Called,
            frame,
            module=OBJECTS.module(args[0]),
            via="forward",
            inside=ACTIVITY.inside(),
            grad=values.grad_mode(),
            collective=True,
        )
