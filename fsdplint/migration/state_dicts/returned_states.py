"""States of optimizers that a function converts and returns, and that another function loads.

    def to_load(model, optimizer, saved):
        return FSDP.optim_state_dict_to_load(model, optimizer, saved)

    state = to_load(model, optimizer, saved)
    optimizer.load_state_dict(state)

`set_optimizer_state_dict` converts and loads at once, in place of the conversion. The function then
returns None, and the caller loads only states that were not converted.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import OptimizerValue
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.state_dicts import branch_loads, resharding
from fsdplint.migration.state_dicts.loaded_states import only_loads
from fsdplint.migration.state_dicts.state import ModelStates
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import statement_of


def find(
    migration: Migration, source: Source, node: cst.Call, optimizer: cst.BaseExpression
) -> list[tuple[Source, cst.Call]]:
    """The loads of a call's result, if only other functions load it, into this optimizer."""
    statement = statement_of(source, node)
    if not isinstance(statement, cst.Assign | cst.Return) or statement.value is not node:
        return []
    found = only_loads(migration, node)
    own = _optimizers(migration, optimizer)
    for file, load in found:
        if (
            function_around(file, load) is function_around(source, node)
            or not isinstance(load.func, cst.Attribute)
            or not isinstance(load.args[0].value, cst.Name)
            or not isinstance(file.parent(load), cst.Expr)
            or own.isdisjoint(_optimizers(migration, load.func.value))
        ):
            return []
    return found


def _optimizers(migration: Migration, node: cst.BaseExpression) -> set[str]:
    return {v.id for v in migration.values(node) if isinstance(v, OptimizerValue)}


def set_here(
    states: ModelStates,
    node: cst.Call,
    named: dict[str, cst.Arg],
    state: str,
    options: str,
    found: list[tuple[Source, cst.Call]],
) -> None:
    """Load the state where it is converted; the other loads are of states that are not converted."""
    migration, source = states.migration, states.source
    model = expression(migration, source, named["model"].value)
    optimizer = expression(migration, source, named["optim"].value)
    migration.account_for(source, node.func)
    resharding.reshard_before(migration, source, node, named["model"].value)
    states.put_state_call(node, "set_optimizer_state_dict", [model, optimizer, state], options)
    statement = statement_of(source, node)
    head = source.text[source.span(statement)[0] : source.span(node)[0]]
    loading = migration.text(source, node)
    migration.substitute(source, statement, loading)
    migration.rewrite.insert_after(source, statement, [f"{head}None  # it is loaded already"])
    for file, load in found:
        if load not in states.rewritten:
            states.rewritten.add(load)
            given = file.code(load.args[0].value)
            text = expression(migration, file, load)
            migration.replace_statement(file, load, [f"if {given} is not None:", f"\t{text}"])
    branch_loads.note_handlers(migration, source, node)
    migration.step(source, node, "Load the optimizer's state with set_optimizer_state_dict")
