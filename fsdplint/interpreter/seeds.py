"""Seeds of random numbers, and whether they differ between ranks."""

from __future__ import annotations

from fsdplint.interpreter.ranks import WORLD_SIZE
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankValue
from fsdplint.interpreter.values import Const, Sequence, Unknown, Value


def differs_by_rank(run: Run, seed: Value | None) -> bool | None:
    """Whether a seed differs between ranks; None if unknown."""
    seed = run.settle(seed) if seed is not None else None
    if isinstance(seed, Sequence):  # of numbers, as NumPy takes them
        return _one_differs(run, seed)
    if isinstance(seed, RankValue):
        return True if seed.scope != "group" else None
    if isinstance(seed, Unknown):
        if seed.by_rank:
            return True
        if seed.by_process:
            return None
        known = seed.default is not None or (seed.origin and not seed.varying)
        return False if known or seed.origin == WORLD_SIZE else None
    return False if isinstance(seed, Const) and seed.value is not None else None


def _one_differs(run: Run, seeds: Sequence) -> bool | None:
    """Whether one of several numbers differs between ranks; None if unknown."""
    found = {differs_by_rank(run, one) for one in seeds.items}
    if True in found:
        return True
    return None if seeds.open or None in found else False


def note_seed(run: Run, value: Value | None) -> None:
    """All ranks set a seed: the same one, or perhaps each its own."""
    if differs_by_rank(run, value) is not False:
        run.seeded = False
    elif run.seeded is None:
        run.seeded = True
