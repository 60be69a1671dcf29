"""Lists whose length may differ between ranks.

A slice that depends on the rank makes such a list. So does a loop over one, or a test of the rank's
own data in a loop, that adds elements to another list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.interpreter.values import Lazy, RankLocal, Sequence, Unknown, Value
from fsdplint.source.source import NodeSite

if TYPE_CHECKING:
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
    for turn in run.own_turns:
        if not to.made_at or to.made_at > turn.step:
            continue
        if turn.local is not None:
            to.own_length = to.own_length or turn.local
        around = {id(entry) for entry in turn.guards}
        for entry in run.guards:
            source = entry.guard.own_data
            if not isinstance(source, NodeSite) or id(entry) in around:
                continue
            if entry.guard.site in run.tests_of_position:
                to.own_length = to.own_length or RankLocal(source, position=True)
            elif to.own_length is None or to.own_length.counts or to.own_length.position:
                to.own_length = RankLocal(source)
