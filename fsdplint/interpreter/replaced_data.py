"""`parameter.data = values` on a DTensor, which changes nothing.

The computation reads the local tensor of a DTensor. The assignment replaces another tensor.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import meta_device
from fsdplint.interpreter.models.randomness import (
    extent_of,
    is_parameter_itself,
    note_weights_set,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.torch_values import ParametersOf, ShardTensor
from fsdplint.interpreter.values import Bound, Function, Method, Partial, Symbol, Value
from fsdplint.trace import DataReplaced

# Methods that return the same numbers on another device or in another dtype.
_CASTS = frozenset("bfloat16 contiguous cpu cuda detach double float half to type".split())


def note_assignment(run: Run, target: cst.Attribute, owner: Value, value: Value) -> None:
    """The program assigns a value to the attribute `data` of another."""
    assigned = _assigned_expression(run, target)
    casts = _casts(target, assigned)
    replaces = assigned is not None and not casts and not _may_be_itself(run, assigned, value)
    if isinstance(owner, ParametersOf):
        if replaces and is_parameter_itself(owner):
            modules = tuple(module.id for module in owner.modules)
            at_rest = must_be_sharded(run, owner)
            every = extent_of(run, [owner]) == "all" and not run.calling
            if at_rest or every:
                run.emit(DataReplaced, target, modules=modules, at_rest=at_rest, every=every)
        note_weights_set(run, target, [owner], same_values=casts, rebound=True)
        meta_device.leave_meta(run, owner.modules)
    elif replaces and isinstance(owner, ShardTensor) and owner.source == "gradient":
        if owner.must_be_dtensor and not owner.reduction:
            modules = tuple(module.id for module in owner.modules)
            run.emit(DataReplaced, target, modules=modules, gradient=True, at_rest=True)


def _assigned_expression(run: Run, target: cst.Attribute) -> cst.BaseExpression | None:
    """The expression of a plain assignment; `p.data *= x` works in place and has none."""
    outer = run.source.parent(target)
    statement = run.source.parent(outer) if isinstance(outer, cst.AssignTarget) else None
    return statement.value if isinstance(statement, cst.Assign) else None


def _may_be_itself(run: Run, expression: cst.BaseExpression, value: Value) -> bool:
    """Whether a value may be the changed tensor itself: `p.data.mul_(x)`, `add(..., out=p.data)`.

    Code out of sight may change what it gets and return it.
    """
    value = run.settle(value)
    if _is_whole(value) and not isinstance(expression, cst.BinaryOperation | cst.UnaryOperation):
        return True
    return any(
        _may_change_operands(run, node)
        for node in run.source.descend(expression)
        if isinstance(node, cst.Call)
    )


def _is_whole(value: Value | None) -> bool:
    """Whether a value may be a parameter or gradient, and no result of an operation on one."""
    if isinstance(value, ParametersOf):
        return not value.derived
    return isinstance(value, ShardTensor) and value.source == "gradient"


def _may_change_operands(run: Run, call: cst.Call) -> bool:
    if any(arg.keyword is not None and arg.keyword.value == "out" for arg in call.args):
        return True
    if isinstance(call.func, cst.Attribute) and call.func.attr.value.endswith("_"):
        return True
    function = run.evaluations.get(call.func)
    if isinstance(function, Symbol | Method | Function | Bound | Partial):
        return False  # what it returns is known
    return any(_is_whole(run.evaluations.get(arg.value)) for arg in call.args)


def _casts(target: cst.Attribute, value: cst.BaseExpression | None) -> bool:
    """Whether `p.data = x` gives a parameter the same numbers: `p.data = p.data.to(dtype)`."""
    casts = False
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value not in _CASTS:
            return False
        value, casts = value.func.value, True
    same = (target, target.value)
    return casts and value is not None and any(value.deep_equals(one) for one in same)
