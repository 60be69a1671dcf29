"""Workflow commands of GitHub Actions, which become annotations of the changed lines.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Severity
from fsdplint.report.records import Record, records
from fsdplint.report.result import Result

FOR_PEOPLE = False
HAS_STATISTICS = False

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for one in records(result):
        properties = ",".join(f"{name}={_property(value)}" for name, value in _properties(one))
        at = one.at
        text = f"{at.path}:{at.line}:{at.column}: {one.code} {one.message}"
        if one.help:
            text += f"\n  help: {one.help}"
        yield f"::{_LEVELS[one.severity]} {properties}::{_data(text)}"


def _properties(one: Record) -> Iterator[tuple[str, str]]:
    at = one.at
    yield "title", f"fsdplint ({one.code})"
    yield "file", os.path.abspath(at.path)
    yield "line", str(at.line)
    if at.end_line == at.line:  # columns are only allowed within one line
        yield "col", str(at.column)
    yield "endLine", str(at.end_line)
    if at.end_line == at.line:
        yield "endColumn", str(at.end_column)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
