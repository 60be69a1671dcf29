"""DataLoaders: how many batches a loop over one gave before it ended."""

from __future__ import annotations

import functools
import sys
from typing import Any

from fsdplint.runtime.recorder.recorder import RECORDER
from fsdplint.trace import BatchesEnded


def install() -> None:
    from torch.utils.data import dataloader

    cls: Any = dataloader._BaseDataLoaderIter
    original = cls.__next__

    @functools.wraps(original)
    def following(self: Any) -> Any:
        try:
            return original(self)
        except StopIteration:
            if RECORDER.listening():
                try:
                    batches = int(self._num_yielded)
                    RECORDER.event(BatchesEnded, sys._getframe(1), batches=batches)
                except Exception:
                    RECORDER.trouble()
            raise

    cls.__next__ = following
