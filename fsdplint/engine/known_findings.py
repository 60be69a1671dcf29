"""The findings of a program, recognised in the program that fixes make of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Severity
from fsdplint.edits.lines import LineMap, lines_of
from fsdplint.source.config_source import ConfigSource
from fsdplint.trace import Location

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.source import Source


class Known:
    """What is found in a program, to recognise it in the program that fixes make of it."""

    def __init__(self, before: Program, found: Iterable[Finding], after: Program) -> None:
        self._before = before
        self._after = after
        self._maps: dict[str, LineMap] = {}
        self._at: dict[tuple[str, int], list[Finding]] = {}
        self._moved: dict[tuple[str, str, str], list[Finding]] = {}
        self._caused: dict[tuple[str, str, int], list[Finding]] = {}
        for one in found:
            at = one.site.location()
            self._at.setdefault((at.path, at.line), []).append(one)
            self._moved.setdefault(self._text(before, one), []).append(one)
            if one.cause is not None:
                cause = one.cause.location()
                self._caused.setdefault((one.rule.code, cause.path, cause.line), []).append(one)

    def match(self, finding: Finding) -> Finding | None:
        """What was found before in the same place: by the same rule, or as bad by another.

        A finding with the same cause is the same, whatever event of the cause it is about.
        """
        at = finding.site.location()
        candidates = [one for line in self._old(at) for one in self._at.get((at.path, line), ())]
        same = [one for one in candidates if one.rule is finding.rule]
        errors = [one for one in candidates if one.rule.severity is Severity.ERROR]
        moved = self._moved.get(self._text(self._after, finding), [])
        return next(iter([*same, *errors, *moved, *self._of_cause(finding)]), None)

    def _of_cause(self, finding: Finding) -> Iterator[Finding]:
        """What the same rule found before for the same cause."""
        if finding.cause is None:
            return
        at = finding.cause.location()
        for line in self._old(at):
            yield from self._caused.get((finding.rule.code, at.path, line), ())

    def error_behind(self, finding: Finding) -> Finding | None:
        """The error that was found before at a place which a finding names besides its own."""
        for site, _ in finding.related:
            at = site.location()
            for line in self._old(at):
                for one in self._at.get((at.path, line), ()):
                    if one.rule.severity is Severity.ERROR:
                        return one
        return None

    def place(self, at: Location) -> Location | None:
        """The place in the program before of a line of the program after."""
        lines = self._old(at)
        return Location(at.path, lines[0]) if len(lines) == 1 else None

    def moved_back(self, fix: Fix) -> Fix | None:
        """A fix of the program after, moved to the program before.

        Returns None if it changes lines that differ between the two programs.
        """
        moved: list[Edit] = []
        for edit in fix.edits:
            before, after = self._before.files.get(edit.path), self._after.files.get(edit.path)
            if before is None or after is None:
                return None
            line, column = after.position(edit.start)
            end_line, _ = after.position(edit.end)
            lines = self._old(Location(edit.path, line))
            same = len(lines) == 1 and before.line(lines[0]) == after.line(line)
            if line != end_line or not same:
                return None
            start = _offset(before, lines[0]) + column - 1
            moved.append(Edit(edit.path, start, start + edit.end - edit.start, edit.text))
        imports = tuple((path, replace(one, at=None)) for path, one in fix.imports)
        return replace(fix, edits=tuple(moved), imports=imports, depends_on=())

    def _old(self, at: Location) -> range:
        if at.path not in self._maps:
            before, after = self._before.files.get(at.path), self._after.files.get(at.path)
            texts = ["" if one is None else one.text for one in (before, after)]
            self._maps[at.path] = LineMap(*texts)
        return self._maps[at.path].old(at.line)

    def _text(self, program: Program, finding: Finding) -> tuple[str, str, str]:
        """What a finding is known by where its line was moved."""
        at = finding.site.location()
        source: Source | ConfigSource | None = program.files.get(at.path)
        text = "" if source is None else source.line(at.line).strip()
        return finding.rule.code, at.path, text


def _offset(source: Source | ConfigSource, line: int) -> int:
    """Where a line begins."""
    return sum(len(one) for one in lines_of(source.text)[: line - 1])
