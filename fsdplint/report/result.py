"""The result of one run, which is the input of the writers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsdplint.diagnostics.coverage import CoveredSite
from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.source.files import Problem

if TYPE_CHECKING:
    from fsdplint.source.source import Source

MAX_CONDITIONS = 4  # of a finding, in reports for people
_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # as `str.splitlines` sees them


@dataclass
class Result:
    """The result of one run.

    Attributes:
        findings: the findings (after fixing, the remaining ones), sorted.
        elsewhere: findings in files that were read only because they call the given ones.
        problems: files that could not be checked.
        sources: the files with findings, by their paths.
        fixed: the number of fixed findings.
        fixable: ids of the findings that `--fix` with the same options would fix.
        fixable_unsafe: ids of those that it would fix with `--unsafe-fixes`.
        outside: by the id of a finding, the files that its group changes and that were not given.
        changed_outside: files that fixing changed and that were not given.
        warnings: messages about comments that turn nothing off; they are not findings.
        files: the number of checked files, if known.
        colour: whether the output goes to a terminal with colours.
        links: whether the terminal supports links.
        unfinished: whether the recorded run did not end normally.
        coverage: the sites of the contract's API in the checked files.
        quiet: whether reports for people leave out the summary.
    """

    findings: Sequence[Finding] = ()
    elsewhere: Sequence[Finding] = ()
    problems: Sequence[Problem] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    fixed: int = 0
    fixable: Set[int] = frozenset()
    fixable_unsafe: Set[int] = frozenset()
    outside: Mapping[int, Sequence[str]] = field(default_factory=dict)
    changed_outside: Sequence[str] = ()
    warnings: Sequence[str] = ()
    files: int | None = None
    colour: bool = False
    links: bool = False
    unfinished: bool = False
    coverage: Sequence[CoveredSite] = ()
    quiet: bool = False

    def applicable(self, finding: Finding) -> bool:
        """Whether `--fix` with the same options would fix the finding."""
        return id(finding) in self.fixable


def conditions(finding: Finding) -> str:
    """The conditions of the finding's configuration in words; if there are many, the innermost
    ones."""
    texts = [str(guard) for guard in finding.configuration]
    hidden = len(texts) - MAX_CONDITIONS
    if hidden > 0:
        texts = [
            *texts[hidden:],
            plural(hidden, "more condition") + (" hold" if hidden > 1 else " holds"),
        ]
    return " and ".join(texts)


def plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def on_one_line(path: str) -> str:
    """A path whose line ends are escaped as in Python."""
    return _LINE_END.sub(lambda match: repr(match.group())[1:-1], path)


def problem_line(problem: Problem) -> str:
    """A problem on one line."""
    path = on_one_line(problem.path)
    place = path if problem.line is None else f"{path}:{problem.line}"
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{place}: {problem.code} {problem.message}{hint}"


def summary(result: Result) -> list[str]:
    """The last lines of a report for people."""
    if result.quiet:
        return []
    lines = []
    counts = [
        plural(number, severity.value)
        for severity in (Severity.ERROR, Severity.WARNING)
        if (number := sum(f.rule.severity is severity for f in result.findings))
    ]
    notes = sum(f.rule.severity is Severity.INFO for f in result.findings)
    if notes:
        counts.append(plural(notes, "note"))
    if counts:
        total = ", ".join(counts[:-1]) + " and " + counts[-1] if len(counts) > 1 else counts[0]
        fixed = f" ({result.fixed} fixed before)" if result.fixed else ""
        lines.append(f"Found {total}{fixed}.")
    elif result.fixed:
        lines.append(f"Fixed {plural(result.fixed, 'finding')}; none remains.")
    elif result.unfinished:
        lines.append("Nothing was found in what ran of the program.")
    elif not result.problems:
        none = "No Python files were found; nothing was checked."
        lines.append(none if result.files == 0 else "All checks passed.")
    if not all(site.covered for site in result.coverage):
        lines.append(f"{covered_line(result.coverage)} See --coverage.")
    if result.changed_outside:
        lines.append(f"Changed with them: {', '.join(result.changed_outside)}.")
    if result.problems:
        lines.append(f"{plural(len(result.problems), 'problem')} kept files from being checked.")
    lines += waiting(result)
    safe = sum(result.applicable(f) for f in result.findings)
    unsafe = sum(id(f) in result.fixable_unsafe - result.fixable for f in result.findings)
    if safe and unsafe:
        lines.append(f"[*] {safe} fixable with --fix ({unsafe} more with --unsafe-fixes).")
    elif safe:
        lines.append(f"[*] {safe} fixable with --fix.")
    elif unsafe:
        lines.append(f"{unsafe} fixable with --fix --unsafe-fixes.")
    return lines


def covered_line(sites: Sequence[CoveredSite]) -> str:
    """How many of the sites were covered, in a sentence."""
    covered = sum(site.covered for site in sites)
    number = plural(len(sites), "call")
    return f"The check covered {covered} of {number} of the FSDP API."


def waiting(result: Result) -> list[str]:
    """The findings that are not fixed because files that were not given would have to change
    too."""
    findings = [one for one in result.findings if one.fix and result.outside.get(id(one))]
    if not findings:
        return []
    files = sorted({path for one in findings for path in result.outside[id(one)]})
    them = "it" if len(files) == 1 else "them"
    return [
        f"{plural(len(findings), 'finding')} can only be fixed together with {', '.join(files)}: "
        f"name {them} as well, or use --project."
    ]
