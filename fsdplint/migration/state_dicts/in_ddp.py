"""Models that DDP wraps in other configurations, where their states have other names.

A test of the model tells the two apart: `if isinstance(model, FSDPModule)`.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import STATE_OF_DDP_TOO
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.state_dicts.compiled_states import compiled_names
from fsdplint.migration.state_dicts.kinds import MODULE, Kind
from fsdplint.migration.state_dicts.state_options import StateOptions
from fsdplint.migration.text import call, is_repeatable
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of

FSDP2 = "torch.distributed.fsdp"


def may_be_ddp(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether DDP wraps a model in other configurations."""
    values = migration.values(node)
    if values or migration.wrapping_of(node) != "sometimes":
        return any(isinstance(v, ModuleValue) and v.wrapper == "ddp" for v in values)
    sources = migration.program.sources.values()
    if not any("DistributedDataParallel" in other.text for other in sources):
        return False
    return not _is_unwrapped_before(source, node)


def rewrite(states: StateOptions, node: cst.Call, kind: Kind) -> None:
    """Take or load a state with torch's function if `fully_shard` shards the model.

    Raises:
        Blocked: the call has another form, or the model is compiled.
    """
    migration, source = states.migration, states.source
    assert isinstance(node.func, cst.Attribute)
    takes = node.func.attr.value == "state_dict"
    named, rest = arguments(node, () if takes else ("state_dict", "strict"))
    compiled = compiled_names(migration, node.func.value)
    if set(named) - {"state_dict", "strict"}:
        raise Blocked(source, node, STATE_OF_DDP_TOO())
    if rest or compiled or not is_repeatable(node.func.value) or not (kind.full or takes):
        raise Blocked(source, node, STATE_OF_DDP_TOO())
    given = [expression(migration, source, node.func.value)]
    function = "get_model_state_dict" if takes else "set_model_state_dict"
    if takes:
        options = states.get_options(kind, node)
    else:
        given.append(expression(migration, source, named["state_dict"].value))
        strict = named.get("strict")
        more = [f"strict={expression(migration, source, strict.value)}"] if strict else []
        options = states.set_options(kind, more, node)
    given += [f"options={options}"] if options else []
    put_call(migration, source, node, function, given)


def put_call(
    migration: Migration, source: Source, node: cst.Call, function: str, given: list[str]
) -> None:
    """Call a function of torch for states in place of a call, if `fully_shard` shards the model.

    given: the texts of the arguments, of which the first is the model.

    Raises:
        Blocked: the call sets a state and is no statement.
    """
    test = f"isinstance({given[0]}, {migration.need(source, FSDP2, 'FSDPModule', node)})"
    name = migration.need(source, MODULE, function, node)
    statement = statement_of(source, node)
    if isinstance(statement, cst.Assign | cst.Expr | cst.Return) and statement.value is node:
        head = source.text[source.span(statement)[0] : source.span(node)[0]]
        lines = ["\t" + call(source, node, head + name, given, depth=1)]
        lines = [f"if {test}:", *lines, "else:", f"\t{head}{source.code(node)}"]
        migration.replace_statement(source, node, lines)
    elif function.startswith("get_"):
        tail = f" if {test} else {source.code(node)}"
        whole = isinstance(source.parent(node), cst.Arg | cst.DictElement)
        migration.put_call(
            source, node, name if whole else f"({name}", given, tail if whole else f"{tail})"
        )
    else:
        raise Blocked(source, node, STATE_OF_DDP_TOO())


def _is_unwrapped_before(source: Source, node: cst.BaseExpression) -> bool:
    """Whether `model = model.module` comes before a use of the model in the same function."""
    model, at = source.code(node), source.span(node)[0]
    for part in descend(function_around(source, node)):
        if not isinstance(part, cst.Assign) or source.span(part)[1] > at:
            continue
        value = part.value.body if isinstance(part.value, cst.IfExp) else part.value
        if source.code(value) != f"{model}.module":
            continue
        targets = [source.code(target.target) for target in part.targets]
        if model in targets and not _is_in_other_branch(source, part, at):
            return True
    return False


def _is_in_other_branch(source: Source, node: cst.CSTNode, place: int) -> bool:
    """Whether a place after a node is in the other branch of an `if`."""
    for outer in ancestors(source, node):
        if isinstance(outer, cst.If) and outer.orelse is not None:
            start, end = source.span(outer.orelse)
            if start <= place < end and source.span(node)[1] <= start:
                return True
    return False
