"""Loops that make as many turns as a number says that each rank draws with a seed of its own."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, RankLocal, Value


def note_range(run: Run, call: Call, made: Value) -> None:
    """Note what makes the length of `range(number)` different on each rank."""
    if run.decisions.single_rank or call.open or call.kwargs:
        return
    begin, end = [Const(0), *call.args][-2:]
    if len(call.args) < 3 and isinstance(begin, Const):
        local = local_of(run.settle(end))
        if local is not None and local.source in run.drawn:
            run.drawn_turns[made] = local


def drawn_turns(run: Run, iterable: Value) -> RankLocal | None:
    """What makes the number of turns over a range different on each rank."""
    return run.drawn_turns.get(run.settle(iterable)) if run.drawn_turns else None
