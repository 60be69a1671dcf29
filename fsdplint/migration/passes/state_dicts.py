"""Passes over state dicts of models and optimizers."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import TYPE_OUTSIDE_BLOCK, TYPE_UNDECIDED
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP
from fsdplint.migration.passes.state import PassState, references
from fsdplint.migration.state_dicts import (
    helpers,
    inner_states,
    kinds,
    optimizers,
    part_states,
    pretrained,
    rekeyed_states,
)
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors

SET_TYPE = f"{FSDP}.set_state_dict_type"


def read_set_types(state: PassState) -> None:
    """Read `FSDP.set_state_dict_type(...)`, which sets the kind of all states outside of blocks."""
    migration = state.migration
    for source, node, name in list(references(migration)):
        call = source.parent(node)
        if name == SET_TYPE and isinstance(call, cst.Call):
            with migration.collecting(source, node):
                state.types.add(source, call, state.states[source].kind(call)[0])


def rewrite_typed_states(state: PassState) -> None:
    """Rewrite state dicts in `state_dict_type` blocks."""
    migration = state.migration
    typed = [(s, n) for s, n, name in references(migration) if name == f"{FSDP}.state_dict_type"]
    for source, node in typed:
        state.states[source].mark_unwrapped(node)
    for source, node in reversed(typed):  # inner blocks first
        with migration.collecting(source, node):
            _rewrite_typed_block(state, source, node)


def _rewrite_typed_block(state: PassState, source: Source, node: cst.CSTNode) -> None:
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node:
        raise Blocked(source, node, TYPE_OUTSIDE_BLOCK())
    if helpers.is_helper(source, call):
        helpers.rewrite_helper(state.migration, state.states, source, call)
        return
    state.states[source].block(call)


def rewrite_untyped_states(state: PassState) -> None:
    """Rewrite state dicts that are taken or loaded outside of `state_dict_type` blocks."""
    for source in state.migration.sources:
        states = state.states[source]
        for node in reversed(nodes(source)):  # inner calls first
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node not in states.rewritten:
                with state.migration.collecting(source, node):
                    _rewrite_untyped_state(state, source, node, node.func)


def _rewrite_untyped_state(
    state: PassState, source: Source, call: cst.Call, func: cst.Attribute
) -> None:
    migration, states = state.migration, state.states[source]
    if call in migration.undecided_nodes:
        return
    if migration.blocks.replaced.intersection(ancestors(source, call)):
        return  # the modules have whole parameters there
    name = migration.fsdp1(func).removeprefix(FSDP + ".")
    attribute = func.attr.value
    if name and name in kinds.OPTIMIZER_METHODS and func not in migration.consumed:
        is_typed = name in ("optim_state_dict", "optim_state_dict_to_load")
        kind = _kind_of_optimizer(state, source, call) if is_typed else kinds.DEFAULT
        states.rewrite(call, kind)
    elif name == rekeyed_states.NAME and func not in migration.consumed:
        rekeyed_states.rewrite(migration, source, call)
    elif attribute in ("state_dict", "load_state_dict") and (
        migration.wrapping_of(func.value)
        or migration.has_typed_state(func.value)
        or (state.types.calls and _is_fsdp2(migration, func.value))
    ):
        if any(migration.undecided_name(x) == SET_TYPE for x in migration.undecided_nodes):
            raise Blocked(source, call, TYPE_UNDECIDED())
        states.rewrite_outside_block(call, kinds.DEFAULT)
    elif attribute in pretrained.METHODS:
        pretrained.rewrite(migration, source, call)
    elif call in part_states.calls(migration):
        states.rewrite_outside_block(call, kinds.DEFAULT)
    elif attribute == "load_state_dict":
        inner_states.rewrite_load(migration, source, call)
    elif attribute == "state_dict" and not inner_states.rewrite(migration, source, call):
        optimizers.rewrite_take(migration, states, call)


def _kind_of_optimizer(state: PassState, source: Source, call: cst.Call) -> kinds.Kind:
    """The kind of an optimizer's state outside of blocks: the one that is set for its model."""
    models = [arg.value for arg in call.args if state.migration.wrapping_of(arg.value)]
    found = state.types.kind(source, call, models[0]) if len(models) == 1 else None
    return found or kinds.DEFAULT


def _is_fsdp2(migration: Migration, node: cst.CSTNode) -> bool:
    """Whether `fully_shard` shards a model; FSDP1 does not set the type of its state dict."""
    values = migration.values(node)
    return bool(values) and all(
        isinstance(value, ModuleValue) and value.sharded and not value.wrapper for value in values
    )


def rewrite_optimizer_loads(state: PassState) -> None:
    """Rewrite `optimizer.load_state_dict`, after the states that it gets."""
    for source in state.migration.sources:
        states = state.states[source]
        for node in nodes(source):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node in state.migration.undecided_nodes:
                continue
            if node.func.attr.value == "load_state_dict" and node not in states.rewritten:
                with state.migration.collecting(source, node):
                    optimizers.rewrite_load(state.migration, states, node)
