"""What a program passes to the calls that make events, as plain data.

The interpreter describes its values so for a comparison of two programs, whose values cannot be
compared otherwise. A description that is not `is_known` says nothing about what the value is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The name of a state dict; the module or optimizer that it is `of` is its only part.
STATE = "state"
# The name of a part of a mesh, `mesh["shard"]`, with the `whole` mesh and what is `chosen` of it.
MESH_PART = "torch.distributed.device_mesh.DeviceMesh.__getitem__"


@dataclass(frozen=True)
class Constant:
    """A constant of Python."""

    value: object

    def __str__(self) -> str:
        return self.value if isinstance(self.value, str) else repr(self.value)


@dataclass(frozen=True)
class Named:
    """An object of a library, or a function or class of the program."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Built:
    """An object that a library made, a list, tuple, set or dict ("list", ...), and its parts."""

    name: str
    items: tuple[tuple[str, Argument], ...] = ()
    complete: bool = True

    def get(self, *names: str) -> Argument | None:
        """The first of these parts that is there."""
        found = dict(self.items)
        return next((found[name] for name in names if name in found), None)

    def __str__(self) -> str:
        parts = [str(v) if k.isdecimal() else f"{k}={v}" for k, v in self.items]
        return f"{self.name.rpartition('.')[2]}({', '.join([*parts, *['...'][self.complete :]])})"


@dataclass(frozen=True)
class PartOfModel:
    """Modules, or their parameters. complete: whether there are certainly no others."""

    modules: tuple[str, ...]
    complete: bool = True

    def __str__(self) -> str:
        return ", ".join(self.modules)


@dataclass(frozen=True)
class Opaque:
    """An unknown value. origin: a setting that it is; code: the expression that gives it."""

    origin: str = ""
    code: str = ""

    def __str__(self) -> str:
        return self.code or self.origin or "?"


@dataclass(frozen=True)
class OneOf:
    """A value for which any of several values stands."""

    values: tuple[Argument, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.values))


@dataclass(frozen=True)
class SomeOf:
    """One of several values; it is unknown which."""

    values: tuple[Argument, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.values))


Argument = Constant | Named | Built | PartOfModel | Opaque | OneOf | SomeOf


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call, by name or position ("0", "1", ...).

    complete: whether there are certainly no others.
    """

    given: Mapping[str, Argument] = field(default_factory=dict)
    complete: bool = True

    def get(self, *names: str) -> Argument | None:
        """The first of these arguments; None if none was passed.

        If others may have been passed, an argument that is not there is unknown.
        """
        found = next((self.given[name] for name in names if name in self.given), None)
        return found if found is not None or self.complete else Opaque()


def is_known(value: Argument) -> bool:
    """Whether a description says all about a value."""
    if isinstance(value, Built):
        return value.complete and all(is_known(part) for _, part in value.items)
    return not isinstance(value, Opaque | SomeOf) and (
        not isinstance(value, PartOfModel) or value.complete
    )
