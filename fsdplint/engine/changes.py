"""The changes that fixing makes; nothing is written yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.report.result import Result

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import Finding


@dataclass
class Changes:
    """The changes that fixing makes.

    Attributes:
        texts: the old and new text of every file that changes, in the order of the names.
        contents: the old content of those files, as bytes, and the new one.
        result: the findings that remain, and how many were fixed.
        applied: the findings whose fixes were applied.
    """

    texts: dict[Path, tuple[str, str]] = field(default_factory=dict)
    contents: dict[Path, tuple[bytes, bytes]] = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    applied: list[Finding] = field(default_factory=list)
