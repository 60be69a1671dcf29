"""The JSON of a check: the types that its writers fill. `docs/schemas/` is made from them."""

from __future__ import annotations

from typing import Literal, TypedDict

Severity = Literal["error", "warning", "info"]


class Position(TypedDict):
    """A position in a file, or in a cell of a notebook.

    Attributes:
        row: the line, from 1.
        column: the character in the line, from 1.
    """

    row: int
    column: int


class _Cell(TypedDict, total=False):
    """A cell of a notebook.

    Attributes:
        cell: the number of the cell in which rows are counted (notebooks only).
    """

    cell: int


class File(_Cell):
    """A file.

    Attributes:
        filename: its path.
    """

    filename: str


class Line(File):
    """A line of a file.

    Attributes:
        row: the line, from 1.
    """

    row: int


class Condition(TypedDict):
    """A condition of the configuration in which a finding occurs.

    Attributes:
        condition: the expression in the program.
        holds: whether it is true.
    """

    condition: str
    holds: bool


class Related(File):
    """Another place that a finding is about.

    Attributes:
        message: what happens there.
        location: where it begins.
    """

    message: str
    location: Position


class Edit(File):
    """A replacement of text.

    Attributes:
        content: the new text.
        location: where the old text begins.
        end_location: the first character after the old text.
    """

    content: str
    location: Position
    end_location: Position


class Note(TypedDict):
    """A change in behaviour or cost that a fix makes.

    Attributes:
        text: what changes.
        detail: how much; may be empty.
        places: the lines concerned.
    """

    text: str
    detail: str
    places: list[Line]


class Fix(TypedDict):
    """The fix of a finding.

    Attributes:
        safety: "unsafe" for a fix that may change what the program does.
        title: what the fix does.
        group: the name of the fixes that are applied together, or null.
        edits: the replacements, those of the whole group included.
        notes: what the fix changes in behaviour or cost.
    """

    safety: Literal["safe", "unsafe"]
    title: str
    group: str | None
    edits: list[Edit]
    notes: list[Note]


class Finding(File):
    """A finding, or a file that could not be checked.

    Attributes:
        code: the code of the rule.
        name: the name of the rule.
        severity: how bad it is.
        message: what is wrong.
        why: why it matters, in one sentence; may be empty.
        help: what to do; may be empty.
        location: where the code begins.
        end_location: the first character after the code.
        configuration: the conditions under which the finding occurs; empty for any.
        related: other places that the finding is about.
        group: the name of the migration that the finding belongs to, or null.
        blocker: why the migration cannot be made here, or null.
        blocker_codes: the stable names of the reasons in `blocker`.
        fix: the fix, or null.
        url: the page of the rule; empty for a rule without one.
    """

    code: str
    name: str
    severity: Severity
    message: str
    why: str
    help: str
    location: Position
    end_location: Position
    configuration: list[Condition]
    related: list[Related]
    group: str | None
    blocker: str | None
    blocker_codes: list[str]
    fix: Fix | None
    url: str


class CoverageCounts(TypedDict):
    """How many calls of the FSDP API the check reached.

    Attributes:
        sites: the number of calls in the files.
        covered: the number of those that were reached.
    """

    sites: int
    covered: int


class Gap(TypedDict):
    """A call of the FSDP API that the check did not reach.

    Attributes:
        location: where the call stands.
        kind: what the call does.
        name: the callee, as it is written.
        gap: the name of the reason.
        reason: the reason in words.
    """

    location: Position
    kind: str
    name: str
    gap: str | None
    reason: str


class CoveredFile(CoverageCounts):
    """The coverage of one file.

    Attributes:
        filename: its path.
        gaps: the calls that were not reached.
    """

    filename: str
    gaps: list[Gap]


class FilesCoverage(CoverageCounts):
    """The coverage of all files.

    Attributes:
        files: the files with calls of the FSDP API.
    """

    files: list[CoveredFile]


class Coverage(FilesCoverage):
    """The report of `fsdplint check --coverage --output-format json`.

    Attributes:
        schema_version: the version of this schema.
    """

    schema_version: Literal[1]


class Summary(TypedDict):
    """The result of a check in numbers.

    Attributes:
        text: the sentences that close a report for people.
        files: the number of files that were checked; null if it is unknown.
        errors: the number of errors.
        warnings: the number of warnings.
        notes: the number of notes.
        fixed: the number of findings that were fixed before.
        fixable: the number of findings that `--fix` would fix.
        fixable_unsafe: the number of further findings that `--fix --unsafe-fixes` would fix.
        problems: the number of files that could not be checked.
        coverage: how much of the code the check reached.
    """

    text: str
    files: int | None
    errors: int
    warnings: int
    notes: int
    fixed: int
    fixable: int
    fixable_unsafe: int
    problems: int
    coverage: CoverageCounts


class Check(TypedDict):
    """The report of `fsdplint check` and `fsdplint run` with `--output-format json-full`.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        summary: the result in numbers.
        findings: the findings.
        problems: the files that could not be checked, as findings.
        coverage: the calls of the FSDP API that were not reached.
    """

    schema_version: Literal[1]
    version: str
    summary: Summary
    findings: list[Finding]
    problems: list[Finding]
    coverage: FilesCoverage


class RuleCount(TypedDict):
    """The number of findings of a rule.

    Attributes:
        code: the code of the rule.
        name: the name of the rule.
        count: the number of its findings.
        fixable: whether `--fix` would fix all of them.
        fixable_count: the number of those that `--fix` would fix.
    """

    code: str
    name: str
    count: int
    fixable: bool
    fixable_count: int


class Statistics(TypedDict):
    """The report of `fsdplint check --statistics --output-format json-full`.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        summary: the result in numbers.
        rules: the rules with findings, the most frequent first.
    """

    schema_version: Literal[1]
    version: str
    summary: Summary
    rules: list[RuleCount]


class BadExample(TypedDict):
    """A program that a rule finds.

    Attributes:
        code: the program.
        fixed: the program after the fix, or null.
    """

    code: str
    fixed: str | None


class GoodExample(TypedDict):
    """A program that a rule leaves alone.

    Attributes:
        code: the program.
        why: why it is right.
    """

    code: str
    why: str


class RulePage(TypedDict):
    """The report of `fsdplint rule RULE --output-format json`; `--all` writes a list of them.

    Attributes:
        schema_version: the version of this schema.
        code: the code of the rule.
        name: the name of the rule.
        severity: how bad its findings are.
        fix: the safety of its fix; null if it has none.
        fix_availability: how its findings can be fixed, in words.
        runtime_only: whether the rule needs a recorded run.
        summary: what it finds, in one sentence.
        explanation: its page, as Markdown.
        bad: programs that it finds.
        good: programs that it leaves alone.
        url: the page of the rule.
    """

    schema_version: Literal[1]
    code: str
    name: str
    severity: Severity
    fix: Literal["safe", "unsafe"] | None
    fix_availability: str
    runtime_only: bool
    summary: str
    explanation: str
    bad: list[BadExample]
    good: list[GoodExample]
    url: str
