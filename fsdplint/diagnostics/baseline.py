"""The baseline: a file of known findings, which are not reported again.

A finding is recognised by its fingerprint (`fsdplint.diagnostics.fingerprint`), even if its lines
move. If several findings have the same fingerprint, as many are known as were recorded.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.diagnostics.fingerprint import fingerprint
from fsdplint.source import reading

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding
    from fsdplint.source.source import Source

VERSION = 1


class BaselineError(Exception):
    """A baseline cannot be used; the message names the file."""


@dataclass
class Baseline:
    """Known findings.

    Attributes:
        file: the file of the baseline; recorded paths are relative to its folder.
        counts: the number of findings with each fingerprint.
    """

    file: Path
    counts: Counter[str] = field(default_factory=Counter)

    def known_ids(self, found: Sequence[Finding], sources: Mapping[str, Source]) -> set[int]:
        """The ids of the recorded findings. Findings beyond the recorded number are new."""
        remaining = Counter(self.counts)
        result = set()
        for one in found:
            mark = self.fingerprint(one, sources)
            if remaining[mark] > 0:
                remaining[mark] -= 1
                result.add(id(one))
        return result

    def fingerprint(self, finding: Finding, sources: Mapping[str, Source]) -> str:
        at = finding.site.location()
        path = os.path.relpath(os.path.abspath(at.path), os.path.abspath(self.file.parent))
        path = path.replace(os.sep, "/")
        return fingerprint(finding.rule.code, path, sources.get(at.path), at.line)


def read(file: Path) -> Baseline:
    """The baseline in a file.

    Raises:
        BaselineError: the file is missing, or is not a baseline.
    """
    try:
        data = json.loads(reading.read(file))
        if data["version"] != VERSION:
            raise BaselineError(
                f"{file}: a baseline of another version; `fsdplint baseline` writes a new one"
            )
        counts = Counter(
            {str(mark): int(entry["count"]) for mark, entry in data["findings"].items()}
        )
    except OSError as error:
        hint = "`fsdplint baseline` writes it"
        raise BaselineError(f"{file}: {error.strerror or error}; {hint}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BaselineError(f"{file}: not a baseline of fsdplint") from error
    return Baseline(file, counts)


def text_of(file: Path, found: Iterable[Finding], sources: Mapping[str, Source]) -> str:
    """The content of a baseline with these findings, sorted so that changes can be reviewed."""
    baseline = Baseline(file)
    entries: dict[str, dict[str, object]] = {}
    for one in found:
        at = one.site.location()
        mark = baseline.fingerprint(one, sources)
        baseline.counts[mark] += 1
        path = os.path.relpath(os.path.abspath(at.path), os.path.abspath(file.parent))
        entries[mark] = {
            "path": path.replace(os.sep, "/"),
            "code": one.rule.code,
            "count": baseline.counts[mark],
        }
    ordered = sorted(
        entries.items(), key=lambda pair: (str(pair[1]["path"]), str(pair[1]["code"]), pair[0])
    )
    return json.dumps({"version": VERSION, "findings": dict(ordered)}, indent=2) + "\n"
