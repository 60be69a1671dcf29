"""Loops over every nth element that make another number of turns on two ranks.

`range(rank, 97, world_size)` has 49 numbers on the first of two ranks and 48 on the second. The
number of elements has to be known, with the defaults of settings.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import libcst as cst

from fsdplint.interpreter.default_numbers import default_count, default_number
from fsdplint.interpreter.frames import Call, Turns
from fsdplint.interpreter.list_lengths import list_length
from fsdplint.interpreter.rank_local_calls import is_global_rank
from fsdplint.interpreter.ranks import is_world_size
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import Batches
from fsdplint.interpreter.values import Const, LibraryObject, Sequence, Unknown, Value, constant
from fsdplint.source.positions import code_children
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import UnequalTurns

_RANKS = 2
_SHORTENS = frozenset({"zip", "islice", "takewhile", "min"})


def note_range(run: Run, call: Call, made: Value) -> None:
    """`range(rank, count, world_size)`"""
    if len(call.args) == 3 and is_global_rank(call.args[0]) and is_world_size(call.args[2]):
        _note(run, made, default_number(run, call.args[1]), call.node)


def note_slice(
    run: Run, node: cst.Subscript, whole: Sequence, bounds: list[Value], made: Value
) -> None:
    """`elements[rank::world_size]`"""
    item = node.slice[0].slice if len(node.slice) == 1 else None
    if not isinstance(item, cst.Slice) or item.upper is not None or len(bounds) != 2:
        return
    if is_global_rank(bounds[0]) and is_world_size(bounds[1]):
        count = default_count(run, list_length(whole)) if whole.open else len(whole.items)
        _note(run, made, count, node)


def _note(run: Run, made: Value, count: float | None, node: cst.CSTNode) -> None:
    if count is not None and count >= _RANKS and not run.decisions.single_rank:
        run.turns[made] = Turns(ceil(count / _RANKS), int(count // _RANKS), run.site(node))


def copy_turns(run: Run, value: Value, made: Value) -> None:
    """A list or tuple has the elements of a value."""
    if value in run.turns:
        run.turns[made] = run.turns[value]


def note_loader(run: Run, call: Call, made: Value) -> None:
    """A loader makes batches of the rank's elements."""
    if call.open or call.arg(4, "batch_sampler") is not None:
        return
    sampler, dataset = call.arg(3, "sampler"), run.settle(call.arg(0, "dataset") or Unknown())
    if sampler is None and isinstance(dataset, LibraryObject) and not dataset.open:
        sampler = dataset.get("indices") if dataset.name == "torch.utils.data.Subset" else None
    elements = run.turns.get(run.settle(sampler)) if sampler is not None else None
    size = default_number(run, call.arg(1, "batch_size") or Const(1))
    drops = constant(call.arg(8, "drop_last") or Const(False))
    if elements is None or size is None or size < 1 or not isinstance(drops, bool):
        return
    batches = [one / size for one in (elements.most, elements.fewest)]
    most, fewest = (int(one) if drops else ceil(one) for one in batches)
    run.turns[made] = replace(elements, most=most, fewest=fewest)


def note_turns(
    run: Run, place: cst.BaseExpression, body: cst.CSTNode, visited: Value, begin: int
) -> None:
    """Record a loop that has ended, if two ranks make other numbers of turns. begin: the number of
    events before it."""
    if isinstance(visited, Batches):
        visited = visited.loader
    turns = run.turns.get(visited)
    if turns is None or turns.most == turns.fewest or _may_end(body) or _shortens(place):
        return
    source, run.source = run.source, turns.site.source
    run.emit(UnequalTurns, turns.site.node, begin=begin, most=turns.most, fewest=turns.fewest)
    run.source = source


def _may_end(body: cst.CSTNode) -> bool:
    """Whether a turn may end the loop."""
    if isinstance(body, cst.Break | cst.Return | cst.Raise):
        return True
    return any(map(_may_end, code_children(body)))


def _shortens(place: cst.CSTNode) -> bool:
    """Whether an expression visits only some of the elements."""
    if isinstance(place, cst.Call) and dotted_name(place.func).rpartition(".")[2] in _SHORTENS:
        return True
    return any(map(_shortens, code_children(place)))
