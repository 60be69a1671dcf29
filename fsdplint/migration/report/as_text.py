"""The report of a migration for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from fsdplint.migration.report.model import Change, Obstacle, Remark, Report, Section, summary
from fsdplint.report.frames import shown
from fsdplint.report.result import plural, problem_line

WIDTH = 96
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
    yield from summary(report)


class _Writer:
    def __init__(self, colour: bool) -> None:
        self.colour = colour
        self.said: set[str] = set()  # rules whose reason was given

    def section(self, section: Section) -> Iterator[str]:
        yield self._styled(f"{section.title}: {section.verdict}", BOLD)
        others = [path for path in section.files if path != section.title]
        if others:
            yield from _wrapped("  with ", ", ".join(others))
        for change in section.changes:
            yield ""
            yield from self._change(change)
        if section.obstacles:
            yield ""
            yield "  To be decided:"
        for obstacle in section.obstacles:
            yield from self._obstacle(obstacle)
        if section.waiting:
            yield ""
            words = plural(len(section.waiting), "other use")
            places = ", ".join(map(str, section.waiting))
            yield from _wrapped("  ", f"{words} of FSDP1 will be rewritten then: {places}")
        if section.remarks:
            yield ""
            yield "  What changes in behaviour or cost:"
        for remark in section.remarks:
            yield from remark_lines(remark)
        if section.outside:
            yield ""
            yield from _wrapped(
                "  Files outside of the paths that must change too: ", ", ".join(section.outside)
            )
        if section.prove:
            yield ""
            yield "  Prove it:"
            yield from (f"    {line}" for line in section.prove)
        if section.prove_note:
            yield from _wrapped("    ", section.prove_note)

    def _change(self, change: Change) -> Iterator[str]:
        yield from _wrapped(f"  {change.place}: ", "; ".join(change.titles))
        for reason in change.reasons:
            if reason.code not in self.said:
                self.said.add(reason.code)
                yield from _wrapped(f"    {reason.code}: ", reason.text)
        for line in change.before:
            yield self._styled(f"    - {shown(line)}".rstrip(), RED)
        for line in change.after:
            yield self._styled(f"    + {shown(line)}".rstrip(), GREEN)

    def _obstacle(self, obstacle: Obstacle) -> Iterator[str]:
        yield ""
        yield from _wrapped(f"  {obstacle.place}: {obstacle.code} ", obstacle.reason)
        margin = max((len(str(number)) for number, _ in obstacle.lines), default=0)
        for number, line in obstacle.lines:
            yield f"    {number:>{margin}} | {shown(line)}".rstrip()
        yield from _wrapped("    = to do: ", obstacle.advice)

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour else text


def remark_lines(remark: Remark) -> Iterator[str]:
    """A note on what changes."""
    places = f" ({', '.join(map(str, remark.places))})" if remark.places else ""
    text = f"{remark.text}{places}." + (f" {remark.detail}" if remark.detail else "")
    yield from _wrapped("  - ", text)


def _wrapped(head: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=head,
        subsequent_indent=" " * (4 if len(head) > 12 else len(head)),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]
