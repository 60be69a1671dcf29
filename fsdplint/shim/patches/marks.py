"""Attributes and hooks that the program puts on parameters, and what becomes of them.

Sharding replaces the parameters. What attributes they have by then is written when it happens, and
that the program asks the new ones for such an attribute, when it does.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

from fsdplint.shim import patching
from fsdplint.shim.objects import OBJECTS
from fsdplint.shim.recorder import RECORDER
from fsdplint.shim.sites import is_direct

_lost: dict[str, set[str]] = {}  # attribute: the modules whose parameters had it


def install() -> None:
    import torch

    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        patching.watch_method(torch.Tensor, name, functools.partial(_hooked, name))


def _hooked(name: str, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    owner = OBJECTS.owners.get(args[0])
    if owner is not None:
        module = OBJECTS.module(owner)
        RECORDER.event("parameter-marked", frame, modules=[module], name=name, hook=True)


def note(module: Any, frame: FrameType) -> None:
    """A module is about to be sharded: write what attributes its parameters have."""
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is None or hasattr(parameter, "placements"):
                continue
            for name in vars(parameter):
                owner = OBJECTS.module(part)
                if owner not in _lost.setdefault(name, set()):
                    _lost[name].add(owner)
                    RECORDER.event("parameter-marked", frame, modules=[owner], name=name)
    if _lost:
        _watch_reading()


def _watch_reading() -> None:
    """Have Python tell us of attributes that sharded parameters are asked for and don't have."""
    from torch.distributed.tensor import DTensor

    cls: Any = DTensor
    if hasattr(cls, "__getattr__"):
        return

    def missing(self: Any, name: str) -> Any:
        if name in _lost and RECORDER.listening():
            try:
                _asked(self, name, sys._getframe(1))
            except Exception:
                RECORDER.trouble()
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    cls.__getattr__ = missing


def _asked(parameter: Any, name: str, frame: FrameType) -> None:
    owner = OBJECTS.owners.get(parameter)
    if owner is None or not is_direct(frame):
        return
    module = OBJECTS.module(owner)
    if module in _lost[name]:
        RECORDER.event("parameter-mark-read", frame, modules=[module], name=name)
