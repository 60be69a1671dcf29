"""Values on which ranks agree by communication, or no longer do."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.interpreter.rank_local import MAX_DEPTH, local_of, own_data
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    PartlyHeld,
    RankChoice,
    RankTest,
    RankValue,
    TensorValue,
)
from fsdplint.interpreter.values import Dict, Instance, Sequence, Unknown, Value
from fsdplint.source.source import NodeSite


def forget_rank(value: Value) -> None:
    """A collective gives the same tensor, or the same elements of a list, to all ranks."""
    if isinstance(value, Unknown):
        value.by_rank = value.by_process = False
        if isinstance(value, RankChoice):
            value.test = None
    elif isinstance(value, Sequence):
        value.items = [_of_all_ranks(item) for item in value.items]


def note_sum_of_one_rank(run: Run, value: Value, site: NodeSite) -> None:
    """`dist.reduce` gives the sum to one rank; the tensors of the others are something else."""
    if isinstance(value, Unknown | TensorValue):
        value.rank_local = own_data(run, site)
    if isinstance(value, Unknown):
        value.parts.clear()


def _of_all_ranks(value: Value) -> Value:
    """What all ranks have of an element: what one rank had alone, or something unknown."""
    if isinstance(value, PartlyHeld) and value.held is not None:
        return value.held
    return Unknown() if _of_rank(value) else value


def _of_rank(value: Value) -> bool:
    by_rank = isinstance(value, Unknown) and (value.by_rank or value.by_process)
    return by_rank or isinstance(value, RankValue | RankTest)


def _replace_elements(value: Unknown) -> None:
    """A tensor has got new elements: `total[0]` is no longer the number that was assigned."""
    for key, part in value.parts.items():
        if key.startswith("[") and local_of(part) is not None:
            value.parts[key] = TensorValue("derived")


def note_agreement(value: Value | None, *, seen: bool = True, depth: int = 0) -> None:
    """All ranks have the same value now. `seen`: not only perhaps, by a function out of sight."""
    if isinstance(value, Unknown | TensorValue):
        if value.rank_local is not None and (seen or not value.rank_local.immutable):
            value.rank_local.agreed = True
        if isinstance(value, RankChoice):
            value.agreed = True
        if isinstance(value, Unknown):
            _replace_elements(value)
    elif depth <= MAX_DEPTH:
        inside: Iterator[Value] = iter(())
        if isinstance(value, Sequence):
            inside = iter(value.items)
        elif isinstance(value, Dict):
            inside = iter(value.items.values())
        elif isinstance(value, Instance):
            inside = iter(value.attributes.values())
        for part in inside:
            note_agreement(part, seen=seen, depth=depth + 1)
