"""The findings and problems of a result in one form, for formats that programs read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Severity
from fsdplint.report.result import Result, conditions
from fsdplint.report.urls import page_of, rule_url
from fsdplint.trace import Location


@dataclass(frozen=True)
class Record:
    """A finding, or a file that could not be checked.

    Attributes:
        message: the problem, with the conditions under which it occurs.
        at: its location; for a problem without a line, the start of the file.
        finding: None for a file that could not be checked.
    """

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    at: Location
    finding: Finding | None = None

    @property
    def url(self) -> str:
        return rule_url(self.name) if self.finding is None else page_of(self.finding.rule)

    @property
    def line(self) -> str:
        """The message on one line."""
        return " ".join(self.message.split())


def records(result: Result) -> Iterator[Record]:
    """The problems of a run, then its findings."""
    for problem in result.problems:
        line = problem.line or 1
        yield Record(
            problem.code,
            problem.name,
            Severity.ERROR,
            problem.message,
            problem.hint,
            Location(problem.path, line, 1, line, 1),
        )
    for finding in result.findings:
        rule, at = finding.rule, finding.site.location()
        message = finding.message + condition(finding)
        at = Location(
            at.path, at.line, at.column, at.end_line or at.line, at.end_column or at.column
        )
        yield Record(rule.code, rule.name, rule.severity, message, finding.help, at, finding)


def condition(finding: Finding) -> str:
    """The text after the message of a finding that holds only under conditions."""
    scope = "for example" if finding.one_of_several else "only"
    return f" [{scope} when {conditions(finding)}]" if finding.configuration else ""


class Edits:
    """The edits that mend findings, computed once for each group of fixes."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self._known: dict[object, tuple[Edit, ...]] = {}

    def of(self, finding: Finding) -> tuple[Edit, ...]:
        """The edits of all fixes of the finding's group, including imports to add or remove.

        Empty if there is no fix.
        """
        from fsdplint.diagnostics.finding import group_of

        if finding.fix is None:
            return ()
        key = group_of(finding) or id(finding)
        if key not in self._known:
            self._known[key] = self._complete(finding, finding.fix)
        return self._known[key]

    def applicable(self, finding: Finding) -> tuple[Edit, ...]:
        """The same edits, but empty if `--fix` with the same options would not apply them."""
        return self.of(finding) if self.result.applicable(finding) else ()

    def _complete(self, finding: Finding, fix: Fix) -> tuple[Edit, ...]:
        from fsdplint.diagnostics.finding import group_of
        from fsdplint.edits import apply

        group = group_of(finding)
        others = (*self.result.findings, *self.result.elsewhere)
        fixes = [one.fix for one in others if one.fix and group and group_of(one) == group]
        try:
            return apply.complete(self.result.sources, fixes or fix)
        except (apply.BrokenFixError, KeyError):
            return ()  # other tools would apply it without checks
