"""Dicts that one rank alone fills, such as a state dict that it reads from a file.

`Dict.empty_elsewhere` holds for a dict that is made empty on all ranks, or that only one rank
makes. An entry that other ranks set, or code out of sight that gets the dict, ends it.
"""

from __future__ import annotations

from dataclasses import replace

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankTest, StateValue
from fsdplint.interpreter.values import Dict, Unknown, Value
from fsdplint.trace import Ranks


def begin_dict(run: Run, made: Dict) -> Dict:
    """Note on which ranks a new dict has its entries."""
    made.empty_elsewhere = made.lacks_entries or run.ranks() is Ranks.ONE
    return made


def note_entries(run: Run, held: Dict) -> None:
    """Note that the ranks at this point set entries of a dict."""
    if run.ranks() is not Ranks.ONE:
        held.empty_elsewhere = False


def add_entries(run: Run, held: Dict, other: Dict) -> None:
    """Add the entries of another dict, as `update` does."""
    keeps = held.empty_elsewhere and run.ranks() is Ranks.ONE
    held.take(other)
    held.empty_elsewhere = held.empty_elsewhere or keeps


def has_entries_on_one_rank(value: Value) -> bool:
    """Whether a dict has entries on one rank, and certainly none on the others."""
    if isinstance(value, StateValue):
        return value.on_one_rank and not value.tensor
    return isinstance(value, Dict) and value.empty_elsewhere and not value.lacks_entries


def join_with_empty(test: RankTest | None, one: Value, two: Value) -> Dict | StateValue | None:
    """What one rank has, while all others have an empty dict; None for other values.

    one: the value where the test holds.
    """
    if test is None:
        return None
    for held, other, ranks in ((one, two, test.true_on), (two, one, test.false_on)):
        empty = isinstance(other, Dict) and other.lacks_entries
        if ranks is not Ranks.ONE or not empty:
            continue
        if isinstance(held, StateValue):
            return replace(held, on_one_rank=True, tensor=False)
        if isinstance(held, Unknown) and held.refined is None and held.part_of is None:
            return Dict(open=True, doubtful=True, empty_elsewhere=True)
        if isinstance(held, Dict) and not held.lacks_entries:
            held.doubtful = held.empty_elsewhere = True
            return held
    return None
