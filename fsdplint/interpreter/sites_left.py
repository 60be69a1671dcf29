"""The sites that no run has reached yet and to which the names in code lead."""

from __future__ import annotations

from collections.abc import Sequence, Set

import libcst as cst

from fsdplint.interpreter.code_behind import CodeBehind
from fsdplint.interpreter.coverage import Coverage
from fsdplint.interpreter.project import Project
from fsdplint.interpreter.run import Run
from fsdplint.source.source import Source
from fsdplint.syntax.api_sites import SiteKind
from fsdplint.syntax.named_sites import names_in


class SitesLeft:
    """Knows the files that the runs of an entry executed, and reads those that these import.

    Args:
        project: its files.
        coverage: what all runs executed so far.
    """

    def __init__(self, project: Project, coverage: Coverage) -> None:
        self._coverage = coverage
        self._executed: dict[str, Source] = {}
        self._code = CodeBehind(project)

    def note(self, run: Run) -> None:
        """Note the files that a run executed."""
        for scope in run.module_scopes.values():
            self._executed.setdefault(scope.source.path, scope.source)

    def are_behind(self, code: Sequence[cst.CSTNode]) -> bool:
        """Whether code has a site that no run has reached, or names in it lead to one."""
        within = self._within(code)
        return (
            self._coverage.count_left(within) > 0
            or self._coverage.count_left(self._behind(code)) > 0
        )

    def shard(self, code: Sequence[cst.CSTNode]) -> bool:
        """Whether code, or what names in it lead to, shards a model."""
        sites = self._within(code) | self._behind(code)
        return SiteKind.SHARDING in self._code.named.kinds_of(sites)

    def _within(self, code: Sequence[cst.CSTNode]) -> Set[cst.CSTNode]:
        for source in self._executed.values():
            self._code.add(source)
        return {site for node in code for site in self._code.named.within(node)}

    def _behind(self, code: Sequence[cst.CSTNode]) -> Set[cst.CSTNode]:
        names = {name for node in code for name in names_in(node)}
        return self._code.behind(names)[0]
