"""The report of a migration for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.migration.report.model import (
    Change,
    Obstacle,
    OpenPlace,
    Report,
    Section,
    open_heading,
    summary,
)
from fsdplint.report.frames import printable_line
from fsdplint.report.remarks import remark_lines, wrap_text
from fsdplint.report.result import plural, problem_line

GREEN, RED, BOLD = "32", "31", "1"


def write(report: Report, *, colour: bool = False) -> Iterator[str]:
    """The lines of the report."""
    for problem in report.problems:
        yield problem_line(problem)
    if report.problems:
        yield ""
    for section in report.sections:
        yield from _Writer(colour).section(section)
        yield ""
    if report.open:
        yield "Open since an earlier assisted migration:"
        for place in report.open:
            yield from _Writer(colour).open_place(place)
        yield ""
    yield from summary(report)


def blocked_lines(report: Report) -> Iterator[str]:
    """The lines of the sections that are not migrated, with what is to be decided."""
    for section in report.sections:
        if section.is_blocked:
            yield from _Writer(colour=False).section(section)
            yield ""


def outside_lines(report: Report) -> Iterator[str]:
    """For each program that is not written because of them, the files that were not given."""
    for section in report.sections:
        if section.outside and not section.is_blocked and not section.is_written:
            files = ", ".join(section.outside)
            yield from wrap_text(
                f"{section.title}: ", f"files outside of the paths must change too: {files}"
            )


class _Writer:
    def __init__(self, colour: bool) -> None:
        self.colour = colour
        self.explained_rules: set[str] = set()
        self.advised: dict[tuple[str, str], Obstacle] = {}

    def section(self, section: Section) -> Iterator[str]:
        yield self._style(f"{section.title}: {section.verdict}", BOLD)
        others = [path for path in section.files if path != section.title]
        if others:
            yield from wrap_text("  with ", ", ".join(others))
        for change in section.changes:
            yield ""
            yield from self._change(change)
        if section.obstacles:
            yield ""
            yield "  To be decided:"
        for obstacle in section.obstacles:
            yield from self._obstacle(obstacle)
        if section.open:
            yield ""
            yield f"  {open_heading(section)}"
        for one in section.open:
            yield from self.open_place(one)
        if section.waiting:
            yield ""
            words = plural(len(section.waiting), "other use")
            places = ", ".join(map(str, section.waiting))
            yield from wrap_text("  ", f"{words} of FSDP1 will be rewritten then: {places}")
        if section.remarks:
            yield ""
            yield "  What changes in behaviour or cost:"
        for remark in section.remarks:
            yield from remark_lines(remark)
        if section.outside:
            yield ""
            yield from wrap_text(
                "  Files outside of the paths that must change too: ", ", ".join(section.outside)
            )
        if section.prove:
            yield ""
            yield "  Prove it:"
            yield from (f"    {line}" for line in section.prove)
        if section.prove_note:
            yield from wrap_text("    ", section.prove_note)

    def _change(self, change: Change) -> Iterator[str]:
        yield from wrap_text(f"  {change.place}: ", "; ".join(change.titles))
        for reason in change.reasons:
            if reason.code not in self.explained_rules:
                self.explained_rules.add(reason.code)
                yield from wrap_text(f"    {reason.code}: ", reason.text)
        for line in change.before:
            yield self._style(f"    - {printable_line(line)}".rstrip(), RED)
        for line in change.after:
            yield self._style(f"    + {printable_line(line)}".rstrip(), GREEN)

    def _obstacle(self, obstacle: Obstacle) -> Iterator[str]:
        yield ""
        yield from wrap_text(f"  {obstacle.place}: {obstacle.code} ", obstacle.reason)
        margin = max((len(str(number)) for number, _ in obstacle.lines), default=0)
        for number, line in obstacle.lines:
            yield f"    {number:>{margin}} | {printable_line(line)}".rstrip()
        first = self.advised.setdefault((obstacle.reason, obstacle.advice), obstacle)
        advice = obstacle.advice if first is obstacle else f"As at {first.place}."
        yield from wrap_text("    = to do: ", advice)

    def open_place(self, place: OpenPlace) -> Iterator[str]:
        yield ""
        yield from wrap_text(f"  {place.place}: ", place.reason or place.decision)
        yield from wrap_text("    = then: ", place.postcondition)
        yield from (f"    = check: {command}" for command in place.checks)

    def _style(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour else text
