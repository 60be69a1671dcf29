"""Passes over training code: blocks, methods and attributes of the wrapper, gradients."""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.clipping import CLIP
from fsdplint.migration.constructor import (
    enabled,
)
from fsdplint.migration.context import Migration, attributes, nodes
from fsdplint.migration.passes.state import PassState, references
from fsdplint.migration.training import (
    applied,
    classes,
    clipping,
    counts,
    equal_choices,
    forward_methods,
    freed_storage,
    gradients,
    inner_module,
    inner_names,
    loop,
    optimizer_states,
    parameter_sums,
    part_forward,
    replaced_data,
    summon,
    wrapper,
)
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_called


def collect_enable_wrap(state: PassState) -> None:
    """Collect the `enable_wrap` blocks, whose bodies change their indentation."""
    state.blocks = enabled.collect(state.migration)


def collect_summons(state: PassState) -> None:
    """Collect the `summon_full_params` blocks, and choose their rewrite before their bodies change."""
    migration = state.migration
    for source, node in _summons(migration):
        with migration.collecting(source, node):
            migration.consumed.add(node)
            state.summons.append(summon.collect(migration, source, node, state.migration.precision))


def _summons(migration: Migration) -> list[tuple[Source, cst.CSTNode]]:
    """The references to `summon_full_params`, through the class or a wrapped model."""
    found = [(s, n) for s, n, name in references(migration) if name == summon.API]
    for source in migration.sources:
        for node in attributes(source):
            is_member = node.attr.value == "summon_full_params" and node not in migration.names
            if is_member and migration.wrapping_of(node.value):
                found.append((source, node))
    return found


def rewrite_wrapper_members(state: PassState) -> None:
    """Rewrite methods and attributes of FSDP1 modules other than their state dicts."""
    migration = state.migration
    for source in migration.sources:
        for call in nodes(source):
            if call in migration.undecided_nodes:
                continue
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
                with migration.collecting(source, call):
                    _rewrite_method(migration, source, call, call.func)
            if isinstance(call, cst.Call):
                with migration.collecting(source, call):
                    wrapper.check_by_name(migration, source, call)
                inner_module.answer_question(migration, source, call)
                wrapper.answer_question(migration, source, call)
        for node in reversed(attributes(source)):
            if node in migration.undecided_nodes:
                continue
            if node in migration.names:
                continue  # a static method, which the passes over references rewrite
            if node not in migration.symbols or migration.wrapping_of(node.value):
                _rewrite_attribute(migration, source, node)
        for call in nodes(source):
            if isinstance(call, cst.Call) and migration.symbol(call.func) == CLIP:
                with migration.collecting(source, call):
                    clipping.complete_norm(migration, source, call)


def _rewrite_method(
    migration: Migration, source: Source, call: cst.Call, func: cst.Attribute
) -> None:
    name = func.attr.value
    if name == "clip_grad_norm_":
        if (
            clipping.clips_own(migration, source, call)
            or clipping.is_of_class(migration, call)
            or clipping.clips_configured(migration, func)
            or migration.wrapping_of(func.value)
        ):
            clipping.rewrite_clipping(migration, source, call)
    elif name == "no_sync" and migration.wrapping_of(func.value):
        loop.rewrite_no_sync(migration, source, call)


def _rewrite_attribute(migration: Migration, source: Source, node: cst.Attribute) -> None:
    name = node.attr.value
    if name == inner_names.INNER:
        with migration.collecting(source, node):
            wrapper.rewrite_inner(migration, source, node)
        return
    if name in ("_handle", "flat_param") and freed_storage.rewrite(migration, source, node):
        return
    if not migration.wrapping_of(node.value):
        if (model := _wrapper_of(migration, node)) is not None and is_called(source, node):
            with migration.collecting(source, node):
                forward_methods.rewrite(migration, source, node, model)
        if name == "forward":
            with migration.collecting(source, node):
                part_forward.rewrite(migration, source, node)
        with migration.collecting(source, node):
            wrapper.check_private(migration, source, node)
        return
    if migration.narrowing(node.value) == "sometimes":
        with migration.collecting(source, node):
            loop.check_one_of_several(migration, source, node)
    with migration.collecting(source, node):
        if name == "module":
            inner_module.rewrite_inner_module(migration, source, node)
        elif name == "forward":
            loop.rewrite_forward(migration, source, node)
        else:
            loop.check_attribute(migration, source, node)


def _wrapper_of(migration: Migration, node: cst.Attribute) -> cst.BaseExpression | None:
    """The wrapped model of an attribute `model.module.name` of its inner module, or None."""
    inner = node.value
    if not isinstance(inner, cst.Attribute) or inner.attr.value not in (
        "module",
        inner_names.INNER,
    ):
        return None
    return inner.value if migration.wrapping_of(inner.value) else None


def write_summons(state: PassState) -> None:
    """Rewrite the `summon_full_params` blocks, after their bodies, and gather for `apply`."""
    for one in state.summons:
        with state.migration.collecting():
            one.write(state.summons)
    for source, call in state.migration.blocks.applied:
        options = summon.options_in(state.migration, source, state.summons)
        with state.migration.collecting(source, call):
            applied.write(state.migration, options, (source, call))


def rewrite_choices(state: PassState) -> None:
    """Replace choices whose arms become equal."""
    for source in state.migration.sources:
        equal_choices.rewrite(state.migration, source)


def rewrite_gradients(state: PassState) -> None:
    """Rewrite data, reads of gradients and quoted annotations; check names of parameters."""
    replaced_data.rewrite(state.migration)
    for source in state.migration.sources:
        gradients.rewrite(state.migration, source)
        optimizer_states.rewrite(state.migration, source)
        counts.rewrite(state.migration, source)
        parameter_sums.rewrite(state.migration, source)
        inner_names.check_names(state.migration, source)
        classes.rewrite_quoted_annotations(state.migration, source)
