"""The base of all values, and the scopes that hold them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar

from fsdplint.source.source import NodeSite, Source


@dataclass(eq=False, repr=False)
class Value:
    """Base of all values.

    settles: whether a value of this type may stand for another (see `Run.settle`).
    """

    settles: ClassVar[bool] = False
    created_at: NodeSite | None = field(default=None, kw_only=True, repr=False)

    def __repr__(self) -> str:  # shared: to generate one for each class takes time
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"


@dataclass(eq=False)
class RankLocal:
    """What makes a value different on each rank: it derives from data that only this rank has.

    source: where the rank gets the data. immutable: whether the value is a number, which no call
    can change. agreed: whether a collective has given all ranks the same value since. batch: the
    batch of a loader, if the value is one or a part of one. counts: whether the number of elements
    differs, too. selected: whether it differs because the data choose the elements. part: whether
    it is the rank's part of data that all ranks have. position: whether it is a number that derives
    from the rank alone, and from no data. optional: whether the data choose between None and a
    value. number: whether it is certainly computed of such numbers as a reduction over all elements
    of a tensor gives, and of no other elements.
    """

    source: NodeSite
    immutable: bool = False
    agreed: bool = False
    batch: Value | None = field(default=None, repr=False)
    counts: bool = False
    selected: bool = False
    part: bool = False
    position: bool = False
    optional: bool = False
    number: bool = False


@dataclass(eq=False)
class Scope:
    """The names of a module, function, class body or comprehension.

    kind: "module", "function" or "class" (its functions do not see its names).
    aliases: names declared `global` or `nonlocal`, with the scope that holds them.
    """

    source: Source
    parent: Scope | None = None
    kind: str = "module"
    module_name: str = ""
    names: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, Scope] = field(default_factory=dict)

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def lookup(self, name: str) -> Value | None:
        scope: Scope | None = self
        first = True
        while scope is not None:
            if (first or scope.kind != "class") and name in scope.names:
                return scope.names[name]
            first = False
            scope = scope.parent
        return None

    def assign(self, name: str, value: Value) -> None:
        self.aliases.get(name, self).names[name] = value

    def owner(self, name: str) -> Scope | None:
        """The nearest enclosing function scope that has the name (for `nonlocal`)."""
        scope = self.parent
        while scope is not None:
            if scope.kind == "function" and name in scope.names:
                return scope
            scope = scope.parent
        return None
