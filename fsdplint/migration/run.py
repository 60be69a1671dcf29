"""A run of the rules of the migration: what is rewritten, what is written, what is said."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.report.migration import Report
from fsdplint.run import Run
from fsdplint.settings import CommandLine

if TYPE_CHECKING:
    from fsdplint.migration.sections import Sections
    from fsdplint.program import Program
    from fsdplint.rule import Rule

RULES = ("FSDP2",)  # what the command selects, above the settings
FRAMEWORKS = "FSDP22"  # rules on what frameworks are told of FSDP1; they belong to no group


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
        if self.paths:
            self._deep(self.paths, lambda sound, _: self._migrate(sound, migrated, fix, annotate))
        migrated.report.problems = self._sorted_problems()
        return migrated

    def _rules(self) -> list[Rule]:
        from fsdplint.rule import all_rules

        return [rule() for rule in all_rules() if rule.grouped or rule.code.startswith(FRAMEWORKS)]

    def _migrate(
        self, paths: Sequence[Path], migrated: Migrated, fix: bool, annotate: bool
    ) -> None:
        from fsdplint import engine
        from fsdplint.editing import edits
        from fsdplint.editing.annotations import without_annotations
        from fsdplint.migration.proof import after_writing, with_options
        from fsdplint.migration.sections import Sections

        seen = engine.examine(
            paths,
            self._rules(),
            self.options,
            overrides=self.overrides,
            callers=self.callers,
            projects=self.projects,
        )
        program, files = seen.program, seen.program.files
        sections = Sections(
            program,
            seen.found,
            lambda one: self.counting.counts(one, files),
            self.editable,
            self.unsafe,
        )
        sections.leave_out(seen.context)
        report = migrated.report
        report.sections = sections.all
        report.warnings = [*self._completion(), *self.counting.warnings(files)]
        self._add_problems(program.problems)
        texts: dict[str, str] = {}
        if fix:
            ready = [one for one in sections.all if not one.blocked and not one.outside]
            fixes = [sections.fixes[section.group] for section in ready]
            texts = edits.apply(files, fixes).texts
            for path, text in texts.items():
                if path in program.sources:
                    texts[path] = without_annotations(files[path].renewed(text))
            for section in ready:
                section.applied = True
                after_writing(section)
        for section in sections.all:
            if not section.applied:
                with_options(section, self._proving)
        if annotate:
            self._annotate(program, sections, texts, report)
        for path, text in sorted(texts.items()):
            source = files[path]
            if text != source.text:
                old = source.to_bytes(source.text)
                migrated.contents[Path(path)] = old, source.to_bytes(text)

    def _annotate(
        self, program: Program, sections: Sections, texts: dict[str, str], report: Report
    ) -> None:
        """Put the comments into the files that are not migrated."""
        from fsdplint.editing.annotations import annotated

        for path, source in program.sources.items():
            if path in texts or not self.editable(os.path.realpath(path)):
                continue
            marks = [(x.node, x.code, x.reason) for x in sections.marks if x.source is source]
            text = annotated(source, marks)
            if text != source.text:
                texts[path] = text
                report.annotated.append(path)
