"""The types of Python's own objects, as `isinstance` tests them."""

from __future__ import annotations

import re
from collections.abc import Sequence as Wanted

from fsdplint.interpreter.own_dicts import as_dict
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    ModuleValue,
    ProjectModule,
    Sequence,
    Symbol,
    Unknown,
    Value,
)

_NUMBERS_AND_TEXTS = {"bool", "bytes", "complex", "float", "int", "str"}
_NUMBER = re.compile(r"[-+.\d]")
_CONTAINERS = {"dict", "frozenset", "list", "set", "tuple"}
_DATA = {f"builtins.{name}" for name in _NUMBERS_AND_TEXTS | _CONTAINERS}
# Base classes that make no object of another class an object of a builtin type.
PLAIN_BASES = {"abc.ABC", "builtins.object", "typing.Generic", "typing.Protocol"}
# Abstract classes of the container types.
_ABSTRACT = {
    "dict": {"Mapping", "MutableMapping", "Collection", "Iterable"},
    "list": {"Sequence", "MutableSequence", "Collection", "Iterable"},
    "tuple": {"Sequence", "Collection", "Iterable"},
    "set": {"Set", "MutableSet", "Collection", "Iterable"},
}


def is_of_builtin_type(value: Value, wanted: Wanted[Value]) -> bool | None:
    """Whether a value is an object of one of some classes; None if that is unknown.

    Only types of Python itself answer. A text or number has no certain answer for its own type:
    it can stand for the member of an enum.
    """
    names = {kind.name if isinstance(kind, Symbol) else "" for kind in wanted}
    own = _container_type(as_dict(value))
    if isinstance(value, Unknown) and value.origin and names <= _DATA:
        return _is_setting_of(value, names)
    if own and not names.isdisjoint(_names_of(own)):
        return True
    if not names or not names <= _DATA:
        return None
    if own or isinstance(value, Class | Function | Bound | ModuleValue | ProjectModule):
        return False
    if isinstance(value, Const):
        plain = value.value is None or {name.rpartition(".")[2] for name in names} <= _CONTAINERS
        return False if plain and type(value.value).__name__ not in _CONTAINERS else None
    if isinstance(value, Instance) and not value.cls.has_unknown_base():
        return False if PLAIN_BASES.issuperset(value.cls.library_bases()) else None
    return None


def is_plain_class(kind: Value) -> bool:
    """Whether no text, number or None is an object of a class: it is the project's own.

    A class that derives from `str` or from an enum may have such objects.
    """
    return (
        isinstance(kind, Class)
        and not kind.has_unknown_base()
        and PLAIN_BASES.issuperset(kind.library_bases())
    )


def _is_setting_of(setting: Unknown, names: set[str]) -> bool | None:
    """The same of a setting with a default: another setting has the same kind of value.

    Only a settings file shows the types of texts and numbers; there, a number may look like a text.
    """
    default = setting.default
    if isinstance(default, Dict):
        return "builtins.dict" in names
    if not isinstance(default, Const) or default.value is None:
        return None
    if names <= {f"builtins.{one}" for one in _CONTAINERS}:
        return False
    of_file = setting.owner is not None and isinstance(setting.owner.default, Dict)
    if not of_file or _NUMBER.match(str(default.value)):
        return None
    return f"builtins.{type(default.value).__name__}" in names


def _container_type(value: Value) -> str:
    """The name of the container type of a value, or ""."""
    if isinstance(value, Dict):
        return "dict"
    if isinstance(value, Sequence) and value.kind in _CONTAINERS:
        return value.kind
    return ""


def _names_of(container: str) -> set[str]:
    abstract = _ABSTRACT.get(container, set())
    return {
        f"builtins.{container}",
        *(f"{module}.{name}" for module in ("typing", "collections.abc") for name in abstract),
    }


def union_of_classes(left: Value, right: Value) -> Sequence | None:
    """The union `A | B` of two classes or unions, as the tuple that `isinstance` takes besides."""
    members: list[Value] = []
    for side in (left, right):
        is_union = isinstance(side, Sequence) and side.kind == "tuple" and not side.open
        is_none = isinstance(side, Const) and side.value is None
        member = Symbol("types.NoneType") if is_none else side
        members += side.items if isinstance(side, Sequence) and is_union else [member]
    return Sequence(members, "tuple") if all(map(_is_class, members)) else None


def _is_class(value: Value) -> bool:
    if not isinstance(value, Symbol):
        return isinstance(value, Class)
    name = value.name.rpartition(".")[2]
    return value.name in _DATA or (name[:1].isupper() and not name.isupper())
