"""Loops that make as many turns as a number says that each rank draws with a seed of its own."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import RankLocal
from fsdplint.syntax.dotted import dotted_name


def drawn_turns(run: Run, place: cst.BaseExpression) -> RankLocal | None:
    """What makes the number of turns over `range(number)` different on each rank."""
    if not isinstance(place, cst.Call) or dotted_name(place.func) != "range":
        return None
    if any(arg.keyword or arg.star for arg in place.args) or run.decisions.single_rank:
        return None
    bounds = [arg.value for arg in place.args]
    if len(bounds) == 2 and isinstance(bounds[0], cst.Integer):
        bounds = bounds[1:]
    number = run.evaluations.get(bounds[0]) if len(bounds) == 1 else None
    local = local_of(run.settle(number)) if number is not None else None
    return local if local is not None and local.source in run.drawn else None
