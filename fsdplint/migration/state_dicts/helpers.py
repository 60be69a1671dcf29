"""Functions and methods that only return `FSDP.state_dict_type(...)`, or yield inside of it.

The blocks that use such a function are rewritten, and the function is deleted. What a block gives the
function takes the place of its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter.values import Context
from fsdplint.migration.analysis.variables import home_of
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    HELPER_USED_OTHERWISE,
    MODEL_UNKNOWN,
    TYPE_AT_RUN_TIME,
    TYPE_IN_LONG_FUNCTION,
    TYPE_IN_METHOD,
)
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.direct_form.building import only_builds
from fsdplint.migration.names import FSDP
from fsdplint.migration.state_dicts.kinds import Kind
from fsdplint.migration.state_dicts.optim_state import States
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.syntax.layout import descend


@dataclass
class _Helper:
    """A function, its calls of `state_dict_type`, and what names in them stand for.

    Attributes:
        source: its file.
        function: the function.
        calls: the calls, in the order of the text.
        tests: the expressions that choose one of them.
        in_class: whether it is a method.
        receiver: the name of its first parameter, if that is the object; else "".
        parameters: the names of its other parameters.
        values: the expressions of its variables, and the defaults of its parameters.
    """

    source: Source
    function: cst.FunctionDef
    calls: list[cst.Call]
    tests: list[cst.BaseExpression]
    in_class: bool
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
    """Rewrite the blocks for which a function gives the context that a call makes.

    The function is deleted with the first of its calls.

    Raises:
        Blocked: the function does more, or code uses it in another way.
    """
    helper = _read(migration, source, call)
    uses = [one for one in _uses(migration, helper, call) if _reaches(migration, helper, one, call)]
    kinds = [_kind(states[source], helper, use, call) for use in uses]
    for use, (kind, model) in zip(uses, kinds, strict=True):
        states[use.source].unwrap(use.call, use.block, kind, model)
    migration.account_for(source, call)
    if call is helper.calls[0]:
        migration.delete_statement(source, helper.function)


def is_helper(source: Source, call: cst.Call) -> bool:
    """Whether a call of `state_dict_type` is the context of blocks elsewhere."""
    parent = source.parent(call)
    block = source.parent(parent) if isinstance(parent, cst.WithItem) else None
    return isinstance(parent, cst.Return) or (isinstance(block, cst.With) and _only_yields(block))


# The function -------------------------------------------------------------------------------------


def _read(migration: Migration, source: Source, call: cst.Call) -> _Helper:
    function = function_around(source, call)
    if not isinstance(function, cst.FunctionDef):
        raise Blocked(source, call, TYPE_IN_LONG_FUNCTION())
    params, decorators = function.params, _decorators(migration, function)
    if isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None:
        raise Blocked(source, call, TYPE_IN_LONG_FUNCTION())
    named = [*params.posonly_params, *params.params, *params.kwonly_params]
    names = [one.name.value for one in named]
    in_class = _is_method(source, function)
    bound = in_class and "builtins.staticmethod" not in decorators and bool(names)
    helper = _Helper(source, function, [], [], in_class, names.pop(0) if bound else "", names)
    helper.values = {one.name.value: one.default for one in named if one.default is not None}
    if not _only_gives_contexts(migration, helper, function.body, decorators):
        raise Blocked(source, call, TYPE_IN_LONG_FUNCTION())
    return helper


def _decorators(migration: Migration, function: cst.FunctionDef) -> list[str]:
    found = []
    for item in function.decorators:
        name = item.decorator.value if isinstance(item.decorator, cst.Name) else ""
        plain = f"builtins.{name}" if name in ("classmethod", "staticmethod") else ""
        found.append(plain or migration.symbol(item.decorator))
    return found


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


def _only_gives_contexts(
    migration: Migration, helper: _Helper, body: cst.BaseSuite, decorators: list[str]
) -> bool:
    """Whether a function only makes values, and gives contexts of `state_dict_type`.

    Adds what it finds to the helper.
    """
    yields = "contextlib.contextmanager" in decorators
    allowed = {"contextlib.contextmanager", "builtins.staticmethod", "builtins.classmethod"}
    if not set(decorators) <= allowed:
        return False
    for line in body.body:
        small = line.body if isinstance(line, cst.SimpleStatementLine) else [line]
        if not all(_is_allowed(migration, helper, one, yields=yields) for one in small):
            return False
    return bool(helper.calls)


def _is_allowed(migration: Migration, helper: _Helper, node: cst.CSTNode, *, yields: bool) -> bool:
    source = helper.source
    if isinstance(node, cst.Expr):  # a docstring
        return isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)
    if isinstance(node, cst.Pass):
        return True
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        return _is_value(migration, helper, node.targets[0].target, node.value)
    if isinstance(node, cst.AnnAssign) and node.value is not None:
        return _is_value(migration, helper, node.target, node.value)
    if isinstance(node, cst.Return) and not yields:
        return _is_type_call(migration, helper, node.value)
    if isinstance(node, cst.With) and yields:
        return _only_yields(node) and _is_type_call(migration, helper, node.items[0].item)
    if isinstance(node, cst.If):
        helper.tests.append(node.test)
        parts: list[cst.CSTNode] = [*_statements(node.body)]
        if isinstance(node.orelse, cst.If):
            parts.append(node.orelse)
        elif node.orelse is not None:
            parts += _statements(node.orelse.body)
        return only_builds(migration, source, node.test) and all(
            _is_allowed(migration, helper, part, yields=yields) for part in parts
        )
    return isinstance(node, cst.Raise)  # for a kind of state that no use has


def _statements(body: cst.BaseSuite) -> Iterator[cst.CSTNode]:
    for line in body.body:
        yield from line.body if isinstance(line, cst.SimpleStatementLine) else [line]


def _is_value(
    migration: Migration, helper: _Helper, target: cst.CSTNode, value: cst.BaseExpression
) -> bool:
    """Whether an assignment has no effect outside; notes the value of a name with one value."""
    if not isinstance(target, cst.Name) or target.value in [helper.receiver, *helper.parameters]:
        return False
    if target.value in helper.values:  # another one for each branch
        return False
    helper.values[target.value] = value
    known = migration.fsdp1(value.func) if isinstance(value, cst.Call) else ""
    return known.endswith("Config") or only_builds(migration, helper.source, value)


def _is_type_call(migration: Migration, helper: _Helper, node: cst.BaseExpression | None) -> bool:
    if not isinstance(node, cst.Call) or migration.fsdp1(node.func) != f"{FSDP}.state_dict_type":
        return False
    helper.calls.append(node)
    return True


def _is_method(source: Source, function: cst.FunctionDef) -> bool:
    parent = source.parent(function)
    return isinstance(source.parent(parent), cst.ClassDef) if parent is not None else False


# Its uses -----------------------------------------------------------------------------------------


def _uses(migration: Migration, helper: _Helper, at: cst.Call) -> Iterator[_Use]:
    """The blocks that use the function.

    Raises:
        Blocked: code uses it in another way, or another method has its name.
    """
    name = helper.function.name.value
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.FunctionDef) and node.name.value == name:
                if helper.in_class and node is not helper.function:
                    raise Blocked(helper.source, at, TYPE_IN_METHOD())
            elif helper.in_class:
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


def _reaches(migration: Migration, helper: _Helper, use: _Use, call: cst.Call) -> bool:
    """Whether a use gets the context of a call of `state_dict_type` in the function.

    Raises:
        Blocked: what chooses the call is not written at the use.
    """
    if not helper.tests:
        return True
    values = {**helper.values, **use.given}
    for test in helper.tests:
        for part in (test, *descend(test)):
            if isinstance(part, cst.Name) and part.value in helper.parameters:
                if not _is_literal(values.get(part.value)):
                    raise Blocked(use.source, use.call, TYPE_AT_RUN_TIME())
    found = {
        value.created_at.node
        for value in migration.values(use.call)
        if isinstance(value, Context) and isinstance(value.created_at, NodeSite)
    }
    if len(found) != 1 or not found <= set(helper.calls):
        raise Blocked(use.source, use.call, TYPE_AT_RUN_TIME())
    return call in found


def _is_literal(node: cst.BaseExpression | None) -> bool:
    plain = isinstance(node, cst.SimpleString | cst.Integer)
    return plain or (node is not None and is_constant(node, "True", "False", "None"))


def _kind(reader: States, helper: _Helper, use: _Use, call: cst.Call) -> tuple[Kind, str]:
    """The kind of the states in a block, and the text of its model.

    Raises:
        Blocked: one of them is only known in the function.
    """
    values = {**helper.values, **use.given}
    kind, model = reader.kind(call, values)
    known = True
    for config in (kind.model, kind.optimizer):
        if config.variable is not None:
            if function_around(helper.source, config.variable[1]) is helper.function:
                reader.migration.states.configs.pop(config.variable[1], None)
            else:
                known = False
            config.name, config.variable = "", None  # the name may not be visible in the blocks
    if kind.tests and not (known and _are_visible(reader.migration, helper, use, call)):
        raise Blocked(use.source, use.call, MODEL_UNKNOWN())
    if model in use.given:
        return kind, use.source.code(use.given[model])
    head, dot, rest = model.partition(".")
    if helper.receiver and head == helper.receiver and dot:
        assert isinstance(use.call.func, cst.Attribute)
        return kind, f"{use.source.code(use.call.func.value)}.{rest}"
    named = arguments(call, ("module",))[0].get("module")
    if named is not None and _is_same_at(helper, use, named.value):
        return kind, model
    raise Blocked(use.source, use.call, MODEL_UNKNOWN())


def _are_visible(migration: Migration, helper: _Helper, use: _Use, call: cst.Call) -> bool:
    """Whether the fields of the configs mean the same in a block as in the function."""
    values = {**helper.values, **use.given}

    def meant(node: cst.BaseExpression) -> cst.BaseExpression:
        return values.get(node.value, node) if isinstance(node, cst.Name) else node

    configs = [meant(arg.value) for arg in call.args]
    fields = [
        meant(arg.value)
        for config in configs
        if isinstance(config, cst.Call) and migration.fsdp1(config.func).endswith("Config")
        for arg in config.args
    ]
    given = list(use.given.values())
    return all(one in given or _is_same_at(helper, use, one) for one in fields)


def _is_same_at(helper: _Helper, use: _Use, node: cst.BaseExpression) -> bool:
    """Whether the names in an expression of the function mean the same in a block."""
    source, func = helper.source, use.call.func
    receiver = use.source.code(func.value) if isinstance(func, cst.Attribute) else ""
    scopes = bindings_of(use.source)
    at = scopes.scope_at(use.block)
    for part in (node, *descend(node)):
        if not isinstance(part, cst.Name) or _is_attribute(source, part):
            continue
        if part.value == helper.receiver == receiver or is_constant(part, "True", "False", "None"):
            continue
        home = home_of(source, part)
        owner = scopes.owner(at, part.value)
        there = owner.node if owner is not None else None
        if use.source is not source or home is not there:
            return False
    return True


def _is_attribute(source: Source, name: cst.Name) -> bool:
    parent = source.parent(name)
    return isinstance(parent, cst.Attribute) and parent.attr is name
