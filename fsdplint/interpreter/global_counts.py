"""Numbers of elements of sharded parameters: `p.numel()` of a DTensor counts those of all ranks."""

from __future__ import annotations

from fsdplint.interpreter.amounts import note
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.sharded_parameters import must_be_sharded
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import Unknown, Value

_COUNTS = frozenset({"nelement", "numel"})


def note_count(run: Run, parameters: ParametersOf, name: str, result: Value) -> None:
    """The result of a method of a parameter."""
    whole = parameters.element and not parameters.derived and must_be_sharded(run, parameters)
    if name in _COUNTS and whole and isinstance(result, Unknown):
        note(run, result, counts_all=True)
