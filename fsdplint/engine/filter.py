"""Which findings are enabled: those that no setting, comment or baseline turns off."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.diagnostics.baseline import Baseline
from fsdplint.diagnostics.codes import UNUSED, UnknownRuleError, resolve
from fsdplint.diagnostics.suppressions import (
    Directive,
    Suppressions,
    has_blanket,
    is_addressed,
    read_line_comments,
    read_suppressions,
)
from fsdplint.discovery.importers import ProjectIndex
from fsdplint.source.config_files import is_config

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
    from fsdplint.interpreter import Program
    from fsdplint.source.source import Source


class FindingFilter:
    """What turns findings off in the files of one session."""

    def __init__(
        self,
        finder: SettingsFinder,
        given: Set[str],
        projects: ProjectIndex,
        baseline: Baseline | None = None,
    ) -> None:
        """
        Args:
            finder: knows the settings of each file.
            given: the real paths of the files to check.
            projects: the projects of these files.
            baseline: the findings that are accepted.
        """
        self._finder = finder
        self._given = given
        self._projects = projects
        self._baseline = baseline
        self._read: dict[tuple[str, int], Suppressions] = {}

    def enabled_findings(
        self, found: Sequence[Finding], sources: Mapping[str, Source]
    ) -> list[Finding]:
        """The findings that are enabled, in order."""
        on = [one for one in found if self.is_enabled(one, sources)]
        if self._baseline is None:
            return on
        known = self._baseline.known_ids(on, sources)
        return [one for one in on if id(one) not in known]

    def is_enabled(self, finding: Finding, sources: Mapping[str, Source]) -> bool:
        """Whether neither the settings nor a comment turn the finding off."""
        if not self._has_rule_on(finding):
            return False
        source = sources.get(finding.site.path)
        return source is None or not any(True for _ in self._covering(finding, source))

    def _has_rule_on(self, finding: Finding) -> bool:
        """Whether the settings of the finding's file enable its rule."""
        path = Path(finding.site.path)
        settings = self._finder.of(path)
        if not settings.enables(finding.rule.code, path):
            return False
        return os.path.realpath(path) in self._given or not settings.excludes(path, False)

    def _covering(self, finding: Finding, source: Source) -> Iterable[tuple[Directive, str]]:
        comments, rule = self._comments(source), finding.rule
        if not comments.spans:
            return ()
        at = finding.site.location()
        covering = comments.covering(rule.code, rule.name, at.line, at.end_line)
        if rule.code != UNUSED[0]:
            return covering
        # A comment does not hide that it is useless, unless it says so.
        return (pair for pair in covering if pair[1].upper() == rule.code or pair[1] == rule.name)

    def _comments(self, source: Source) -> Suppressions:
        key = (source.path, hash(source.text))
        if self._finder.command_line.ignore_noqa:
            return Suppressions()
        if key not in self._read and not (is_addressed(source.text) or has_blanket(source.text)):
            self._read[key] = Suppressions()
        elif key not in self._read:
            read = read_line_comments if is_config(Path(source.path)) else read_suppressions
            self._read[key] = read(source.text)
        return self._read[key]

    def warnings(self, sources: Mapping[str, Source]) -> list[str]:
        """Comments in the files given that name a rule or directive which there is not."""
        result: list[str] = []
        for path in sorted(sources):
            if os.path.realpath(path) not in self._given:
                continue
            if not is_addressed(sources[path].text):
                continue
            comments = self._comments(sources[path])
            found = list(comments.unknown)
            for line, selector in comments.selectors:
                try:
                    resolve(selector)
                except UnknownRuleError as error:
                    found.append((line, str(error)))
            result += (f"{path}:{line}: warning: {why}" for line, why in sorted(found))
        return result

    # Comments that turn nothing off ---------------------------------------------------------------

    def unused_suppressions(self, found: Sequence[Finding], program: Program) -> list[Finding]:
        """The comments of the files given that turn none of the findings off."""
        if program.cut_short:
            return []
        sources = program.files
        used: dict[str, set[tuple[Directive, str]]] = {}
        for finding in found:
            source = sources.get(finding.site.path)
            if source is not None and self._has_rule_on(finding):
                used.setdefault(source.path, set()).update(self._covering(finding, source))
        result: list[Finding] = []
        for path in sorted(sources):
            result += self._unused_in(sources[path], used.get(path, set()))
        return result

    def _unused_in(self, source: Source, used: Set[tuple[Directive, str]]) -> list[Finding]:
        path = Path(source.path)
        settings = self._finder.of(path)
        if os.path.realpath(path) not in self._given or not is_addressed(source.text):
            return []
        if not settings.enables(UNUSED[0], path):
            return []
        from fsdplint.engine.unused_suppressions import unused_suppressions

        comments = self._comments(source)
        found = list(
            unused_suppressions(source, comments, used, lambda code: settings.enables(code, path))
        )
        if found and any(
            os.path.realpath(one) not in self._given for one in self._projects.importers([path])
        ):
            return []  # the comment may suppress a finding that depends on those files
        return found
