"""The contents of a report of a migration, for all output formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fsdplint.diagnostics.coverage import CoveredSite
from fsdplint.report.cells import split
from fsdplint.report.remarks import Place, Remark
from fsdplint.report.result import covered_line, plural
from fsdplint.source.files import Problem


@dataclass(frozen=True)
class Reason:
    """Why a line is rewritten: a rule, by its code, and the first sentence of its reason."""

    code: str
    name: str
    text: str


@dataclass
class Change:
    """Adjacent lines that are rewritten.

    Attributes:
        place: the first line, in the old file.
        new_line: its line in the new file.
        titles: what the change does, in the imperative.
        before, after: the lines, without line ends.
        reasons: the rules that find something there.
    """

    place: Place
    new_line: int
    titles: list[str]
    before: list[str]
    after: list[str]
    reasons: list[Reason] = field(default_factory=list)


@dataclass
class Obstacle:
    """Code that keeps its group from being migrated.

    Attributes:
        code: the rule that reports it.
        lines: the number and the text of each line.
        reason: why it cannot be rewritten.
        blocker: the stable code of the reason, if it has one.
        advice: what a person has to decide or do.
        end_line: the last line of the code; 0 if it is not known.
    """

    place: Place
    code: str
    lines: list[tuple[int, str]]
    reason: str
    advice: str
    blocker: str | None = None
    end_line: int = 0


@dataclass(frozen=True)
class OpenPlace:
    """Code that raises until a person has decided about it.

    Attributes:
        place: the line that raises, in the new file.
        decision: what to decide, in one sentence.
        reason: why fsdplint does not decide it.
        blocker: the stable code of the reason, if it has one.
        old: the lines for FSDP1.
        postcondition: what has to hold after it is replaced.
        checks: the commands that check that.
    """

    place: Place
    decision: str
    reason: str
    blocker: str
    old: tuple[str, ...]
    postcondition: str
    checks: tuple[str, ...]


@dataclass
class Section:
    """The migration of files that belong together.

    Attributes:
        group: the name of the group of fixes.
        title: the file that names the group.
        files: the files of the group that use FSDP1.
        programs: the files that each program of the group runs code of, by the file that is run.
        changes: the rewritten lines, empty if there are obstacles.
        obstacles: the code that blocks the migration.
        remarks: what changes in behaviour or cost.
        waiting: uses of FSDP1 that can be rewritten once the obstacles are removed.
        outside: files that have to change and were not given.
        is_written: whether the changes were written.
        prove: the commands that prove the migration.
        prove_note: a remark on these commands.
        open: the code that raises after an assisted migration.
        sites: how many uses of FSDP1 are rewritten, and how many there are.
    """

    group: str
    title: str
    files: list[str]
    programs: dict[str, frozenset[str]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    waiting: list[Place] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    is_written: bool = False
    prove: list[str] = field(default_factory=list)
    prove_note: str = ""
    open: list[OpenPlace] = field(default_factory=list)
    sites: tuple[int, int] = (0, 0)

    @property
    def is_blocked(self) -> bool:
        return bool(self.obstacles)

    def program_of(self, path: str) -> str:
        """The program that runs the code of a file; the group's title if none is known."""
        if path in self.programs:
            return path
        return next((one for one, files in self.programs.items() if path in files), self.title)

    @property
    def is_partial(self) -> bool:
        """Whether an assisted migration leaves code that raises."""
        return bool(self.open) and not self.is_blocked

    @property
    def verdict(self) -> str:
        if self.obstacles:
            places = plural(len({one.place for one in self.obstacles}), "place")
            return f"not migrated: blocked at {places}"
        changed = plural(len({split(one.place.path)[0] for one in self.changes}), "file")
        what = f"{plural(len(self.changes), 'change')} in {changed}"
        if self.is_partial:
            how = "rewritten" if self.is_written else "can be rewritten"
            return f"{how} except for {plural(len(self.open), 'place')} to decide ({what})"
        if self.is_written:
            return f"migrated whole ({what})"
        if self.outside:
            return f"can be migrated whole ({what}), with files that were not given"
        return f"can be migrated whole ({what})"


@dataclass
class Report:
    """The migration of everything under some paths.

    Attributes:
        sections: one for each set of files that belong together.
        problems: files that could not be read.
        warnings: further lines for standard error.
        wrote: whether the command was asked to write changes.
        annotated_files: files whose comments on blockers changed.
        files: the number of files that were read.
        coverage: the calls of the contract's API in the files, and which of them were reached.
        open: code that raises since an earlier assisted migration, in files without a section.
    """

    sections: list[Section] = field(default_factory=list)
    problems: Sequence[Problem] = ()
    warnings: Sequence[str] = ()
    wrote: bool = False
    annotated_files: list[str] = field(default_factory=list)
    files: int = 0
    coverage: Sequence[CoveredSite] = ()
    open: Sequence[OpenPlace] = ()

    @property
    def uses_fsdp1(self) -> bool:
        """Whether a program still uses FSDP1, or raises where it did."""
        open_places = self.open or any(section.open for section in self.sections)
        return bool(open_places) or any(not section.is_written for section in self.sections)


def open_heading(section: Section) -> str:
    """The sentence above the places that raise."""
    done, every = section.sites
    verb = "are" if section.is_written else "would be"
    return (
        f"{done} of {plural(every, 'use')} of FSDP1 {verb} rewritten. These lines of the new files "
        "raise until you replace them:"
    )


def summary(report: Report) -> list[str]:
    """The sentences that close a report."""
    sections = report.sections
    blocked = [one for one in sections if one.is_blocked]
    of_blocked = {path for one in blocked for path in one.files}
    others = [one for one in sections if of_blocked.isdisjoint(one.files)]
    partial = [one for one in others if one.is_partial]
    whole = [one for one in others if not one.is_partial]
    pending = [one for one in whole if not one.is_written]
    done = [one for one in whole if one.is_written]
    if not sections and report.open:
        return [_open_line(report.open)]
    if not sections:
        if report.problems:
            return []  # a file that could not be read may use FSDP1
        if report.files == 0:
            return ["No Python files were found; nothing was looked at."]
        return ["No use of FSDP1 was found; there is nothing to migrate."]
    lines = []
    if done:
        verb = "migrated" if report.wrote else "would be migrated"
        lines.append(f"{plural(_programs(done), 'program')} {verb} whole.")
    if pending:
        lines.append(f"{plural(_programs(pending), 'program')} can be migrated whole.")
    written = [one for one in partial if one.is_written]
    unwritten = [one for one in partial if not one.is_written]
    lines += _partial_lines(written, report.wrote) if written else []
    lines += _partial_lines(unwritten, wrote=False) if unwritten else []
    if report.open:
        lines.append(_open_line(report.open))
    if blocked:
        places = plural(len({o.place for one in blocked for o in one.obstacles}), "place")
        is_mixed = len(blocked) + len(others) < len(sections)
        number = _programs(blocked)
        pronoun = "it" if number == 1 else "them"
        rest = "only settings of frameworks are" if is_mixed else f"nothing of {pronoun} is"
        lines.append(f"{plural(number, 'program')} blocked at {places}; {rest} rewritten.")
    waiting = [*pending, *unwritten]
    if (written or any(not one.outside for one in waiting)) and not report.wrote:
        lines.append("Nothing was written: --fix writes.")
    if any(one.outside for one in waiting):
        lines.append("Name the files outside of the paths as well, or give --project.")
    if not all(site.covered for site in report.coverage):
        lines.append(f"{covered_line(report.coverage)} See fsdplint check --coverage.")
    if report.annotated_files:
        lines.append(f"The comments were changed in {', '.join(report.annotated_files)}.")
    return lines


def _programs(sections: Sequence[Section]) -> int:
    """How many programs the sections are of: those that share files are of one."""
    programs: list[set[str]] = []
    for section in sections:
        files = set(section.files)
        same = [one for one in programs if not one.isdisjoint(files)]
        programs = [one for one in programs if one.isdisjoint(files)]
        programs.append(files.union(*same))
    return len(programs)


def _partial_lines(sections: Sequence[Section], wrote: bool) -> list[str]:
    """What an assisted migration rewrites, and what it leaves open."""
    places = [one for section in sections for one in section.open]
    done, every = (sum(one.sites[number] for one in sections) for number in (0, 1))
    verb = "rewritten" if wrote else "would be rewritten"
    words = plural(_programs(sections), "program")
    share = f"{done} of {plural(every, 'use')} of FSDP1 ({100 * done // max(every, 1)} %)"
    return [f"{words} {verb} in part: {share}.", _open_line(places)]


def _open_line(places: Sequence[OpenPlace]) -> str:
    words = plural(len(places), "place")
    verb = "raises" if len(places) == 1 else "raise"
    return f"{words} {verb} NotImplementedError until you replace the code; then run this again."
