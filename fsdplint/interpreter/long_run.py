"""The numbers that values have after many steps, such as the decay of an average with a warm-up.

`min(decay, step / (step + 10))` becomes the decay. A setting counts as its default.
"""

from __future__ import annotations

from math import isnan

import libcst as cst

from fsdplint.interpreter.default_numbers import default_number
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.turn_tests import number_of
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.trace.numbers import Number, Remainder, Token


def long_run(run: Run, value: Value | None) -> float | None:
    """The number that a value has after many steps; None if it is not known."""
    if isinstance(value, Unknown) and not isnan(value.tends_to):
        return value.tends_to
    return default_number(run, value)


def grows(value: Value) -> bool:
    """Whether a value is a number that a loop counts up."""
    if not isinstance(value, Unknown):
        return False
    atoms = _varying_atoms(value.term)
    return value.grows or any(isinstance(atom, Token) and atom.counts for atom in atoms)


def note_count(result: Value, op: cst.BaseAugOp, added: Value) -> None:
    """Note that a loop counts a number up: `step += 1`."""
    step = added.value if isinstance(added, Const) else None
    positive = isinstance(step, int | float) and step > 0
    if isinstance(result, Unknown) and isinstance(op, cst.AddAssign) and positive:
        result.grows = True


def note_operation(
    run: Run, result: Unknown, left: Value, op: cst.BaseBinaryOp | None, right: Value
) -> None:
    """Note what the result of an operation becomes."""
    if isinstance(op, cst.Add):
        for counter, added in ((left, right), (right, left)):
            if grows(counter) and not _varying_atoms(number_of(added)):
                result.grows = True
    if isinstance(op, cst.Divide) and _ratio_of_one(left, right):
        result.tends_to = 1.0
        return
    if isinstance(left, Const) and isinstance(right, Const):
        return
    one, other = long_run(run, left), long_run(run, right)
    if one is None or other is None:
        return
    if isinstance(op, cst.Add):
        result.tends_to = one + other
    elif isinstance(op, cst.Subtract):
        result.tends_to = one - other
    elif isinstance(op, cst.Multiply):
        result.tends_to = one * other
    elif isinstance(op, cst.Divide) and other:
        result.tends_to = one / other


def note_extremum(run: Run, result: Unknown, name: str, values: list[Value]) -> None:
    """Note what the result of `min(...)` or `max(...)` of several numbers becomes."""
    numbers = [long_run(run, value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(values) > 1 and len(known) == len(values):
        result.tends_to = min(known) if name == "min" else max(known)


def _ratio_of_one(left: Value, right: Value) -> bool:
    """Whether two numbers that grow differ by a number that does not."""
    if not (grows(left) and grows(right)):
        return False
    one, other = number_of(left), number_of(right)
    return one is not None and other is not None and not _varying_atoms(one.plus(other, -1))


def _varying_atoms(number: object) -> list[Token | Remainder]:
    """The atoms of a number that are not settings."""
    parts = number.parts if isinstance(number, Number) else ()
    return [atom for atom, _ in parts if not isinstance(atom, str)]
