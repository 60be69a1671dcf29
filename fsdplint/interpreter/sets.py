"""Sets: equal elements are one, and it is not always known which elements are equal."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import (
    Class,
    Const,
    Function,
    ModuleValue,
    Sequence,
    Symbol,
    Value,
)


def set_of(items: Iterable[Value], exact: bool = True) -> Sequence:
    """A set of some elements.

    It is open if it may have more elements (not `exact`) or fewer, since some may be equal.
    """
    result = Sequence([], "set", not exact)
    known: set[object] = set()
    for item in items:
        identity = _identity(item)
        if identity is None:
            result.open = result.open or bool(result.items)
        elif identity in known:
            continue
        else:
            known.add(identity)
        result.items.append(item)
    if len(result.items) > len(known) and len(result.items) > 1:
        result.open = True
    return result


def _identity(value: Value) -> object:
    """What is equal for equal values only; None if that is unknown."""
    if isinstance(value, Const):
        try:
            hash(value.value)
        except TypeError:
            return None
        return "constant", value.value
    if isinstance(value, Symbol):
        return "symbol", value.name
    if isinstance(value, ModuleValue) and not value.stands_for_parts:
        return "module", value.id
    if isinstance(value, Class | Function):
        return "definition", value.node
    if isinstance(value, ParametersOf) and value.stands_for_all:
        return "parameters", *(module.id for module in value.modules)
    return None
