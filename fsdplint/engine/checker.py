"""The check of all groups of a session, by worker processes and with the cache."""

from __future__ import annotations

from collections.abc import Sequence

from fsdplint.diagnostics import plugins
from fsdplint.engine.cache import Cache
from fsdplint.engine.cached import CachedSession
from fsdplint.engine.group_result import GroupResult
from fsdplint.engine.session import Session
from fsdplint.engine.summary import summarize
from fsdplint.engine.workers import Group, check_groups
from fsdplint.engine.workspace import COMPLETE, Effort
from fsdplint.report.result import Result


class Checker:
    """Checks the files of a session."""

    def __init__(
        self,
        session: Session,
        *,
        processes: int = 1,
        cache: Cache | None = None,
        effort: Effort | None = None,
    ) -> None:
        """
        Args:
            session: the files.
            processes: how many processes may be used.
            cache: the results of earlier checks.
            effort: how much work is wanted; all by default.
        """
        self._session = session
        self._processes = processes
        self._cache = cache
        self._effort = effort or COMPLETE

    def check(self) -> Result:
        """The findings in all files."""
        note_setup_problems(self._session)
        return summarize(self._session, self.group_results())

    def group_results(self) -> list[GroupResult]:
        """The results of all groups, in order."""
        groups = self._session.groups
        # It is not known what rules of plug-ins read, nor what those would find that are broken.
        if self._cache is None or self._session.overrides or plugins.plugins() != plugins.Plugins():
            return self._check_groups(groups)
        cached = CachedSession(self._session, self._cache)
        known = cached.load(groups)
        rest = [group for group, one in zip(groups, known, strict=True) if one is None]
        new = self._check_groups(rest)
        cached.store(rest, new)
        remaining = iter(new)
        return [next(remaining) if one is None else one for one in known]

    def _check_groups(self, groups: Sequence[Group]) -> list[GroupResult]:
        if not groups:
            return []
        from fsdplint.engine.group_check import GroupChecker  # the interpreter and all rules

        return check_groups(
            groups, GroupChecker(self._session, self._effort).check, self._processes
        )


def note_setup_problems(session: Session) -> None:
    """Add what is wrong with plug-ins and with requirements to the problems of a session.

    This happens before the groups are checked, which other processes may do.
    """
    session.add_problems(plugins.plugins().problems)
    for group in session.groups:
        session.options_of(group)
