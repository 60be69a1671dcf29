"""What a migration changes in training, which `--unsafe-fixes` allows: one obstacle for each change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fsdplint.migration.report.model import Obstacle
from fsdplint.report.remarks import Place

if TYPE_CHECKING:
    from fsdplint.migration.plan import Plan
    from fsdplint.source.source import Source

At = Callable[["Source", int], Place]
Excerpt = Callable[["Source", int, int], list[tuple[int, str]]]


def obstacles(plan: Plan, code: str, at: At, excerpt: Excerpt) -> Iterator[Obstacle]:
    """The obstacles of a plan that nothing else blocks, at the first place of each change."""
    from fsdplint.migration.blockers.program import UNSAFE_REWRITE

    for note in plan.notes:
        if not note.unsafe or not note.places:
            continue
        source, node = note.places[0]
        location = source.location(node)
        place = at(source, location.line)
        others = dict.fromkeys(at(one, one.location(x).line) for one, x in note.places[1:])
        more = [str(other) for other in others if other != place]
        reason = UNSAFE_REWRITE(title=note.text + (f", also at {', '.join(more)}" if more else ""))
        yield Obstacle(
            place,
            code,
            excerpt(source, location.line, location.end_line),
            reason.message,
            f"{note.detail} {reason.advice}".strip(),
            reason.blocker.code,
            place.line + max(location.end_line - location.line, 0),
        )
