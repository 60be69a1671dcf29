"""Calls of the FSDP API that no event of a program shows: what they do is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fsdplint.comparison.compare import ABSENT, Compared, Outcome
from fsdplint.interpreter import Program
from fsdplint.interpreter.gaps import Gap
from fsdplint.syntax.api_sites import SiteKind
from fsdplint.trace import Location, Trace

# How topics begin, and the calls that such facts come from.
_KINDS = {
    "reduction of gradients": SiteKind.SYNCHRONIZATION,
    "gradient clipping": SiteKind.CLIPPING,
    "clipping": SiteKind.CLIPPING,
    "norm of clipping": SiteKind.CLIPPING,
    "state ": SiteKind.STATE,
    "file": SiteKind.STORAGE,
    "path of a file": SiteKind.STORAGE,
    "content of a file": SiteKind.STORAGE,
    "optimizer": SiteKind.OPTIMIZER,
    "unit": SiteKind.SHARDING,
    "collective": SiteKind.COLLECTIVE,
}


def unseen_calls(program: Program, traces: Sequence[Trace]) -> dict[SiteKind, Location]:
    """The first call of each kind, in the files that some runs come to, that they do not show."""
    places = [event.site.location() for trace in traces for event in trace]
    files = {at.path for at in places}
    seen = set(places)
    found: dict[SiteKind, Location] = {}
    for one in program.coverage:
        if one.gap is Gap.UNCALLED:  # a function without a caller is no part of the program
            continue
        at = one.source.location(one.site.node)
        if at.path in files and at not in seen:
            found.setdefault(one.site.kind, at)
    return found


def without_unseen(
    facts: Iterable[Compared],
    before: dict[SiteKind, Location],
    after: dict[SiteKind, Location],
) -> list[Compared]:
    """The facts; one that a program lacks is not followed if a call may be what it lacks."""
    return [_judged(one, before, after) for one in facts]


def _judged(
    fact: Compared, before: dict[SiteKind, Location], after: dict[SiteKind, Location]
) -> Compared:
    kind = next((kind for start, kind in _KINDS.items() if fact.topic.startswith(start)), None)
    if fact.outcome is not Outcome.DIFFERS or kind is None:
        return fact
    at = before.get(kind) if fact.before == ABSENT else None
    at = after.get(kind) if fact.after == ABSENT else at
    if at is None:
        return fact
    reason = f"the call in line {at.line} could not be followed"
    return replace(fact, outcome=Outcome.NOT_FOLLOWED, reason=reason)
