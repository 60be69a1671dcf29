"""JUnit's XML: a suite for each file, a failure for each finding.

A file that could not be checked becomes an `error` element.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement

from fsdplint.report.records import Record, records
from fsdplint.report.result import Result

FOR_PEOPLE = False
HAS_STATISTICS = False

NAME = "fsdplint"
# Characters that XML 1.0 cannot represent.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    found = sorted(records(result), key=lambda one: one.at.path)
    root = Element("testsuites", {"name": NAME, **_counts(found)})
    for path, group in groupby(found, key=lambda one: one.at.path):
        together = list(group)
        suite = SubElement(root, "testsuite", {"name": _text(path), **_counts(together)})
        for one in together:
            _case(suite, one)
    if not found:
        suite = SubElement(root, "testsuite", {"name": NAME, **_counts(found)})
        SubElement(suite, "testcase", name="All checks passed", classname=NAME)
    ElementTree.indent(root)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield ElementTree.tostring(root, encoding="unicode")


def _counts(found: Sequence[Record]) -> dict[str, str]:
    errors = sum(one.finding is None for one in found)
    return {
        "tests": str(len(found) or 1),
        "failures": str(len(found) - errors),
        "errors": str(errors),
    }


def _case(suite: Element, one: Record) -> None:
    at = one.at
    case = SubElement(
        suite,
        "testcase",
        name=f"{one.code} {one.name}",
        classname=_text(re.sub(r"\.\w+$", "", at.path)),
        file=_text(at.path),
        line=str(at.line),
    )
    bad = SubElement(
        case,
        "error" if one.finding is None else "failure",
        message=_text(one.line),
        type=one.severity.value,
    )
    lines = [f"{at.path}:{at.line}:{at.column}: {one.message}", one.help, one.url]
    bad.text = _text("\n".join(line for line in lines if line))


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
