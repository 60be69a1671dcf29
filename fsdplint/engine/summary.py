"""The findings of all groups put together: which are reported, and which can be fixed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from fsdplint.diagnostics.coverage import CoveredSite, merge_sites
from fsdplint.diagnostics.finding import Finding, applicable, changed_files, group_of
from fsdplint.engine.group_result import GroupResult, load_sources, merge_findings
from fsdplint.engine.session import Session
from fsdplint.report.result import Result

if TYPE_CHECKING:
    from fsdplint.source.source import Source


def summarize(session: Session, results: Sequence[GroupResult]) -> Result:
    """The enabled findings of all groups of a session, with what is known about fixing them."""
    for one in results:
        session.add_problems(one.problems)
    checked = {path for one in results for path in one.files if path not in one.context}
    context = {path for one in results for path in one.context} - checked
    only_safe = {
        path
        for group, one in zip(session.groups, results, strict=True)
        for path in one.files
        if not session.unsafe_in(group)
    }
    sources = load_sources(results, session.overrides)
    result = with_findings(session, merge_findings(results), sources, context, only_safe)
    result.coverage = _coverage(session, results)
    return result


def _coverage(session: Session, results: Sequence[GroupResult]) -> list[CoveredSite]:
    """The sites in the files of a session; those of other files belong to other programs."""
    files = {str(path) for path in session.files}
    return merge_sites(site for one in results for site in one.coverage if site.at.path in files)


def with_findings(
    session: Session,
    found: Sequence[Finding],
    sources: Mapping[str, Source],
    context: Set[str] = frozenset(),
    only_safe: Set[str] = frozenset(),
) -> Result:
    """The result of a session with these findings, as far as they are enabled.

    Args:
        session: the session.
        found: all findings.
        sources: the files that they are in.
        context: files that were read only for others; their findings are not reported.
        only_safe: files to which unsafe fixes may not be applied.
    """
    enabled = session.filter.enabled_findings(found, sources)
    editable = session.editable
    usable = applicable(found, enabled, editable, unsafe=lambda one: one.site.path not in only_safe)
    usable_unsafe = applicable(found, enabled, editable, unsafe=lambda _: True)
    outside = _uneditable_files(session, found)
    return Result(
        files=len(session.files),
        findings=[one for one in enabled if one.site.path not in context],
        elsewhere=[one for one in enabled if one.site.path in context],
        sources=sources,
        problems=session.sorted_problems(),
        fixable={id(one) for one in usable},
        fixable_unsafe={id(one) for one in usable_unsafe},
        outside={id(one): sorted(outside[_unit(one)]) for one in enabled},
        warnings=[
            *session.recovery_warnings(),
            *session.filter.warnings(sources),
            *_behind_links(session, enabled),
        ],
    )


def _uneditable_files(session: Session, found: Sequence[Finding]) -> dict[str, set[str]]:
    """The files that fixes change and that may not be changed, by what is fixed together."""
    outside: dict[str, set[str]] = {}
    for one in found:
        files = changed_files(one.fix) if one.fix else ()
        missing = {path for path in files if os.path.realpath(path) not in session.editable}
        outside.setdefault(_unit(one), set()).update(missing)
    return outside


def _unit(finding: Finding) -> str:
    return group_of(finding) or str(id(finding))


def _behind_links(session: Session, found: Sequence[Finding]) -> list[str]:
    """Warnings about files that are not changed because a link leads out to them."""
    if not session.linked_out:
        return []
    fixable = {one.site.path: os.path.realpath(one.site.path) for one in found if one.fix}
    return [
        f"{path}: warning: a link leads out of the given paths to it, so that it is not "
        "changed; name it to have it changed"
        for path, real in sorted(fixable.items())
        if real in session.linked_out and real not in session.editable
    ]
