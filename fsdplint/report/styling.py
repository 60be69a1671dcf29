"""Colours and links for terminals that support them."""

from __future__ import annotations

from fsdplint.diagnostics.finding import Severity
from fsdplint.report.records import Record
from fsdplint.report.result import Result, on_one_line

COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}


def styled(result: Result, text: str, style: str) -> str:
    """The text with a style of ANSI (such as "1;31")."""
    return f"\x1b[{style}m{text}\x1b[0m" if result.colour else text


def path(result: Result, text: str) -> str:
    return styled(result, on_one_line(text), "1")


def code(result: Result, one: Record) -> str:
    """The code of a rule, in the colour of its severity, with a link to the rule's page."""
    text = styled(result, one.code, "1;" + COLOURS[one.severity])
    return f"\x1b]8;;{one.url}\x1b\\{text}\x1b]8;;\x1b\\" if result.links and one.url else text
