"""The migration of files and folders: what is rewritten, what is written, what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.engine.session import Session
from fsdplint.migration.report.model import Report

RULES = ("FSDP2",)  # what the command selects, above the settings


@dataclass
class Migrated:
    """The result of a migration; nothing is written yet.

    Attributes:
        report: what there is to say about it.
        contents: the old and new content of every file that changes.
    """

    report: Report = field(default_factory=Report)
    contents: dict[Path, tuple[bytes, bytes]] = field(default_factory=dict)


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
    ) -> None:
        """See `Session`."""
        wanted = CommandLine(
            select=RULES,
            target_torch=target_torch,
            project=project,
            unsafe_fixes=unsafe,
            no_baseline=True,
        )
        self.session = Session(arguments, wanted, writes=writes)
        self._proving = [] if target_torch is None else ["--target-torch", target_torch]
        self._proving += ["--unsafe-fixes"] if unsafe else []

    def migrate(self, *, fix: bool = False, annotate: bool = False) -> Migrated:
        """The changes and the report.

        fix: whether the files are changed. annotate: whether comments mark the blockers.
        """
        session = self.session
        migrated = Migrated(Report(wrote=fix, files=len(session.files)))
        if session.groups:
            from fsdplint.engine.migrator import Migrator  # the interpreter and all rules

            report = migrated.report
            migrator = Migrator(session, report, self._proving, fix=fix, annotate=annotate)
            for group in session.groups:
                migrated.contents.update(migrator.migrate(group).contents)
        migrated.contents = dict(sorted(migrated.contents.items()))
        migrated.report.problems = session.sorted_problems()
        return migrated
