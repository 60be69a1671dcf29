"""Names of a strategy that contradict what a run has done with its models."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Value
from fsdplint.trace import Replicated

_DDP = frozenset({"ddp", "distributeddataparallel"})


def contradicts_sharding(run: Run, value: Value | None) -> bool:
    """Whether a value that decisions chose names DDP, in a run that shards its models.

    A program does not always tell the strategy by the test with which it shards: it may look at the
    sizes of a mesh in one place, and at its names in another. So such a value is the wrong choice.
    """
    text = value.value if isinstance(value, Const) else None
    if not isinstance(text, str) or text.lower().replace("_", "") not in _DDP:
        return False
    return run.decisions.shards and not any(run.trace.of(Replicated))
