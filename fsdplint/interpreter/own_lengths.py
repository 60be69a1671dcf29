"""Lists whose length may differ between ranks.

A slice that depends on the rank makes such a list. So does a loop over one, or a test of the rank's
own data in a loop, that adds elements to another list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.interpreter.values import Const, Lazy, RankLocal, Sequence, Unknown, Value
from fsdplint.source.source import NodeSite

if TYPE_CHECKING:
    from fsdplint.interpreter.frames import OwnTurns
    from fsdplint.interpreter.run import Run


def own_length(value: Value | None) -> RankLocal | None:
    """What makes the length of a value different on each rank; None if nothing certain."""
    local: RankLocal | None = None
    if isinstance(value, Sequence):
        local = value.own_length
    elif isinstance(value, Unknown) and value.rank_local is not None and value.rank_local.counts:
        local = value.rank_local
    elif isinstance(value, Lazy):
        return own_length(value.elements) or own_length(value.source)
    return local if local is not None and not local.agreed else None


def note_addition(run: Run, to: Sequence) -> None:
    """Note an addition to a list that each rank may do another number of times."""
    for turn in _turns_since(run, to):
        if turn.local is not None:
            to.own_length = to.own_length or turn.local
    for local in _tests_since(run, to):
        if local.position:
            to.own_length = to.own_length or local
        elif to.own_length is None or to.own_length.counts or to.own_length.position:
            to.own_length = local


def added_number(run: Run, to: Sequence, number: Value) -> Value:
    """What a list gets where a test of the rank's own data chooses among numbers.

    The other side of the test adds another number: the elements are as different as the data.
    """
    if not isinstance(number, Const) or not isinstance(number.value, int | float):
        return number
    local = next((one for one in _tests_since(run, to) if not one.position), None)
    return number if local is None else Unknown(varying=True, rank_local=local)


def _turns_since(run: Run, made: Sequence) -> Iterator[OwnTurns]:
    """The loops that began after a list was made."""
    return (turn for turn in run.own_turns if made.made_at and made.made_at <= turn.step)


def _tests_since(run: Run, made: Sequence) -> Iterator[RankLocal]:
    """What makes the outcomes of tests differ that hold here, in loops since a list was made."""
    for turn in _turns_since(run, made):
        around = {id(entry) for entry in turn.guards}
        for entry in run.guards:
            source = entry.guard.own_data
            if isinstance(source, NodeSite) and id(entry) not in around:
                yield RankLocal(source, position=entry.guard.site in run.tests_of_position)
