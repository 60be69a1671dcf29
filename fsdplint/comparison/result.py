"""The result of a comparison, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fsdplint.comparison import schema
from fsdplint.comparison.compare import Compared, Outcome
from fsdplint.report.notes import place_data
from fsdplint.report.remarks import Place
from fsdplint.report.schema import Line
from fsdplint.trace import Location
from fsdplint.version import __version__

_WIDTH = 14
_NAMES: dict[Outcome, Literal["agrees", "differs", "not_followed"]] = {
    Outcome.AGREES: "agrees",
    Outcome.DIFFERS: "differs",
    Outcome.NOT_FOLLOWED: "not_followed",
}
MAX_LINES = 8  # of one topic whose facts all have the same outcome and values


@dataclass
class Result:
    """What there is to say about a migration.

    Attributes:
        facts: the facts of both programs.
        errors: why they could not be compared.
        shown: the path of a file as it is shown.
    """

    facts: list[Compared] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    shown: Callable[[str], str] = str

    def count(self, outcome: Outcome) -> int:
        """The number of facts with an outcome."""
        return sum(one.outcome is outcome for one in self.facts)

    @property
    def says_nothing(self) -> bool:
        """Whether no fact was compared."""
        return all(one.outcome is Outcome.NOT_FOLLOWED for one in self.facts)

    @property
    def summary(self) -> str:
        """One sentence."""
        if self.errors:
            return f"The migration could not be checked: {'; '.join(self.errors)}."
        agree, differ, rest = (self.count(one) for one in Outcome)
        verdict = "differs" if differ else "keeps what could be followed"
        if not agree and not differ:
            verdict = "could not be followed"
        return (
            f"The migration {verdict}: {agree} {'fact agrees' if agree == 1 else 'facts agree'}, "
            f"{differ} {'differs' if differ == 1 else 'differ'}, {rest} could not be followed."
        )


def as_text(result: Result) -> Iterator[str]:
    """A line for each fact; facts of several units with the same values share one."""
    for outcome in (Outcome.DIFFERS, Outcome.NOT_FOLLOWED, Outcome.AGREES):
        groups: dict[tuple[object, ...], list[Compared]] = {}
        for one in result.facts:
            if one.outcome is outcome:
                key = (one.topic, one.before, one.after, one.before_at, one.after_at, one.reason)
                groups.setdefault(key, []).append(one)
        for group in groups.values():
            yield _line(group, result.shown)
    yield result.summary


def _line(group: Sequence[Compared], shown: Callable[[str], str]) -> str:
    first = group[0]
    subjects = ", ".join(one.subject for one in group[:MAX_LINES] if one.subject)
    if len(group) > MAX_LINES:
        subjects += f" and {len(group) - MAX_LINES} more"
    what = f"{first.topic} ({subjects})" if subjects else first.topic
    left = f"{first.before}{_place(first.before_at, shown)}"
    right = f"{first.after}{_place(first.after_at, shown)}"
    line = f"{first.outcome.value:{_WIDTH}}{what}: {left} -> {right}"
    if first.reason:
        line += f"; {first.reason}"
    if first.conditions and first.outcome is not Outcome.AGREES:
        line += f"; when {' and '.join(first.conditions)}"
    return line


def _place(at: Location | None, shown: Callable[[str], str]) -> str:
    return "" if at is None else f" [{shown(at.path)}:{at.line}]"


def as_json(result: Result) -> Iterator[str]:
    """The lines of a report for programs."""
    data: schema.Validation = {
        "schema_version": 1,
        "version": __version__,
        "summary": result.summary,
        "agrees": result.count(Outcome.AGREES),
        "differs": result.count(Outcome.DIFFERS),
        "not_followed": result.count(Outcome.NOT_FOLLOWED),
        "errors": result.errors,
        "facts": [_fact(one, result.shown) for one in result.facts],
    }
    yield json.dumps(data, indent=2)


def _fact(one: Compared, shown: Callable[[str], str]) -> schema.Fact:
    return {
        "topic": one.topic,
        "subject": one.subject,
        "outcome": _NAMES[one.outcome],
        "before": {"value": one.before, "at": _data(one.before_at, shown)},
        "after": {"value": one.after, "at": _data(one.after_at, shown)},
        "reason": one.reason or None,
        "conditions": list(one.conditions),
    }


def _data(at: Location | None, shown: Callable[[str], str]) -> Line | None:
    return None if at is None else place_data(Place(shown(at.path), at.line))
