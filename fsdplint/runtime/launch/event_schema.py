"""The recorded fields of each class of events, derived from `fsdplint.trace.fields`."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from fsdplint import trace as vocabulary
from fsdplint.runtime.launch.records import Line
from fsdplint.trace import Event
from fsdplint.trace.fields import FieldRecord, Role, field_record

# The key of a list of modules that is replaced by the largest modules that consist of them.
OWNERS = "owners"


@dataclasses.dataclass(frozen=True)
class EventSchema:
    """A class of events and its recorded fields.

    Attributes:
        fields: for each recorded field, how it is recorded, and its type.
        references: the fields with names of objects, which are valid on one rank only.
        definition: the reference that names the object the event creates, if there is one.
        distinct: the fields that distinguish events at the same place.
        event_numbers: the fields that hold the number of another event.
    """

    kind: type[Event]
    fields: dict[str, tuple[FieldRecord, Any]]
    references: tuple[str, ...]
    definition: str | None
    distinct: tuple[str, ...]
    event_numbers: tuple[str, ...]

    @classmethod
    def of(cls, kind: type[Event]) -> EventSchema:
        hints = get_type_hints(kind)
        every = {spec.name: field_record(spec) for spec in dataclasses.fields(kind)}

        def names_with(*roles: Role) -> tuple[str, ...]:
            return tuple(name for name, how in every.items() if how.role in roles)

        return cls(
            kind,
            {
                name: (how, hints[name])
                for name, how in every.items()
                if how.role in (Role.VALUE, Role.REFERENCE, Role.DEFINITION)
            },
            names_with(Role.REFERENCE, Role.DEFINITION),
            next(iter(names_with(Role.DEFINITION)), None),
            tuple(name for name, how in every.items() if how.distinct),
            names_with(Role.NUMBER),
        )

    def rename(self, line: Line, names: Mapping[str, str]) -> Line:
        """The line with its names of objects replaced."""
        found = {name: _rename(line[name], names) for name in self.references if name in line}
        return {**line, **found}

    def values(
        self, lines: Sequence[Line], covering: Callable[[list[str]], Sequence[str]]
    ) -> dict[str, Any]:
        """The fields of the event that the ranks, lowest first, recorded in these lines.

        covering: returns the largest modules that consist of the given ones.
        """
        values: dict[str, Any] = {}
        for name, (how, hint) in self.fields.items():
            source = how.source or name
            if how.combine is not None:
                if any(source in line for line in lines):
                    values[name] = how.combine([decode(hint, line.get(source)) for line in lines])
            elif name in lines[0]:
                value = lines[0][name]
                if how.role is Role.REFERENCE and isinstance(value, dict):
                    values[name] = tuple(covering(value[OWNERS]))
                else:
                    values[name] = decode(hint, value)
        return values


@functools.cache
def schemas() -> dict[str, EventSchema]:
    """The schema of every class of events, by kind."""
    return {
        value.kind: EventSchema.of(value)
        for value in vars(vocabulary).values()
        if isinstance(value, type) and issubclass(value, Event)
    }


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [names.get(name, name) for name in value]
    if isinstance(value, dict):
        return {OWNERS: _rename(value[OWNERS], names)}
    return value


def hashable(value: Any) -> Any:
    """The value with tuples in place of lists."""
    return tuple(hashable(item) for item in value) if isinstance(value, list) else value


def decode(hint: Any, value: Any) -> Any:
    """Decode a JSON value to a value of this type."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (hint, *others) = [part for part in get_args(hint) if part is not type(None)]
        return hashable(value) if others or value is None else decode(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if origin is tuple and isinstance(value, list):
        item, *rest = get_args(hint)
        if rest == [...]:
            return tuple(decode(item, one) for one in value)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        key_hint, item = get_args(hint)
        convert: Any = int if key_hint is int else str
        if item is not object:
            return {convert(key): decode(item, one) for key, one in value.items()}
    return hashable(value)
