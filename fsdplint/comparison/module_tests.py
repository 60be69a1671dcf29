"""Tests that choose which modules are sharded and that could not be followed.

The interpreter decides an unknown test, such as `policy(module)`, once for a whole run. A run then
shards all modules or none, and neither says what the program does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.source.source import NodeSite
from fsdplint.trace import Guard, GuardKind, Sharded, Trace, Wrapped


def chooses_modules(trace: Trace) -> bool:
    """Whether an unknown test of a module decides whether this module is sharded."""
    shards: list[Sharded | Wrapped] = [*trace.of(Sharded), *trace.of(Wrapped)]
    for event in shards:
        names = set(_names(event))
        if any(_tests(guard, name) for guard in event.guards for name in names):
            return True
    return False


def _names(event: Sharded | Wrapped) -> Iterator[str]:
    """The variable whose module is sharded."""
    site = event.site
    if isinstance(site, NodeSite) and isinstance(site.node, cst.Call) and site.node.args:
        first = site.node.args[0].value
        if isinstance(first, cst.Name):
            yield first.value


def _tests(guard: Guard, name: str) -> bool:
    """Whether a condition calls a function of a variable."""
    if guard.kind is not GuardKind.CONFIG or guard.text.startswith("hasattr("):
        return False
    return re.search(rf"[(,=]\s*{re.escape(name)}\b\s*[,)]", guard.text) is not None
