"""The result of checking a group of files, which processes exchange and the cache stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdplint.diagnostics.coverage import CoveredSite
from fsdplint.diagnostics.finding import Edit, Finding, Fix, Import, Note, Safety, sorted_findings
from fsdplint.discovery.importers import ImportQueries
from fsdplint.source.files import Problem, Unreadable, open_source
from fsdplint.trace import FixedSite, Guard, GuardKind, Location, Ranks, Site

if TYPE_CHECKING:
    from fsdplint.source.source import Source


@dataclass
class GroupResult:
    """The result of checking a group of files.

    Attributes:
        found: all findings, also disabled ones; without their events.
        files: every file that was read, by the path that is reported.
        context: those of them that were read only because they import the others.
        problems: files that could not be read, and rules of plug-ins that raised.
        asked: whether there are the files that decided what an import means.
        queries: about other files of the project.
        sources: the files, if they were read in this process.
        coverage: the sites of the contract's API in the files.
    """

    found: list[Finding] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    context: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    asked: dict[str, bool] = field(default_factory=dict)
    queries: ImportQueries = field(default_factory=ImportQueries)
    sources: Mapping[str, Source] = field(default_factory=dict)
    coverage: list[CoveredSite] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            "found": [_finding_data(one) for one in self.found],
            "files": self.files,
            "context": self.context,
            "problems": [asdict(one) for one in self.problems],
            "asked": self.asked,
            "queries": asdict(self.queries),
            "coverage": [asdict(one) for one in self.coverage],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> GroupResult:
        """The result that `as_data` was made of.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it was not made by this version.
        """
        return cls(
            [_finding(one) for one in data["found"]],
            list(data["files"]),
            list(data["context"]),
            [Problem(**one) for one in data["problems"]],
            dict(data["asked"]),
            ImportQueries(**data["queries"]),
            coverage=[_covered_site(one) for one in data["coverage"]],
        )


def without_trace(finding: Finding) -> Finding:
    """The finding without the trace that it was found in."""
    return replace(
        finding,
        site=_fixed_site(finding.site),
        events=(),
        related=tuple((_fixed_site(site), word) for site, word in finding.related),
        cause=None,
        configuration=tuple(replace(guard, site=None) for guard in finding.configuration),
    )


def _fixed_site(site: Site) -> FixedSite:
    return FixedSite(site.location())


def merge_findings(results: Iterable[GroupResult]) -> list[Finding]:
    """The findings of several groups, each once. If two groups find the same in a file that both
    use, it is given with the fewest conditions."""
    merged: dict[tuple[str, Location], Finding] = {}
    for result in results:
        for one in result.found:
            key = (one.rule.code, one.site.location())
            existing = merged.get(key)
            if existing is None or len(one.configuration) < len(existing.configuration):
                merged[key] = one
    return sorted_findings(merged.values())


def load_sources(
    results: Iterable[GroupResult], overrides: Mapping[Path, str]
) -> dict[str, Source]:
    """The files of all groups that can be read; those that another process read are not parsed."""
    found: dict[str, Source] = {}
    for result in results:
        found.update(result.sources)
        for path in result.files:
            if path not in found:
                try:
                    found[path] = open_source(Path(path), overrides.get(Path(path)))
                except Unreadable:
                    continue
    return found


# Findings as data -------------------------------------------------------------------------------


def _finding_data(finding: Finding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "code": finding.rule.code,
        "at": asdict(finding.site.location()),
        "message": finding.message,
        "help": finding.help,
        "why": finding.why,
        "related": [[asdict(site.location()), word] for site, word in finding.related],
        "configuration": [
            [guard.kind.value, guard.text, guard.holds, guard.ranks.value, guard.asserted]
            for guard in finding.configuration
        ],
        "one_of_several": finding.one_of_several,
        "group": finding.group,
        "blocker": finding.blocker,
        "blocker_codes": finding.blocker_codes,
        "missing_torch": finding.missing_torch,
        "fix": None if fix is None else _fix_data(fix),
    }


def _fix_data(fix: Fix) -> dict[str, Any]:
    changed = {"safety": fix.safety.value, "requirements": sorted(fix.requirements)}
    return {**asdict(fix), **changed}


def _finding(data: Mapping[str, Any]) -> Finding:
    from fsdplint.registry.rules import rule_by_code

    rule = rule_by_code(data["code"])
    if rule is None:
        raise ValueError(data["code"])
    return Finding(
        rule=rule,
        site=_site(data["at"]),
        message=data["message"],
        help=data["help"],
        why=data["why"],
        related=tuple((_site(site), word) for site, word in data["related"]),
        configuration=tuple(
            Guard(GuardKind(kind), text, holds, None, Ranks(ranks), asserted)
            for kind, text, holds, ranks, asserted in data["configuration"]
        ),
        one_of_several=data["one_of_several"],
        group=data["group"],
        blocker=data["blocker"],
        blocker_codes=tuple(data["blocker_codes"]),
        missing_torch=data["missing_torch"],
        fix=None if data["fix"] is None else _fix(data["fix"]),
    )


def _covered_site(data: Mapping[str, Any]) -> CoveredSite:
    return CoveredSite(**{**data, "at": Location(**data["at"])})


def _note(data: Mapping[str, Any]) -> Note:
    places = tuple(Location(**one) for one in data["places"])
    return Note(data["text"], data["detail"], places)


def _site(data: Mapping[str, Any]) -> FixedSite:
    return FixedSite(Location(**data))


def _fix(data: Mapping[str, Any]) -> Fix:
    return Fix(
        data["title"],
        Safety(data["safety"]),
        tuple(Edit(**one) for one in data["edits"]),
        tuple((path, Import(**one)) for path, one in data["imports"]),
        data["group"],
        tuple((path, name) for path, name in data["maybe_unused_imports"]),
        tuple((path, start, end) for path, start, end in data["depends_on"]),
        tuple(_note(one) for one in data["notes"]),
        data["same_objects"],
        tuple((path, code) for path, code in data["undecided"]),
        frozenset(data["requirements"]),
    )
