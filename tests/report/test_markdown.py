"""The summary for a pull request, and that proofs stay short enough to be posted."""

from __future__ import annotations

import re

from samples import Sample, site

from fsdplint.diagnostics.finding import Finding
from fsdplint.report import Result, write
from fsdplint.report.formats.markdown import MOST
from fsdplint.runtime.proof.reports.markdown import collapsed_diff

LARGEST = 65_536  # characters of a comment on GitHub


def test_the_table(result: Result) -> None:
    lines = list(write(result, "markdown"))
    assert lines[:4] == ["## fsdplint", "", "| | Place | Finding |", "| --- | --- | --- |"]
    rows = [line for line in lines[4:] if line.startswith("|")]
    # The worst first; no text ends a cell, and the table has three columns.
    severities = [row.split(" ")[1] for row in rows]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
    assert not any("<b>" in row for row in rows)
    assert any("](https://fsdplint.readthedocs.io/rules/sample)" in row for row in rows)


def test_nothing_found() -> None:
    assert list(write(Result(), "markdown")) == ["## fsdplint", "", "All checks passed.  "]


def test_many_findings_stay_short() -> None:
    found = [
        Finding(rule=Sample, site=site(line, 1, line, 2), message="long " * 200)
        for line in range(1, 2000)
    ]
    text = "\n".join(write(Result(findings=found), "markdown"))
    assert f"| | | {1999 - MOST} more |" in text
    assert len(text) < LARGEST / 2


def test_a_long_diff_is_cut() -> None:
    diff = "".join(f"+line {number} {'x' * 60}\n" for number in range(5000))
    text = "\n".join(collapsed_diff(diff))
    assert len(text) < LARGEST / 2
    shown = len(re.findall(r"^\+line", text, re.MULTILINE))
    assert f"\n... {5000 - shown} more lines\n```" in text
    assert list(collapsed_diff("")) == []
    assert "more lines" not in "\n".join(collapsed_diff("+one\n"))
