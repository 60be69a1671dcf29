"""What checking, fixing and proving from Python give (see `fsdplint.api`)."""

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
    """The job could not be done: wrong settings, no such program, nothing to run it with, a file
    that cannot be written."""


@dataclass(frozen=True)
class Edit:
    """Replace a span of a file by `content`. Lines and columns count characters from 1, and the
    end is the first character behind the span."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    content: str
    cell: int | None = None


@dataclass(frozen=True)
class Place:
    """A line of a file; of a notebook, of the cell."""

    path: str
    line: int
    cell: int | None = None


@dataclass(frozen=True)
class Note:
    """What a fix changes in behaviour or cost: what, how much, and where."""

    text: str
    detail: str = ""
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Fix:
    """What mends a finding.

    Attributes:
        applicable: whether `fix` with the same arguments applies it.
        edits: everything that it changes, in all files; a migration has the edits of all of it.
        group: fixes of the same group are applied together or not at all.
        notes: what it changes besides what it mends.
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
    """A further place that makes a finding, and what happens there."""

    path: str
    line: int
    column: int
    message: str
    cell: int | None = None


@dataclass(frozen=True)
class Finding:
    """One violation at one place. Lines and columns count characters from 1.

    Attributes:
        cell: the cell of a notebook that lines are counted in, from 1; None in other files.
        help: what to do about it.
        url: the page of its rule; empty where a plug-in's rule has none.
        configuration: the conditions under which it holds; empty where it always does.
        group: the group of fixes that it belongs to.
        blocker: why that group cannot be rewritten, where this finding is what prevents it.
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
    """What kept a file from being checked, or a plug-in from checking."""

    code: str
    name: str
    path: str
    line: int | None
    message: str
    hint: str


@dataclass(frozen=True)
class Checked:
    """What a check came to.

    Attributes:
        findings: sorted by place.
        problems: what could not be checked.
        warnings: lines on comments that turn off a rule that there is not.
    """

    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything could be checked and nothing was found."""
        return not self.findings and not self.problems


@dataclass(frozen=True)
class Change:
    """A file that fixing changes: its text before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Fixed:
    """What fixing came to. Nothing is written yet: see `write`.

    Attributes:
        changes: the files that change.
        fixed: the findings that are mended, at their places before.
        remaining: what is found after it.
        problems: what could not be checked.
    """

    changes: tuple[Change, ...] = ()
    fixed: tuple[Finding, ...] = ()
    remaining: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    _contents: tuple[NewContent, ...] = field(default=(), repr=False, compare=False)

    def write(self) -> None:
        """Write all changed files, or none. A write that was interrupted since is completed first.

        Raises:
            FsdplintError: one of them, which it names, cannot be written, or is not what it was;
                all are as before.
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
        title: what was done.
        code, path, line: the finding; empty for a comparison of two programs.
        before, after: what happened at its lines in either run, in words.
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
    """What running a program before and after its fixes showed.

    Attributes:
        holds: whether all is proven and nothing was found that has no fix.
        fixes: the verdicts.
        remaining: what a check of the fixed program finds.
        found: what else the rules find in the run of the fixed program.
        diff: what was changed.
        data: everything, as `fsdplint prove --json` writes it.
    """

    holds: bool
    fixes: tuple[Proven, ...] = ()
    remaining: tuple[Finding, ...] = ()
    found: tuple[Finding, ...] = ()
    diff: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
