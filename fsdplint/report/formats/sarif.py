"""SARIF 2.1.0, for code scanning services and editors.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fsdplint.diagnostics.finding import Edit, Severity
from fsdplint.diagnostics.fingerprint import fingerprint
from fsdplint.registry.rules import rule_by_code
from fsdplint.report.pages import page, section, summary
from fsdplint.report.places import from_top, top, uri
from fsdplint.report.records import Edits, Record, records
from fsdplint.report.result import Result
from fsdplint.report.urls import BASE
from fsdplint.trace import Location
from fsdplint.version import __version__

FOR_PEOPLE = False
HAS_STATISTICS = False

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    yield json.dumps(_Writer(result).log(), indent=2)


class _Writer:
    def __init__(self, result: Result) -> None:
        self.result = result
        self.edits = Edits(result)
        self.top = top()
        self.rules: dict[str, dict[str, Any]] = {}

    def log(self) -> dict[str, Any]:
        results = [self._result(one) for one in records(self.result)]
        driver = {
            "name": "fsdplint",
            "version": __version__,
            "informationUri": BASE,
            "rules": list(self.rules.values()),
        }
        run = {
            "tool": {"driver": driver},
            "invocations": [{"executionSuccessful": not self.result.problems}],
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {ROOT: {"uri": self.top.as_uri().rstrip("/") + "/"}},
            "results": results,
        }
        return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}

    def _result(self, one: Record) -> dict[str, Any]:
        self.rules.setdefault(one.code, _rule(one))
        text = one.message + (f"\n{one.help}" if one.help else "")
        result: dict[str, Any] = {
            "ruleId": one.code,
            "ruleIndex": list(self.rules).index(one.code),
            "level": _LEVELS[one.severity],
            "message": _message(text),
            "locations": [{"physicalLocation": self._place(one.at)}],
            "partialFingerprints": {"fsdplint/v1": self._fingerprint(one)},
        }
        if one.finding is None:
            return result
        related = [
            {"physicalLocation": self._place(site.location()), "message": _message(word)}
            for site, word in one.finding.related
        ]
        if related:
            result["relatedLocations"] = related
        edits = self.edits.applicable(one.finding)
        if edits and one.finding.fix is not None:
            result["fixes"] = [
                {
                    "description": _message(one.finding.fix.title),
                    "artifactChanges": self._changes(edits),
                }
            ]
        return result

    def _fingerprint(self, one: Record) -> str:
        path = from_top(one.at.path, self.top) or one.at.path
        return fingerprint(one.code, path, self.result.sources.get(one.at.path), one.at.line)

    def _artifact(self, path: str) -> dict[str, str]:
        relative = from_top(path, self.top)
        if relative is None:
            return {"uri": Path(os.path.abspath(path)).as_uri()}
        return {"uri": uri(relative), "uriBaseId": ROOT}

    def _place(self, at: Location) -> dict[str, Any]:
        region = {
            "startLine": at.line,
            "startColumn": at.column,
            "endLine": at.end_line or at.line,
            "endColumn": at.end_column or at.column,
        }
        return {"artifactLocation": self._artifact(at.path), "region": region}

    def _changes(self, edits: Sequence[Edit]) -> list[dict[str, Any]]:
        return [
            {
                "artifactLocation": self._artifact(path),
                "replacements": [self._replacement(edit) for edit in group],
            }
            for path, group in groupby(sorted(edits), key=lambda edit: edit.path)
        ]

    def _replacement(self, edit: Edit) -> dict[str, Any]:
        source = self.result.sources[edit.path]
        line, column = source.position(edit.start)
        end_line, end_column = source.position(edit.end)
        return {
            "deletedRegion": {
                "startLine": line,
                "startColumn": column,
                "endLine": end_line,
                "endColumn": end_column,
            },
            "insertedContent": {"text": edit.text},
        }


def _message(text: str) -> dict[str, str]:
    """A message, escaped: braces would be placeholders, and `[a](b)` would be a link."""
    return {"text": text.replace("{", "{{").replace("}", "}}").replace("](", "] (")}


def _rule(one: Record) -> dict[str, Any]:
    """The description of a rule."""
    rule = one.finding.rule if one.finding else rule_by_code(one.code)
    about = text = one.name
    why = ""
    if rule is not None:
        about, why, text = summary(rule), section(rule, "Why is this bad?"), page(rule)
    return {
        "id": one.code,
        "name": one.name,
        "shortDescription": {"text": about},
        "fullDescription": {"text": " ".join(why.split()) or about},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": _LEVELS[one.severity]},
    } | ({"helpUri": one.url} if one.url else {})
