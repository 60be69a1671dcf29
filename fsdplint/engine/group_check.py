"""The check of one group of files. This imports the interpreter and all rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsdplint.discovery.importers import ImportQueries
from fsdplint.engine.check import rule_failures
from fsdplint.engine.examine import examine, meta_findings, reported_coverage
from fsdplint.engine.group_result import GroupResult, without_trace
from fsdplint.engine.isolation import run_isolated
from fsdplint.engine.session import Session
from fsdplint.engine.workspace import Effort
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import all_rules
from fsdplint.source.files import Problem


class GroupChecker:
    """Checks the groups of a session, each by itself."""

    def __init__(self, session: Session, effort: Effort) -> None:
        self._session = session
        self._effort = effort
        self._rules = wanted_rules(session)

    def check(self, paths: Sequence[Path]) -> GroupResult:
        """The result of one group."""
        return run_isolated(self._session, self._rules, paths, self._check)

    def _check(self, paths: Sequence[Path], defects: Sequence[Problem]) -> GroupResult:
        session, rules = self._session, [rule() for rule in self._rules]
        session.projects.queries = queries = ImportQueries()
        workspace = session.workspace(paths, self._effort)
        checked = examine(workspace, rules)
        program = checked.program
        found = [*checked.found, *meta_findings(workspace, program, rules, checked.found)]
        return GroupResult(
            [without_trace(one) for one in found],
            [*program.files, *program.settings_files, *sorted(checked.searched)],
            sorted(checked.context | checked.searched),
            [*defects, *program.problems, *rule_failures(rules)],
            program.file_queries,
            queries,
            program.files,
            reported_coverage(program),
        )


def wanted_rules(session: Session) -> list[type[Rule]]:
    """The rules that are on in some file, and those whose fixes go together with theirs.

    A finding of such another rule is not reported where the rule is off, but its group is not fixed
    either.
    """
    settings = [session.settings_of(path) for path in session.paths]
    selections = {id(one): one.selection for one in settings}
    on = [
        rule
        for rule in all_rules()
        if any(selection.has(rule.code) for selection in selections.values())
    ]
    grouped = any(rule.grouped for rule in on)
    return [rule for rule in all_rules() if rule in on or (grouped and rule.grouped)]
