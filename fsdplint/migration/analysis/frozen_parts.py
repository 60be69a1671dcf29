"""Calls that wrap several models, of which the program freezes different parts.

A run keeps only the last value of a node, so the value of such a call's argument stands for one model.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.trace import Trace, Wrapped


def have_same_frozen_parts(migration: Migration, source: Source, argument: cst.CSTNode) -> bool:
    """Whether the models that a call with an argument wraps have the same frozen parts."""
    call = next(
        (one for one in ancestors(source, argument) if migration.called_name(one) == FSDP), None
    )
    return all(_have_same_frozen_parts(trace, call) for trace in migration.program.traces)


def _have_same_frozen_parts(trace: Trace, call: cst.CSTNode | None) -> bool:
    found = {
        _frozen_parts(trace, event.inner)
        for event in trace.of(Wrapped)
        if isinstance(event.site, NodeSite) and event.site.node is call
    }
    return len(found) <= 1


def _frozen_parts(trace: Trace, module: str) -> frozenset[str]:
    """The names of the submodules whose own parameters are frozen."""
    paths = {module: ""}
    for part in trace.submodules(module):
        for name, child in trace.modules[part].children.items():
            paths.setdefault(child, f"{paths.get(part, '?')}.{name}")
    return frozenset(path for part, path in paths.items() if trace.modules[part].frozen)
