"""A program for CUDA and NCCL on CPU ranks with gloo.

`install` puts wrappers around torch's functions, which do nothing until `choose` decides that this
process has to do without the devices that the program expects. The wrappers lie below the
watchers, so that the record speaks of what the program asked for ("nccl", "cuda:0").
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from fsdplint.shim.sites import OWN, is_direct, kind_of, span_of, user_frame


class NotEmulated(RuntimeError):
    """The program uses something of CUDA's that has no counterpart here; names the user's line."""


class Emulation:
    """Whether it is on, and which device the program believes to be on."""

    def __init__(self) -> None:
        self.on = False
        self.device = 0
        self.count = 1


EMULATION = Emulation()
_installed = False


def install() -> None:
    """Put the wrappers in place, switched off. Before the watchers, and once a process."""
    global _installed
    if _installed:
        return
    _installed = True
    from fsdplint.shim import patching
    from fsdplint.shim.emulation import cuda, fsdp, groups, modules

    for area in (cuda, groups, modules, fsdp):
        area.install()
    patching.apply_replacements()


def choose(device: str, local_ranks: int) -> None:
    """Switch the emulation on where it is asked for, or where there are too few devices.

    device: "cpu" (emulate), "cuda" (never), "auto" (emulate if this machine has fewer CUDA devices
        than ranks).
    """
    import torch

    if device == "cuda":
        return
    if device == "auto" and torch.cuda.is_available():
        if torch.cuda.device_count() >= local_ranks:
            return
    switch_on(local_ranks)


def switch_on(local_ranks: int) -> None:
    from fsdplint.shim.emulation import cuda, devices

    EMULATION.on = True
    EMULATION.count = max(1, local_ranks)
    EMULATION.device = int(os.environ.get("LOCAL_RANK", "0")) if local_ranks > 1 else 0
    cuda.switch_on()
    devices.switch_on()


def missing(what: str, how: str = "on the CPU") -> NotEmulated:
    """The error for something that cannot be emulated, with the user's line."""
    frame = user_frame(sys._getframe(1))
    where = ""
    if frame is not None:
        span = span_of(frame)
        where = f" ({span[0]}:{span[1]})"
    return NotEmulated(f"{what} cannot be emulated {how}{where}")


def asked_by_user() -> bool:
    """Whether the function that asks was called by the program, not by torch itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and kind_of(frame.f_code.co_filename) == OWN:
        frame = frame.f_back
    return is_direct(frame)


def rerouted(original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """`original` until the emulation is on, then `instead(original, *args, **kwargs)`."""
    import functools

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not EMULATION.on:
            return original(*args, **kwargs)
        return instead(original, *args, **kwargs)

    return function
