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
from fsdplint.interpreter.values import Value
from fsdplint.trace import DataReplaced

# Methods that return the same numbers on another device or in another dtype.
_CASTS = frozenset("bfloat16 contiguous cpu cuda detach double float half to type".split())


def note_assignment(run: Run, target: cst.Attribute, owner: Value) -> None:
    """The program assigns the attribute `data` of a value."""
    value = _assigned(run, target)
    casts = _casts(target, value)
    replaces = value is not None and not casts and not _works_in_place(run, value)
    if isinstance(owner, ParametersOf):
        if replaces and is_parameter_itself(owner):
            modules = tuple(module.id for module in owner.modules)
            at_rest = must_be_sharded(run, owner)
            every = extent_of([owner]) == "all" and not run.calling
            if at_rest or every:
                run.emit(DataReplaced, target, modules=modules, at_rest=at_rest, every=every)
        note_weights_set(run, target, [owner], same_values=casts, rebound=True)
        meta_device.leave_meta(run, owner.modules)
    elif replaces and isinstance(owner, ShardTensor) and owner.source == "gradient":
        if owner.must_be_dtensor and not owner.reduction:
            modules = tuple(module.id for module in owner.modules)
            run.emit(DataReplaced, target, modules=modules, gradient=True, at_rest=True)


def _assigned(run: Run, target: cst.Attribute) -> cst.BaseExpression | None:
    """The value of a plain assignment; `p.data *= x` works in place and is none."""
    outer = run.source.parent(target)
    statement = run.source.parent(outer) if isinstance(outer, cst.AssignTarget) else None
    return statement.value if isinstance(statement, cst.Assign) else None


def _works_in_place(run: Run, value: cst.BaseExpression) -> bool:
    """Whether an expression may change a tensor itself: `p.data.mul_(x)`, `add(..., out=p)`."""
    for node in run.source.descend(value):
        if isinstance(node, cst.Call):
            name = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
            if name.endswith("_") or any(
                arg.keyword and arg.keyword.value == "out" for arg in node.args
            ):
                return True
    return False


def _casts(target: cst.Attribute, value: cst.BaseExpression | None) -> bool:
    """Whether `p.data = x` gives a parameter the same numbers: `p.data = p.data.to(dtype)`."""
    casts = False
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value not in _CASTS:
            return False
        value, casts = value.func.value, True
    same = (target, target.value)
    return casts and value is not None and any(value.deep_equals(one) for one in same)
