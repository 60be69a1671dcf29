"""The objects of the format `json`, one in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fsdplint.report.formats.json import objects
from fsdplint.report.result import Result

FOR_PEOPLE = False
HAS_STATISTICS = False


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    for one in objects(result):
        yield json.dumps(one)
