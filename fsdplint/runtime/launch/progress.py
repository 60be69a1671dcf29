"""Shows the progress of runs: the step of each rank and the time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from fsdplint.runtime.launch.launcher import Tick
from fsdplint.runtime.recorder.heartbeat import Beat, read_beats

# The most ranks that are shown one by one.
_FEW = 4


class Progress:
    """Shows nothing."""

    def __call__(self, text: str) -> None:
        """Show the beginning of a run or another action."""

    def follow(self, record: Path, steps: int | None = None) -> Tick:
        """Return the function that shows the progress of the run recorded in this folder."""
        return lambda seconds: None

    def finish(self) -> None:
        """End the progress of the run."""


class OnStandardError(Progress):
    """Prints a line for each action and, on a terminal, updates a line while a run is running.

    The ranks publish their steps in shared memory (see `heartbeat`) at no cost.
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

    def finish(self) -> None:
        if self._live:
            self._renew("")

    def _renew(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r\x1b[K{text[:width]}")
        self._stream.flush()


def line(beats: Mapping[int, Beat], seconds: float, steps: int | None = None) -> str:
    """The steps of the ranks: "  step 3 of 8, 12 s", or of each rank if they differ."""
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
