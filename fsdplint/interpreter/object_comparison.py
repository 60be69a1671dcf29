"""What is known of `one is other` and `one in other`."""

from __future__ import annotations

import re

from fsdplint.interpreter.module_attributes import ONLY_FSDP2_HAS
from fsdplint.interpreter.module_tree import NAMED
from fsdplint.interpreter.own_dicts import as_dict
from fsdplint.interpreter.settings_files import is_whole_file
from fsdplint.interpreter.torch_values import LoaderValue, RankValue, SamplerValue, StateValue
from fsdplint.interpreter.unknown_entries import has_entry
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Method,
    ModuleValue,
    Namespace,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)

NEVER_NONE = (
    Bound,
    ModuleValue,
    OptimizerValue,
    Function,
    Class,
    Instance,
    LibraryObject,
    Partial,
    Symbol,
    Sequence,
    Dict,
    RankValue,
    LoaderValue,
    SamplerValue,
)


def _is_never_none(value: Value) -> bool:
    """Whether a value is certainly an object. An entry of a state dict may be None."""
    if isinstance(value, StateValue):
        return value.of is not None and not (value.tensor or value.view)
    if isinstance(value, Method):
        return value.name in ONLY_FSDP2_HAS
    return isinstance(value, NEVER_NONE) or is_whole_file(value)


# Functions of the standard library that never return None.
_RETURN_OBJECTS = re.compile(
    r"(math|os\.path|pathlib)\..+"
    r"|builtins\.(abs|all|any|bin|bool|bytes|chr|complex|dict|divmod|enumerate|filter|float"
    r"|frozenset|hash|hex|id|int|isinstance|issubclass|len|list|map|oct|ord|range|repr"
    r"|reversed|round|set|slice|sorted|str|sum|tuple|type|zip)"
)


def is_present(value: Unknown) -> bool:
    """Whether an unknown value is certainly not None."""
    return value.present or _RETURN_OBJECTS.fullmatch(value.library) is not None


# Dtypes, and members of the enums of FSDP: they equal no text and no number.
_NO_TEXT = re.compile(
    r"torch\.(u?int\d*|b?float\w*|double|half|long|short|bool|complex\w*)"
    r"|torch\.distributed\.fsdp\.(.+\.)?(ShardingStrategy|StateDictType|BackwardPrefetch)\.\w+"
)
_OBJECTS = (Class, Symbol, ModuleValue, Instance, OptimizerValue)


def identity(left: Value, right: Value) -> bool | None:
    """Whether two values are the same; None if that depends on constants or is unknown."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Const) and one.value is None and _is_never_none(other):
            return False
        if isinstance(one, Const) and equals_no_text(other):
            return False
    if isinstance(left, Symbol) and isinstance(right, Symbol):
        mine, theirs = left.name.split("."), right.name.split(".")
        if mine != theirs and mine[-1] == theirs[-1] and mine[:-1] and mine[-2][:1].isupper():
            return None  # attributes of two classes: one class may inherit from the other
        if mine == theirs:
            return True
        return False if _is_fixed(mine) or _is_fixed(theirs) else None
    if isinstance(left, _OBJECTS) and isinstance(right, _OBJECTS):
        return left is right
    return None


def equals_no_text(value: Value) -> bool:
    """Whether a value equals no constant of Python: no text, no number, not None."""
    if isinstance(value, Unknown):
        return value.symbolic
    return isinstance(value, Symbol) and _NO_TEXT.fullmatch(value.name) is not None


def _is_fixed(path: list[str]) -> bool:
    """Whether a name of a library is a function of torch, a class, or a member of an enum.

    Of any other, `settings.step`, the library may hold the same value under another name.
    """
    return path[0] == "torch" or any(part[:1].isupper() for part in path[-2:])


def _is_name_of(name: object, namespace: Namespace) -> bool | None:
    """Whether a namespace has a name; None if that is unknown."""
    if name in namespace.scope.names:
        return True
    known = namespace.scope.kind == "class" and not str(name).startswith("__")
    return False if known else None


def membership(left: Value, right: Value) -> bool | None:
    """Whether a value is in another; None if that is unknown."""
    if isinstance(right, ModuleValue) and right.elements is not None:
        right = right.elements
    if isinstance(right, Unknown) and isinstance(left, Const):
        known = has_entry(right, left.value)
        if known is not None:
            return known
    right = as_dict(right)
    if isinstance(right, Namespace) and isinstance(left, Const):
        return _is_name_of(left.value, right)
    if isinstance(right, Dict) and isinstance(left, Const):
        return right.has(left.value)
    kind, key = _key_of(left)
    if isinstance(right, Sequence) and kind is not None:
        others = [_key_of(one) for one in right.items]
        if (kind, key) in others:
            return True
        if not right.open and all(other is kind for other, _ in others):
            return False
    return None


def _key_of(value: Value) -> tuple[type[Value] | None, object]:
    """The kind of a value, and what tells it from others of its kind; None for other kinds."""
    if isinstance(value, Const):
        return Const, value.value
    if isinstance(value, Symbol):
        return Symbol, value.name
    return (ModuleValue, value.id) if isinstance(value, ModuleValue) else (None, None)


def note_class_name(left: Value, right: Value) -> None:
    """Note the class of a part of a model where a test of its name holds.

    The test is `type(part).__name__ == "Block"`, `in ("Block", ...)`, or `"Block" in` the name.
    """
    for name, wanted in ((left, right), (right, left)):
        known = name.owner if isinstance(name, Unknown) else None
        part = known.owner if known is not None else None
        if known is None or part is None or part.part_of is None:
            continue
        if known.parts.get("__name__") is not name or part.parts.get("__class__") is not known:
            continue
        for one in wanted.items if isinstance(wanted, Sequence) else [wanted]:
            if isinstance(one, Const) and isinstance(one.value, str):
                known.parts.setdefault(NAMED, Symbol(one.value))
