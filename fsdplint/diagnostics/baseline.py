"""Findings that were there when somebody began: recorded in a file, and not reported again.

A finding is recognised by its fingerprint (`fsdplint.diagnostics.fingerprint`), so that it is the
same one when lines are moved; of several with the same one as many are known as were recorded.
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
    """A baseline that cannot be used; the text names the file."""


@dataclass
class Baseline:
    """Known findings.

    Attributes:
        file: where they are recorded; paths are told from its folder.
        counts: how many there are of each fingerprint.
    """

    file: Path
    counts: Counter[str] = field(default_factory=Counter)

    def known(self, found: Sequence[Finding], sources: Mapping[str, Source]) -> set[int]:
        """The ids of the findings that are recorded; of more than were, the later ones are new."""
        left = Counter(self.counts)
        result = set()
        for one in found:
            mark = self.fingerprint(one, sources)
            if left[mark] > 0:
                left[mark] -= 1
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
        BaselineError: it is missing, or holds something else.
    """
    try:
        data = json.loads(reading.read(file))
        if data["version"] != VERSION:
            raise BaselineError(
                f"{file}: a baseline of another version; `fsdplint baseline` writes it anew"
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
    """What a baseline with these findings holds: sorted, so that its changes can be reviewed."""
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
