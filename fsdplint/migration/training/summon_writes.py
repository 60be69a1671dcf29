"""Whether a `summon_full_params` block writes only objects other than parameters."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.fixes.summon import writing
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import Bound, Function, ModuleValue, Value
from fsdplint.migration.context import Migration
from fsdplint.syntax.layout import descend
from fsdplint.trace import Trace, Wrapped

CASTS = {"to", "float", "half", "bfloat16"}  # on a tensor, they return a new one


def writes_no_parameters(migration: Migration, body: cst.BaseSuite, parameters: set[str]) -> bool:
    """Whether no line of a block writes a parameter, given the names of parameters in its loops.

    It may write an average: `shadow[name].mul_(decay).add_(p, alpha=1 - decay)`.
    """
    return all(_writes_other_object(migration, node, parameters) for node in writing(body))


def _writes_other_object(migration: Migration, node: cst.CSTNode, parameters: set[str]) -> bool:
    if isinstance(node, cst.AugAssign | cst.AssignTarget):
        return not isinstance(node.target, cst.Name) and _is_other_object(
            migration, node.target, parameters
        )
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    name = node.func.attr.value
    if name in CASTS:
        chain = list(_chain(node.func.value))
        return not any(_has_value_of(migration, part, ModuleValue) for part in chain)
    if not name.endswith("_") or migration.symbol(node.func):
        return False
    if any(isinstance(v, Function | Bound) for v in migration.values(node.func)):
        return False
    return _is_other_object(migration, node.func.value, parameters)


def _is_other_object(
    migration: Migration, target: cst.BaseExpression, parameters: set[str]
) -> bool:
    """Whether an expression certainly does not belong to a parameter or a module."""
    chain = list(_chain(target))
    root = chain[-1]
    if not isinstance(root, cst.Name) or migration.symbol(root):
        return False
    if root.value in parameters:
        return _is_apart(migration, root)
    held = any(isinstance(part, cst.Subscript) for part in chain)
    for part in chain:
        if isinstance(part, cst.Name) and part.value == "self":
            continue
        for value in migration.values(part):
            if isinstance(value, ModuleValue):
                return False
            if isinstance(value, ParametersOf) and not (held and value.unsharded_copy):
                return False  # not a stored copy, such as an average
    return True


def _is_apart(migration: Migration, node: cst.Name) -> bool:
    """Whether a name is a parameter of modules that are certainly in no wrapped model, such as the
    copy of a model that holds an average.
    """
    values = migration.values(node)
    if not values or not migration.program.traces:
        return False
    return all(
        isinstance(value, ParametersOf)
        and value.complete
        and value.modules
        and all(is_apart(trace, module.id) for module in value.modules)
        for value in values
        for trace in migration.program.traces
    )


def is_of_other_module(migration: Migration, call: cst.Call) -> bool:
    """Whether a call is a method of modules that are certainly in no wrapped model."""
    if not isinstance(call.func, cst.Attribute) or not migration.program.traces:
        return False
    values = migration.values(call.func.value)
    return bool(values) and all(
        isinstance(value, ModuleValue) and is_apart(trace, value.id)
        for value in values
        for trace in migration.program.traces
    )


def is_apart(trace: Trace, module: str) -> bool:
    """Whether a module is in no wrapped model, as far as all of its models are known."""
    if module not in trace.modules:
        return True  # of another configuration
    known: set[str] = {module, *trace.submodules(module)}
    if not all(one in trace.modules and trace.modules[one].children_known for one in known):
        return False
    for event in trace.of(Wrapped):
        inside = {event.module, event.inner, *trace.submodules(event.inner)}
        if not all(trace.modules[one].children_known for one in inside if one in trace.modules):
            return False
        if known & inside:
            return False
    return True


def _chain(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """An expression such as `a.b[0].c()` and its prefixes `a.b[0].c`, `a.b[0]`, `a.b`, `a`."""
    current = node
    while True:
        yield current
        if isinstance(current, cst.Call):
            current = current.func
        elif isinstance(current, cst.Attribute | cst.Subscript):
            current = current.value
        else:
            return


def _has_value_of(migration: Migration, node: cst.CSTNode, *kinds: type[Value]) -> bool:
    return any(isinstance(value, kinds) for value in migration.values(node))


def only_of(migration: Migration, body: cst.BaseSuite, name: str) -> bool:
    """Whether the body of a loop reads nothing of a wrapped model but the loop's parameter."""
    for node in descend(body):
        if not isinstance(node, cst.Name | cst.Attribute):
            continue
        root = list(_chain(node))[-1]
        if isinstance(root, cst.Name) and (root.value == name or _is_apart(migration, root)):
            continue
        if isinstance(node, cst.Name) and node.value == "self":
            continue
        if _has_value_of(migration, node, ModuleValue, ParametersOf):
            return False
    return True
