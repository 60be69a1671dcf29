"""Records seeds of torch's random generator."""

from __future__ import annotations

import re
from types import FrameType
from typing import Any

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.recorder.patching import argument
from fsdplint.runtime.recorder.recorder import of_this_rank
from fsdplint.runtime.recorder.recording import current
from fsdplint.runtime.recorder.sites import is_direct
from fsdplint.trace import Seeded

# Dynamo wraps manual_seed when it is imported.
_DYNAMO = re.compile(r"[\\/]torch[\\/](_compile\.py$|_dynamo[\\/])")


def install() -> None:
    import torch

    patching.watch_function(torch, "manual_seed", _record_seed, direct=False)


def _record_seed(frame: FrameType | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    while frame is not None and _DYNAMO.search(frame.f_code.co_filename):
        frame = frame.f_back
    if is_direct(frame):
        current().recorder.event(
            Seeded, frame, per_rank=of_this_rank(str(argument(args, kwargs, 0, "seed")))
        )
