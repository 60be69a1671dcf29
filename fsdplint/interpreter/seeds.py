"""The seed of the random numbers of the process."""

from __future__ import annotations

from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Unknown, Value


def note_seed(run: Run, value: Value | None) -> None:
    """All ranks set a seed: the same one, or each its own (None, or derived from the rank)."""
    if value is None or depends_on_rank(value) or (isinstance(value, Unknown) and value.varying):
        run.seeded = False
    elif run.seeded is None:
        run.seeded = True
