"""Passes over what no earlier pass has rewritten."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration import checks, symbols
from fsdplint.migration.analysis import ambiguous_imports
from fsdplint.migration.analysis.class_names import class_questions
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import OLD_CHECKPOINT
from fsdplint.migration.blockers.training import CLASS_BY_NAME
from fsdplint.migration.constructor import (
    unused_policies,
)
from fsdplint.migration.context import nodes
from fsdplint.migration.frameworks.fabric import strategies_left
from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.migration.passes.state import PassState, references
from fsdplint.migration.state_dicts import (
    kinds,
)
from fsdplint.syntax.arguments import is_called
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import statement_of
from fsdplint.syntax.qualified_names import canonical, is_misplaced

MISPLACED_NOTE = "imports that raise ImportError are read as they are meant"


def check_program(state: PassState) -> None:
    """Drop unused policies, and block on code that breaks although every use has a rewrite."""
    state.migration.blockers += strategies_left(state.migration)
    if not state.migration.blockers:
        ambiguous_imports.check_arguments(state.migration)
        unused_policies.rewrite(state.migration)
        checks.run(state.migration)


def drop_aliases(state: PassState) -> None:
    """Delete variables that are other names of FSDP1's and have no reader left."""
    migration = state.migration
    for alias in migration.aliases:
        if alias.uses.keys() <= migration.consumed | migration.undecided_nodes:
            migration.forget(alias.source, alias.statement.value)
            migration.delete_statement(alias.source, alias.statement)


def check_references(state: PassState) -> None:
    """Block on every reference that no pass has accounted for."""
    migration = state.migration
    cause = bool(migration.blockers)
    for source, node, name in references(migration):
        # A reference that belongs to a blocked use is not reported a second time.
        if not (cause and symbols.is_rewritten_with_other(name)):
            # `FSDP.forward` that is not called here is stored or replaced.
            member = name.startswith(f"{FSDP}.") and not is_called(source, node)
            internal = "name" if member or symbols.is_internal(name) else ""
            blocked = Blocked(source, node, symbols.reason(name), internal=internal)
            blocked.rewritten_with_other = symbols.is_rewritten_with_other(name)
            migration.blockers.append(blocked)


def check_class_names(state: PassState) -> None:
    """Block on comparisons of the name of FSDP1's class."""
    migration = state.migration
    for source in full_program(migration.program).sources.values():
        for node, _ in class_questions(source):
            if node not in migration.undecided_nodes:
                migration.blockers.append(Blocked(source, node, CLASS_BY_NAME()))


def check_old_loads(state: PassState) -> None:
    """Block on `load_sharded_optimizer_state_dict`, which reads only the files of FSDP1."""
    migration = state.migration
    for source in migration.sources:
        for node in nodes(source):
            if migration.symbol(node) != kinds.OLD_OPTIMIZER_LOAD or node in migration.consumed:
                continue
            reason = OLD_CHECKPOINT()
            migration.blockers.append(Blocked(source, node, reason))


def drop_imports(state: PassState) -> None:
    """Drop the imports of FSDP1."""
    for source in state.migration.sources:
        for item in bindings_of(source).imports():
            if fsdp1_name(canonical(item.full)) is not None:
                if is_misplaced(item.full):
                    state.migration.note(MISPLACED_NOTE, source, item.statement)
                state.migration.rewrite.remove_import_if_unused(source, item.spelling, anyway=True)


def drop_variables(state: PassState) -> None:
    """Delete variables that hold configs of state dicts and have no reader left."""
    migration = state.migration
    for node in migration.states.configs:
        if node in migration.states.option_variables:
            continue
        for source in migration.sources:
            if source.parent(node) is None:
                continue
            statement = statement_of(source, node)
            if isinstance(statement, cst.Assign | cst.AnnAssign) and statement.value is node:
                migration.delete_statement(source, statement)
