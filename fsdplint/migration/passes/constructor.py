"""Passes over calls of FSDP1's constructor and other uses of its class."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.constructor import (
    enabled,
    wrap,
)
from fsdplint.migration.names import FSDP
from fsdplint.migration.passes.state import PassState, references
from fsdplint.migration.training import (
    classes,
    forward_methods,
    fsdp_modules,
)
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend


def rewrite_enable_wrap(state: PassState) -> None:
    """Rewrite the `enable_wrap` blocks, inner blocks first."""
    for block in reversed(state.blocks):
        with state.migration.collecting():
            enabled.rewrite(state.migration, block, state.migration.precision)


def rewrite_class(state: PassState) -> None:
    """Rewrite constructor calls, and other uses of the class: isinstance, annotations, partials."""
    migration = state.migration
    in_heads = {part for block in state.blocks for part in descend(block.call)}
    for source, node, name in reversed(list(references(migration))):
        if node in in_heads:
            continue
        with migration.collecting(source, node):
            if name == f"{FSDP}.fsdp_modules":
                migration.consumed.add(node)
                fsdp_modules.rewrite_modules(migration, source, node)
            elif name == FSDP:
                _rewrite_class(state, source, node)


def _rewrite_class(state: PassState, source: Source, node: cst.CSTNode) -> None:
    call = source.parent(node)
    if isinstance(call, cst.Call) and call.func is node:
        wrap.rewrite_wrap(state.migration, source, call, state.migration.precision)
    else:
        classes.rewrite_class_reference(state.migration, source, node)


def check_forward_methods(state: PassState) -> None:
    """Check that the constructor calls register the methods that run outside of the forward."""
    forward_methods.check_registered(state.migration)
