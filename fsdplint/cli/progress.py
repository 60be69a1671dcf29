"""A line on standard error that shows how far a command is: on a terminal, after two seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

from fsdplint.engine.progress import PROGRESS

DELAY, PERIOD = 2.0, 0.2  # seconds
_CLEAR = b"\r\x1b[K"


class _Line:
    """The line. A timer of the operating system renews it: threads do not go together with the
    forked workers of a check, and a worker does not inherit the timer."""

    def __init__(self) -> None:
        self.began = 0.0
        self.is_running = self.is_shown = False

    def start(self) -> None:
        self.began = time.monotonic()
        self.is_running = True
        PROGRESS.begin()
        signal.signal(signal.SIGALRM, self._renew)
        signal.setitimer(signal.ITIMER_REAL, DELAY, PERIOD)

    def stop(self) -> None:
        if not self.is_running:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if self.is_shown:
            _write(_CLEAR)
        self.is_running = self.is_shown = False

    def _renew(self, number: int, frame: object) -> None:
        self.is_shown = True
        _write(_CLEAR + text(time.monotonic() - self.began).encode())


_LINE = _Line()


@contextlib.contextmanager
def progress_line() -> Iterator[None]:
    """Show the line while something is done. Nothing else may be written before `stop_line`."""
    if not _is_wanted():
        yield
        return
    _LINE.start()
    try:
        yield
    finally:
        _LINE.stop()


def stop_line() -> None:
    """Remove the line, because output follows."""
    _LINE.stop()


def text(seconds: float) -> str:
    """The line: "checking: 3 of 40 programs, 12 s"."""
    count = f": {PROGRESS.done} of {PROGRESS.total} programs" if PROGRESS.total > 1 else ""
    return f"{PROGRESS.what}{count}, {seconds:.0f} s"


def _is_wanted() -> bool:
    try:
        is_terminal = sys.stderr.isatty()
    except ValueError:  # it is closed
        return False
    has_timer = hasattr(signal, "setitimer")
    return is_terminal and has_timer and os.environ.get("TERM") != "dumb"


def _write(data: bytes) -> None:
    """Write without a buffer: a handler of a signal may run while the stream is being written."""
    with contextlib.suppress(OSError):
        os.write(2, data)
