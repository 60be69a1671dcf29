"""Writers of findings: one file for each output format, with a function `write`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Protocol, cast

from fsdplint.config.options import FORMATS
from fsdplint.report.cells import translate_locations
from fsdplint.report.pages import rule_table
from fsdplint.report.result import Result

__all__ = ["FORMATS", "Result", "Writer", "rule_table", "write", "writer"]


class Writer(Protocol):
    """The interface of the modules in `fsdplint.report.formats`, which document its constants."""

    FOR_PEOPLE: bool
    HAS_STATISTICS: bool

    def write(self, result: Result) -> Iterable[str]: ...


def write(result: Result, output_format: str) -> Iterable[str]:
    """The lines of a report in one of the `FORMATS`."""
    return writer(output_format).write(translate_locations(result, output_format))


def writer(output_format: str) -> Writer:
    """The module of one of the `FORMATS`."""
    name = f"fsdplint.report.formats.{output_format.replace('-', '_')}"
    return cast(Writer, import_module(name))
