"""Addresses of the documentation; the only place that knows where it is."""

from __future__ import annotations

BASE = "https://fsdplint.readthedocs.io"


def rule_url(name: str) -> str:
    """The page of the rule with this name."""
    return f"{BASE}/rules/{name}"
