"""The collectives of a unit in one forward and one backward."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.report.result import plural


def unit_collectives(
    *, sharded: bool, replicated: bool, whole_between: bool, trained: bool = True
) -> dict[str, int]:
    """The calls of each collective, by its name.

    sharded: whether several ranks share a copy of the parameters.
    replicated: whether several ranks hold the same part.
    whole_between: whether the parameters stay gathered between forward and backward.
    trained: whether the parameters get gradients.
    """
    calls = {
        "all_gather": (1 if whole_between else 2) * sharded,
        "reduce_scatter": sharded and trained,
        "all_reduce": replicated and trained,
    }
    return {name: int(count) for name, count in calls.items() if count}


def collectives_text(calls: Mapping[str, int]) -> str:
    """The calls in words, such as "2 all-gathers, 1 reduce-scatter"."""
    return ", ".join(plural(count, name.replace("_", "-")) for name, count in calls.items())
