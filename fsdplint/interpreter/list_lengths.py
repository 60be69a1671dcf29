"""The lengths of lists of which one element stands for all: `[next(batches) for _ in range(n)]`.

`Sequence.length` is set where such a list is made, and lost where the program may change it.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.turn_tests import number_of
from fsdplint.interpreter.values import Const, Sequence, Value
from fsdplint.trace.numbers import Number


def list_length(value: Value | None) -> Number | None:
    """The number of elements of a list of which one element stands for all; None if unknown."""
    if not isinstance(value, Sequence) or value.own_length is not None:
        return None
    return value.length if value.open and len(value.items) == 1 else None


def range_length(arguments: list[Value]) -> Number | None:
    """The number of elements of `range(end)` or `range(begin, end)`; None if it is not known."""
    begin, end = [Const(0), *arguments][-2:]
    one, other = number_of(begin), number_of(end)
    return other.plus(one, -1) if one is not None and other is not None else None


def comprehension_length(source: Value, for_in: cst.CompFor) -> Number | None:
    """The number of elements that a comprehension makes of a value; None if it is not known."""
    if for_in.ifs or for_in.inner_for_in is not None:
        return None
    return list_length(source)
