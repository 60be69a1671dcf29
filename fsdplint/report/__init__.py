"""Writers of findings: one file for each output format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fsdplint.report import as_json, concise, full
from fsdplint.report.pages import rule_table
from fsdplint.report.result import Result

__all__ = ["WRITERS", "Result", "rule_table", "write"]

WRITERS: dict[str, Callable[[Result], Iterator[str]]] = {
    "full": full.write,
    "concise": concise.write,
    "json": as_json.write,
}


def write(result: Result, output_format: str) -> Iterable[str]:
    """The lines of a report in one of the formats of `WRITERS`."""
    return WRITERS[output_format](result)
