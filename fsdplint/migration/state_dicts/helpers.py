"""Functions that only return `FSDP.state_dict_type(...)`, or yield inside of it.

The blocks that use such a function are rewritten, and the function is deleted.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    HELPER_USED_OTHERWISE,
    MODEL_UNKNOWN,
    TYPE_IN_LONG_FUNCTION,
    TYPE_IN_METHOD,
)
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.state_dicts.optim_state import States
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import function_around


def rewrite_helper(
    migration: Migration, states: dict[Source, States], source: Source, call: cst.Call
) -> None:
    """Rewrite the blocks that use a function which only returns the context manager.

    Raises:
        Blocked: the function does more, or code uses it in another way.
    """
    function = function_around(source, call)
    if not isinstance(function, cst.FunctionDef) or not _only_returns(migration, function, call):
        raise Blocked(source, call, TYPE_IN_LONG_FUNCTION())
    kind, model = states[source].kind(call)
    for config in (kind.model, kind.optimizer):
        if config.variable is not None:
            if function_around(source, config.variable[1]) is function:
                migration.states.configs.pop(config.variable[1], None)
            config.name, config.variable = "", None  # the name may not be visible in the blocks
    parameters = [p.name.value for p in function.params.params]
    if source.parent(source.parent(function) or function) is not None and _is_method(
        source, function
    ):
        raise Blocked(source, call, TYPE_IN_METHOD())
    name = function.name.value
    blocks: list[tuple[Source, cst.Call, cst.With, str]] = []
    for other in migration.sources:
        for node in nodes(other):
            if isinstance(node, cst.Name) and node.value == name:
                blocks.append(_block(migration, other, node, parameters, model))
    for other, node, block, text in blocks:
        states[other].unwrap(node, block, kind, text)
    migration.account_for(source, call)
    migration.delete_statement(source, function)


def is_helper(source: Source, call: cst.Call) -> bool:
    """Whether a call of `state_dict_type` is the context of blocks elsewhere."""
    parent = source.parent(call)
    block = source.parent(parent) if isinstance(parent, cst.WithItem) else None
    return isinstance(parent, cst.Return) or (isinstance(block, cst.With) and _only_yields(block))


def _only_yields(block: cst.With) -> bool:
    body = block.body.body
    if len(body) != 1 or len(block.items) != 1:
        return False
    line = body[0]
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
    return (
        isinstance(small, cst.Expr)
        and isinstance(small.value, cst.Yield)
        and small.value.value is None
    )


def _only_returns(migration: Migration, function: cst.FunctionDef, call: cst.Call) -> bool:
    """Whether a function only creates configs and gives a context of `state_dict_type`."""
    body = list(function.body.body)
    if function.get_docstring() is not None:
        body = body[1:]
    for line in body[:-1]:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
        if not isinstance(small, cst.Assign) or not migration.called_name(small.value):
            return False
    last = body[-1]
    if isinstance(last, cst.With):
        decorators = [migration.symbol(item.decorator) for item in function.decorators]
        given = decorators == ["contextlib.contextmanager"] and _only_yields(last)
        return given and last.items[0].item is call
    return (
        isinstance(last, cst.SimpleStatementLine)
        and isinstance(last.body[0], cst.Return)
        and last.body[0].value is call
        and not function.decorators
    )


def _is_method(source: Source, function: cst.FunctionDef) -> bool:
    parent = source.parent(function)
    return isinstance(source.parent(parent), cst.ClassDef) if parent is not None else False


def _block(
    migration: Migration, source: Source, node: cst.Name, parameters: list[str], model: str
) -> tuple[Source, cst.Call, cst.With, str]:
    """The block of one use of the function, and the text of the model there."""
    call = source.parent(node)
    item = source.parent(call) if isinstance(call, cst.Call) and call.func is node else None
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(call, cst.Call) or not isinstance(block, cst.With) or len(block.items) != 1:
        raise Blocked(source, node, HELPER_USED_OTHERWISE())
    for number, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else None
        if name is None and number < len(parameters):
            name = parameters[number]
        if name == model:
            return source, call, block, source.code(arg.value)
    raise Blocked(source, call, MODEL_UNKNOWN())
