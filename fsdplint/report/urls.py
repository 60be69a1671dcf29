"""Addresses of the documentation; no other module contains one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsdplint.diagnostics.finding import RuleInfo

BASE = "https://fsdplint.readthedocs.io"


def rule_url(name: str) -> str:
    """The page of fsdplint's rule with this name."""
    return f"{BASE}/rules/{name}"


def schema_url(name: str) -> str:
    """The JSON schema of a report."""
    return f"{BASE}/schemas/{name}.json"


def page_of(rule: type[RuleInfo]) -> str:
    """The page of a rule; empty if a plug-in's rule names none."""
    return rule_url(rule.name) if rule.plugin is None else rule.url or ""
