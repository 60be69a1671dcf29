"""Ranges that begin at the rank: `range(rank, n, world_size)`, also of torch."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.rank_local import data_at, own_data
from fsdplint.interpreter.rank_local_calls import is_global_rank
from fsdplint.interpreter.ranks import is_distinct
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import RankLocal


def own_numbers(run: Run, call: Call, *, immutable: bool = True) -> RankLocal | None:
    """What makes the numbers of a range different on each rank: it begins at the rank."""
    if len(call.args) < 2 or run.decisions.single_rank:
        return None
    position = position_of(run, call.args[0])
    if position is not None:
        return data_at(run, position, run.site(call.node), immutable=immutable, position=True)
    if not is_distinct(call.args[0]):
        return None
    part = len(call.args) == 3 and is_global_rank(call.args[0])
    return own_data(run, run.site(call.node), immutable=immutable, part=part, position=True)
