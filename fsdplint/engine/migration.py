"""The migration of files and folders: what is rewritten, what is written, what is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.config.options import Assist
from fsdplint.engine.progress import PROGRESS
from fsdplint.engine.session import Session
from fsdplint.migration.report.model import OpenPlace, Report, Section
from fsdplint.source.files import Unreadable, open_source

PREFIX = "fsdplint: "  # of the message that an open place raises
RULES = ("FSDP2",)  # what the command selects, above the settings


Contents = dict[Path, tuple[bytes, bytes]]
Accept = Callable[[Sequence[Section], Contents], bool]


@dataclass
class Migrated:
    """The result of a migration; nothing is written yet.

    Attributes:
        report: what there is to say about it.
        contents: the old and new content of every file that changes.
    """

    report: Report = field(default_factory=Report)
    contents: Contents = field(default_factory=dict)


class MigrationRun:
    """A migration of files and folders.

    Attributes:
        session: the files.
    """

    def __init__(
        self,
        arguments: Sequence[Path],
        target_torch: str | None = None,
        *,
        project: bool = False,
        unsafe: bool | None = None,
        writes: bool = False,
        assist: bool = False,
        files: CommandLine | None = None,
    ) -> None:
        """See `Session`.

        assist: whether code that blocks is replaced by statements that raise.
        files: the settings of the command line about which files are taken.
        """
        wanted = replace(
            files or CommandLine(),
            select=RULES,
            target_torch=target_torch,
            project=project,
            unsafe_fixes=unsafe,
            no_baseline=True,
        )
        self.session = Session(arguments, wanted, writes=writes)
        self.session.assist = Assist() if assist else None
        self._proving = [] if target_torch is None else ["--target-torch", target_torch]
        self._proving += ["--unsafe-fixes"] if unsafe else []

    def migrate(
        self, *, fix: bool = False, annotate: bool = False, accept: Accept | None = None
    ) -> Migrated:
        """The changes and the report.

        Args:
            fix: whether the files are changed.
            annotate: whether comments mark the blockers.
            accept: whether the changes to files that belong together are wanted; by default all.
        """
        session = self.session
        migrated = Migrated(Report(wrote=fix, files=len(session.files)))
        if session.groups:
            from fsdplint.engine.migrator import Migrator  # the interpreter and all rules

            report = migrated.report
            migrator = Migrator(session, report, self._proving, fix=fix, annotate=annotate)
            PROGRESS.begin("migrating", len(session.groups))
            for group in session.groups:
                before = replace(report)
                contents = migrator.migrate(group).contents
                if contents and accept is not None:
                    new = report.sections[len(before.sections) :]
                    if not accept(new, dict(sorted(contents.items()))):
                        self._refuse(report, before, group, contents)
                        contents = {}
                migrated.contents.update(contents)
                PROGRESS.advance()
        migrated.contents = dict(sorted(migrated.contents.items()))
        migrated.report.open = self._open_places(migrated)
        migrated.report.problems = session.sorted_problems()
        return migrated

    def _refuse(
        self, report: Report, before: Report, group: Sequence[Path], contents: Contents
    ) -> None:
        """Leave the files of a group as they are, and report on them as without --fix."""
        from fsdplint.engine.migrator import Migrator

        for path in contents:
            self.session.overrides.pop(path, None)
        for one in fields(report):
            setattr(report, one.name, getattr(before, one.name))
        Migrator(self.session, report, self._proving).migrate(group)

    def _open_places(self, migrated: Migrated) -> list[OpenPlace]:
        """The code that raises since an earlier assisted migration, in files without a section."""
        known = {path for section in migrated.report.sections for path in section.files}
        found = []
        for path in self.session.files:
            if str(path) not in known and PREFIX.encode() in _content(path):
                try:
                    found.append(open_source(path))
                except Unreadable:
                    continue
        if not found:
            return []
        from fsdplint.migration.report.open_places import of_sources

        return of_sources(found)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
