"""Notes on changes in cost or in details of behaviour, although every use has a faithful rewrite."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.values import Class, Function, ModuleValue
from fsdplint.migration import (
    parameter_name_sets,
    parameter_names,
    parameter_positions,
    parameter_shapes,
    single_rank_groups,
)
from fsdplint.migration.constructor.strategy import NO_RESHARD
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import PARAMETERS
from fsdplint.migration.training.counts import is_of_inner_module, measured_value
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in
from fsdplint.trace import Clipped, Compiled, Sharding

TAKE_DTENSORS = {"torch", "torchao", "transformers", "builtins"}
Calls = list[tuple[Source, cst.Call]]


def add(migration: Migration, calls: Calls) -> None:
    """Add a note for each change, with its places."""
    for note in (
        _note_clipping,
        _note_first_names,
        _note_parameter_groups,
        _note_library_calls,
        _note_compilation,
        _note_counts,
        _note_accumulation,
        _note_regathering,
        _note_start,
        _note_held_parameters,
    ):
        note(migration, calls)
    single_rank_groups.note(migration)


def _note_clipping(migration: Migration, calls: Calls) -> None:
    for trace in migration.program.traces:
        for event in trace.of(Clipped):
            site = event.site
            if event.api not in ("utils", "with_norm") or not isinstance(site, NodeSite):
                continue
            if any(trace.sharded_within(m, event) is Sharding.FSDP1 for m in event.modules):
                function = "clip_grad_norm_" if event.api == "utils" else "clip_grads_with_norm_"
                migration.note(
                    f"torch.nn.utils.{function} clips by the norm over all ranks (FSDP1: by "
                    "each rank's own)",
                    site.source,
                    site.node,
                    detail="The norm is larger, on N ranks up to the square root of N times, so with "
                    "the same bound more steps are clipped, and all ranks by the same factor.",
                )


def _note_parameter_groups(migration: Migration, calls: Calls) -> None:
    """Parameter groups that the program chooses by shapes or names."""
    parameter_shapes.note_tests(migration, calls)
    flat = any("use_orig_params" not in source.code(call) for source, call in calls)
    flat = flat and parameter_names.TESTED not in migration.notes
    for source in migration.program.sources.values():
        if "weight_decay" not in source.text:
            continue
        for node in nodes(source):
            if flat and isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                if node.func.attr.value == "named_parameters" and migration.wrapping_of(
                    node.func.value
                ):
                    migration.note(
                        "parameters have their own names: groups chosen by name may change",
                        source,
                        node,
                        detail="With use_orig_params=False FSDP1 names them `_flat_param`, so no "
                        "pattern for biases or norms matches. With FSDP2 such patterns match.",
                    )


def _note_first_names(migration: Migration, calls: Calls) -> None:
    """Tests of names of parameters that FSDP1 has changed, in loops over a wrapped model."""
    if parameter_names.are_flat(calls):
        parameter_names.note_tests(migration)
        parameter_positions.note_positions(migration)
        return
    parameter_name_sets.note_tests(migration)
    for source in migration.program.sources.values():
        if "named_parameters" not in source.text:
            continue
        for loop in nodes(source):
            name = parameter_names.loop_variable(migration, source, loop)
            for test in descend(loop) if name else ():
                if not _tests_start(test, name):
                    continue
                migration.note(
                    "names of parameters begin with the attributes of the model: tests of how a "
                    "name begins may choose others",
                    source,
                    test,
                    detail="The names that FSDP1's `named_parameters()` gives outside of "
                    "`summon_full_params` begin with `_fsdp_wrapped_module.`, so a test for the first "
                    "attribute never holds. With FSDP2 it applies as it is written.",
                    unsafe=parameter_names.decide_training(source),
                )


def _tests_start(node: cst.CSTNode, name: str) -> bool:
    """Whether a node is `name.startswith(...)` or `name == "..."`."""
    if isinstance(node, cst.Call):
        method = node.func
        return (
            isinstance(method, cst.Attribute)
            and method.attr.value == "startswith"
            and isinstance(method.value, cst.Name)
            and method.value.value == name
        )
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return False
    other = node.comparisons[0]
    return (
        isinstance(node.left, cst.Name)
        and node.left.value == name
        and isinstance(other.operator, cst.Equal)
        and isinstance(other.comparator, cst.SimpleString)
    )


def _note_library_calls(migration: Migration, calls: Calls) -> None:
    """Functions of libraries that get the parameters, which become DTensors."""
    for source in migration.sources:
        symbols = symbols_in(source)
        for node in nodes(source):
            name = symbols.get(node.func, "") if isinstance(node, cst.Call) else ""
            if not isinstance(node, cst.Call) or "." not in name:
                continue
            own = any(isinstance(one, Class | Function) for one in migration.values(node.func))
            if own or name.partition(".")[0] in TAKE_DTENSORS:
                continue
            if any(
                parameter_shapes.are_of_fsdp1(v)
                for arg in node.args
                for v in migration.values(arg.value)
            ):
                migration.note(
                    f"`{name}` gets parameters that are DTensors",
                    source,
                    node,
                    detail="FSDP1's parameters are plain tensors. Make sure that the library takes "
                    "DTensors.",
                )


def _note_compilation(migration: Migration, calls: Calls) -> None:
    """A compiled model still works, but FSDP2 gains more from compiled blocks."""
    for trace in migration.program.traces:
        for event in trace.of(Compiled):
            if trace.sharding(event.module, event) is Sharding.FSDP1:
                site = event.site
                migration.note(
                    "compiling the blocks before they are sharded is faster in FSDP2",
                    site.source if isinstance(site, NodeSite) else None,
                    site.node if isinstance(site, NodeSite) else None,
                    detail="A model that is compiled after sharding has a graph break at each unit. "
                    "Call `block.compile()` on each block before `fully_shard` to avoid that.",
                )


def _note_counts(migration: Migration, calls: Calls) -> None:
    """Sizes of an FSDP1 model's parameters, which are the sizes of one rank's shard."""
    for source in migration.program.sources.values():
        for node in nodes(source):
            size_of = measured_value(node)
            if size_of is None or node in migration.blocks.local_shard_functions:
                continue
            values = migration.values(size_of)
            of_fsdp1 = any(map(parameter_shapes.are_of_fsdp1, values))
            if of_fsdp1 or is_of_inner_module(migration, source, size_of):
                migration.note(
                    "parameters are counted whole (FSDP1: this rank's part)",
                    source,
                    node,
                    detail="The number grows by a factor of the world size. Remove a sum over the "
                    "ranks, or a product with their number.",
                )


def _note_accumulation(migration: Migration, calls: Calls) -> None:
    """Gradients that are accumulated without a reduction."""
    differ = [
        (source, node)
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call)
        and migration.called_name(node) == "MixedPrecision"
        and _reduces_otherwise(source, node)
    ]
    for source, node in _no_sync_calls(migration) if differ else ():
        migration.note(
            "without a reduction gradients are accumulated in `reduce_dtype` (FSDP1: in "
            "`param_dtype`)",
            source,
            node,
            detail="This is more exact, so the numbers differ slightly. float32 instead of bfloat16 "
            "takes twice the memory for these gradients.",
        )


def _no_sync_calls(migration: Migration) -> Iterator[tuple[Source, cst.Call]]:
    """The `no_sync()` calls of wrapped models."""
    for source in migration.sources:
        for node in nodes(source):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node.func.attr.value == "no_sync" and migration.wrapping_of(node.func.value):
                yield source, node


def _note_regathering(migration: Migration, calls: Calls) -> None:
    """SHARD_GRAD_OP keeps parameters unsharded after a backward without a reduction.

    FSDP1 decides that in `_should_free_in_backward`; FSDP2 reshards them.
    """
    wanted = {f"ShardingStrategy.{name}" for name in NO_RESHARD}
    if not any(migration.fsdp1(node) in wanted for s in migration.sources for node in nodes(s)):
        return
    for source, node in _no_sync_calls(migration):
        migration.note(
            "with SHARD_GRAD_OP parameters are gathered again after a backward without a reduction "
            "(FSDP1 kept them)",
            source,
            node,
            detail="To keep them, at the memory cost of unsharded parameters, call "
            "`set_reshard_after_backward(False)` together with `set_requires_gradient_sync(False)`, "
            "and both with True afterwards.",
        )


def _reduces_otherwise(source: Source, node: cst.Call) -> bool:
    named, _ = arguments(node, ("param_dtype", "reduce_dtype", "buffer_dtype"))
    param, reduce = named.get("param_dtype"), named.get("reduce_dtype")
    if param is None or reduce is None:
        return False
    if is_constant(param.value, "None") or is_constant(reduce.value, "None"):
        return False
    return source.code(param.value) != source.code(reduce.value)


def _note_start(migration: Migration, calls: Calls) -> None:
    """The broadcast of rank 0's weights to all ranks."""
    for source, call in calls:
        given = arguments(call, PARAMETERS)[0].get("sync_module_states")
        if given is not None and not is_constant(given.value, "False"):
            migration.note(
                "at the start each rank keeps the model that it has built until rank 0's weights arrive",
                source,
                given,
                detail="FSDP1 broadcasts and shards one unit after the other. The memory is free again "
                "before the first step.",
            )


def _note_held_parameters(migration: Migration, calls: Calls) -> None:
    """Unsharded parameters that a variable still holds after the sharding."""
    for source, call in calls:
        end = source.span(call)[0]
        for node in nodes(source):
            if not isinstance(node, cst.Assign) or source.span(node)[0] > end:
                continue
            if function_around(source, node) is not function_around(source, call):
                continue
            if any(_is_parameters(migration, value) for value in _kept_values(node)):
                migration.note(
                    "parameters that a variable holds from before the sharding stay whole",
                    source,
                    node,
                    detail="`fully_shard` moves them to the GPU and replaces them in the model. Each rank "
                    "holds all of them until the variable is deleted.",
                )


def _kept_values(node: cst.Assign) -> Iterator[cst.BaseExpression]:
    """The iterable that `dict(model.named_parameters())` or a comprehension stores."""
    value = node.value
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.args:
        if value.func.value in ("dict", "list", "tuple", "set"):
            yield value.args[0].value
    if isinstance(value, cst.ListComp | cst.SetComp) and isinstance(value.elt, cst.Name):
        yield value.for_in.iter
    if isinstance(value, cst.DictComp) and isinstance(value.value, cst.Name):
        yield value.for_in.iter


def _is_parameters(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression gives the parameters of a module that FSDP1 does not wrap yet."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    if node.func.attr.value not in ("parameters", "named_parameters"):
        return False
    values = migration.values(node.func.value)
    return bool(values) and all(
        isinstance(value, ModuleValue) and not value.wrapper for value in values
    )
