"""The JSON of a migration: the types that its writer fills. `docs/schemas/` is made from them."""

from __future__ import annotations

from typing import Literal, TypedDict

from fsdplint.report.schema import CoverageCounts, Line, Note


class Problem(TypedDict):
    """A file that could not be read.

    Attributes:
        filename: its path.
        row: the line of the problem, or null.
        message: what is wrong.
        help: what to do; may be empty.
    """

    filename: str
    row: int | None
    message: str
    help: str


class Reason(TypedDict):
    """A rule that finds something at a changed place.

    Attributes:
        code: the code of the rule.
        name: the name of the rule.
        reason: why the code has to change.
        url: the page of the rule.
    """

    code: str
    name: str
    reason: str
    url: str


class Change(Line):
    """Adjacent lines that the migration rewrites.

    Attributes:
        new_row: the first line in the new file.
        titles: what the change does.
        before: the old lines.
        after: the new lines.
        rules: the rules that find something there.
    """

    new_row: int
    titles: list[str]
    before: list[str]
    after: list[str]
    rules: list[Reason]


class Blocker(Line):
    """Code that keeps the program from being migrated.

    Attributes:
        end_row: the last line of the code.
        code: the rule that reports it.
        blocker: the stable name of the reason, or null.
        lines: the first lines of the code.
        reason: why it cannot be rewritten.
        advice: what a person has to decide or do.
        postcondition: what has to hold after the change.
        checks: the commands that check the change: the first no longer reports the place, and the
            second finds no difference once the program is migrated.
    """

    end_row: int
    code: str
    blocker: str | None
    lines: list[str]
    reason: str
    advice: str
    postcondition: str
    checks: list[str]


class OpenPlace(Line):
    """Code that raises after an assisted migration, until a person has decided about it.

    Attributes:
        blocker: the stable name of the reason; may be empty.
        decision: what to decide, in one sentence.
        reason: why fsdplint does not decide it.
        lines: the code for FSDP1, which stands in a comment above.
        postcondition: what has to hold after the change.
        checks: the commands that check the change: the first no longer reports the place, and the
            second finds no difference once all places are decided.
    """

    blocker: str
    decision: str
    reason: str
    lines: list[str]
    postcondition: str
    checks: list[str]


class Sites(TypedDict):
    """How much of a program is rewritten.

    Attributes:
        rewritten: the uses of FSDP1 that are rewritten.
        all: the uses of FSDP1.
    """

    rewritten: int
    all: int


class Program(TypedDict):
    """Files that are migrated together.

    Attributes:
        name: the file that names the program.
        files: the files of the program that use FSDP1.
        verdict: whether the program is blocked, can be migrated, or was migrated; "partly" if an
            assisted migration leaves code that raises.
        changes: the rewritten lines; empty for a blocked program.
        blockers: the code that blocks it.
        open: the code that raises after an assisted migration; its rows are those of the new file.
        sites: how many uses of FSDP1 are rewritten.
        waiting: the uses of FSDP1 that are rewritten once nothing blocks.
        notes: what changes in behaviour or cost.
        outside: the files that have to change, too, and were not given.
        prove: the commands that prove the migration.
        prove_note: a remark on these commands; may be empty.
        validate: the command that compares the program with what it was, without a run.
    """

    name: str
    files: list[str]
    verdict: Literal["blocked", "migratable", "migrated", "partly migratable", "partly migrated"]
    changes: list[Change]
    blockers: list[Blocker]
    open: list[OpenPlace]
    sites: Sites
    waiting: list[Line]
    notes: list[Note]
    outside: list[str]
    prove: list[str]
    prove_note: str
    validate: str


class Migration(TypedDict):
    """The report of `fsdplint migrate --report FILE.json`.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        summary: the sentences that close a report for people.
        wrote: whether the command was asked to write changes.
        annotated: the files whose comments on blockers changed.
        coverage: how much of the code was reached.
        problems: the files that could not be read.
        programs: the programs that use FSDP1.
        open: the code that raises since an earlier assisted migration, in other files.
    """

    schema_version: Literal[1]
    version: str
    summary: str
    wrote: bool
    annotated: list[str]
    coverage: CoverageCounts
    problems: list[Problem]
    programs: list[Program]
    open: list[OpenPlace]
