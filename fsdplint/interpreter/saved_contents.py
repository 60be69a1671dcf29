"""What a value that a program saves or loads holds."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    LOCAL_PART,
    HelperState,
    ParametersOf,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.values import (
    Dict,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Unknown,
    Value,
)


def contents(run: Run, value: Value, depth: int = 0) -> list[Value]:
    """The state dicts, modules and parameters that a value is or holds."""
    value = run.settle(value)
    if isinstance(value, StateValue):
        return [value] if value.view != "keys" else []
    if isinstance(value, ModuleValue | OptimizerValue | ParametersOf):
        return [value]
    if isinstance(value, ShardTensor):
        return [value] if not value.reduction else []
    if isinstance(value, TensorValue):
        return [value] if value.source == LOCAL_PART and value.modules else []
    if depth > 3:
        return []
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict):
        parts = [*value.items.values(), *value.tensors.values()]
    elif isinstance(value, Unknown):
        parts = list(value.parts.values())
    return [found for part in parts for found in contents(run, part, depth + 1)]


def state_entries(
    run: Run, value: Value, key: str = "", depth: int = 0
) -> list[tuple[str, StateValue | HelperState]]:
    """The states that a value holds, each with its key in the dict; "" for any other place."""
    value = run.settle(value)
    if isinstance(value, StateValue | HelperState):
        return [(key, value)]
    if depth > 3 or not isinstance(value, Dict):
        return []
    return [
        entry
        for name, part in value.items.items()
        for entry in state_entries(run, part, name if isinstance(name, str) else "", depth + 1)
    ]
