"""Numbers of elements of sharded parameters: `p.numel()` of a DTensor counts those of all ranks."""

from __future__ import annotations

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.torch_values import ParametersOf, TensorValue
from fsdplint.interpreter.values import Const, Sequence, Unknown, Value

_COUNTS = frozenset({"nelement", "numel"})
# Operations whose result is a sum over all ranks if one of their operands is.
_KEEPS = frozenset(
    "add as_tensor clone cpu cuda div double float int item long mul other sum tensor to".split()
)


def note_count(run: Run, parameters: ParametersOf, name: str, result: Value) -> None:
    """The result of a method of a parameter."""
    whole = parameters.element and not parameters.derived and must_be_sharded(run, parameters)
    if name in _COUNTS and whole and isinstance(result, Unknown):
        run.global_counts.add(result)


def note_operation(run: Run, name: str, operands: list[Value], result: Value) -> None:
    """The result of an operation on counts and constants."""
    known = [one for one in map(run.settle, operands) if not isinstance(one, Const)]
    if name in _KEEPS and known and all(is_global(run, one) for one in known):
        if isinstance(result, Unknown | TensorValue):
            run.global_counts.add(result)


def is_global(run: Run, value: Value) -> bool:
    """Whether a number, or each element of a tensor, certainly counts elements of all ranks."""
    value = run.settle(value)
    if isinstance(value, Sequence):
        return bool(value.items) and all(is_global(run, one) for one in value.items)
    return value in run.global_counts
