"""What people see while programs run: which run, at which step each rank is, how long it takes."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from fsdplint.runtime.launch.launcher import Tick
from fsdplint.runtime.recorder.heartbeat import Beat, read_beats

# Up to so many ranks are told one by one.
_FEW = 4


class Progress:
    """Says nothing."""

    def __call__(self, text: str) -> None:
        """Something begins."""

    def follow(self, record: Path, steps: int | None = None) -> Tick:
        """For a run whose ranks write into this folder: what is to be called now and then."""
        return lambda seconds: None

    def done(self) -> None:
        """The run that was followed has ended."""


class OnStandardError(Progress):
    """A line for each run; on a terminal also one that is renewed while it runs.

    The ranks show their steps in shared memory (`pulse`): following them costs them nothing.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._live = self._stream.isatty()

    def __call__(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def follow(self, record: Path, steps: int | None = None) -> Tick:
        if not self._live:
            return lambda seconds: None
        return lambda seconds: self._renew(line(read_beats(record), seconds, steps))

    def done(self) -> None:
        if self._live:
            self._renew("")

    def _renew(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{text[:width]}")
        self._stream.flush()


def line(beats: Mapping[int, Beat], seconds: float, steps: int | None = None) -> str:
    """How far the ranks are: "  step 3 of 8, 12 s", or each of them where they are apart."""
    clock = f"{seconds:.0f} s" if seconds < 100 else time.strftime("%H:%M:%S", time.gmtime(seconds))
    if not beats:
        return f"  starting, {clock}"
    of = "" if steps is None else f" of {steps}"
    reached = {rank: beat.step for rank, beat in beats.items()}
    lowest, highest = min(reached.values()), max(reached.values())
    if lowest == highest:
        where = f"step {lowest}{of}" if highest else "before the first step"
    elif len(reached) <= _FEW:
        where = ", ".join(f"rank {rank} at step {step}" for rank, step in reached.items())
    else:
        last = min(reached, key=lambda rank: reached[rank])
        where = f"steps {lowest} (rank {last}) to {highest}{of}"
    return f"  {where}, {clock}"
