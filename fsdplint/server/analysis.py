"""Findings in the files of a workspace, with the texts that the editor has.

A *root* is a file that is checked together with the files that it imports or that its migration
changes. The findings in a document come from every root that reads it: the document itself and the
files that import it. A change first rechecks one root; the other roots follow.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsdplint.config.command_line import CommandLine
from fsdplint.diagnostics.finding import Edit, Finding, group_of
from fsdplint.engine.operations import check_files, fix_files
from fsdplint.engine.session import Session
from fsdplint.engine.workspace import Effort
from fsdplint.report.result import Result
from fsdplint.server.index import Index, overlaid
from fsdplint.source.files import Problem
from fsdplint.source.source import Source
from fsdplint.trace import FixedSite, Location

Stop = Callable[[], bool]
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
MAX_IMPORTERS = 20  # files that are checked because they import an open document


@dataclass(frozen=True)
class FileFinding:
    """A finding, with the text of its file at the time of the check.

    Attributes:
        finding: its site is a `FixedSite`.
    """

    finding: Finding
    text: str

    @property
    def at(self) -> Location:
        return self.finding.site.location()

    @property
    def key(self) -> tuple[object, ...]:
        at = self.at
        return self.finding.rule.code, at.line, at.column, at.end_line, at.end_column


@dataclass
class RootResult:
    """The result of checking one root.

    Attributes:
        texts: the texts of the open documents at the time of the check.
        findings: the findings, by the real paths of their files.
        read_files: the real paths of all files that were read.
        result: the result of the engine; None if no fixes were computed.
    """

    texts: Mapping[str, str]
    findings: dict[str, list[FileFinding]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    read_files: frozenset[str] = frozenset()
    result: Result | None = None


@dataclass(frozen=True)
class IndexSearch:
    """Looks up importers in the index of the workspace until `stop` returns True."""

    index: Index
    stop: Stop

    def importers(self, targets: Iterable[Path], limit: int) -> list[Path]:
        return self.index.importers(targets, limit, self.stop)


class RootChecker:
    """Checks roots, and caches sources and results for the next check."""

    def __init__(self, command_line: CommandLine | None = None) -> None:
        self.command_line = replace(command_line or CommandLine(), project=True, force_exclude=True)
        self.index = Index()
        self._sources: dict[str, Source] = {}
        self._with_fixes: dict[str, RootResult] = {}

    def forget(self) -> None:
        """Drop what depends on files on the disk: some of them changed."""
        self.index.forget()
        self._with_fixes.clear()

    def text(self, path: str) -> str | None:
        """The text of a file when it was last read; None if it never was."""
        source = self._sources.get(path)
        return None if source is None else source.text

    def check(self, root: str, documents: Mapping[str, str], stop: Stop) -> RootResult:
        """Check a root without computing fixes.

        Raises:
            Stopped: `stop` returned True.
            SettingsError: the settings are invalid.
        """
        return self._check(root, documents, stop, fixes=False)

    def check_with_fixes(self, root: str, documents: Mapping[str, str], stop: Stop) -> RootResult:
        """Check a root and compute fixes; the result is cached until a text changes."""
        cached = self._with_fixes.get(root)
        if cached is None or cached.texts != documents:
            cached = self._with_fixes[root] = self._check(root, documents, stop, fixes=True)
        return cached

    def _check(
        self, root: str, documents: Mapping[str, str], stop: Stop, *, fixes: bool
    ) -> RootResult:
        self._update_index(documents)
        checked = RootResult(dict(documents))
        if not self.index.matters(root, stop):
            return checked
        effort = Effort(fixes, self._sources, stop)
        session = self._session(root, self.command_line, documents, stop)
        result = check_files(session, effort=effort)
        self._store_sources(result)
        checked.problems = list(result.problems)
        checked.read_files = frozenset(map(os.path.realpath, result.sources))
        for finding in result.findings:
            path = os.path.realpath(finding.site.path)
            text = result.sources[finding.site.path].text
            checked.findings.setdefault(path, []).append(FileFinding(finding, text))
        if fixes:
            checked.result = result
        else:  # drop the syntax trees: only the places are needed
            for several in checked.findings.values():
                several[:] = [FileFinding(_without_trace(one.finding), one.text) for one in several]
        return checked

    def _session(
        self, root: str, command_line: CommandLine, documents: Mapping[str, str], stop: Stop
    ) -> Session:
        """The engine's session for one root, with the texts of the documents."""
        importers = IndexSearch(self.index, stop)
        overlays = overlaid(documents)
        return Session([Path(root)], command_line, overlays=overlays, importers=importers)

    def _store_sources(self, result: Result) -> None:
        for path, source in result.sources.items():
            if isinstance(source, Source):
                source.typed_in = True
                self._sources[path] = source

    def fix(
        self, root: str, documents: Mapping[str, str], stop: Stop, *, project: bool
    ) -> dict[str, tuple[str, str]]:
        """Apply all fixes that are found from a root; returns old and new text by real path."""
        self._update_index(documents)
        if not self.index.matters(root, stop):
            return {}
        command_line = replace(self.command_line, project=project)
        effort = Effort(True, self._sources, stop)
        session = self._session(root, command_line, documents, stop)
        changes = fix_files(session, effort=effort)
        return {os.path.realpath(path): texts for path, texts in changes.texts.items()}

    def importers(self, path: str, documents: Mapping[str, str], stop: Stop) -> list[str]:
        """The files that import `path` and must be checked again when it changes."""
        self._update_index(documents)
        importers = self.index.importers([Path(path)], MAX_IMPORTERS, stop)
        return [os.path.realpath(one) for one in importers]

    def _update_index(self, documents: Mapping[str, str]) -> None:
        for path in self.index.documents - set(documents):
            self.index.set_document(path, None)
        for path, text in documents.items():
            self.index.set_document(path, text)


def _without_trace(finding: Finding) -> Finding:
    related = tuple((FixedSite(site.location()), word) for site, word in finding.related)
    site = FixedSite(finding.site.location())
    return replace(finding, site=site, related=related, events=())


# Merging -----------------------------------------------------------------------------------------


def merge_findings(path: str, text: str, roots: Iterable[RootResult]) -> list[FileFinding]:
    """The findings of all roots in a file, without duplicates, at their places in `text`.

    A finding in an earlier text is kept as long as its lines are unchanged.
    """
    chosen: dict[tuple[object, ...], FileFinding] = {}
    readers = [root for root in roots if path in root.read_files]
    line_maps: dict[str, Mapping[int, int]] = {}
    for root in readers:
        for item in root.findings.get(path, ()):
            current: FileFinding | None = item
            if item.text != text:
                if item.text not in line_maps:
                    line_maps[item.text] = _unchanged_lines(item.text, text)
                current = _move(item, text, line_maps[item.text])
            if current is None:
                continue
            other = chosen.get(current.key)
            if other is None or _conditions(current) < _conditions(other):
                chosen[current.key] = current
    return [
        item
        for item in sorted(chosen.values(), key=lambda item: (item.at, item.finding.rule.code))
        if not item.finding.rule.all_configurations
        or all(_confirms(root, path, item) for root in readers)
    ]


def _conditions(item: FileFinding) -> int:
    return len(item.finding.configuration)


def _confirms(root: RootResult, path: str, one: FileFinding) -> bool:
    """Whether a root has the same finding; True for a root that read another text."""
    findings = root.findings.get(path, ())
    if any(item.text != one.text for item in findings):
        return True
    return any(item.key == one.key for item in findings)


def _unchanged_lines(old: str, new: str) -> dict[int, int]:
    """The lines at both ends that the texts share: old line number to new one, from 1."""
    before, after = _LINE.findall(old), _LINE.findall(new)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    lines = {number: number for number in range(1, head + 1)}
    lines.update((len(before) - n, len(after) - n) for n in range(tail))
    return lines


def _move(item: FileFinding, text: str, lines: Mapping[int, int]) -> FileFinding | None:
    """The finding in a new text; None if one of its lines has changed."""
    at = item.at
    line, end_line = lines.get(at.line), lines.get(at.end_line or at.line)
    if line is None or end_line is None:
        return None
    site = FixedSite(replace(at, line=line, end_line=end_line))
    return FileFinding(replace(item.finding, site=site), text)


# Fixes ------------------------------------------------------------------------------------------


def edits_of(result: Result, finding: Finding) -> dict[str, list[Edit]] | None:
    """The edits of a finding's fix and of its group, by file; None if it cannot be applied."""
    from fsdplint.edits.apply import BrokenFixError, complete

    if finding.fix is None or id(finding) not in result.fixable_unsafe:
        return None
    group = group_of(finding)
    every = (*result.findings, *result.elsewhere)
    fixes = [one.fix for one in every if one.fix and group and group_of(one) == group]
    try:
        edits = complete(result.sources, fixes or [finding.fix])
    except (BrokenFixError, KeyError):
        return None
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.path, []).append(edit)
    return by_file


def line_edits(path: str, old: str, new: str) -> list[Edit]:
    """The edits, in full lines, that turn `old` into `new`."""
    before, after = _LINE.findall(old), _LINE.findall(new)
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        Edit(path, starts[i1], starts[i2], "".join(after[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
