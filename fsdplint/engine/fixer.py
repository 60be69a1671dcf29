"""The fixes of all groups of a session. Nothing is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fsdplint.engine.changes import Changes
from fsdplint.engine.check import rule_failures
from fsdplint.engine.checker import Checker, note_setup_problems
from fsdplint.engine.fix import FixResult, fix
from fsdplint.engine.group_check import wanted_rules
from fsdplint.engine.group_result import GroupResult, without_trace
from fsdplint.engine.isolation import run_isolated
from fsdplint.engine.progress import PROGRESS
from fsdplint.engine.session import Session
from fsdplint.engine.summary import summarize
from fsdplint.registry.rule import Rule
from fsdplint.source.files import NOTEBOOK, Problem


class Fixer:
    """Fixes the files of a session.

    Attributes:
        changes: the changes so far.
    """

    def __init__(
        self,
        session: Session,
        rules: Sequence[type[Rule]] | None = None,
        changes: Changes | None = None,
    ) -> None:
        """
        Args:
            session: the files.
            rules: those whose findings are fixed; by default those that the settings enable.
            changes: the changes that those of the files are added to.
        """
        self._session = session
        self._rules = wanted_rules(session) if rules is None else rules
        self.changes = changes or Changes()

    def fix(self, checker: Checker) -> Changes:
        """Fix all files.

        checker: checks them before, so that a group without a fix is not loaded once more.
        """
        session, changes = self._session, self.changes
        note_setup_problems(session)
        checked = checker.group_results() if len(session.groups) > 1 else None
        results: list[GroupResult] = []
        PROGRESS.begin("fixing", len(session.groups))
        for number, group in enumerate(session.groups):
            one = None if checked is None else checked[number]
            if one is None or any(finding.fix is not None for finding in one.found):
                one = run_isolated(session, self._rules, group, self._fix_group)
            results.append(one)
            PROGRESS.advance()
        changes.texts = dict(sorted(changes.texts.items()))
        changes.contents = dict(sorted(changes.contents.items()))
        changes.result = summarize(session, results)
        changes.result.fixed = len(changes.applied)
        changes.result.changed_outside = [
            str(path) for path in changes.texts if os.path.realpath(path) not in session.given
        ]
        return changes

    def _fix_group(self, paths: Sequence[Path], defects: Sequence[Problem]) -> GroupResult:
        rules = [rule() for rule in self._rules]
        fixed = self.fix_files(paths, rules)
        return GroupResult(
            [without_trace(one) for one in fixed.found],
            list(fixed.sources),
            sorted(fixed.context),
            [*defects, *fixed.problems, *rule_failures(rules)],
            sources=fixed.sources,
        )

    def fix_files(self, paths: Sequence[Path], rules: Sequence[Rule]) -> FixResult:
        """Fix the files of one group, and add what changes to the changes."""
        session, changes = self._session, self.changes
        fixed = fix(session.workspace(paths), rules)
        for path in sorted(fixed.texts):
            source, after = fixed.originals[path], fixed.texts[path]
            before = source.text
            if after == before:
                continue
            contents = session.encode_text(source, before), session.encode_text(source, after)
            changes.contents[path] = contents
            if path.suffix == NOTEBOOK:  # a diff shows the file, not the code in its cells
                before, after = (one.decode("utf-8", "surrogateescape") for one in contents)
            else:
                session.overrides[path] = after  # other groups read the fixed text
            changes.texts[path] = (before, after)
        changes.applied += fixed.applied
        return fixed
