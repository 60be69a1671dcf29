"""Results of calls of which only the arguments are known."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.leaves import leaves
from fsdplint.interpreter.ranks import depends_on_process, depends_on_rank
from fsdplint.interpreter.values import (
    Unknown,
    Value,
)


def unknown_result(call: Call, origin: str = "") -> Unknown:
    """An unknown value that varies, or differs by rank, if an argument does."""
    return Unknown(
        origin=origin,
        varying=any(varies(v) for v in call.values),
        by_rank=any(depends_on_rank(v) for v in call.values),
        by_process=any(depends_on_process(v) for v in call.values),
    )


def varies(value: Value) -> bool:
    """Whether a value, or an element of it, differs within a run."""
    return any(isinstance(one, Unknown) and one.varying for one in leaves(value, dicts=False))
