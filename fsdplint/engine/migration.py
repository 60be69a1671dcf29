"""A run of the rules of the migration: what is rewritten, what is written, what is said."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.settings import CommandLine
from fsdplint.engine.session import Changes, Run
from fsdplint.migration.report.model import Report
from fsdplint.source.files import Problem

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
    from fsdplint.engine.fixpoint import Examined
    from fsdplint.interpreter import Program
    from fsdplint.migration.report.sections import Sections
    from fsdplint.registry.rule import Rule

RULES = ("FSDP2",)  # what the command selects, above the settings
FRAMEWORKS = "FSDP22"  # rules on what frameworks are told of FSDP1; they belong to no group


def migration_rules() -> list[type[Rule]]:
    """The rules whose fixes make a migration."""
    from fsdplint.registry.rules import all_rules

    return [rule for rule in all_rules() if rule.grouped or rule.code.startswith(FRAMEWORKS)]


@dataclass
class Migrated:
    """What a migration comes to; nothing is written yet.

    Attributes:
        report: what there is to say about it.
        contents: the old and new content of every file that changes.
    """

    report: Report = field(default_factory=Report)
    contents: dict[Path, tuple[bytes, bytes]] = field(default_factory=dict)


class MigrationRun(Run):
    """A run of the rules of the migration only."""

    def __init__(
        self,
        arguments: Sequence[Path],
        target_torch: str | None = None,
        *,
        project: bool = False,
        unsafe: bool | None = None,
        writes: bool = False,
    ) -> None:
        """See `Run`."""
        wanted = CommandLine(
            select=RULES,
            target_torch=target_torch,
            project=project,
            unsafe_fixes=unsafe,
            no_baseline=True,
        )
        super().__init__(arguments, wanted, writes=writes)
        self._proving = [] if target_torch is None else ["--target-torch", target_torch]
        self._proving += ["--unsafe-fixes"] if unsafe else []

    def migrate(self, *, fix: bool = False, annotate: bool = False) -> Migrated:
        """Work the migration out.

        fix: whether the files are to be changed. annotate: whether comments are to mark the
            blockers.
        """
        migrated = Migrated(Report(wrote=fix, files=len(self.files)))
        for group in self._groups:
            changes = Changes()
            job = partial(self._migrate, migrated, changes, fix, annotate)
            self._deep(group, job)
            migrated.contents.update(changes.contents)
        migrated.contents = dict(sorted(migrated.contents.items()))
        migrated.report.problems = self._sorted_problems()
        return migrated

    def _rules(self) -> list[Rule]:
        return [rule() for rule in migration_rules()]

    def _migrate(
        self,
        migrated: Migrated,
        changes: Changes,
        fix: bool,
        annotate: bool,
        paths: Sequence[Path],
        _: Sequence[Problem],
    ) -> None:
        """Migrate files that belong together."""
        from fsdplint.migration.report.proof_commands import after_writing, with_options
        from fsdplint.migration.report.sections import Sections, name_of

        seen, applied = self._seen(paths, changes, fix)
        program, files = seen.program, seen.program.files
        sections = Sections(
            program,
            seen.found,
            lambda one: self.counting.counts(one, files),
            self.editable,
            self.unsafe_in(paths),
        )
        sections.leave_out(seen.context)
        report = migrated.report
        known = {(section.group, *section.files) for section in report.sections}
        new = [one for one in sections.all if (one.group, *one.files) not in known]
        report.sections = [*report.sections, *new]
        warnings = [*self._completion(), *self.counting.warnings(files)]
        report.warnings = list(dict.fromkeys([*report.warnings, *warnings]))
        self._add_problems(program.problems)
        done = {name_of(one) for one in applied}
        for section in sections.all:
            if section.group in done:
                section.applied = True
                after_writing(section)
            else:
                with_options(section, self._proving)
        if annotate:
            self._annotate(program, sections, changes, report)

    def _seen(
        self, paths: Sequence[Path], changes: Changes, fix: bool
    ) -> tuple[Examined, Sequence[Finding]]:
        """What there is to migrate, and the findings that fixing it settles."""
        from fsdplint.engine import fixpoint

        if fix:
            fixed = self._fixed(paths, self._rules(), changes)
            assert fixed.examined is not None
            return fixed.examined, fixed.applied
        seen = fixpoint.examine(
            paths,
            self._rules(),
            self.options_of(paths),
            overrides=self.overrides,
            callers=self.callers,
            projects=self.projects,
        )
        return seen, ()

    def _annotate(
        self, program: Program, sections: Sections, changes: Changes, report: Report
    ) -> None:
        """Put the comments into the files that are not migrated."""
        from fsdplint.edits.annotations import with_blocker_comments

        for path, source in program.sources.items():
            if Path(path) in changes.contents or not self.editable(os.path.realpath(path)):
                continue
            marks = [(x.node, x.code, x.reason) for x in sections.marks if x.source is source]
            text = with_blocker_comments(source, marks)
            if text != source.text:
                contents = source.to_bytes(source.text), source.to_bytes(text)
                changes.contents[Path(path)] = contents
                report.annotated.append(path)
