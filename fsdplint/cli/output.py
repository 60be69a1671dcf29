"""Writing reports, problems and statistics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsdplint.cli.streams import fail
from fsdplint.report import FORMATS, write, writer
from fsdplint.report.result import Result, problem_line, summary
from fsdplint.report.terminal import colours, links
from fsdplint.source.files import Problem
from fsdplint.source.nesting import deep_stack
from fsdplint.version import __version__

if TYPE_CHECKING:
    from fsdplint.report import schema


def refuse_statistics(output_format: str) -> None:
    """End the command if statistics cannot be written in the format."""
    if not writer(output_format).HAS_STATISTICS:
        *names, last = (name for name in FORMATS if writer(name).HAS_STATISTICS)
        formats = f"{', '.join(names)} and {last}"
        fail(f"--statistics supports the formats {formats}, not {output_format}")


def show_warnings(result: Result) -> None:
    """Write the warnings of a check to standard error."""
    for line in result.warnings:
        click.echo(line, err=True)


def show_problems(problems: Iterable[Problem]) -> None:
    """Write problems to standard error."""
    for problem in problems:
        click.echo(problem_line(problem), err=True)


def emit(
    output: Path | None, lines: Iterable[str], *, err: bool = False, colour: bool = False
) -> None:
    """Write lines to a file, or to a standard stream if `output` is None."""
    if output is None:
        for line in lines:
            click.echo(line, err=err, color=colour or None)
        return
    from fsdplint.edits.atomic_file import make_folder, save

    text = "".join(f"{line}\n" for line in lines)
    try:
        make_folder(output.parent)
        save(output, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        fail(f"{output}: cannot be written: {error.strerror or error}")


def report(
    result: Result,
    output_format: str,
    output: Path | None,
    colour: str,
    *,
    counted: bool = False,
    err: bool = False,
    before: Iterable[str] = (),
) -> None:
    """Write a report.

    Args:
        result: the findings.
        output_format: the name of the format.
        output: the file; None for a standard stream.
        colour: "auto", "always" or "never".
        counted: write the number of findings of each rule instead of the findings.
        err: write to standard error instead of standard output.
        before: lines to write first.
    """
    stream = sys.stderr if err else sys.stdout
    result.colour = output is None and colours(colour, stream)
    result.links = result.colour and links(stream)
    if counted:
        lines = statistics(result, output_format)
    else:
        lines = list(deep_stack(lambda: list(write(result, output_format))))
    emit(output, [*before, *lines], err=err, colour=result.colour)


def statistics(result: Result, output_format: str) -> list[str]:
    """The number of findings of each rule, the most frequent first."""
    from fsdplint.report.records import records

    found: dict[str, list[bool]] = {}
    names: dict[str, str] = {}
    for one in records(result):
        fixable = one.finding is not None and result.applicable(one.finding)
        found.setdefault(one.code, []).append(fixable)
        names[one.code] = one.name
    rows = sorted(found.items(), key=lambda row: (-len(row[1]), row[0]))
    if output_format in ("json", "json-full"):
        objects: list[schema.RuleCount] = [
            {
                "code": code,
                "name": names[code],
                "count": len(each),
                "fixable": all(each),
                "fixable_count": sum(each),
            }
            for code, each in rows
        ]
        if output_format == "json":
            return [json.dumps(objects, indent=2)]
        return [json.dumps(_whole_statistics(result, objects), indent=2)]
    width = max((len(str(len(each))) for _, each in rows), default=0)
    codes = max((len(code) for code, _ in rows), default=0)
    marked = any(any(each) for each in found.values())
    lines = []
    for code, each in rows:
        mark = "[*] " if all(each) else "[-] " if any(each) else "[ ] "
        lines.append(
            f"{len(each):>{width}}\t{code:<{codes}}\t{mark if marked else ''}{names[code]}"
        )
    return [*lines, *summary(result)]


def _whole_statistics(result: Result, rules: list[schema.RuleCount]) -> schema.Statistics:
    from fsdplint.report.formats.json_full import summary_data

    return {
        "schema_version": 1,
        "version": __version__,
        "summary": summary_data(result),
        "rules": rules,
    }
