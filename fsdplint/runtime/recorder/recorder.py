"""The recorder of one rank: writes events, modules and measures as JSON lines.

Every line is an object with a key "t":
    head     rank, world, pid, argv, versions
    event    n (its number), kind, at (span), stack (spans), functions (first lines of the functions
             of the stack and of `at`), handling (in an `except` or `finally`, while an exception is
             handled), the fields of the event's class
    update   n and fields that were known only after the call
    module   one module of the program, written again when it changes
    layout   which part of each parameter this rank holds, from an optimizer step on; see `layout`
    measure  what one optimizer step measured
    end      how the program ended on this rank
A line is written with one system call as soon as it is known, so that a crash loses nothing. Where
it cannot be written (the disk is full), the record ends, which the rank's pulse says, and the
program goes on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder.heartbeat import PULSE
from fsdplint.runtime.recorder.sites import span_of, stack_of, user_frame


class Recorder:
    """State of the recording; `on` is false outside of the user's program and in our own work."""

    def __init__(self) -> None:
        self.on = False
        self.folder: str | None = None
        self.rank = 0
        self.world = 1
        self.main_thread = 0
        self.number = 0
        self.in_backward = 0
        self.last: dict[str, Any] | None = None
        self.troubles = 0
        self.before_event: Callable[[], None] | None = None
        self._file = -1

    # Life -----------------------------------------------------------------------------------

    def open(self, folder: str, rank: int, world: int, emulated: bool = False) -> None:
        """Start a record in `folder` (made if missing), replacing an earlier one of this rank.

        emulated: whether the CPU stands in for the devices that the program asks for.
        """
        os.makedirs(folder, exist_ok=True)
        self.folder, self.rank, self.world = folder, rank, world
        path = os.path.join(folder, f"rank{rank}.jsonl")
        PULSE.open(folder, rank)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self.main_thread = threading.get_ident()
        self.number = 0
        self.in_backward = 0
        self.write(
            {
                "t": "head",
                "rank": rank,
                "world": world,
                "pid": os.getpid(),
                "argv": list(sys.argv),
                "python": sys.version.split()[0],
                "torch": getattr(sys.modules.get("torch"), "__version__", None),
                "emulated": emulated,
            }
        )
        self.on = True

    def close(self, status: str, **more: Any) -> None:
        """Write how the program ended; nothing is recorded after it."""
        self.on = False
        self.write({"t": "end", "status": status, "time": time.time(), **more})
        self._close()

    def listening(self) -> bool:
        """Whether calls are the program's own: recording, and in the main thread."""
        return self.on and threading.get_ident() == self.main_thread

    # Writing --------------------------------------------------------------------------------

    def write(self, line: dict[str, Any]) -> None:
        if self._file < 0:
            return
        data = (json.dumps(line, default=str) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.lose(error)

    def lose(self, error: BaseException) -> None:
        """What is recorded cannot be kept: the record ends here, without the program's end."""
        PULSE.lose(str(error) if isinstance(error, OSError) else f"the disk is full ({error})")
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def event(self, kind: str, frame: FrameType | None, **fields: Any) -> int:
        """Write an event caused from `frame` (the caller of torch's function); gives its number."""
        number = self.reserve()
        if self.before_event is not None:
            self.before_event()
        self.write(self.line(number, kind, frame, fields))
        return number

    def reserve(self) -> int:
        """A number for an event that may be written later."""
        self.number += 1
        return self.number

    def line(
        self, number: int, kind: str, frame: FrameType | None, fields: dict[str, Any]
    ) -> dict[str, Any]:
        where = user_frame(frame)
        line: dict[str, Any] = {"t": "event", "n": number, "kind": kind}
        line["at"] = span_of(where) if where is not None else None
        line["stack"], line["functions"] = stack_of(where)
        if sys.exc_info()[0] is not None:
            line["handling"] = True
        line.update(fields)
        self.last = line
        return line

    def update(self, number: int | None, **fields: Any) -> None:
        """Add to an event what is known only now."""
        if number is not None:
            self.write({"t": "update", "n": number, **fields})

    def trouble(self) -> None:
        """Note an error inside the recorder; the user's program goes on."""
        self.troubles += 1
        if self.troubles <= 20:
            self.write({"t": "trouble", "text": traceback.format_exc()})

    def forget(self) -> None:
        """In a process that the program forked (a data loader's worker): it is not the rank."""
        self.on = False
        self._file = -1  # not closed: it is the rank's


RECORDER = Recorder()
