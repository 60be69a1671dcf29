"""The values of a call, described as plain data; see `fsdplint.trace.arguments`."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.torch_values import ParametersOf, StateValue
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace.arguments import (
    STATE,
    Argument,
    Arguments,
    Built,
    Constant,
    Named,
    Opaque,
    PartOfModel,
)

MAX_DEPTH = 4  # objects in objects
MAX_ITEMS = 64


def described_call(call: Call) -> Arguments:
    """The arguments of a call."""
    nodes = _nodes(call)
    given = {str(number): value for number, value in enumerate(call.args)} | call.kwargs
    found = {name: describe_value(value, nodes.get(name)) for name, value in given.items()}
    return Arguments(found, not call.open)


def _nodes(call: Call) -> dict[str, cst.BaseExpression]:
    """The expressions of the arguments that the call itself writes."""
    if not isinstance(call.node, cst.Call):
        return {}
    named = {arg.keyword.value: arg.value for arg in call.node.args if arg.keyword is not None}
    plain = [arg for arg in call.node.args if arg.keyword is None]
    if len(plain) == len(call.args) and not any(arg.star for arg in plain):
        named |= {str(number): arg.value for number, arg in enumerate(plain)}
    return named


def describe_value(
    value: Value, node: cst.BaseExpression | None = None, depth: int = 0
) -> Argument:
    """A value. node: the expression that gave it, if it is known."""
    if depth < MAX_DEPTH:
        match value:
            case Const():
                return Constant(value.value)
            case Unknown(is_default=True, default=Value() as default):
                return describe_value(default, node, depth + 1)
            case Symbol():
                return Named(value.name)
            case Function() | Class():
                return Named(value.name)
            case Bound():
                return describe_value(value.function, node, depth + 1)
            case LibraryObject():
                items = [
                    (n, describe_value(part, depth=depth + 1)) for n, part in value.args.items()
                ]
                return Built(value.name, tuple(items), not value.open)
            case Partial():
                return _partial(value, depth)
            case Sequence():
                return _sequence(value, depth)
            case Dict():
                pairs = list(value.items.items())[:MAX_ITEMS]
                items = [(str(name), describe_value(part, depth=depth + 1)) for name, part in pairs]
                return Built("dict", tuple(items), not value.open and len(pairs) < MAX_ITEMS)
            case ModuleValue():
                return PartOfModel((value.id,))
            case StateValue() if value.of is not None and not value.tensor and not value.view:
                owner = value.of
                of = (
                    Constant(owner.id)
                    if isinstance(owner, OptimizerValue)
                    else describe_value(owner)
                )
                return Built(STATE, (("of", of),))
            case ParametersOf():
                complete = value.complete and not value.filtered_by
                return PartOfModel(tuple(one.id for one in value.modules), complete)
    return Opaque(_origin(value), "" if node is None else cst.Module([]).code_for_node(node))


def _origin(value: Value) -> str:
    return value.origin if isinstance(value, Unknown) and not value.varying else ""


def _partial(value: Partial, depth: int) -> Argument:
    function = describe_value(value.function, depth=depth + 1)
    given = {str(number): part for number, part in enumerate(value.args)} | value.kwargs
    items = [("function", function)]
    items += [(name, describe_value(part, depth=depth + 1)) for name, part in given.items()]
    return Built("partial", tuple(items), not value.open)


def _sequence(value: Sequence, depth: int) -> Argument:
    parts = [describe_value(part, depth=depth + 1) for part in value.items[:MAX_ITEMS]]
    items = tuple((str(number), part) for number, part in enumerate(parts))
    return Built(value.kind, items, not value.open and len(items) < MAX_ITEMS)
