"""Calls of the FSDP API that no event of a program shows: what they do is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class UnseenCall:
    """A call that no event shows: its text without layout, and its place."""

    text: str
    at: Location


Unseen = Mapping[SiteKind, Sequence[UnseenCall]]


def unseen_calls(program: Program, traces: Sequence[Trace]) -> Unseen:
    """The calls of each kind, in the files that some runs come to, that they do not show."""
    places = [event.site.location() for trace in traces for event in trace]
    files = {at.path for at in places}
    seen = set(places)
    found: dict[SiteKind, list[UnseenCall]] = {}
    for one in program.coverage:
        if one.gap is Gap.UNCALLED:  # a function without a caller is no part of the program
            continue
        at = one.source.location(one.site.node)
        if at.path in files and at not in seen:
            text = "".join(one.source.code(one.site.node).split())
            found.setdefault(one.site.kind, []).append(UnseenCall(text, at))
    return found


def without_unseen(
    facts: Iterable[Compared],
    before: Unseen,
    after: Unseen,
) -> list[Compared]:
    """The facts; one that a program lacks is not followed if a call may be what it lacks."""
    return [_judge(one, before, after) for one in facts]


def _judge(fact: Compared, before: Unseen, after: Unseen) -> Compared:
    kind = next((kind for start, kind in _KINDS.items() if fact.topic.startswith(start)), None)
    if fact.outcome is not Outcome.DIFFERS or kind is None:
        return fact
    at = _first_unmatched(before, after, kind) if fact.before == ABSENT else None
    at = _first_unmatched(after, before, kind) if fact.after == ABSENT else at
    if at is None:
        return fact
    reason = f"the call in line {at.line} could not be followed"
    return replace(fact, outcome=Outcome.NOT_FOLLOWED, reason=reason)


def _first_unmatched(one: Unseen, other: Unseen, kind: SiteKind) -> Location | None:
    """The first unseen call of a program that the other program does not have.

    A call that no event of either program shows, such as `scheduler.load_state_dict(...)`, explains
    no difference.
    """
    known = Counter(call.text for call in other.get(kind, ()))
    for call in one.get(kind, ()):
        if not known[call.text]:
            return call.at
        known[call.text] -= 1
    return None
