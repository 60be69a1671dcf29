"""Functions and methods that only return `FSDP.state_dict_type(...)`, or yield inside of it.

The blocks that use such a function are rewritten, and the function is deleted. What a block gives the
function takes the place of its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    HELPER_USED_OTHERWISE,
    MODEL_UNKNOWN,
    TYPE_IN_LONG_FUNCTION,
    TYPE_IN_METHOD,
)
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.state_dicts.kinds import Kind
from fsdplint.migration.state_dicts.optim_state import States
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend

_PLAIN = (cst.Name, cst.Attribute, cst.Comparison, cst.BooleanOperation, cst.UnaryOperation)
_PLAIN_PARTS = (
    *_PLAIN, cst.SimpleString, cst.Integer, cst.ComparisonTarget, cst.BaseCompOp, cst.BaseBooleanOp,
    cst.BaseUnaryOp, cst.Dot, cst.BaseParenthesizableWhitespace, cst.LeftParen, cst.RightParen,
)  # fmt: skip


@dataclass
class _Helper:
    """The function, its call of `state_dict_type`, and what names in that call stand for.

    Attributes:
        source: its file.
        call: the call.
        function: the function.
        receiver: the name of its first parameter, if it is a method; else "".
        parameters: the names of its other parameters.
        values: the expressions of its variables, and the defaults of its parameters.
    """

    source: Source
    call: cst.Call
    function: cst.FunctionDef
    receiver: str
    parameters: list[str]
    values: dict[str, cst.BaseExpression] = field(default_factory=dict)


@dataclass
class _Use:
    """A block whose head calls the function, and what it gives the parameters."""

    source: Source
    call: cst.Call
    block: cst.With
    given: dict[str, cst.BaseExpression]


def rewrite_helper(
    migration: Migration, states: dict[Source, States], source: Source, call: cst.Call
) -> None:
    """Rewrite the blocks that use a function which only returns the context manager.

    Raises:
        Blocked: the function does more, or code uses it in another way.
    """
    helper = _read(migration, source, call)
    uses = list(_uses(migration, helper))
    kinds = [_kind(migration, states[source], helper, use) for use in uses]
    for use, (kind, model) in zip(uses, kinds, strict=True):
        states[use.source].unwrap(use.call, use.block, kind, model)
    migration.account_for(source, call)
    migration.delete_statement(source, helper.function)


def is_helper(source: Source, call: cst.Call) -> bool:
    """Whether a call of `state_dict_type` is the context of blocks elsewhere."""
    parent = source.parent(call)
    block = source.parent(parent) if isinstance(parent, cst.WithItem) else None
    return isinstance(parent, cst.Return) or (isinstance(block, cst.With) and _only_yields(block))


# The function -------------------------------------------------------------------------------------


def _read(migration: Migration, source: Source, call: cst.Call) -> _Helper:
    function = function_around(source, call)
    if not isinstance(function, cst.FunctionDef) or not _only_returns(migration, function, call):
        raise Blocked(source, call, TYPE_IN_LONG_FUNCTION())
    params = function.params
    if isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None:
        raise Blocked(source, call, TYPE_IN_LONG_FUNCTION())
    named = [*params.posonly_params, *params.params, *params.kwonly_params]
    names = [one.name.value for one in named]
    receiver = names.pop(0) if _is_method(source, function) and names else ""
    helper = _Helper(source, call, function, receiver, names)
    helper.values = {one.name.value: one.default for one in named if one.default is not None}
    for line in function.body.body[:-1]:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
        if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Name):
            helper.values[small.targets[0].target.value] = small.value
    return helper


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
    """Whether a function only creates configs, reads plain values, and gives a context of
    `state_dict_type`."""
    body = list(function.body.body)
    if function.get_docstring() is not None:
        body = body[1:]
    for line in body[:-1]:
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            return False
        if not migration.called_name(small.value) and not _is_plain(small.value):
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


def _is_plain(node: cst.BaseExpression) -> bool:
    """Whether an expression only reads variables and attributes, and compares them."""
    return isinstance(node, _PLAIN) and all(
        isinstance(part, _PLAIN_PARTS) for part in descend(node)
    )


def _is_method(source: Source, function: cst.FunctionDef) -> bool:
    parent = source.parent(function)
    return isinstance(source.parent(parent), cst.ClassDef) if parent is not None else False


# Its uses -----------------------------------------------------------------------------------------


def _uses(migration: Migration, helper: _Helper) -> Iterator[_Use]:
    """The blocks that use the function.

    Raises:
        Blocked: code uses it in another way, or another method has its name.
    """
    name = helper.function.name.value
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.FunctionDef) and node.name.value == name:
                if helper.receiver and node is not helper.function:
                    raise Blocked(helper.source, helper.call, TYPE_IN_METHOD())
            elif helper.receiver:
                if isinstance(node, cst.Attribute) and node.attr.value == name:
                    yield _use(source, node, helper)
            elif isinstance(node, cst.Name) and node.value == name:
                yield _use(source, node, helper)


def _use(source: Source, node: cst.Name | cst.Attribute, helper: _Helper) -> _Use:
    call = source.parent(node)
    item = source.parent(call) if isinstance(call, cst.Call) and call.func is node else None
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(call, cst.Call) or not isinstance(block, cst.With) or len(block.items) != 1:
        raise Blocked(source, node, HELPER_USED_OTHERWISE())
    given, rest = arguments(call, helper.parameters)
    if rest:
        raise Blocked(source, node, HELPER_USED_OTHERWISE())
    return _Use(source, call, block, {name: arg.value for name, arg in given.items()})


def _kind(migration: Migration, reader: States, helper: _Helper, use: _Use) -> tuple[Kind, str]:
    """The kind of the states in a block, and the text of its model.

    Raises:
        Blocked: one of them is only known in the function.
    """
    values = {**helper.values, **use.given}
    kind, model = reader.kind(helper.call, values)
    for config in (kind.model, kind.optimizer):
        if config.variable is not None:
            if function_around(helper.source, config.variable[1]) is helper.function:
                migration.states.configs.pop(config.variable[1], None)
            config.name, config.variable = "", None  # the name may not be visible in the blocks
    if kind.tests and not _are_visible(helper, use, values):
        raise Blocked(use.source, use.call, MODEL_UNKNOWN())
    if model in use.given:
        return kind, use.source.code(use.given[model])
    head, dot, rest = model.partition(".")
    if helper.receiver and head == helper.receiver and dot:
        assert isinstance(use.call.func, cst.Attribute)
        return kind, f"{use.source.code(use.call.func.value)}.{rest}"
    raise Blocked(use.source, use.call, MODEL_UNKNOWN())


def _are_visible(helper: _Helper, use: _Use, values: dict[str, cst.BaseExpression]) -> bool:
    """Whether the plain values in the function mean the same in a block."""
    own = [one for one in values.values() if _is_plain(one) and one not in use.given.values()]
    names = {
        part.value
        for one in own
        if not is_constant(one, "True", "False", "None")
        for part in (one, *descend(one))
        if isinstance(part, cst.Name) and not _is_attribute(helper.source, part)
    }
    func = use.call.func
    receiver = use.source.code(func.value) if isinstance(func, cst.Attribute) else ""
    return use.source is helper.source and names <= {receiver} and receiver == helper.receiver


def _is_attribute(source: Source, name: cst.Name) -> bool:
    parent = source.parent(name)
    return isinstance(parent, cst.Attribute) and parent.attr is name
