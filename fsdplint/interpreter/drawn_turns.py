"""Loops whose number of turns each rank has for itself.

The rank draws the number with a seed of its own, or computes it of all elements of its data
(`lengths.max().item()`).

`range(number)`, and `steps[:number]` of a longer list or tensor
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, RankLocal, Sequence, Value


def note_range(run: Run, call: Call, made: Value) -> None:
    """Note what makes the length of `range(number)` different on each rank."""
    if run.decisions.single_rank or call.open or call.kwargs:
        return
    begin, end = [Const(0), *call.args][-2:]
    if len(call.args) < 3 and isinstance(begin, Const):
        _note_end(run, end, made)


def drawn_slice(
    run: Run, node: cst.Subscript, whole: Value, bounds: list[Value], made: Value
) -> Value:
    """The elements of `steps[:number]`, with what makes their number different on each rank."""
    item = node.slice[0].slice if len(node.slice) == 1 else None
    if not isinstance(item, cst.Slice) or item.upper is None or run.decisions.single_rank:
        return made
    if item.lower is None and item.step is None and _drawn(run, bounds[0]) is not None:
        if made is whole and isinstance(whole, Sequence):
            made = replace(whole, items=list(whole.items))
        if made is not whole:
            _note_end(run, bounds[0], made)
    return made


def _note_end(run: Run, end: Value, made: Value) -> None:
    local = _drawn(run, end)
    if local is not None:
        run.drawn_turns[made] = local


def _drawn(run: Run, number: Value) -> RankLocal | None:
    """What makes a number different on each rank, if each rank draws it or computes it of data."""
    local = local_of(run.settle(number))
    certain = local is not None and (local.source in run.drawn or local.number)
    return local if certain else None


def drawn_turns(run: Run, iterable: Value) -> RankLocal | None:
    """What makes the number of turns over a range different on each rank."""
    return run.drawn_turns.get(run.settle(iterable)) if run.drawn_turns else None
