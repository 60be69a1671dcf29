"""The lengths of lists of which one element stands for all: `[next(batches) for _ in range(n)]`.

`Sequence.length` is set where such a list is made, and lost where the program may change it.

A program may cut a list in windows: `items[start : start + n]`, `list(islice(batches, n))`. The
last window may be shorter than the others, so that its length is a number of its own.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.turn_tests import number_of
from fsdplint.interpreter.values import Const, Method, Sequence, Unknown, Value
from fsdplint.trace.numbers import Number, Token, of_atom

# The methods that change the length of a list.
_CHANGES = frozenset("append appendleft clear extend insert pop popleft remove".split())


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


def length_of(run: Run, value: Value | None) -> Number | None:
    """The number of elements of such a list, or of a window; None if it is not known."""
    return run.windows.get(value) if value in run.windows else list_length(value)


def window(run: Run, whole: Value, part: Value, bounds: list[Value]) -> Value:
    """A slice of a list. bounds: the lower and the upper one.

    It is a window if the bounds are not constant and their difference is a setting or a constant.
    """
    if len(bounds) != 2 or isinstance(bounds[0], Const) or not isinstance(part, Sequence | Unknown):
        return part
    most = range_length(bounds)
    if most is None or _may_be_small(most):
        return part
    return _with_length(run, _copy(part) if part is whole else part, most)


def first_elements(run: Run, elements: Value, number: Value | None) -> Value:
    """The result of `islice(elements, number)`."""
    most = number_of(number) if number is not None else None
    if most is None or _may_be_small(most):
        return elements
    return _with_length(run, _copy(elements), most)


def note_call(run: Run, function: Value) -> None:
    """A method that changes the length of a window."""
    holder, name = None, ""
    if isinstance(function, Method):
        holder, name = function.receiver, function.name
    elif isinstance(function, Unknown):
        holder, name = function.owner, attribute_name(function)
    if holder in run.windows and name in _CHANGES:
        del run.windows[holder]


def _with_length(run: Run, made: Value, most: Number) -> Value:
    """A window, with its length."""
    run.windows[made] = of_atom(Token(most=most))
    return made


def _copy(value: Value) -> Value:
    if isinstance(value, Sequence):
        return replace(value, items=list(value.items))
    if isinstance(value, Unknown):
        return replace(value, parts={})
    return replace(value)


def _may_be_small(most: Number) -> bool:
    """Whether a window may have one element at most, or depends on the turn of a loop."""
    if not most.parts:
        return most.constant < 2
    return most.constant != 0 or any(not isinstance(atom, str) for atom, _ in most.parts)
