"""Joining the values of several ranks, branches or iterations into one."""

from __future__ import annotations

from fsdplint.interpreter.torch_values import (
    ModulesOf,
    ParametersOf,
    RankTest,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Condition,
    Const,
    Context,
    Dict,
    Lazy,
    LazyImport,
    LibraryObject,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import Layout


def join_by_rank(test: RankTest | None, one: Value | None, two: Value | None) -> Value:
    """Join `one`, the value on the ranks where the test holds, with `two` of the other ranks."""
    one = one if one is not None else Const(None)
    two = two if two is not None else Const(None)
    if (
        test is not None
        and isinstance(one, Const)
        and isinstance(two, Const)
        and isinstance(one.value, bool)
        and bool(one.value) != bool(two.value)
    ):
        if one.value:
            return test
        return RankTest(test.false_on, test.true_on)
    if matters(one) or not matters(two):
        return one
    return two


def join_values(one: Value, two: Value) -> Value:
    """Join the values of two branches or iterations.

    Of two states, prefer the one without a problem: the code that changes some tensors may change
    the others in the same way.
    """
    if isinstance(one, StateValue) and isinstance(two, StateValue):
        return two if two.layout in (Layout.FULL, Layout.UNKNOWN) else one
    for value, other in ((one, two), (two, one)):
        if _one_tensor(value) and isinstance(other, Unknown) and other.refined is None:
            return other
    if isinstance(one, ShardTensor) != isinstance(two, ShardTensor):
        return TensorValue("derived")  # one branch makes a plain tensor of it
    return one if matters(one) else two


def matters(value: Value | None) -> bool:
    """Whether the FSDP contract depends on a value: losing it may lose a finding."""
    if value is None:
        return False
    value = value.value or value if isinstance(value, LazyImport) else value
    if isinstance(value, Unknown):
        return value.refined is not None or value.part_of is not None
    if isinstance(value, Sequence):
        return any(matters(item) for item in value.items)
    if isinstance(value, Dict):
        return any(matters(item) for item in value.items.values())
    if isinstance(value, Symbol):
        return value.name.startswith("torch.") and not _is_dtype(value.name)
    return not isinstance(value, Const | Condition | Unknown)


def decisive(value: Value | None) -> bool:
    """Whether a decision that leads to this value is worth its own configuration."""
    if isinstance(value, LazyImport):
        value = value.value
    if isinstance(value, Lazy):
        return decisive(value.source)
    if isinstance(value, Symbol):
        return value.name.startswith("torch.distributed")
    if isinstance(value, Sequence):
        return any(decisive(item) for item in value.items)
    return isinstance(
        value,
        ModuleValue
        | OptimizerValue
        | StateValue
        | ParametersOf
        | ModulesOf
        | Partial
        | Context
        | LibraryObject,
    )


def _one_tensor(value: Value) -> bool:
    if isinstance(value, ParametersOf):
        return value.element
    if isinstance(value, ShardTensor):
        return not value.reduction
    return isinstance(value, StateValue) and value.tensor


def _is_dtype(name: str) -> bool:
    return name.count(".") == 1 and name != "torch.compile"
