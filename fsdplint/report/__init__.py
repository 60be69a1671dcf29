"""Writers of findings: one file for each output format, with a function `write`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from fsdplint.config.options import FORMATS
from fsdplint.report.cells import translated
from fsdplint.report.pages import rule_table
from fsdplint.report.result import Result

__all__ = ["FORMATS", "Result", "rule_table", "write"]


def write(result: Result, output_format: str) -> Iterable[str]:
    """The lines of a report in one of the `FORMATS`."""
    module = import_module(f"fsdplint.report.formats.{output_format.replace('-', '_')}")
    lines: Iterable[str] = module.write(translated(result, output_format))
    return lines
