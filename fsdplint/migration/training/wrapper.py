"""Attributes and methods of FSDP1's wrapper: its process group, the inner module."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.edits.quotes import quote_of
from fsdplint.interpreter.values import ModuleValue, Sequence, Unknown
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import (
    GROUP_ASSIGNED,
    GROUP_UNKNOWN,
    INNER_ASSIGNED,
    MEMBER_BY_NAME,
)
from fsdplint.migration.constructor import meshes, strategy
from fsdplint.migration.constructor.all_ranks import is_always_none
from fsdplint.migration.constructor.ignored_values import may_ignore
from fsdplint.migration.context import Migration, expression, is_fsdp1, nodes
from fsdplint.migration.names import FSDP, PARAMETERS, WRAPPER_METHODS
from fsdplint.migration.rewriters import rewrites_member
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.migration.symbols import CHANGED, MEMBERS
from fsdplint.migration.text import without_parentheses
from fsdplint.migration.training.inner_names import INNER
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import annotation_around, function_around
from fsdplint.trace import Wrapped

FLAT = {f"ShardingStrategy.{name}" for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")}


# Attributes of the wrapper ------------------------------------------------------------------------


@rewrites_member("process_group", "rank", "world_size")
def rewrite_group(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Rewrite `model.process_group`, `.rank` and `.world_size` to those of its shard group.

    Raises:
        Blocked: the group is not known.
    """
    name = node.attr.value
    parent = source.parent(node)
    if isinstance(parent, cst.AssignTarget):
        raise Blocked(source, node, GROUP_ASSIGNED(name=name))
    group = _group(migration, source, node)
    if group is None:
        group = _of_parameters(migration, source, node)
    if group is None:
        raise Blocked(
            source,
            node,
            GROUP_UNKNOWN(name=name),
        )
    if name == "process_group":
        text = group or migration.dist(source, node, "group") + ".WORLD"
        text = without_parentheses(text) if isinstance(parent, cst.Arg) else text
    else:
        function = "get_rank" if name == "rank" else "get_world_size"
        text = f"{migration.dist(source, node, function)}({without_parentheses(group)})"
    migration.substitute(source, node, text)
    migration.step(source, node, "Use the process group itself")


def _group(migration: Migration, source: Source, node: cst.Attribute) -> str | None:
    """The text of the group that a model is sharded over, "" for all ranks, None if not known."""
    calls = [
        (other, call)
        for other in migration.sources
        for call in nodes(other)
        if isinstance(call, cst.Call) and _configures_sharding(migration, call)
    ]
    texts: set[str | None] = set()
    for other, call in calls:
        named, rest = arguments(call, PARAMETERS)
        given = {
            k: v.value for k, v in named.items() if not is_always_none(migration, other, v.value)
        }
        kind = given.get("sharding_strategy")
        group = given.get("process_group")
        if rest or (
            group is None and kind is not None and not _shards_over_one_group(migration, kind)
        ):
            return None
        if "device_mesh" not in given and "process_group" not in given:
            texts.add("")
            continue
        if "device_mesh" in given and isinstance(given["device_mesh"], cst.Name):
            if meshes.optional(migration, other, given["device_mesh"]):
                return None
            texts.add(_variable_at(source, node, other, given["device_mesh"], ".get_group()"))
        elif isinstance(group, cst.Name) and not any(
            isinstance(value, Sequence) for value in migration.values(group)
        ):
            text = _variable_at(source, node, other, group, "")
            if text and meshes.optional(migration, other, group):
                text = f"({text} or {migration.dist(source, node, 'group')}.WORLD)"
            texts.add(text)
        else:
            return None
    return texts.pop() if len(texts) == 1 else None


def _of_parameters(migration: Migration, source: Source, node: cst.Attribute) -> str | None:
    """The text of the group of the mesh of a model's parameters.

    None if that may be another group: the program passes a mesh that may have further dimensions, or
    parts of the model may have their own mesh.
    """
    if migration.wrapping_of(node.value) != "always" or may_ignore(migration):
        return None
    chosen: set[str] = set()
    found = [
        (other, call)
        for other in migration.sources
        for call in nodes(other)
        if isinstance(call, cst.Call) and _configures_sharding(migration, call)
    ]
    for other, call in found:
        named, rest = arguments(call, PARAMETERS)
        given = {
            k: v.value for k, v in named.items() if not is_always_none(migration, other, v.value)
        }
        if (
            rest
            or "process_group" in given
            or ("device_mesh" in given and _uses_tensor_parallel(migration))
        ):
            return None
        kind = given.get("sharding_strategy")
        chosen |= strategy.choices(migration, kind) if kind is not None else {"FULL_SHARD"}
    if not chosen or (len(found) > 1 and _has_nested_models(migration)):
        return None
    model = expression(migration, source, node.value)
    if "NO_SHARD" not in chosen:
        return f"next({model}.parameters()).device_mesh.get_group(-1)"
    migration.emitted_helpers.add(strategy.MESH_STRATEGY_READ)
    return f"{_group_function(migration, source, node)}({model})"


def _uses_tensor_parallel(migration: Migration) -> bool:
    """Whether the program may shard tensors itself, over other dimensions of the same mesh."""
    return any(name.startswith("torch.distributed.tensor") for name in migration.symbols.values())


def _has_nested_models(migration: Migration) -> bool:
    """Whether a wrapped model may contain a model that another call wraps."""
    for trace in migration.program.traces:
        events = list(trace.of(Wrapped))
        for outer in events:
            parts = set(trace.submodules(outer.inner))
            if any(e.module in parts and e.site != outer.site for e in events if e is not outer):
                return True
    return False


def _group_function(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of a helper function that returns FSDP1's process group for any strategy."""
    quote = quote_of(source)
    names = f"({quote}replicate{quote}, {quote}alone{quote})"
    return write_once(
        migration,
        source,
        top_level(source, at),
        "sharding_group",
        [
            "def sharding_group(model):",
            '\t"""The processes that a model is sharded over, or all that it is replicated over."""',
            "\tmesh = next(model.parameters()).device_mesh",
            f"\treturn mesh.get_group(0 if mesh.mesh_dim_names == {names} else -1)",
        ],
    )


def _configures_sharding(migration: Migration, call: cst.Call) -> bool:
    """Whether a call configures the sharding: the constructor, a partial of it, or `wrap`."""
    if migration.symbol(call.func) == "functools.partial":
        return bool(call.args) and migration.fsdp1(call.args[0].value) == FSDP
    if migration.called_name(call) == "wrap":
        return any(arg.star or arg.keyword is not None for arg in call.args)
    return migration.called_name(call) in (FSDP, "enable_wrap")


def _shards_over_one_group(migration: Migration, kind: cst.BaseExpression) -> bool:
    """Whether a strategy certainly shards over one group, as all strategies in the program do."""
    if migration.fsdp1(kind) in FLAT:
        return True
    named = {node: n for node, n in migration.names.items() if n.startswith("ShardingStrategy")}
    members = {name for name in named.values() if name != "ShardingStrategy"}
    return (
        bool(members)
        and members <= FLAT
        and all(
            name in FLAT or any(annotation_around(source, node) for source in migration.sources)
            for node, name in named.items()
        )
    )


def _variable_at(
    source: Source, node: cst.Attribute, other: Source, name: cst.Name, tail: str
) -> str | None:
    """The text of a constructor's variable at a node of the same function, or None."""
    if other is source and function_around(source, node) is function_around(source, name):
        return name.value + tail
    return None


def check_private(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Block on private members of FSDP1's wrapper on an unknown object.

    Raises:
        Blocked: with the reason.
    """
    name = node.attr.value
    member = MEMBERS.get(name)
    if member is None or member.blocker is None or not member.private:
        return
    if is_constant(node.value, "self") or node in migration.uncalled_nodes:
        return
    if member.common_name:
        function = function_around(source, node)
        if not re.search("fsdp|flat_param", source.code(function), re.IGNORECASE):
            return
    values = migration.values(node.value)
    if any(not isinstance(v, ModuleValue | Unknown) or is_fsdp1(v) for v in values):
        return  # another object, or a wrapped model, whose attributes `check_attribute` checks
    raise Blocked(source, node, member.blocker(name=name), internal="attribute")


def check_by_name(migration: Migration, source: Source, call: cst.Call) -> None:
    """Block on members of the wrapper that code takes by their names, as a string.

    Raises:
        Blocked: `getattr(model, "clip_grad_norm_")`, `operator.methodcaller("clip_grad_norm_")(model)`.
    """
    caller, given = call.func, [arg.value for arg in call.args]
    if is_constant(caller, "getattr") and len(given) == 2:
        model, name = given
    elif isinstance(caller, cst.Call) and caller.args and len(given) == 1:
        if migration.symbol(caller.func) != "operator.methodcaller":
            return
        model, name = given[0], caller.args[0].value
    else:
        return
    text = name.evaluated_value if isinstance(name, cst.SimpleString) else None
    if text in CHANGED and call not in migration.uncalled_nodes and migration.wrapping_of(model):
        raise Blocked(source, call, MEMBER_BY_NAME(name=str(text)))


def answer_question(migration: Migration, source: Source, call: cst.Call) -> None:
    """Ask for FSDP2's class where code asks a model for a method that only FSDP1's wrapper has.

    A class of the program may have a method of this name, too: then the code also asks for that.
    """
    if not is_constant(call.func, "hasattr") or len(call.args) != 2:
        return
    model, name = (arg.value for arg in call.args)
    text = name.evaluated_value if isinstance(name, cst.SimpleString) else None
    if text not in WRAPPER_METHODS or call in migration.uncalled_nodes:
        return
    values = migration.values(model)
    compiled = any(isinstance(v, ModuleValue) and v.wrapper == "compile" for v in values)
    if not migration.wrapping_of(model) or compiled:
        return
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", call)
    asked = f"isinstance({migration.text(source, model)}, {kind})"
    if _is_method_of_program(migration, str(text)):
        asked = f"{asked} or {source.code(call)}"
        if not isinstance(source.parent(call), cst.If | cst.While):
            asked = f"({asked})"
    migration.substitute(source, call, asked)
    migration.step(source, call, "Ask for FSDPModule")


def _is_method_of_program(migration: Migration, name: str) -> bool:
    return any(
        isinstance(node, cst.FunctionDef) and node.name.value == name
        for source in migration.program.sources.values()
        if name in source.text
        for node in source.descend(source.tree)
    )


def rewrite_inner(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Rewrite `module._fsdp_wrapped_module`, which only FSDP1's wrappers have, to `module`.

    Raises:
        Blocked: the code assigns it.
    """
    if node in migration.uncalled_nodes:
        return
    if isinstance(source.parent(node), cst.AssignTarget | cst.AugAssign | cst.Del):
        raise Blocked(source, node, INNER_ASSIGNED(name=INNER))
    migration.substitute(source, node, migration.text(source, node.value))
    migration.step(source, node, "Use the model itself")
