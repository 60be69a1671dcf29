"""Whether the emulation is on, and the helpers that its wrappers share."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.sites import OWN, USER, is_direct, kind_of, span_of, user_frame


class NotEmulated(RuntimeError):
    """The program uses something of CUDA's that has no counterpart here; names the user's line."""


class Emulation:
    """Whether it is on, and which device the program believes to be on.

    A switch of the process and no part of a recording: torch's classes and functions that are
    replaced when it is turned on stay so.
    """

    def __init__(self) -> None:
        self.on = False
        self.device = 0
        self.count = 1


EMULATION = Emulation()


def missing(what: str, how: str = "on the CPU") -> NotEmulated:
    """The error for something that cannot be emulated, with the user's line."""
    frame = user_frame(sys._getframe(1))
    where = ""
    if frame is not None:
        span = span_of(frame)
        where = f" ({span[0]}:{span[1]})"
    return NotEmulated(f"{what} cannot be emulated {how}{where}")


# What torch and triton say where a device is wanted that is not there.
_NO_DEVICE = re.compile(
    r"accelerator device when none is available|compiled with CUDA|support for cuda devices"
    r"|dummy base class|has no attribute '_cuda|NVIDIA driver|active drivers"
    r"|from the 'CUDA' backend|CUDA (?:GPUs|devices) are available|cuda_?runtime|libcuda"
)


def explained(raised: BaseException) -> BaseException:
    """The error that ended a program, or that it needs CUDA, with the user's line."""
    if not EMULATION.on or isinstance(raised, NotEmulated) or not _NO_DEVICE.search(str(raised)):
        return raised
    at = None
    for frame, line in traceback.walk_tb(raised.__traceback__):
        if kind_of(frame.f_code.co_filename) == USER:
            at = f"{frame.f_code.co_filename}:{line}"
    if at is None:
        return raised
    text = f"what needs CUDA cannot be emulated on the CPU ({at}): {raised}"
    return NotEmulated(text).with_traceback(raised.__traceback__)


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
