"""Scopes: which name holds which value."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.interpreter.values import Value
from fsdplint.source.source import Source


@dataclass(eq=False)
class Scope:
    """The names of a module, function, class body or comprehension.

    kind: "module", "function" or "class" (whose names the functions in it don't see).
    aliases: names declared `global` or `nonlocal`, with the scope that they live in.
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
