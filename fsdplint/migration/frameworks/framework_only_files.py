"""Files that use FSDP1's names only to configure a framework."""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.syntax import is_within, names
from fsdplint.interpreter import Program
from fsdplint.migration.names import PREFIX, fsdp1_name
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.layout import statement_of
from fsdplint.syntax.qualified_names import references
from fsdplint.trace import FrameworkConfigured


def configures_frameworks_only(program: Program, source: Source) -> bool:
    """Whether all uses of FSDP1 in a file are arguments for a framework, which has its own rule.

    They stand in the call of the framework, or in the definition of a variable that the call reads.
    """
    calls = {
        event.site.node
        for trace in program.traces
        for event in trace.of(FrameworkConfigured)
        if isinstance(event.site, NodeSite) and event.site.source is source
    }
    if not calls:
        return False
    variables = {name for call in calls for name in names(call)}
    return all(
        any(is_within(source, node, call) for call in calls) or _defines(source, node, variables)
        for _, node, full in references(source, PREFIX)
        if fsdp1_name(full)
    )


def _defines(source: Source, node: cst.CSTNode, variables: set[str]) -> bool:
    """Whether a node is part of the definition of one of the variables."""
    statement = statement_of(source, node)
    if not isinstance(statement, cst.Assign) or len(statement.targets) > 1:
        return False
    target = statement.targets[0].target
    return isinstance(target, cst.Name) and target.value in variables
