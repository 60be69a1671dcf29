"""What rules of other packages import. The modules behind these names may change."""

from __future__ import annotations

from fsdplint.diagnostics.finding import (
    Edit,
    Finding,
    Fix,
    Import,
    Note,
    Safety,
    Severity,
)
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule

__all__ = [
    "Bad",
    "Edit",
    "Finding",
    "Fix",
    "Good",
    "Import",
    "Note",
    "Rule",
    "Safety",
    "Severity",
    "Symptom",
]
