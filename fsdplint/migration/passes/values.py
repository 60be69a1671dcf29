"""Passes over imports, names and values: they are parts of all other code."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration import symbols
from fsdplint.migration.analysis import ambiguous_imports
from fsdplint.migration.analysis.aliases import aliases_in, is_read_elsewhere
from fsdplint.migration.analysis.passed_names import passed_names
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import NAME_PASSED_ON, STAR_IMPORT
from fsdplint.migration.constructor import (
    enum_reads,
    mesh_names,
    offload_reads,
    policy_uses,
    precision_reads,
    unread_values,
)
from fsdplint.migration.context import Migration
from fsdplint.migration.names import fsdp1_name
from fsdplint.migration.passes.state import PassState, references
from fsdplint.migration.rewriters import rewriter_of
from fsdplint.source.source import Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import PUBLIC


def follow_aliases(state: PassState) -> None:
    """Treat uses of a variable that is another name of FSDP1's as uses of that name."""
    migration = state.migration
    for source in migration.sources:
        for alias in aliases_in(source):
            nodes = {alias.statement, *alias.uses} - migration.undecided_nodes
            if alias.statement not in nodes:
                continue
            if nodes & migration.uncalled_nodes or is_read_elsewhere(migration.program, alias):
                continue
            migration.aliases.append(alias)
            for part in source.descend(alias.statement.value):
                migration.names.pop(part, None)
            for node, full in alias.uses.items():
                migration.symbols[node] = full
                name = fsdp1_name(full)
                if name is not None and node in nodes:
                    migration.names[node] = name


def resolve_imports(state: PassState) -> None:
    """Block on `import *`, and resolve names that are FSDP1's in some configurations only."""
    for one in passed_names(state.migration.program):
        if one.is_fsdp1 and one.source in state.migration.sources:
            reason = NAME_PASSED_ON(name=one.local, module=one.module)
            uses = [Blocked(one.source, use, reason) for use in one.uses[:1]]
            state.migration.blockers += uses
    for source in state.migration.sources:
        _check_star(state.migration, source)
        ambiguous_imports.resolve_names(state.migration, source)


def _check_star(migration: Migration, source: Source) -> None:
    """Block on `import *` from a private module of FSDP1: which names it gives is not known."""
    for node in source.descend(source.tree):
        if not isinstance(node, cst.ImportFrom) or not isinstance(node.names, cst.ImportStar):
            continue
        module = dotted_name(node.module) if node.module is not None else ""
        if node.relative or not module or module in PUBLIC:
            continue
        if fsdp1_name(module) is not None:
            reason = STAR_IMPORT(module=module)
            migration.blockers.append(Blocked(source, node, reason))


def delete_unread_values(state: PassState) -> None:
    """Delete variables with FSDP1's policies and configs that nothing reads."""
    for source, node, name in list(references(state.migration)):
        unread_values.delete(state.migration, source, node, name)


def keep_read_policies(state: PassState) -> None:
    """Keep policies that code other than the constructor reads."""
    policy_uses.keep_unchanged(state.migration)


def rewrite_mesh_names(state: PassState) -> None:
    """Name the dimensions of meshes."""
    mesh_names.rewrite(state.migration)


def rewrite_enum_reads(state: PassState) -> None:
    """Rewrite code that reads the name or value of a sharding strategy."""
    enum_reads.rewrite(state.migration)


def rewrite_values(state: PassState) -> None:
    """Rewrite enums and config objects."""
    migration = state.migration
    for source, node, name in references(migration):
        with migration.collecting(source, node):
            _rewrite_value(migration, source, node, name)


def _rewrite_value(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    rewriter = rewriter_of(name)
    if rewriter is None:
        return
    rewriter(migration, source, node, name)
    step = symbols.APIS[name.partition(".")[0]].step
    if step and node in migration.consumed:
        call = source.parent(node)
        at = call if isinstance(call, cst.Call) and call.func is node else node
        migration.step(source, at, step)


def rewrite_precision_reads(state: PassState) -> None:
    """Rewrite code that reads the fields of a `MixedPrecision`."""
    migration = state.migration
    for source in migration.sources:
        with migration.collecting():
            precision_reads.rewrite(migration, source, state.migration.precision)


def rewrite_offload_reads(state: PassState) -> None:
    """Rewrite code that reads the field of a `CPUOffload`."""
    migration = state.migration
    for source in migration.sources:
        with migration.collecting():
            offload_reads.rewrite(migration, source)
