"""The report for people: the code, the problem, its consequences, and advice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.report.frames import frame
from fsdplint.report.reasons import why_of
from fsdplint.report.records import Record, records
from fsdplint.report.result import Result, conditions, problem_line, summary
from fsdplint.report.styling import COLOURS, code, path, styled

FOR_PEOPLE = True
HAS_STATISTICS = True

WIDTH = 96


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for problem in result.problems:
        yield problem_line(problem)
    if result.problems:
        yield ""
    advised: dict[str, str] = {}
    for one in records(result):
        if one.finding is not None:
            yield from _finding(result, one, one.finding, advised)
            yield ""
    yield from summary(result)


def _finding(
    result: Result, one: Record, finding: Finding, advised: dict[str, str]
) -> Iterator[str]:
    """The lines of a finding. `advised`: the place of each advice that a program had before."""
    rule = finding.rule
    at = finding.site.location()
    mark = " [*]" if result.applicable(finding) else ""
    place = path(result, f"{at.path}:{at.line}:{at.column}")
    yield f"{place}: {code(result, one)}{mark} {finding.message} ({rule.name})"
    source = result.sources.get(at.path)
    margin = ""
    if source is not None:
        for line in frame(source, at):
            margin = margin or line[: line.index("|")]
            yield _colour(result, line, COLOURS[rule.severity])
    for name, text in _notes(result, finding, at.path):
        if name == "help" and rule.grouped:
            first = advised.setdefault(text, f"{at.path}:{at.line}")
            if first != f"{at.path}:{at.line}":
                text = f"The advice at {first} applies here, too."
        yield from _note(margin or "  ", name, text)


def _notes(result: Result, finding: Finding, own: str) -> Iterator[tuple[str, str]]:
    for site, word in finding.related:
        at = site.location()
        place = f"line {at.line}" if at.path == own else f"{at.path}:{at.line}"
        yield "note", f"{word} ({place})"
    if finding.configuration:
        word = "example" if finding.one_of_several else "only"
        yield word, "when " + conditions(finding)
    why = why_of(finding)
    if why:
        yield "why", why
    if finding.help:
        yield "help", finding.help
    if finding.blocker and finding.blocker not in finding.help:
        yield "blocks", finding.blocker
    if finding.fix is not None:
        unsafe = finding.fix.safety is Safety.UNSAFE
        yield "fix", finding.fix.title + (" (unsafe: needs --unsafe-fixes)" if unsafe else "")
    other_files = result.outside.get(id(finding))
    if other_files:
        yield (
            "note",
            f"the fix also changes {', '.join(other_files)}: "
            "name these files as well, or use --project",
        )


def _note(margin: str, name: str, text: str) -> Iterator[str]:
    head = f"{margin}= {name}: "
    yield from textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def _colour(result: Result, line: str, style: str) -> str:
    head, bar, rest = line.partition("|")
    if not result.colour or not rest.strip() or rest.strip().strip("^") or head.strip():
        return line
    return f"{head}{bar}{styled(result, rest, style)}"
