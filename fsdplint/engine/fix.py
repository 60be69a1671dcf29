"""Fixes applied until nothing is left to fix. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, applicable, changed_files, sorted_findings
from fsdplint.edits import apply
from fsdplint.edits.annotations import without_annotations
from fsdplint.engine.check import CheckedProgram, check, load_program
from fsdplint.engine.examine import examine, meta_findings
from fsdplint.engine.requirements import without_bound
from fsdplint.engine.validation import without_harmful_fixes
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rule import Rule

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.files import Problem
    from fsdplint.source.source import Source

MAX_ROUNDS = 10  # one fix may uncover the next


@dataclass
class FixResult:
    """The files after fixing.

    Attributes:
        texts: the new text of every file that changes. Nothing is written.
        applied: the findings whose fixes are in these texts, with locations in the original files
            where the fix was found in the first round.
        remaining: the findings in the new texts that are enabled.
        found: all findings in the new texts.
        problems: files that could not be read.
        sources: the files with their new texts.
        originals: every file that changes, as it was read.
        context: files of `sources` that were read only because they import the others.
        checked: the program before the fixes, and its findings.
    """

    texts: dict[Path, str] = field(default_factory=dict)
    applied: list[Finding] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    found: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    originals: dict[Path, Source] = field(default_factory=dict)
    context: frozenset[str] = frozenset()
    checked: CheckedProgram | None = None


def fix(
    workspace: Workspace, rules: Sequence[Rule], *, codes: Iterable[str] | None = None
) -> FixResult:
    """Apply the fixes of the findings in files, again and again until none is left.

    codes: of the rules whose fixes are applied; all by default.
    """
    rounds = _Rounds(workspace, rules, None if codes is None else set(codes))
    for _ in range(MAX_ROUNDS):
        if not rounds.run():
            break
    return rounds.result()


class _Rounds:
    """Rounds of fixing: each applies the fixes that are found in the texts of the one before."""

    def __init__(self, workspace: Workspace, rules: Sequence[Rule], codes: set[str] | None) -> None:
        self._workspace = replace(workspace, overrides=dict(workspace.overrides))
        self._rules = rules
        self._codes = codes
        self._editable = workspace.editable
        if self._editable is None:
            self._editable = {os.path.realpath(path) for path in workspace.paths}
        self._seen_texts = [self._workspace.overrides]
        self._checked = examine(self._workspace, rules)
        self._found = self._with_meta_findings()
        self._result = FixResult(context=self._checked.context, checked=self._checked)

    @property
    def _program(self) -> Program:
        return self._checked.program

    def run(self) -> bool:
        """Apply the fixes of one round; gives whether another one may find more."""
        usable = self._usable()
        applied = apply.apply(self._program.files, [one.fix for one in usable if one.fix])
        self._remove_annotations(applied)
        if not applied.texts:
            return False
        self._keep(applied, usable)
        self._check_again(applied)
        if self._workspace.overrides in self._seen_texts:  # two fixes undo each other
            return False
        self._seen_texts.append(self._workspace.overrides)
        return True

    def result(self) -> FixResult:
        """The result of all rounds."""
        result, program = self._result, self._program
        result.found = self._found
        result.remaining = self._enabled_findings()
        result.problems = program.problems
        result.sources = program.files
        return result

    def _enabled_findings(self) -> list[Finding]:
        if self._workspace.filter is None:
            return self._found
        return self._workspace.filter.enabled_findings(self._found, self._program.files)

    def _usable(self) -> list[Finding]:
        """The findings whose fixes are applied in this round."""
        assert self._editable is not None
        enabled = [
            one
            for one in self._enabled_findings()
            if self._codes is None or one.rule.code in self._codes
        ]
        unsafe = self._workspace.unsafe
        usable = applicable(self._found, enabled, self._editable, unsafe=lambda _: unsafe)
        checked = self._checked
        if len(usable) < sum(one.fix is not None for one in checked.found):
            # The fixes were tried together with some that are not applied.
            tried = without_harmful_fixes(self._workspace, checked, self._rules, usable)
            self._checked = replace(checked, validated=tried.validated)
        return usable

    def _remove_annotations(self, applied: apply.Applied) -> None:
        """Remove the comments on blockers of a migration from the files that are migrated."""
        groups = [one for one in applied.applied if one.group]
        migrated = {file for one in groups for file in changed_files(one)}
        for name in migrated & applied.sources.keys() & self._program.sources.keys():
            applied.texts[name] = without_annotations(applied.sources[name])

    def _keep(self, applied: apply.Applied, usable: Sequence[Finding]) -> None:
        """Add the applied fixes to the result."""
        texts = dict(self._workspace.overrides)
        for name, text in applied.texts.items():
            self._result.originals.setdefault(Path(name), self._program.files[name])
            texts[Path(name)] = self._result.texts[Path(name)] = text
        self._workspace = replace(self._workspace, overrides=texts)
        if any(one.requirements for one in applied.applied):
            options = self._workspace.options
            options = replace(options, target=without_bound(options.target))
            self._workspace = replace(self._workspace, options=options)
        applied_fixes = set(applied.applied)  # findings of one migration may share a fix
        self._result.applied.extend(one for one in usable if one.fix in applied_fixes)

    def _check_again(self, applied: apply.Applied) -> None:
        """Check the program with its new texts."""
        before, workspace = self._checked, self._workspace
        validated = (one.program for one in before.validated if one.texts == applied.texts)
        program = next(validated, None)
        if program is None:
            program = load_program(workspace, before.importers, earlier=before.program)
            program.projects = before.program.projects
        found = check(program, self._rules, workspace.options)
        checked = replace(before, program=program, found=found, validated=())
        self._checked = without_harmful_fixes(workspace, checked, self._rules)
        self._found = self._with_meta_findings()

    def _with_meta_findings(self) -> list[Finding]:
        found = self._checked.found
        if self._workspace.filter is None:
            return found
        more = meta_findings(self._workspace, self._program, self._rules, found)
        return sorted_findings([*found, *more])
