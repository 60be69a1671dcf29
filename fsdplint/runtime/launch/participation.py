"""Which ranks took part in an event, with regard to ranks that never got there.

A rank that took no part skipped the event if it went past the place of the event in the code. One
that crashed or was killed before it got there did not.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.runtime.launch.alignment import Merged
from fsdplint.runtime.launch.code_order import is_before
from fsdplint.runtime.launch.records import RankRecord
from fsdplint.trace import BatchesEnded, LoaderLeft, Ranks

# The end of a loop is noted at its head, which is no place that the program goes on from.
_AT_THE_HEAD = (BatchesEnded.kind, LoaderLeft.kind)


class Participation:
    """Works out on which ranks an event happened, with regard to ranks that never got there."""

    def __init__(self, records: Sequence[RankRecord], events: Sequence[Merged]) -> None:
        self.ranks = [record.rank for record in records]
        self.finished = {record.rank for record in records if record.finished}
        self.events = events
        self.last_shared: dict[tuple[int, int], int] = {}
        for item in events:
            for one in item.lines:
                if item.lines[one].get("handling"):
                    continue  # a rank gets to its `finally` blocks from anywhere
                for other in item.lines:
                    self.last_shared[one, other] = item.position

    def of(self, item: Merged) -> Ranks:
        took_part = set(item.lines)
        skipped = {
            rank for rank in self.ranks if rank not in took_part and self._passed(rank, item)
        }
        if not skipped:
            return Ranks.ALL
        if took_part == {0}:
            return Ranks.ONE
        if skipped == {0}:
            return Ranks.OTHERS
        if len(took_part) == 1:
            return Ranks.ONE
        return Ranks.OTHERS if len(skipped) == 1 else Ranks.SOME

    def _passed(self, rank: int, item: Merged) -> bool:
        """Whether a rank that did not take part in an event has gone past it."""
        if rank in self.finished:
            return True
        for other in item.lines:
            shared = self.last_shared.get((rank, other), -1)
            if shared > item.position:
                return True
            if self._turned_away(rank, other, item, shared):
                return True
        return False

    def _turned_away(self, rank: int, other: int, item: Merged, shared: int) -> bool:
        """Whether the first thing that `rank` did on its own lies behind the event in the code."""
        following = next(
            (
                e
                for e in self.events[shared + 1 :]
                if rank in e.lines and other not in e.lines and e.first["kind"] not in _AT_THE_HEAD
            ),
            None,
        )
        if following is None:
            return False
        before = self.events[shared].lines[rank] if shared >= 0 else None
        return is_before(item.lines[other], following.lines[rank], before)
