"""What can be done with a session.

The engine is imported only if some file can matter: a tree without FSDP needs neither the
interpreter nor the rules, whose imports take longer than all else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.engine.changes import Changes
from fsdplint.engine.session import Session
from fsdplint.report.result import Result

if TYPE_CHECKING:
    from fsdplint.engine.cache import Cache
    from fsdplint.engine.workspace import Effort


def check_files(
    session: Session,
    *,
    processes: int = 1,
    cache: Cache | None = None,
    effort: Effort | None = None,
) -> Result:
    """The findings in the files of a session.

    Args:
        session: the files.
        processes: how many processes may be used.
        cache: the results of earlier checks.
        effort: how much work is wanted; all by default.
    """
    if not session.groups:
        return _without_findings(session)
    from fsdplint.engine.checker import Checker

    return Checker(session, processes=processes, cache=cache, effort=effort).check()


def fix_files(
    session: Session,
    *,
    processes: int = 1,
    cache: Cache | None = None,
    effort: Effort | None = None,
) -> Changes:
    """The changes that fixing the files of a session makes. Nothing is written.

    The arguments are those of `check_files`.
    """
    if not session.groups:
        return Changes(result=_without_findings(session))
    from fsdplint.engine.checker import Checker
    from fsdplint.engine.fixer import Fixer

    checker = Checker(session, processes=processes, cache=cache, effort=effort)
    return Fixer(session).fix(checker)


def _without_findings(session: Session) -> Result:
    return Result(
        files=len(session.files),
        problems=session.sorted_problems(),
        warnings=session.recovery_warnings(),
    )
