"""Whether an expression has to do with FSDP1."""

from __future__ import annotations

from enum import Enum

import libcst as cst

from fsdplint.interpreter.torch_values import ParametersOf, StateValue
from fsdplint.interpreter.values import (
    Bound,
    Context,
    Dict,
    LibraryObject,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Value,
)
from fsdplint.migration.context import Migration, is_fsdp1
from fsdplint.migration.names import fsdp1_name
from fsdplint.migration.symbols import CHANGED
from fsdplint.syntax.layout import descend

MAX_DEPTH = 3  # containers in containers


class Depth(Enum):
    """How much is made direct; each one includes those before it.

    NAMES: FSDP1's names, and attributes of wrapped modules that FSDP2 changes.
    OBJECTS: whatever gets wrapped modules, their parameters, optimizers or states.
    SPREAD: the items of a dict that `FSDP(model, **options)` spreads.
    ITEMS: such a dict that is filled under conditions, or that several calls spread.
    CONSTANTS: flags of FSDP1's calls that settings hold.
    READS: the items of such a dict that is made in any way, each read by its key.
    """

    NAMES = 1
    OBJECTS = 2
    SPREAD = 3
    ITEMS = 4
    CONSTANTS = 5
    READS = 6

    @property
    def spreads_to_constructor(self) -> bool:
        return self.value >= Depth.SPREAD.value

    @property
    def writes_items_out(self) -> bool:
        return self.value >= Depth.ITEMS.value

    @property
    def reads_items(self) -> bool:
        return self.value >= Depth.READS.value


def is_relevant(migration: Migration, depth: Depth, *nodes: cst.CSTNode) -> bool:
    """Whether a part of some nodes is a name or an object of FSDP1."""
    parts = [
        part for node in nodes for part in descend(node) if isinstance(part, cst.BaseExpression)
    ]
    if any(part in migration.names or _is_changed(migration, part) for part in parts):
        return True
    return depth is not Depth.NAMES and any(
        _is_of_fsdp1(value, MAX_DEPTH) for part in parts for value in migration.values(part)
    )


def _is_changed(migration: Migration, node: cst.CSTNode) -> bool:
    """Whether a node is an attribute of a wrapped module that FSDP2 changes, by whatever way."""
    if isinstance(node, cst.Attribute) and node.attr.value in CHANGED:
        return bool(migration.wrapping_of(node.value))
    return any(_binds_changed(value, MAX_DEPTH) for value in migration.values(node))


def _binds_changed(value: Value, depth: int) -> bool:
    """Whether an object calls such an attribute: a bound method, a partial, a name of FSDP1."""
    match value:
        case Method():
            return value.name in CHANGED and _is_of_fsdp1(value.receiver, 0)
        case Symbol() | LibraryObject():
            return fsdp1_name(value.name) is not None
        case Partial():
            return depth > 0 and _binds_changed(value.function, depth - 1)
    return False


def _is_of_fsdp1(value: Value | None, depth: int) -> bool:
    if depth < 0 or value is None:
        return False
    match value:
        case ModuleValue():
            return is_fsdp1(value)
        case OptimizerValue() | ParametersOf():
            return any(map(is_fsdp1, value.modules))
        case StateValue():
            return _is_of_fsdp1(value.of, depth - 1)
        case Symbol():
            return fsdp1_name(value.name) is not None
        case LibraryObject():
            return fsdp1_name(value.name) is not None
        case Context():
            return is_fsdp1(value.module)
    return any(_is_of_fsdp1(part, depth - 1) for part in _parts(value))


def _parts(value: Value) -> list[Value]:
    """The objects that an object holds."""
    match value:
        case Partial():
            return [value.function, *value.args, *value.kwargs.values()]
        case Method():
            return [value.receiver]
        case Bound():
            return [value.function, value.receiver]
        case Sequence():
            return value.items
        case Dict():
            return list(value.items.values())
    return []
