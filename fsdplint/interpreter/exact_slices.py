"""Slices of lists whose elements are all known, between bounds that are known."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.module_elements import stands_for_several
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, ModuleValue, Sequence, Value

_LISTS = "torch.nn.ModuleList"


def exact_slice(run: Run, value: Value, item: cst.BaseSlice, given: list[Value]) -> Sequence | None:
    """The elements that a slice takes of a list, tuple or ModuleList; None if that is not certain.

    The slice of a ModuleList is a list here: it has the same elements, and cannot be called either.

    given: the values of the bounds that the slice has, in their order.
    """
    if isinstance(value, ModuleValue):
        named = value.library_class == _LISTS and value.cls is None
        value = value.elements if named and value.elements is not None else value
    if not isinstance(value, Sequence) or not isinstance(item, cst.Slice):
        return None
    if value.kind not in ("list", "tuple") or value.optimizer is not None:
        return None
    if not _has_all(run, value):
        return None
    numbers = _numbers(item, given)
    if numbers is None or numbers[2] == 0:
        return None
    return replace(value, items=value.items[slice(*numbers)], every=False, made_at=0)


def _has_all(run: Run, value: Sequence) -> bool:
    """Whether each element of a list is known, and none of them stands for others."""
    counted = value.open or value.chosen or value.length is not None or value in run.turns
    return not counted and value.own_length is None and not stands_for_several(run, value)


def _numbers(item: cst.Slice, given: list[Value]) -> list[int | None] | None:
    """The start, end and step of a slice, None for one that it does not have; None if one of them
    is not known."""
    rest = iter(given)
    found: list[int | None] = []
    for node in (item.lower, item.upper, item.step):
        value = next(rest, None) if node is not None else Const(None)
        if not isinstance(value, Const) or not isinstance(value.value, int | None):
            return None
        found.append(value.value)
    return found
