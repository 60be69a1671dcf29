"""Batches that all ranks draw alike, and train on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.trace import (
    BackwardRun,
    OptimizerStepped,
    RankData,
    Ranks,
    Seeded,
    Sharded,
    SharedNumbersDrawn,
    Trace,
    Wrapped,
    first,
)
from fsdplint.trace.queries.data_parallelism import only_data_parallel, settings


@dataclass(frozen=True)
class SharedBatches:
    """A place that draws the same batches on all ranks.

    Attributes:
        drawn: the draw.
        backward: the backward pass of a step on them.
    """

    drawn: SharedNumbersDrawn
    backward: BackwardRun


def shared_batches(trace: Trace) -> SharedBatches | None:
    """The last draw before a training step of a program without data of the ranks' own."""
    if not trace.complete or not only_data_parallel(trace):
        return None
    if any(seed.ranks is not Ranks.ALL for seed in trace.of(Seeded)):
        return None
    for backward in _steps_without_rank_data(trace):
        sharded = first([*trace.before(backward, Sharded), *trace.before(backward, Wrapped)])
        draws = [one for one in trace.before(backward, SharedNumbersDrawn) if one.in_loop]
        if sharded is None or not draws:
            continue
        if settings(draws[-1]) <= settings(sharded):
            return SharedBatches(draws[-1], backward)
    return None


def _steps_without_rank_data(trace: Trace) -> Iterator[BackwardRun]:
    """The backward passes in loops before whose last turn no rank has data of its own."""
    own = next(trace.of(RankData), None)
    last = {one.site: one for one in trace.of(BackwardRun) if one.in_loop}
    for backward in last.values():
        if own is not None and own.index < backward.index:
            continue
        if any(True for _ in trace.after(backward, OptimizerStepped)):
            yield backward


def trains_on_rank_data(trace: Trace) -> bool:
    """Whether ranks may have data of their own in the training of a sharded model."""
    if not only_data_parallel(trace) or not any(True for _ in trace.of(BackwardRun)):
        return False
    return any(True for _ in trace.of(RankData)) and shared_batches(trace) is None
