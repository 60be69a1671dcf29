"""Decides which ranks took part in an event and which skipped it.

A rank skipped an event if it went past the event's place in the code without it. A rank that
crashed or was killed before that place did not skip it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.runtime.launch.alignment import AlignedEvent
from fsdplint.runtime.launch.code_order import is_before
from fsdplint.runtime.launch.records import RankRecord
from fsdplint.trace import BatchesEnded, LoaderLeft, Ranks

# The end of a loop is recorded at its head; the program does not continue from there.
_LOOP_ENDS = (BatchesEnded.kind, LoaderLeft.kind)


class Participation:
    """Decides on which ranks an event happened."""

    def __init__(self, records: Sequence[RankRecord], events: Sequence[AlignedEvent]) -> None:
        self.ranks = [record.rank for record in records]
        self.ended_ok = {record.rank for record in records if record.ended_ok}
        self.events = events
        self.last_shared: dict[tuple[int, int], int] = {}
        for item in events:
            for one in item.lines:
                if item.lines[one].get("handling"):
                    continue  # a rank gets to its `finally` blocks from anywhere
                for other in item.lines:
                    self.last_shared[one, other] = item.position

    def of(self, item: AlignedEvent) -> Ranks:
        took_part = set(item.lines)
        skipped = {
            rank for rank in self.ranks if rank not in took_part and self._went_past(rank, item)
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

    def _went_past(self, rank: int, item: AlignedEvent) -> bool:
        """Whether a rank that did not take part in an event went past it."""
        if rank in self.ended_ok:
            return True
        for other in item.lines:
            shared = self.last_shared.get((rank, other), -1)
            if shared > item.position:
                return True
            if self._diverged_after(rank, other, item, shared):
                return True
        return False

    def _diverged_after(self, rank: int, other: int, item: AlignedEvent, shared: int) -> bool:
        """Whether the first event of `rank` without `other` comes after this event in the code."""
        following = next(
            (
                e
                for e in self.events[shared + 1 :]
                if rank in e.lines and other not in e.lines and e.first["kind"] not in _LOOP_ENDS
            ),
            None,
        )
        if following is None:
            return False
        before = self.events[shared].lines[rank] if shared >= 0 else None
        return is_before(item.lines[other], following.lines[rank], before)
