"""From the findings and plans of a migration to the sections of its report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import (
    Edit,
    Finding,
    Fix,
    RuleInfo,
    Safety,
    changed_files,
    group_of,
)
from fsdplint.edits import apply
from fsdplint.edits.regions import Region, regions
from fsdplint.migration.report import open_places, remaining_names, unsafe_changes
from fsdplint.migration.report.joined_sections import join_sections
from fsdplint.migration.report.model import Change, Obstacle, Reason, Section
from fsdplint.migration.report.proof_commands import commands, files_of_programs
from fsdplint.migration.report.titles import titles_of
from fsdplint.report.notes import remarks
from fsdplint.report.pages import summary
from fsdplint.report.reasons import reason
from fsdplint.report.remarks import Place, Remark
from fsdplint.source.files import NOTEBOOK
from fsdplint.trace import Location

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.interpreter import Program
    from fsdplint.migration.blockers import Blocked
    from fsdplint.migration.plan import Plan
    from fsdplint.source.source import Source

MAX_LINES = 6  # of the code of an obstacle
RAISE_TORCH = (
    "Raise the version of torch that the project requires, or give the version that it runs on with "
    "--target-torch."
)
CODE = "FSDP201"  # of an obstacle without a finding: it keeps the constructor from being rewritten


@dataclass(frozen=True)
class Mark:
    """A comment on code that blocks the migration."""

    source: Source
    node: cst.CSTNode
    code: str
    reason: str


class Sections:
    """The sections of a report.

    Attributes:
        all: the sections, one for each program that is blocked, or for each group of fixes.
        fixes: the rewrite of each group that nothing blocks.
        marks: the comments that mark the blocking code.
    """

    def __init__(
        self,
        program: Program,
        found: Sequence[Finding],
        counts: Callable[[Finding], bool],
        editable: Callable[[str], bool],
        unsafe: bool = False,
    ) -> None:
        """counts: whether a finding is not turned off. editable: whether a file may be changed."""
        from fsdplint.migration.planner import plans_of

        self.program = program
        self.files = program.files
        self.counts = counts
        self.editable = editable
        self.unsafe = unsafe
        self.all: list[Section] = []
        self.fixes: dict[str, Fix] = {}
        self.marks: list[Mark] = []
        plans = {plan.group: plan for plan in plans_of(program)}
        groups: dict[str, list[Finding]] = {}
        for finding in found:
            groups.setdefault(name_of(finding), []).append(finding)
        for group in [*plans, *(one for one in groups if one not in plans)]:
            section = self._section(group, plans.get(group), groups.get(group, []))
            if section is not None:
                self.all.append(section)
        self.all = join_sections(self.all)

    def _section(self, group: str, plan: Plan | None, findings: list[Finding]) -> Section | None:
        blockers = plan.blockers if plan is not None else []
        if not blockers and not findings:
            return None
        files = [source.path for source in plan.sources] if plan is not None else []
        files = list(dict.fromkeys([*files, *(one.site.path for one in findings)]))
        section = Section(group, files[0], files)
        section.obstacles = self._obstacles(plan, findings)
        fix = next((one.fix for one in findings if one.fix is not None), None)
        if not section.obstacles and fix is not None:
            try:
                changed = apply.complete(self.files, fix)
            except apply.BrokenFixError as error:
                section.obstacles = [self._defect(findings[0], str(error))]
            else:
                self.fixes[group] = fix
                section.changes = self._changes(fix, changed, plan, findings)
                section.outside = self._uneditable_files(fix)
                section.remarks = (
                    remarks(fix, self._place_of) if plan is not None else _title_notes(fix)
                )
        if section.is_blocked:
            at = {obstacle.place for obstacle in section.obstacles}
            places = [_place(one) for one in findings]
            if plan is None:
                sources = [x for x in map(self.program.sources.get, files) if x is not None]
                places += remaining_names.remaining_places(sources, findings)
            section.waiting = list(dict.fromkeys(p for p in places if p not in at))
        section.prove, section.prove_note, section.title = commands(self.program, section)
        section.programs = files_of_programs(self.program, section)
        if plan is not None and plan.undecided is not None and group in self.fixes:
            section.sites = plan.undecided.sites
            section.open = open_places.of_section(self.program, section, self.fixes[group])
            if section.open:
                section.prove, section.prove_note = [], ""
        return section

    def _place_of(self, at: Location) -> Place:
        return _at(self.files[at.path], at.line)

    def _uneditable_files(self, fix: Fix) -> list[str]:
        paths = changed_files(fix) | {path for path, _ in fix.maybe_unused_imports}
        return sorted(path for path in paths if not self.editable(os.path.realpath(path)))

    def leave_out(self, context: Set[str]) -> None:
        """Remove groups of files that were read only because they call others."""
        self.all = [one for one in self.all if not set(one.files) <= context]
        kept = {path for section in self.all for path in section.files}
        kept |= {one.place.path for section in self.all for one in section.obstacles}
        self.marks = [mark for mark in self.marks if mark.source.path in kept]

    # Obstacles ----------------------------------------------------------------------------------

    def _obstacles(self, plan: Plan | None, findings: list[Finding]) -> list[Obstacle]:
        result: dict[tuple[Place, str], Obstacle] = {}
        blockers = plan.blockers if plan is not None else []
        for blocked in blockers:
            source, node = blocked.source, blocked.node
            code = self._code_at(blocked, findings)
            self.marks.append(Mark(source, node, code, blocked.reason))
            at = source.location(node)
            lines = _excerpt(source, at.line, at.end_line)
            place = _at(source, at.line)
            end = place.line + max(at.end_line - at.line, 0)
            result.setdefault(
                (place, blocked.reason),
                Obstacle(place, code, lines, blocked.reason, blocked.advice, blocked.code, end),
            )
        if not blockers:
            unsafe = [one for one in findings if self._is_unsafe(one)]
            if plan is not None and unsafe:
                for one in unsafe_changes.obstacles(plan, CODE, _at, _excerpt):
                    result.setdefault((one.place, one.reason), one)
            for finding in findings:
                if finding in unsafe and result:
                    continue
                obstacle = self._without_plan(finding)
                if obstacle is not None:
                    result.setdefault((obstacle.place, obstacle.reason), obstacle)
        return [
            *sorted(result.values(), key=lambda one: (one.place.path, one.place.line)),
            *self._missing_torch(findings),
        ]

    def _is_unsafe(self, finding: Finding) -> bool:
        """Whether a finding is only left because its fix may change what the program does."""
        is_unsafe = finding.fix is not None and finding.fix.safety is Safety.UNSAFE
        return is_unsafe and not self.unsafe and self.counts(finding)

    def _missing_torch(self, findings: list[Finding]) -> list[Obstacle]:
        """The obstacle of a torch without FSDP2; it is the same for the whole program."""
        concerned = [one for one in findings if one.missing_torch and self.counts(one)]
        if not concerned:
            return []
        first = next((one for one in concerned if one.rule.code == CODE), concerned[0])
        return [self._at_finding(first, first.missing_torch, RAISE_TORCH, None)]

    def _without_plan(self, finding: Finding) -> Obstacle | None:
        """The obstacle of a finding that no plan covers, if it cannot be fixed."""
        from fsdplint.migration.blockers.program import RULE_TURNED_OFF, UNSAFE_REWRITE

        code = finding.rule.code
        blocker = next(iter(finding.blocker_codes), None)
        if not self.counts(finding):
            reason = RULE_TURNED_OFF(code=code)
            why, what, blocker = reason.message, reason.advice, reason.blocker.code
        elif finding.fix is None:
            why = finding.blocker or "it has no rewrite"
            what = finding.help or "Rewrite it by hand."
            if why in what:
                by_hand = "Change the code that the reason names by hand; then run this again."
                what = what.partition(f"{why}. ")[2] or by_hand
            if why == finding.missing_torch:
                return None
            if why.startswith("the fix needs"):
                what = RAISE_TORCH
        elif self._is_unsafe(finding):
            reason = UNSAFE_REWRITE(title=finding.fix.title)
            why, what, blocker = reason.message, reason.advice, reason.blocker.code
        else:
            return None
        return self._at_finding(finding, why, what, blocker)

    def _at_finding(self, finding: Finding, why: str, what: str, blocker: str | None) -> Obstacle:
        code = finding.rule.code
        at = finding.site.location()
        source = self.files.get(at.path)
        lines = _excerpt(source, at.line, at.end_line) if source is not None else []
        place = _at(source, at.line) if source is not None else _place(finding)
        end = place.line + max(at.end_line - at.line, 0)
        return Obstacle(place, code, lines, why, what, blocker, end)

    def _defect(self, finding: Finding, error: str) -> Obstacle:
        from fsdplint.migration.blockers.program import BROKEN_REWRITE

        reason = BROKEN_REWRITE(error=error)
        code = finding.rule.code
        return Obstacle(
            _place(finding), code, [], reason.message, reason.advice, BROKEN_REWRITE.code
        )

    def _code_at(self, blocked: Blocked, findings: list[Finding]) -> str:
        """The rule with the smallest finding around the blocking code, or inside of it."""
        node_start, node_end = blocked.source.span(blocked.node)
        best: tuple[int, str] | None = None
        for finding in findings:
            node = getattr(finding.site, "node", None)
            if finding.site.path != blocked.source.path or node is None:
                continue
            start, end = blocked.source.span(node)
            if (start <= node_start and node_end <= end) or (
                node_start <= start and end <= node_end
            ):
                size = end - start
                if best is None or size < best[0]:
                    best = size, finding.rule.code
        return best[1] if best is not None else CODE

    # Changes ------------------------------------------------------------------------------------

    def _changes(
        self, fix: Fix, changed: Iterable[Edit], plan: Plan | None, findings: list[Finding]
    ) -> list[Change]:
        by_path: dict[str, list[Edit]] = {}
        for edit in changed:
            by_path.setdefault(edit.path, []).append(edit)
        result = []
        for path, own in by_path.items():
            source = self.files[path]
            here = [one for one in findings if one.site.path == path]
            steps = [x for x in plan.steps if x.source is source] if plan is not None else []
            for region in regions(source.text, own):
                titles = [_title(fix)]
                if path in fix.requirements:
                    titles = ["Require a torch with FSDP2"]
                elif plan is not None:
                    titles = titles_of(source, region, steps)
                result.append(
                    Change(
                        place=_at(source, region.line),
                        new_line=_at(source, region.line).line + region.new_line - region.line,
                        titles=titles,
                        before=[line.rstrip("\r\n") for line in region.before],
                        after=[line.rstrip("\r\n") for line in region.after],
                        reasons=_reasons(region if plan is not None else None, here),
                    )
                )
        return result


def name_of(finding: Finding) -> str:
    """The name of the section that a finding belongs to."""
    at = finding.site.location()  # settings of frameworks have no group
    return group_of(finding) or f"{at.path}:{at.line}:{at.column}"


def _place(finding: Finding) -> Place:
    at, source = finding.site.location(), getattr(finding.site, "source", None)
    return _at(source, at.line) if source is not None else Place(at.path, at.line)


def _at(source: Source, line: int) -> Place:
    """A line of a file; in a notebook, a line of a cell."""
    if not source.path.endswith(NOTEBOOK):
        return Place(source.path, line)
    from fsdplint.source.notebooks import NotebookSource

    assert isinstance(source, NotebookSource)
    number, row = source.cell_of(line)
    return Place(f"{source.path}:cell {number}", row)


def _excerpt(source: Source, line: int, end_line: int) -> list[tuple[int, str]]:
    """The first lines of some code, with their numbers."""
    last = min(max(line, end_line), line + MAX_LINES - 1)
    first = _at(source, line).line
    return [(first + number - line, source.line(number)) for number in range(line, last + 1)]


def _reasons(region: Region | None, findings: Iterable[Finding]) -> list[Reason]:
    rules = {}
    for finding in findings:
        at = finding.site.location()
        if region is None or region.touches(at.line, max(at.line, at.end_line)):
            rules[finding.rule.code] = finding.rule
    return [Reason(code, rules[code].name, _rule_reason(rules[code])) for code in sorted(rules)]


def _rule_reason(rule: type[RuleInfo]) -> str:
    why = reason(rule)
    return f"{summary(rule)} {why.removesuffix(':')}" + ("." if why.endswith(":") else "")


def _title(fix: Fix) -> str:
    """The title of a fix without the notes behind it."""
    return fix.title.partition(" (")[0]


def _title_notes(fix: Fix) -> list[Remark]:
    """The notes behind a fix's title."""
    notes = fix.title.partition(" (")[2].removesuffix(")")
    return [Remark(note[:1].upper() + note[1:]) for note in notes.split("; ") if note]
