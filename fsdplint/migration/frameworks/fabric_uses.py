"""Code around Fabric's strategy: what it means with the strategy for FSDP2."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from fsdplint.fixes.clipping import plain_result_wanted
from fsdplint.migration.analysis.components import files_run_together, full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.lightning import (
    BACKWARD_WITHOUT_SWITCH,
    STRATEGY_READ,
    STRATEGY_USED,
)
from fsdplint.migration.blockers.training import LARGEST_GRADIENT
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.frameworks.fabric import has_other_strategy, is_always_sharded
from fsdplint.migration.frameworks.fabric_names import FOR_FSDP2, STRATEGIES, new_home
from fsdplint.migration.frameworks.lightning_objects import is_fabric, is_strategy
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, elements, is_constant
from fsdplint.syntax.enclosing import ancestors, annotation_around, function_around
from fsdplint.syntax.qualified_names import walk
from fsdplint.trace import Prepared

CLIPPING = ("module", "optimizer", "clip_val", "max_norm", "norm_type", "error_if_nonfinite")
# Attributes that only the strategy for FSDP1 has.
ATTRIBUTES = frozenset(
    {"_fsdp_kwargs", "_state_dict_type", "_activation_checkpointing_kwargs", "sharding_strategy"}
    | {"cpu_offload", "mixed_precision", "mixed_precision_config", "module_sharded_context"}
)
_REWRITTEN = frozenset({"clip_gradients", "backward", "init_module", "setup"})
_JOINT = re.compile(r"DeepSpeed|XLA")  # strategies that set up a model with its optimizers
EMPTY = "the first weights of a model that is built on the meta device are other random numbers"
EMPTY_DETAIL = (
    "Lightning calls `reset_parameters` of each module after it is sharded (FSDP1: before). The "
    "distribution is the same. Nothing changes if the program loads all weights."
)


def new_name(migration: Migration, source: Source, node: cst.CSTNode, full: str = "") -> str:
    """How a file writes the class of the strategy for FSDP2, beside the class with a full name."""
    if not full and "from lightning_fabric" in source.text:
        full = "lightning_fabric"
    return migration.need(source, new_home(full), FOR_FSDP2, node)


def rename_class(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Let a test of the class of a strategy, or an annotation, name the class for FSDP2.

    Raises:
        Blocked: the class is used in another way.
    """
    arg = source.parent(node)
    if isinstance(arg, cst.Element):
        around = source.parent(source.parent(arg) or arg)
        arg = around if isinstance(around, cst.Arg) else arg
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    tests = isinstance(call, cst.Call) and is_constant(call.func, "isinstance")
    if not tests and not annotation_around(source, node):
        statement = source.statement(node)
        raise Blocked(source, node, STRATEGY_USED(code=source.code(statement).strip()[:80]))
    migration.forget(source, node)
    migration.substitute(source, node, new_name(migration, source, node, migration.symbol(node)))


def files_together(migration: Migration, source: Source) -> list[Source]:
    """The files that can run together with a file."""
    return files_run_together(full_program(migration.program), source)


def rewrite_calls(migration: Migration, files: list[Source]) -> None:
    """Rewrite the methods of Fabric that do something else with the strategy for FSDP2."""
    program = full_program(migration.program)
    switching = {source for source, node in _calls(files) if _is_switch(node)}
    for source, node in _calls(files):
        assert isinstance(node.func, cst.Attribute)
        name = node.func.attr.value
        owner = node.func.value
        if name not in _REWRITTEN or not is_fabric(program, source, owner):
            continue
        if has_other_strategy(migration, source, owner):
            continue
        with migration.collecting():
            if name == "clip_gradients":
                _clip(migration, source, node)
            elif name == "backward" and not _in_switch(source, node):
                if not switching.isdisjoint(files_together(migration, source)):
                    raise Blocked(source, node, BACKWARD_WITHOUT_SWITCH())
            elif name == "init_module":
                _note_empty(migration, source, node)
            elif name == "setup" and len(node.args) > 1:
                _set_up_one_by_one(migration, source, node)
    for source in files:
        for part in walk(source, skip_imports=True):
            if isinstance(part, cst.Attribute) and part.attr.value in ATTRIBUTES:
                if is_strategy(program, source, part.value, STRATEGIES):
                    reason = STRATEGY_READ(name=part.attr.value)
                    migration.blockers.append(Blocked(source, part, reason))


def _calls(files: list[Source]) -> Iterator[tuple[Source, cst.Call]]:
    for source in files:
        for node in walk(source, skip_imports=True):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                yield source, node


# The optimizers --------------------------------------------------------------------------------------


def _set_up_one_by_one(migration: Migration, source: Source, node: cst.Call) -> None:
    """Set up the optimizers behind the model, so that they can be built behind it, too.

    The model that Fabric returns has other names of parameters. Some other strategies set up models
    and optimizers together only.
    """
    assign = source.parent(node)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return
    targets, args = elements(assign.targets[0].target), [arg.value for arg in node.args]
    plain = not any(arg.star or arg.keyword for arg in node.args)
    if targets is None or len(targets) != len(args) or not plain:
        return
    if "named_parameters" in source.code(function_around(source, node)):
        return
    if _JOINT.search(source.text) or not _is_prepared(migration, node):
        return
    assert isinstance(node.func, cst.Attribute)
    owner = expression(migration, source, node.func.value)
    model, *optimizers = (expression(migration, source, one) for one in args)
    names = [source.code(one) for one in targets]
    lines = [
        f"{names[0]} = {owner}.setup({model})",
        f"{', '.join(names[1:])} = {owner}.setup_optimizers({', '.join(optimizers)})",
    ]
    migration.replace_statement(source, assign, lines)


def _is_prepared(migration: Migration, node: cst.Call) -> bool:
    """Whether a call of Fabric sets up a model for FSDP1."""
    return any(
        isinstance(event.site, NodeSite) and event.site.node is node
        for trace in full_program(migration.program).traces
        for event in trace.of(Prepared)
    )


# Clipping --------------------------------------------------------------------------------------------


def _clip(migration: Migration, source: Source, node: cst.Call) -> None:
    """Clip as FSDP1 did: a norm that is not finite raises no error, and the norm is a tensor."""
    named, rest = arguments(node, CLIPPING)
    if rest or "max_norm" not in named or is_constant(named["max_norm"].value, "None"):
        return
    norm = named.get("norm_type")
    if norm is not None and "inf" in source.code(norm.value):
        raise Blocked(source, node, LARGEST_GRADIENT())
    assert isinstance(node.func, cst.Attribute)
    given = [_argument(migration, source, one) for one in node.args]
    if "error_if_nonfinite" not in named:
        owner = expression(migration, source, node.func.value)
        raises = "False"
        if not is_always_sharded(migration, files_together(migration, source)):
            strategy = new_name(migration, source, node)
            raises = f"not isinstance({owner}.strategy, {strategy})"
        given.append(f"error_if_nonfinite={raises}")
    program = full_program(migration.program)
    tail = ".full_tensor()" if plain_result_wanted(program, source, node) else ""
    head = expression(migration, source, node.func)
    migration.put_call(source, node, head, given, tail)


def _argument(migration: Migration, source: Source, arg: cst.Arg) -> str:
    key = f"{arg.keyword.value}=" if arg.keyword is not None else arg.star
    return key + expression(migration, source, arg.value)


# The reduction of gradients --------------------------------------------------------------------------


def _is_switch(node: cst.Call) -> bool:
    """Whether a call is `no_backward_sync` with a switch that may be off."""
    if not is_called(node, "no_backward_sync"):
        return False
    named, _ = arguments(node, ("module", "enabled"))
    enabled = named.get("enabled")
    return enabled is not None and not is_constant(enabled.value, "True")


def _in_switch(source: Source, node: cst.Call) -> bool:
    """Whether a backward pass stands in a block that switches the reduction on or off."""
    return any(
        is_called(item.item, "no_backward_sync")
        for around in ancestors(source, node)
        if isinstance(around, cst.With)
        for item in around.items
    )


def is_called(node: cst.BaseExpression, method: str) -> bool:
    """Whether a node is a call of a method."""
    func = node.func if isinstance(node, cst.Call) else None
    return isinstance(func, cst.Attribute) and func.attr.value == method


def _note_empty(migration: Migration, source: Source, node: cst.Call) -> None:
    named, _ = arguments(node, ("empty_init",))
    empty = named.get("empty_init")
    if empty is not None and not is_constant(empty.value, "False", "None"):
        migration.note(EMPTY, source, node, detail=EMPTY_DETAIL, unsafe=True)
