"""A report of GitLab's Code Quality.

https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from fsdplint.diagnostics.finding import Severity
from fsdplint.diagnostics.fingerprint import fingerprint
from fsdplint.report.places import from_top, top
from fsdplint.report.records import records
from fsdplint.report.result import Result

FOR_PEOPLE = False
HAS_STATISTICS = False

_LEVELS = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


def write(result: Result) -> Iterator[str]:
    """The lines of the report."""
    folder = top()
    counts: Counter[str] = Counter()
    issues: list[dict[str, Any]] = []
    for one in records(result):
        path = from_top(one.at.path, folder) or one.at.path
        mark = fingerprint(one.code, path, result.sources.get(one.at.path), one.at.line)
        counts[mark] += 1
        if counts[mark] > 1:  # fingerprints must be unique
            mark = sha256(f"{mark}:{counts[mark]}".encode()).hexdigest()
        issues.append(
            {
                "check_name": one.code,
                "description": f"{one.code}: {one.line}",
                "severity": _LEVELS[one.severity],
                "fingerprint": mark,
                "location": {
                    "path": path,
                    "positions": {
                        "begin": {"line": one.at.line, "column": one.at.column},
                        "end": {"line": one.at.end_line, "column": one.at.end_column},
                    },
                },
            }
        )
    yield json.dumps(issues, indent=2)
