"""The results of checking, fixing and proving from Python (see `fsdplint.api`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fsdplint.edits.write import NewContent

SeverityName = Literal["error", "warning", "info"]
SafetyName = Literal["safe", "unsafe"]
VerdictName = Literal["proven", "refuted", "other layout", "not reached", "not comparable"]


class FsdplintError(Exception):
    """The job could not be done: the settings are wrong, a program is missing or cannot run, or a
    file cannot be written."""


@dataclass(frozen=True)
class Edit:
    """Replace a span of a file by `content`. Lines and columns count characters from 1, and the
    end is the first character after the span."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    content: str
    cell: int | None = None


@dataclass(frozen=True)
class Place:
    """A line of a file, or of a cell of a notebook."""

    path: str
    line: int
    cell: int | None = None


@dataclass(frozen=True)
class Note:
    """A change in behaviour or cost that a fix makes: what, how much, and where."""

    text: str
    detail: str = ""
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Fix:
    """A fix of a finding.

    Attributes:
        applicable: whether `fix` with the same arguments applies it.
        edits: all its edits, in all files; a migration has the edits of its whole group.
        group: fixes of the same group are applied together or not at all.
        notes: other changes in behaviour or cost that it makes.
    """

    title: str
    safety: SafetyName
    applicable: bool
    edits: tuple[Edit, ...]
    group: str | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Condition:
    """A condition of the program's settings under which a finding holds."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Related:
    """A further place of a finding, and what happens there."""

    path: str
    line: int
    column: int
    message: str
    cell: int | None = None


@dataclass(frozen=True)
class Finding:
    """One violation at one place. Lines and columns count characters from 1.

    Attributes:
        cell: the cell of a notebook in which lines are counted, from 1; None in other files.
        help: advice.
        url: the page of its rule; empty if a plug-in's rule has none.
        configuration: the conditions under which it holds; empty if it always holds.
        group: the group of fixes that it belongs to.
        blocker: why that group cannot be rewritten, if this finding prevents it.
        blocker_codes: the stable codes of the reasons in `blocker`.
    """

    code: str
    name: str
    severity: SeverityName
    message: str
    help: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    url: str
    related: tuple[Related, ...] = ()
    configuration: tuple[Condition, ...] = ()
    group: str | None = None
    blocker: str | None = None
    fix: Fix | None = None
    cell: int | None = None
    blocker_codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """The reason why a file could not be checked, or a plug-in could not check."""

    code: str
    name: str
    path: str
    line: int | None
    message: str
    hint: str


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        findings: sorted by place.
        problems: the files that could not be checked, and why.
        warnings: lines about comments that turn off an unknown rule.
    """

    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything could be checked and there are no findings."""
        return not self.findings and not self.problems


@dataclass(frozen=True)
class Change:
    """A file that fixing changes: its text before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Fixed:
    """The result of fixing. Nothing is written yet: see `write`.

    Attributes:
        changes: the files that change.
        fixed: the fixed findings, at their original places.
        remaining: the findings in the fixed files.
        problems: the files that could not be checked, and why.
    """

    changes: tuple[Change, ...] = ()
    fixed: tuple[Finding, ...] = ()
    remaining: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    _contents: tuple[NewContent, ...] = field(default=(), repr=False, compare=False)

    def write(self) -> None:
        """Write all changed files, or none. An interrupted write is completed first.

        Raises:
            FsdplintError: a file cannot be written, or changed since it was read; the message names
                it, and no file is changed.
        """
        from fsdplint.edits.journal import Interrupted
        from fsdplint.edits.recovery import recover
        from fsdplint.edits.write import write

        try:
            recover([Path(one.path) for one in self._contents], writes=True)
            write(self._contents)
        except Interrupted as error:
            raise FsdplintError(str(error)) from error
        except OSError as error:
            raise FsdplintError(error.strerror or str(error)) from error


@dataclass(frozen=True)
class Proven:
    """A fix with its verdict.

    Attributes:
        title: the title of the fix.
        code, path, line: the finding; empty for a comparison of two programs.
        before, after: what happened at its lines in each run, in words.
    """

    title: str
    verdict: VerdictName
    reasons: tuple[str, ...]
    code: str = ""
    path: str = ""
    line: int = 0
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Proof:
    """The result of running a program before and after its fixes.

    Attributes:
        holds: whether every fix is proven and no finding remains without a fix.
        fixes: the fixes with their verdicts.
        remaining: the findings of a check of the fixed program.
        found: further findings in the run of the fixed program.
        diff: the changes, as a unified diff.
        data: all data, as `fsdplint prove --json` writes it.
    """

    holds: bool
    fixes: tuple[Proven, ...] = ()
    remaining: tuple[Finding, ...] = ()
    found: tuple[Finding, ...] = ()
    diff: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
