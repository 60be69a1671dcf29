"""How the fields of events are recorded, and how the records of all ranks become one event.

The interpreter makes complete events. The recorder writes one line for an event on each rank that
takes part, and `fsdplint.runtime.launch.merge` makes one event of these lines. Each field declares
how it is merged:

    plain (`field` or a default)   the value on the first rank that took part
    reference    the name of a module, optimizer, state dict or mesh. It is valid on its rank only
                 and becomes the name in the merged trace.
    definition   the name of the object that the event makes
    distinct     events at the same place with different values are different events
    combined     computed from the values of all ranks
    numbered     the number of another event of the rank; becomes that event's index
    by_merge     computed from the place and the ranks of the event
    unrecorded   has its default in recorded traces, with the reason
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from enum import Enum
from typing import Any

Combine = Callable[[Sequence[Any]], Any]
_KEY = "fsdplint"


class Role(Enum):
    """The kind of the recorded value of a field."""

    VALUE = "value"
    REFERENCE = "reference"
    DEFINITION = "definition"
    NUMBER = "number of an event"
    MERGED = "set by the merge"
    UNRECORDED = "not recorded"


@dataclass(frozen=True)
class FieldRecord:
    """How one field is recorded and merged.

    Attributes:
        role: the kind of the recorded value.
        distinct: whether events at the same place with different values are different events.
        combine: computes the value from those of the ranks, lowest rank first; None to use the
            value of the first rank.
        source: the field whose recorded values are combined; empty for the field itself.
        reason: why the field is not recorded.
    """

    role: Role = Role.VALUE
    distinct: bool = False
    combine: Combine | None = None
    source: str = ""
    reason: str = ""


_PLAIN = FieldRecord()


def field_record(spec: Field[Any]) -> FieldRecord:
    """How a field of an event class is recorded."""
    found: FieldRecord = spec.metadata.get(_KEY, _PLAIN)
    return found


def _field(how: FieldRecord, default: Any, kw_only: bool = True) -> Any:
    return field(default=default, kw_only=kw_only, metadata={_KEY: how})


def reference(*, default: Any = MISSING, distinct: bool = False) -> Any:
    """The name or names of modules, optimizers, state dicts or meshes."""
    return _field(FieldRecord(Role.REFERENCE, distinct=distinct), default)


def definition(*, default: Any = MISSING) -> Any:
    """The name of the object that the event makes."""
    return _field(FieldRecord(Role.DEFINITION), default)


def distinct(*, default: Any = MISSING) -> Any:
    """A value that distinguishes events at the same place."""
    return _field(FieldRecord(distinct=True), default)


def combined(
    combine: Combine, *, source: str = "", default: Any = MISSING, default_factory: Any = MISSING
) -> Any:
    """A value that is combined from the records of all ranks; see `FieldRecord`."""
    how = {_KEY: FieldRecord(combine=combine, source=source)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=how)
    return field(default=default, metadata=how)


def numbered(*, default: Any = MISSING) -> Any:
    """The index of another event; the recorder writes its number on the rank."""
    return _field(FieldRecord(Role.NUMBER), default)


def by_merge(*, default: Any = MISSING, kw_only: bool = True) -> Any:
    """A value that the merge computes from the place and the ranks of the event."""
    return _field(FieldRecord(Role.MERGED), default, kw_only)


def unrecorded(reason: str, *, default: Any = MISSING) -> Any:
    """A value that only the interpreter sets; reason: why the recorder does not."""
    return _field(FieldRecord(Role.UNRECORDED, reason=reason), default)


# Combining the values of the ranks ----------------------------------------------------------------


def on_any(values: Sequence[Any]) -> bool:
    """Whether the value is true on some rank."""
    return any(values)


def on_all(values: Sequence[Any]) -> bool:
    """Whether the value is true on all ranks."""
    return all(values)


def differs(values: Sequence[Any]) -> bool:
    """Whether some ranks recorded different values."""
    return len(set(values)) > 1


def all_differ(values: Sequence[Any]) -> bool:
    """Whether several ranks recorded values, and no two ranks the same one."""
    return len(values) > 1 and None not in values and len(set(values)) == len(values)


def all_same(values: Sequence[Any]) -> bool | None:
    """Whether all ranks recorded the same value; None if there is nothing to compare."""
    if len(values) < 2 or values[0] is None:
        return None
    return not differs(values)


def same_sequence(values: Sequence[Sequence[Any] | None]) -> bool | None:
    """Whether all ranks recorded the same sequence.

    None if only one rank recorded one, or if all items are the same.
    """
    first = values[0] or ()
    if len(values) < 2 or len(set(first)) < 2:
        return None
    return all(tuple(other or ()) == tuple(first) for other in values)


def disjoint(values: Sequence[Sequence[Any]]) -> bool:
    """Whether each of several ranks recorded items, and no two ranks the same one."""
    items = [item for part in values for item in part]
    return len(values) > 1 and all(values) and len(set(items)) == len(items)


def agreeing(values: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    """The entries of the first rank, with "?" for those that another rank has otherwise."""
    first, *others = values
    return {
        key: value if all(other.get(key, "?") == value for other in others) else "?"
        for key, value in first.items()
    }


def union(values: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    """The union of the entries of all ranks."""
    return {key: value for part in values for key, value in part.items()}
