"""Logging commands of Azure Pipelines, which shows them as issues of a build.

https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from fsdplint.diagnostics.finding import Severity
from fsdplint.report.records import records
from fsdplint.report.result import Result

FOR_PEOPLE = False
HAS_STATISTICS = False


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for one in records(result):
        properties = {
            "type": "error" if one.severity is Severity.ERROR else "warning",  # there is no third
            "sourcepath": os.path.abspath(one.at.path),
            "linenumber": str(one.at.line),
            "columnnumber": str(one.at.column),
            "code": one.code,
        }
        words = "".join(f"{name}={_property(value)};" for name, value in properties.items())
        yield f"##vso[task.logissue {words}]{_data(one.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace("]", "%5D").replace(";", "%3B")
