"""Which files a report may overwrite: only an earlier report of its kind.

The content of an existing file decides. Any other file, such as a program that the user named by
mistake, stays.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fsdplint.source import config_files
from fsdplint.source.files import SUFFIXES

LONGEST = 10_000  # characters of a line up to the code of its finding
LARGEST = 256 * 1024 * 1024  # bytes of a report; a larger file is not one
GENERATOR = '<meta name="generator" content="fsdplint">'  # in every page

_PLACE = re.compile(r"(?:.+:\d+:\d+|.+:\d+|.+): \[?([A-Z]+\d+)\]? ")  # of a finding or problem
_BELOW_NAME = re.compile(r"  \d+:\d+ +([A-Z]+\d+) ")
_COUNT = re.compile(r" *\d+\t([A-Z]+\d+) *\t")
_SENTENCE = re.compile(
    r"All checks passed\.|Found \d+ (?:error|warning|note)|Fixed \d+ findings?[.:;]"
    r"|Nothing was found in what ran of the program\."
    r"|No Python files were found; nothing was checked\."
)
_OF_FINDING = {"code", "name", "severity", "message", "filename"}
_OF_CHECK = {"schema_version", "summary", "findings", "problems", "coverage"}
_OF_COVERAGE = {"schema_version", "sites", "covered", "files"}
_OF_STATISTICS = {"schema_version", "summary", "rules"}
_OF_COUNT = {"code", "name", "count", "fixable"}
_WHOLE = (_OF_FINDING, _OF_CHECK, _OF_COVERAGE, _OF_STATISTICS)
_OF_GITLAB = {"check_name", "description", "severity", "fingerprint"}


class OverwriteError(Exception):
    """A report would overwrite a file of another kind; the message names the file."""


def refuse_overwriting(path: Path, kind: str, *, force: bool = False) -> None:
    """Refuse to overwrite a file that is not an earlier report.

    Args:
        path: the file.
        kind: the kind of the report, one of `KINDS`.
        force: allow to overwrite any file.

    Raises:
        OverwriteError: the file holds something else.
    """
    from fsdplint.edits.atomic_file import is_open_name

    if force or is_open_name(path):
        return
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return
        known = status.st_size <= LARGEST and KINDS[kind](path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        known = False
    except OSError:  # the file does not exist, or the report cannot be written either
        return
    if not known:
        raise OverwriteError(
            f"{path} exists and is not a {kind} of fsdplint; use --force to overwrite it"
        )


# The kinds ----------------------------------------------------------------------------------------


def _is_report(text: str) -> bool:
    """Whether a text holds findings, in any of the formats."""
    if text[0] in "[{":
        data = _json(text)
        if data is None:  # one object on each line
            return _all_have(map(_json, text.splitlines()), _OF_FINDING)
        if isinstance(data, list):
            return any(_all_have(data, keys) for keys in (_OF_FINDING, _OF_COUNT, _OF_GITLAB))
        if any(_has_keys(data, keys) for keys in _WHOLE):
            return True
        return _names_its_tool(data)
    if text.startswith("<?xml"):
        return '<testsuites name="fsdplint"' in text[:200]
    if text.startswith("## fsdplint\n"):
        return True
    lines = [line for line in text.splitlines() if line]
    if all("fsdplint (" in line[:40] and line.startswith("::") for line in lines):
        return True
    if all(line.startswith("##vso[task.logissue ") for line in lines):
        return True
    return bool(lines) and _begins_as_for_people(lines)


def _begins_as_for_people(lines: list[str]) -> bool:
    if _SENTENCE.match(lines[0]):
        return True
    from fsdplint.diagnostics.codes import known_rules

    if lines[0].endswith(":") and len(lines) > 1:
        found = _BELOW_NAME.match(lines[1])
    else:
        found = _PLACE.match(lines[0][:LONGEST]) or _COUNT.match(lines[0])
    return found is not None and found[1] in known_rules()


def _names_its_tool(data: Any) -> bool:
    """Whether JSON data is a report in SARIF or in the format of reviewdog."""
    try:
        runs = data.get("runs")
        tool = runs[0]["tool"]["driver"] if runs else data["source"]
        return bool(tool["name"] == "fsdplint")
    except (AttributeError, KeyError, TypeError, IndexError):
        return False


def _is_diff(text: str) -> bool:
    lines = text.splitlines()
    starts = ("--- ", "+++ ", "@@ ", " ", "+", "-", "\\")
    return lines[0].startswith("--- ") and all(line.startswith(starts) for line in lines if line)


def _is_file_list(text: str) -> bool:
    checked = (*SUFFIXES, *config_files.SUFFIXES)
    return all(os.path.isabs(line) and line.endswith(checked) for line in text.splitlines())


def _is_settings(text: str) -> bool:
    return text.startswith("Settings of: ")


def _is_baseline(text: str) -> bool:
    data = _json(text)
    if not _has_keys(data, {"version", "findings"}) or not isinstance(data["findings"], dict):
        return False
    return _all_have(data["findings"].values(), {"path", "code", "count"})


def _is_migration_report(text: str) -> bool:
    return text.startswith("# Migration from FSDP1 to FSDP2\n") or _has_keys(
        _json(text), {"summary", "wrote", "annotated", "programs"}
    )


def _is_plan(text: str) -> bool:
    """Whether a text is a sharding plan in any of its formats."""
    from fsdplint.comparison.unit_report import is_text_of_plan
    from fsdplint.report.unit_picture import MADE_BY

    if text.lstrip()[:9].lower() == "<!doctype":
        return GENERATOR in text[:2000]
    if text.startswith("<svg"):
        return MADE_BY in text[:2000]
    return is_text_of_plan(text) or _has_keys(
        _json(text), {"schema_version", "programs", "problems"}
    )


def _is_proof(text: str) -> bool:
    """Whether a text is the page, the Markdown or the JSON of a proof or a simulation."""
    if text.startswith(("## Proof of `", "## Simulation of `")):
        return True
    if text.lstrip()[:9].lower() == "<!doctype":
        return GENERATOR in text[:2000]
    data = _json(text)
    return _has_keys(data, {"script", "proven", "fixes"}) or _has_keys(
        data, {"script", "simulated"}
    )


KINDS: dict[str, Callable[[str], bool]] = {
    "report": _is_report,
    "diff": _is_diff,
    "file list": _is_file_list,
    "settings list": _is_settings,
    "baseline": _is_baseline,
    "migration report": _is_migration_report,
    "plan": _is_plan,
    "proof report": _is_proof,
}


def _json(text: str) -> Any:
    """The JSON value in a text; None if the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_keys(data: Any, keys: set[str]) -> bool:
    return isinstance(data, dict) and keys <= data.keys()


def _all_have(items: Iterable[Any], keys: set[str]) -> bool:
    return all(_has_keys(one, keys) for one in items)
