"""Records the number of batches of each complete loop over a DataLoader."""

from __future__ import annotations

import functools
import sys
from typing import Any

from fsdplint.runtime.recorder.recording import current
from fsdplint.trace import BatchesEnded


def install() -> None:
    from torch.utils.data import dataloader

    cls: Any = dataloader._BaseDataLoaderIter
    original = cls.__next__

    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        recording = current()
        try:
            return original(self)
        except StopIteration:
            if recording.recorder.listening():
                try:
                    batches = int(self._num_yielded)
                    recording.recorder.event(BatchesEnded, sys._getframe(1), batches=batches)
                except Exception:
                    recording.recorder.record_error()
            raise

    cls.__next__ = next_batch
