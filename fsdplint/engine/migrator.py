"""The migration of one group of files: rewrites, annotations and sections of the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.options import Assist, Refused
from fsdplint.diagnostics.coverage import merge_sites
from fsdplint.edits.annotations import with_blocker_comments
from fsdplint.engine.changes import Changes
from fsdplint.engine.check import CheckedProgram
from fsdplint.engine.examine import examine, reported_coverage
from fsdplint.engine.fixer import Fixer
from fsdplint.engine.isolation import run_isolated
from fsdplint.engine.session import Session
from fsdplint.migration.report.model import Report
from fsdplint.migration.report.proof_commands import after_writing, with_options
from fsdplint.migration.report.sections import Sections, name_of
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import all_rules
from fsdplint.source.files import Problem

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

MAX_REFUSALS = 6  # attempts at an assisted migration that the validation refuses
FRAMEWORKS = "FSDP22"  # rules on the FSDP1 settings of frameworks; they belong to no group


def migration_rules() -> list[type[Rule]]:
    """The rules whose fixes make a migration."""
    return [rule for rule in all_rules() if rule.grouped or rule.code.startswith(FRAMEWORKS)]


def _refused_code(program: Program) -> list[Refused]:
    """The code whose rewrite the validation refused."""
    from fsdplint.migration.plan import REFUSALS
    from fsdplint.migration.planner import plans_of

    blockers = [one for plan in plans_of(program) for one in plan.blockers]
    return [
        Refused(one.source.path, *one.source.span(one.node), one.reason)
        for one in blockers
        if one.blocker in REFUSALS.values()
    ]


class Migrator:
    """Migrates the groups of a session, and adds to a report what there is to say."""

    def __init__(
        self,
        session: Session,
        report: Report,
        proving: Sequence[str],
        *,
        fix: bool = False,
        annotate: bool = False,
    ) -> None:
        """
        Args:
            session: the files.
            report: the sections, warnings and names of annotated files are added to it.
            proving: the options of the commands that prove a migration.
            fix: whether the files are changed.
            annotate: whether comments mark the blockers.
        """
        self._session = session
        self._report = report
        self._proving = proving
        self._fix = fix
        self._annotate = annotate
        self._rules = migration_rules()

    def migrate(self, group: Sequence[Path]) -> Changes:
        """The changes to the files of one group."""
        changes = Changes()

        def migrate(paths: Sequence[Path], _: Sequence[Problem]) -> None:
            self._migrate(paths, changes)

        run_isolated(self._session, self._rules, group, migrate)
        return changes

    def _migrate(self, paths: Sequence[Path], changes: Changes) -> None:
        session, report = self._session, self._report
        checked = self._check(paths, changes)
        program, files = checked.program, checked.program.files
        sections = Sections(
            program,
            checked.found,
            lambda one: session.filter.is_enabled(one, files),
            session.editable.__contains__,
            session.unsafe_in(paths),
        )
        sections.leave_out(checked.context)
        known = {(section.group, *section.files) for section in report.sections}
        new = [one for one in sections.all if (one.group, *one.files) not in known]
        report.sections = [*report.sections, *new]
        warnings = [*session.recovery_warnings(), *session.filter.warnings(files)]
        report.warnings = list(dict.fromkeys([*report.warnings, *warnings]))
        session.add_problems(program.problems)
        named = {str(path) for path in session.files}
        sites = [one for one in reported_coverage(program) if one.at.path in named]
        report.coverage = merge_sites([*report.coverage, *sites])
        migrated = {name_of(one) for one in changes.applied}
        for section in sections.all:
            if section.group in migrated:
                section.is_written = True
                after_writing(section)
            else:
                with_options(section, self._proving)
        if self._annotate:
            self._add_annotations(program, sections, changes)

    def _check(self, paths: Sequence[Path], changes: Changes) -> CheckedProgram:
        """The program before the migration; if it is to be fixed, the changes of that are added.

        If the validation refuses an assisted migration, the code that it names raises as well.
        """
        for _ in range(MAX_REFUSALS):
            checked = self._check_once(paths, changes)
            assist = self._session.assist
            if assist is None or checked.program.options.assist is None:
                return checked
            refused = [*assist.refused, *_refused_code(checked.program)]
            if len(refused) == len(assist.refused):
                return checked
            self._session.assist = Assist(tuple(refused))
        return checked

    def _check_once(self, paths: Sequence[Path], changes: Changes) -> CheckedProgram:
        rules = [rule() for rule in self._rules]
        if not self._fix:
            return examine(self._session.workspace(paths), rules)
        fixer = Fixer(self._session, self._rules, changes)
        checked = fixer.fix_files(paths, rules).checked
        assert checked is not None
        return checked

    def _add_annotations(self, program: Program, sections: Sections, changes: Changes) -> None:
        """Put comments into the files that are not migrated."""
        editable = self._session.editable
        for path, source in program.sources.items():
            if Path(path) in changes.contents or os.path.realpath(path) not in editable:
                continue
            marks = [(x.node, x.code, x.reason) for x in sections.marks if x.source is source]
            text = with_blocker_comments(source, marks)
            if text != source.text:
                contents = source.to_bytes(source.text), source.to_bytes(text)
                changes.contents[Path(path)] = contents
                self._report.annotated_files.append(path)
