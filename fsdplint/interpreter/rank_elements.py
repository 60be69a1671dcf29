"""Objects and functions that only some ranks have in a list, such as callbacks.

    callbacks = [Progress()]
    if rank == 0:
        callbacks.append(Logger())
    for callback in callbacks:
        callback.on_step_end(model)

The turn of such an element happens on these ranks alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fsdplint.interpreter.torch_values import RankElement, RankSide, RankTest
from fsdplint.interpreter.values import Bound, Function, Instance, Partial, Sequence, Value
from fsdplint.source.source import NodeSite
from fsdplint.trace import Guard, GuardKind, Ranks

if TYPE_CHECKING:
    from fsdplint.interpreter.run import Run

_HAS_CODE = (Bound, Function, Instance, Partial)  # of the program, which a loop may execute
_OTHERS = {Ranks.ONE: Ranks.OTHERS, Ranks.OTHERS: Ranks.ONE}


def added_here(run: Run, held: Sequence, element: Value) -> Value:
    """An element that the ranks at this point add to a list that all ranks have made."""
    side = _side_here(run) if run.ranks().partial and not held.chosen else None
    return element_of(side, element) if side is not None else element


def element_of(side: RankSide, element: Value) -> Value:
    """An element that a list has on some ranks only."""
    if not isinstance(element, _HAS_CODE):
        return element
    return RankElement(held=element, by_rank=True, side=side)


def list_of_side(side: RankSide, held: Sequence) -> Sequence | None:
    """A list that is empty on all ranks but these; None if no element of it has code."""
    elements = [element_of(side, item) for item in held.items]
    if not any(isinstance(one, RankElement) for one in elements):
        return None
    return replace(held, items=elements, length=None, chosen=True)


def holder_of_all(held: Sequence) -> RankSide | None:
    """The ranks that have the elements of a list, if the others have none; None for all ranks."""
    sides = [item.side for item in held.items if isinstance(item, RankElement)]
    if held.open or not sides or len(sides) < len(held.items):
        return None
    places = {(side.test.created_at, side.holds) for side in sides}
    return sides[0] if len(places) == 1 else None


def _side_here(run: Run) -> RankSide | None:
    """The ranks at this point, by the innermost test of the rank that leaves out some."""
    for entry in reversed(run.guards):
        guard = entry.guard
        if guard.kind is GuardKind.RANK and guard.ranks.partial and not guard.in_turn:
            return _side_of(guard)
    return None


def _side_of(guard: Guard) -> RankSide | None:
    if guard.asserted or not isinstance(guard.site, NodeSite):
        return None
    others = _OTHERS.get(guard.ranks, Ranks.SOME)
    sides = (guard.ranks, others) if guard.holds else (others, guard.ranks)
    test = RankTest(
        *sides,
        each_node=guard.each_node,
        number=guard.rank,
        one_is=guard.one_of_node is guard.holds,
        created_at=guard.site,
    )
    return RankSide(test, guard.holds)
