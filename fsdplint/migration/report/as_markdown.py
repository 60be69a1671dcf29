"""The report of a migration as Markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fsdplint.migration.report.model import (
    Change,
    Obstacle,
    OpenPlace,
    Report,
    Section,
    open_heading,
    summary,
)
from fsdplint.report.result import problem_line
from fsdplint.report.urls import rule_url


def write(report: Report) -> Iterator[str]:
    """The lines of the report."""
    yield "# Migration from FSDP1 to FSDP2"
    yield ""
    yield " ".join(summary(report))
    for problem in report.problems:
        yield ""
        yield f"> {problem_line(problem)}"
    if len(report.sections) > 1:
        yield ""
        yield "| Program | Verdict |"
        yield "| --- | --- |"
        for section in report.sections:
            yield f"| {_code(section.title)} | {section.verdict} |"
    for section in report.sections:
        yield from _section(section)
    if report.open:
        yield ""
        yield "## Open since an earlier assisted migration"
    for place in report.open:
        yield from _open_place(place)


def _section(section: Section) -> Iterator[str]:
    yield ""
    yield f"## {_code(section.title)}: {section.verdict}"
    others = [path for path in section.files if path != section.title]
    if others:
        yield ""
        yield f"Together with {_codes(others)}."
    if section.obstacles:
        yield ""
        yield "### To be decided"
        yield ""
        yield "Nothing is rewritten while one of these is there."
        for obstacle in section.obstacles:
            yield from _obstacle(obstacle)
    if section.open:
        yield ""
        yield "### Code that raises"
        yield ""
        yield open_heading(section)
    for place in section.open:
        yield from _open_place(place)
    if section.waiting:
        yield ""
        yield f"Will be rewritten then: {', '.join(map(str, section.waiting))}."
    if section.remarks:
        yield ""
        yield "### What changes in behaviour or cost"
        yield ""
    for remark in section.remarks:
        places = f" ({', '.join(map(str, remark.places))})" if remark.places else ""
        detail = f" {remark.detail}" if remark.detail else ""
        yield f"- {remark.text}{places}.{detail}"
    if section.outside:
        yield ""
        yield "### Files outside of the paths that must change too"
        yield ""
        yield from (f"- {_code(path)}" for path in section.outside)
    if section.prove:
        yield ""
        yield "### Proof"
        yield ""
        yield from _code_block("console", section.prove)
    if section.prove_note:
        yield ""
        yield section.prove_note
    if section.changes:
        yield ""
        yield "### " + ("What was rewritten" if section.is_written else "What would be rewritten")
    for change in section.changes:
        yield from _change(change)


def _change(change: Change) -> Iterator[str]:
    yield ""
    yield f"#### {_code(str(change.place))}: {'; '.join(change.titles)}"
    for reason in change.reasons:
        yield ""
        yield f"[{reason.code}]({rule_url(reason.name)}): {reason.text}"
    yield ""
    lines = [f"-{line}" for line in change.before] + [f"+{line}" for line in change.after]
    yield from _code_block("diff", lines)


def _obstacle(obstacle: Obstacle) -> Iterator[str]:
    yield ""
    yield f"#### {_code(str(obstacle.place))}: {obstacle.reason}"
    if obstacle.lines:
        yield ""
        yield from _code_block("python", [line for _, line in obstacle.lines])
    yield ""
    yield f"**To do:** {obstacle.advice} ({obstacle.code})"


def _open_place(place: OpenPlace) -> Iterator[str]:
    yield ""
    yield f"#### {_code(str(place.place))}: {place.decision}"
    if place.reason:
        yield ""
        yield place.reason
    if place.old:
        yield ""
        yield from _code_block("python", place.old)
    yield ""
    yield f"**Then:** {place.postcondition} To check it: {_codes(place.checks)}."


def _code_block(language: str, lines: Sequence[str]) -> Iterator[str]:
    """A block of code, with a fence that is longer than any in it."""
    ticks = max([2, *(len(run) for line in lines for run in re.findall("`+", line))]) + 1
    yield "`" * ticks + language
    yield from lines
    yield "`" * ticks


def _codes(texts: Sequence[str]) -> str:
    return ", ".join(map(_code, texts))


def _code(text: str) -> str:
    """Inline code, also of a name with a backtick in it."""
    ticks = "`" * (max([0, *(len(run) for run in re.findall("`+", text))]) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"
