"""Whether the emulation is on, and the helpers that its wrappers share."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.sites import OWN, USER, is_direct, kind_of, span_of, user_frame


class NotEmulatedError(RuntimeError):
    """The program uses a part of CUDA that is not emulated; the text names the user's line."""


class Emulation:
    """Whether the emulation is on, and which device the program has selected.

    This is a state of the process, not of a recording: the emulation replaces classes and functions
    of torch for good.
    """

    def __init__(self) -> None:
        self.on = False
        self.device = 0
        self.count = 1


EMULATION = Emulation()


def not_emulated(what: str, how: str = "on the CPU") -> NotEmulatedError:
    """The error for an API that cannot be emulated, with the user's line."""
    frame = user_frame(sys._getframe(1))
    where = ""
    if frame is not None:
        span = span_of(frame)
        where = f" ({span[0]}:{span[1]})"
    return NotEmulatedError(f"{what} cannot be emulated {how}{where}")


# Errors of torch and triton about a missing device.
_NO_DEVICE = re.compile(
    r"accelerator device when none is available|compiled with CUDA|support for cuda devices"
    r"|dummy base class|has no attribute '_cuda|NVIDIA driver|active drivers"
    r"|from the 'CUDA' backend|CUDA (?:GPUs|devices) are available|cuda_?runtime|libcuda"
)


def explain_error(raised: BaseException) -> BaseException:
    """The error, or a `NotEmulatedError` with the user's line if it is about a missing device."""
    if (
        not EMULATION.on
        or isinstance(raised, NotEmulatedError)
        or not _NO_DEVICE.search(str(raised))
    ):
        return raised
    at = None
    for frame, line in traceback.walk_tb(raised.__traceback__):
        if kind_of(frame.f_code.co_filename) == USER:
            at = f"{frame.f_code.co_filename}:{line}"
    if at is None:
        return raised
    text = f"this use of CUDA cannot be emulated on the CPU ({at}): {raised}"
    return NotEmulatedError(text).with_traceback(raised.__traceback__)


def called_by_program() -> bool:
    """Whether the program called the calling function, not torch itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and kind_of(frame.f_code.co_filename) == OWN:
        frame = frame.f_back
    return is_direct(frame)


def when_emulated(original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """`original` until the emulation is on, then `instead(original, *args, **kwargs)`."""
    import functools

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not EMULATION.on:
            return original(*args, **kwargs)
        return instead(original, *args, **kwargs)

    return function
