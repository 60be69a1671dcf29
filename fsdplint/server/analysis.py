"""Findings in the files of a workspace as they are in the editor; knows nothing of the protocol.

A *root* is a file that is checked by itself, with what it imports and whom its migration concerns.
The findings in a document are those of all roots that come to it: of itself, and of the files that
import it. So a change is answered by checking one root, and the others follow.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fsdplint.config.settings import CommandLine
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
MAX_IMPORTERS = 20  # files that are checked because they import what is open


@dataclass(frozen=True)
class Seen:
    """What was found in a file, with its text at that time.

    Attributes:
        finding: its site is a fixed one.
        applicable: whether its fix may be applied; asked only where fixes were worked out.
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
class Checked:
    """The outcome of checking one root.

    Attributes:
        texts: the documents as they were.
        found: what was found, by the real paths of the files.
        read: the real paths of all files that were read.
        result: what the findings stand in, where their fixes were worked out.
    """

    texts: Mapping[str, str]
    found: dict[str, list[Seen]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    read: frozenset[str] = frozenset()
    result: Result | None = None


@dataclass(frozen=True)
class IndexSearch:
    """Finds the files that import others in the index of the workspace, until it is stopped."""

    index: Index
    stop: Stop

    def importers(self, targets: Iterable[Path], limit: int) -> list[Path]:
        return self.index.importers(targets, limit, self.stop)


class Workspace:
    """Checks roots, and remembers what helps to check them again."""

    def __init__(self, command_line: CommandLine | None = None) -> None:
        self.command_line = replace(command_line or CommandLine(), project=True, force_exclude=True)
        self.index = Index()
        self._sources: dict[str, Source] = {}
        self._with_fixes: dict[str, Checked] = {}

    def forget(self) -> None:
        """Files came, went or changed on the disk."""
        self.index.forget()
        self._with_fixes.clear()

    def text(self, path: str) -> str | None:
        """The text of a file that was read, as far as that is known."""
        source = self._sources.get(path)
        return None if source is None else source.text

    def check(self, root: str, documents: Mapping[str, str], stop: Stop) -> Checked:
        """What is found from a root, without fixes. Raises Stopped, SettingsError."""
        return self._check(root, documents, stop, fixes=False)

    def check_with_fixes(self, root: str, documents: Mapping[str, str], stop: Stop) -> Checked:
        """The same with the fixes; worked out once for the same texts."""
        known = self._with_fixes.get(root)
        if known is None or known.texts != documents:
            known = self._with_fixes[root] = self._check(root, documents, stop, fixes=True)
        return known

    def _check(
        self, root: str, documents: Mapping[str, str], stop: Stop, *, fixes: bool
    ) -> Checked:
        self._tell(documents)
        checked = Checked(dict(documents))
        if not self.index.matters(root, stop):
            return checked
        effort = Effort(fixes, self._sources, stop)
        session = self._session(root, self.command_line, documents, stop)
        result = check_files(session, effort=effort)
        self._keep(result)
        checked.problems = list(result.problems)
        checked.read = frozenset(map(os.path.realpath, result.sources))
        for finding in result.findings:
            path = os.path.realpath(finding.site.path)
            text = result.sources[finding.site.path].text
            checked.found.setdefault(path, []).append(Seen(finding, text))
        if fixes:
            checked.result = result
        else:  # the trees need not be kept for places
            for several in checked.found.values():
                several[:] = [Seen(_without_trace(one.finding), one.text) for one in several]
        return checked

    def _session(
        self, root: str, command_line: CommandLine, documents: Mapping[str, str], stop: Stop
    ) -> Session:
        """The session of one root with the texts of the documents."""
        importers = IndexSearch(self.index, stop)
        overlays = overlaid(documents)
        return Session([Path(root)], command_line, overlays=overlays, importers=importers)

    def _keep(self, result: Result) -> None:
        for path, source in result.sources.items():
            if isinstance(source, Source):
                source.typed_in = True
                self._sources[path] = source

    def fix(
        self, root: str, documents: Mapping[str, str], stop: Stop, *, project: bool
    ) -> dict[str, tuple[str, str]]:
        """The old and new texts of files when all that may be fixed from a root is fixed."""
        self._tell(documents)
        if not self.index.matters(root, stop):
            return {}
        command_line = replace(self.command_line, project=project)
        effort = Effort(True, self._sources, stop)
        session = self._session(root, command_line, documents, stop)
        changes = fix_files(session, effort=effort)
        return {os.path.realpath(path): texts for path, texts in changes.texts.items()}

    def importers(self, path: str, documents: Mapping[str, str], stop: Stop) -> list[str]:
        """The files that have to be checked when this one changes: those that import it."""
        self._tell(documents)
        found = self.index.importers([Path(path)], MAX_IMPORTERS, stop)
        return [os.path.realpath(one) for one in found]

    def _tell(self, documents: Mapping[str, str]) -> None:
        for gone in self.index.documents - set(documents):
            self.index.document(gone, None)
        for path, text in documents.items():
            self.index.document(path, text)


def _without_trace(finding: Finding) -> Finding:
    related = tuple((FixedSite(site.location()), word) for site, word in finding.related)
    site = FixedSite(finding.site.location())
    return replace(finding, site=site, related=related, events=())


# Putting together --------------------------------------------------------------------------------


def merged(path: str, text: str, roots: Iterable[Checked]) -> list[Seen]:
    """What all roots find in a file, each once, at its places in the text as it is now.

    What was found in an earlier text stays as long as its lines do.
    """
    chosen: dict[tuple[object, ...], Seen] = {}
    readers = [root for root in roots if path in root.read]
    moved: dict[str, Mapping[int, int]] = {}
    for root in readers:
        for seen in root.found.get(path, ()):
            one: Seen | None = seen
            if seen.text != text:
                if seen.text not in moved:
                    moved[seen.text] = _lines_kept(seen.text, text)
                one = _moved(seen, text, moved[seen.text])
            if one is None:
                continue
            known = chosen.get(one.key)
            if known is None or _conditions(one) < _conditions(known):
                chosen[one.key] = one
    return [
        one
        for one in sorted(chosen.values(), key=lambda seen: (seen.at, seen.finding.rule.code))
        if not one.finding.rule.all_configurations or all(_has(root, path, one) for root in readers)
    ]


def _conditions(seen: Seen) -> int:
    return len(seen.finding.configuration)


def _has(root: Checked, path: str, one: Seen) -> bool:
    """Whether a root finds the same; one that saw another text has no say."""
    found = root.found.get(path, ())
    if any(seen.text != one.text for seen in found):
        return True
    return any(seen.key == one.key for seen in found)


def _lines_kept(old: str, new: str) -> dict[int, int]:
    """The lines of a text that are still there, by their numbers before and now, from 1."""
    before, after = _LINE.findall(old), _LINE.findall(new)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    kept = {number: number for number in range(1, head + 1)}
    kept.update((len(before) - n, len(after) - n) for n in range(tail))
    return kept


def _moved(seen: Seen, text: str, kept: Mapping[int, int]) -> Seen | None:
    at = seen.at
    line, end_line = kept.get(at.line), kept.get(at.end_line or at.line)
    if line is None or end_line is None:
        return None
    site = FixedSite(replace(at, line=line, end_line=end_line))
    return Seen(replace(seen.finding, site=site), text)


# Fixes ------------------------------------------------------------------------------------------


def edits_of(result: Result, finding: Finding) -> dict[str, list[Edit]] | None:
    """The edits that mend a finding, of all of its group, by file; None where it cannot be."""
    from fsdplint.edits.apply import BrokenFixError, complete

    if finding.fix is None or id(finding) not in result.fixable_unsafe:
        return None
    group = group_of(finding)
    others = (*result.findings, *result.elsewhere)
    together = [one.fix for one in others if one.fix and group and group_of(one) == group]
    try:
        edits = complete(result.sources, together or [finding.fix])
    except (BrokenFixError, KeyError):
        return None
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.path, []).append(edit)
    return by_file


def line_edits(path: str, old: str, new: str) -> list[Edit]:
    """What makes one text of another, as whole lines."""
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
