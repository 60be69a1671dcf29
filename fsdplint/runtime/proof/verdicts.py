"""The verdict on each fix, derived from the two runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.runtime.proof.checks import Check, Comparison
from fsdplint.runtime.proof.evidence import LineMap, describe_events, events_at, related_checks
from fsdplint.trace import Location, Trace

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
from fsdplint.registry.rule import Rule, class_of


class Verdict(Enum):
    """The verdict of the two runs on a fix."""

    PROVEN = "proven"
    OTHER_LAYOUT = "other layout"  # trains the same; the ranks hold or send something else
    REFUTED = "refuted"
    NOT_REACHED = "not reached"
    NOT_COMPARABLE = "not comparable"


@dataclass
class FixVerdict:
    """A fix, or the whole migration of `--against`, with its verdict and the reasons.

    Attributes:
        before, after: the events at its lines in either run, as text.
        checks: the checks that concern these events.
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
    """The facts by which fixes are judged.

    Attributes:
        verdict, reasons: the verdict on the two runs as a whole.
        reached_places: the places (path, line) of findings that the run before executed.
        fired_before, fired_after: where each rule fires on the trace before and after.
        groups: the groups of fixes with at least one rule that fired at run time.
        line_map: maps lines of the original files to the fixed ones.
        traces: the traces before and after, of the first runs and of the resumed runs.
        comparison: the comparison of the two runs; None if one of them failed.
        failing: the places at which the program after fails as the program before does.
    """

    verdict: Verdict
    reasons: Sequence[str]
    reached_places: Places
    fired_before: Mapping[type[Rule], Places]
    fired_after: Mapping[type[Rule], Places]
    groups: set[str]
    line_map: LineMap
    traces: Sequence[tuple[Trace, Trace]]
    comparison: Comparison | None = None
    failing: Places = field(default_factory=set)

    @classmethod
    def of(
        cls,
        applied: Sequence[Finding],
        overall: tuple[Verdict, Sequence[str]],
        reached_places: Places,
        traces: Sequence[tuple[Trace, Trace]],
        texts: Mapping[Path, tuple[str, str]],
        comparison: Comparison | None = None,
        failing: Places | None = None,
    ) -> Evidence:
        """Evidence from the recorded traces, and the texts of the files before and after."""
        rules = {class_of(finding) for finding in applied}
        fired_before = {rule: _fires(rule, [before for before, _ in traces]) for rule in rules}
        fired_after = {rule: _fires(rule, [after for _, after in traces]) for rule in rules}
        groups = {
            finding.group
            for finding in applied
            if finding.group is not None and place_of(finding) in fired_before[class_of(finding)]
        }
        line_map = LineMap(texts)
        return cls(
            *overall,
            reached_places,
            fired_before,
            fired_after,
            groups,
            line_map,
            traces,
            comparison,
            failing or set(),
        )

    def judge(self, finding: Finding) -> FixVerdict:
        """The verdict on one fix."""
        verdict, reasons = self._verdict(finding)
        path, _ = place = place_of(finding)
        old, new = self.line_map.changed_ranges(place)
        before = [event for trace, _ in self.traces for event in events_at(trace, path, old)]
        after = [event for _, trace in self.traces for event in events_at(trace, path, new)]
        return FixVerdict(
            title=finding.fix.title if finding.fix is not None else finding.message,
            verdict=verdict,
            reasons=reasons,
            code=finding.rule.code,
            at=finding.site.location(),
            message=finding.message,
            before=describe_events(before),
            after=describe_events(after),
            checks=related_checks([*before, *after], self.comparison),
        )

    @property
    def _positive(self) -> Verdict:
        """The verdict on a fix that had its effect."""
        return self.verdict if self.verdict is Verdict.OTHER_LAYOUT else Verdict.PROVEN

    def _verdict(self, finding: Finding) -> tuple[Verdict, list[str]]:
        place, overall = place_of(finding), self.verdict
        fired_before = place in self.fired_before[class_of(finding)]
        if self.line_map.after(place) in self.fired_after[class_of(finding)]:
            still = f"{finding.rule.code} still fires there at run time"
            return Verdict.REFUTED, [still, *self.reasons]
        if overall is Verdict.REFUTED:
            return overall, list(self.reasons)
        if not fired_before and place not in self.reached_places:
            ended = overall is Verdict.NOT_COMPARABLE and self.comparison is None
            return Verdict.NOT_REACHED, [
                "the line was not executed",
                *(self.reasons if ended else ()),
            ]
        if self.line_map.after(place) in self.failing:
            return Verdict.REFUTED, list(self.reasons)
        fired_before_only = "the rule fired there at run time before, and does not after"
        if overall is Verdict.NOT_COMPARABLE:
            return overall, [*self.reasons, fired_before_only] if fired_before else list(
                self.reasons
            )
        if fired_before:
            return self._positive, [fired_before_only, *self.reasons]
        if finding.group in self.groups:
            part = "the line ran; compared as part of its migration"
            return self._positive, [part, *self.reasons]
        return Verdict.NOT_REACHED, ["the line ran, but the rule did not fire there at run time"]


def place_of(finding: Finding) -> tuple[str, int]:
    """The real path and the line of a finding."""
    at = finding.site.location()
    return os.path.realpath(at.path), at.line


def _fires(rule: type[Rule], traces: Sequence[Trace]) -> Places:
    """Where a rule fires on recorded traces."""
    return {place_of(finding) for trace in traces for finding in rule().check(trace)}
