"""The verdict on each fix, from what the two runs showed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.runtime.proof.checks import Check, Comparison
from fsdplint.runtime.proof.evidence import LineMap, events_at, in_words, related_checks
from fsdplint.trace import Location, Trace

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
from fsdplint.registry.rule import Rule, class_of


class Verdict(Enum):
    """What the two runs say about a fix."""

    PROVEN = "proven"
    OTHER_LAYOUT = "other layout"  # trains alike; the ranks hold or send something else
    REFUTED = "refuted"
    NOT_REACHED = "not reached"
    NOT_COMPARABLE = "not comparable"


@dataclass
class FixVerdict:
    """A fix, or the whole migration of `--against`, with its verdict and the reasons.

    Attributes:
        before, after: what happened at its lines in either run, in words.
        checks: the comparisons that are about what happened there.
    """

    title: str
    verdict: Verdict
    reasons: list[str]
    code: str = ""
    at: Location | None = None
    message: str = ""
    before: str = ""
    after: str = ""
    checks: list[Check] = field(default_factory=list)


Places = set[tuple[str, int]]


@dataclass(frozen=True)
class Evidence:
    """What is known when the fixes are judged.

    Attributes:
        verdict, reasons: on the two runs as a whole.
        reached: the places (path, line) of the findings that were executed before.
        fired, left: where each rule fires on the recorded trace before and after.
        groups: the groups of fixes of which at least one member was seen at run time.
        moved: where the lines of the original files stand in the fixed ones.
        traces: of the program before and after, and of both going on from a checkpoint.
        comparison: of the two runs, None where one of them did not come to its end.
        failing: the places at which the program after ended as the one before had.
    """

    verdict: Verdict
    reasons: Sequence[str]
    reached: Places
    fired: Mapping[type[Rule], Places]
    left: Mapping[type[Rule], Places]
    groups: set[str]
    moved: LineMap
    traces: Sequence[tuple[Trace, Trace]]
    comparison: Comparison | None = None
    failing: Places = field(default_factory=set)

    @classmethod
    def of(
        cls,
        applied: Sequence[Finding],
        overall: tuple[Verdict, Sequence[str]],
        reached: Places,
        traces: Sequence[tuple[Trace, Trace]],
        texts: Mapping[Path, tuple[str, str]],
        comparison: Comparison | None = None,
        failing: Places | None = None,
    ) -> Evidence:
        """Evidence from the recorded traces, and the texts of the files before and after."""
        rules = {class_of(finding) for finding in applied}
        fired = {rule: _fires(rule, [before for before, _ in traces]) for rule in rules}
        left = {rule: _fires(rule, [after for _, after in traces]) for rule in rules}
        groups = {
            finding.group
            for finding in applied
            if finding.group is not None and place_of(finding) in fired[class_of(finding)]
        }
        moved = LineMap(texts)
        return cls(
            *overall, reached, fired, left, groups, moved, traces, comparison, failing or set()
        )

    def judge(self, finding: Finding) -> FixVerdict:
        """The verdict on one fix."""
        verdict, reasons = self._verdict(finding)
        path, _ = place = place_of(finding)
        old, new = self.moved.replaced(place)
        before = [event for trace, _ in self.traces for event in events_at(trace, path, old)]
        after = [event for _, trace in self.traces for event in events_at(trace, path, new)]
        return FixVerdict(
            title=finding.fix.title if finding.fix is not None else finding.message,
            verdict=verdict,
            reasons=reasons,
            code=finding.rule.code,
            at=finding.site.location(),
            message=finding.message,
            before=in_words(before),
            after=in_words(after),
            checks=related_checks([*before, *after], self.comparison),
        )

    @property
    def _positive(self) -> Verdict:
        """The verdict on what has done what it was to do."""
        return self.verdict if self.verdict is Verdict.OTHER_LAYOUT else Verdict.PROVEN

    def _verdict(self, finding: Finding) -> tuple[Verdict, list[str]]:
        place, overall = place_of(finding), self.verdict
        fired = place in self.fired[class_of(finding)]
        if self.moved.after(place) in self.left[class_of(finding)]:
            still = f"{finding.rule.code} still fires there at run time"
            return Verdict.REFUTED, [still, *self.reasons]
        if overall is Verdict.REFUTED:
            return overall, list(self.reasons)
        if not fired and place not in self.reached:
            ended = overall is Verdict.NOT_COMPARABLE and self.comparison is None
            return Verdict.NOT_REACHED, [
                "the line was not executed",
                *(self.reasons if ended else ()),
            ]
        if self.moved.after(place) in self.failing:
            return Verdict.REFUTED, list(self.reasons)
        gone = "the rule fired there at run time before, and does not after"
        if overall is Verdict.NOT_COMPARABLE:
            return overall, [*self.reasons, gone] if fired else list(self.reasons)
        if fired:
            return self._positive, [gone, *self.reasons]
        if finding.group in self.groups:
            part = "the line ran; compared as part of its migration"
            return self._positive, [part, *self.reasons]
        return Verdict.NOT_REACHED, ["the line ran, but the rule did not fire there at run time"]


def place_of(finding: Finding) -> tuple[str, int]:
    """The file and line of a finding, to be compared with those of a trace."""
    at = finding.site.location()
    return os.path.realpath(at.path), at.line


def _fires(rule: type[Rule], traces: Sequence[Trace]) -> Places:
    """Where a rule fires on recorded traces."""
    return {place_of(finding) for trace in traces for finding in rule().check(trace)}
