"""States of optimizers that nested choices convert, and that one statement behind them loads.

    if whole:
        try:
            state = FSDP.optim_state_dict_to_load(model, optimizer, state)
        except ValueError:
            ...
    optimizer.load_state_dict(state)

`set_optimizer_state_dict` converts and loads at once, in place of the conversion. The statement behind
the choices then loads only the states that were not converted.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import reads
from fsdplint.migration.context import expression
from fsdplint.migration.state_dicts import branch_loads, resharding
from fsdplint.migration.state_dicts.loaded_states import LoadReader, loads
from fsdplint.migration.state_dicts.state import ModelStates
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import statement_of


def find(
    source: Source, reader: LoadReader, node: cst.Call, optimizer: cst.BaseExpression
) -> cst.Call | None:
    """The load of a variable with a call's result, if nothing else reads the result.

    It loads into this optimizer, in a block around the call's.
    """
    statement = statement_of(source, node)
    if not isinstance(statement, cst.Assign) or statement.value is not node:
        return None
    if len(statement.targets) != 1 or not isinstance(statement.targets[0].target, cst.Name):
        return None
    home = function_around(source, node)
    target = statement.targets[0].target
    after = source.span(statement)[1]
    uses = [use for use in reads(source, home, target.value) if source.span(use)[0] > after]
    arg = source.parent(uses[0]) if len(uses) == 1 else None
    load = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(load, cst.Call) or not loads(load):
        return None
    assert isinstance(load.func, cst.Attribute)
    if source.code(load.func.value) != source.code(optimizer):
        return None
    if not isinstance(source.parent(load), cst.Expr):
        return None
    block = reader.block_of(load)
    for outer in ancestors(source, node):
        if outer is block:
            return load
        if isinstance(outer, cst.For | cst.While | cst.FunctionDef):
            return None  # a second turn would convert the optimizer's own state
    return None


def set_here(
    states: ModelStates,
    node: cst.Call,
    named: dict[str, cst.Arg],
    state: str,
    options: str,
    later: cst.Call,
) -> None:
    """Load the state where it is converted; the later load is of states that are not converted."""
    migration, source = states.migration, states.source
    statement = statement_of(source, node)
    assert isinstance(statement, cst.Assign)
    target = source.code(statement.targets[0].target)
    model = expression(migration, source, named["model"].value)
    optimizer = expression(migration, source, named["optim"].value)
    migration.account_for(source, node.func)
    resharding.reshard_before(migration, source, node, named["model"].value)
    states.put_state_call(node, "set_optimizer_state_dict", [model, optimizer, state], options)
    loading = migration.text(source, node)
    migration.substitute(source, statement, loading)
    migration.rewrite.insert_after(source, statement, [f"{target} = None  # it is loaded already"])
    load = expression(migration, source, later)
    migration.replace_statement(source, later, [f"if {target} is not None:", f"\t{load}"])
    branch_loads.note_handlers(migration, source, node)
    migration.step(source, node, "Load the optimizer's state with set_optimizer_state_dict")
