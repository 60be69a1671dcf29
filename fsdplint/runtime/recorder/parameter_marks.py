"""Hooks and attributes that the program sets on its parameters, and rows that it takes."""

from __future__ import annotations

from fsdplint.runtime.recorder.identity import IdentityMap


class ParameterMarks:
    """The hooks, attributes and rows of parameters.

    Attributes:
        hooks: for each handle of a hook, the module and the method that registered it.
        attributes: for each attribute lost by sharding, the modules whose parameters had it.
        rows: for each result of indexing a sharded parameter, the module of the parameter.
    """

    def __init__(self) -> None:
        self.hooks: IdentityMap[tuple[str, str]] = IdentityMap()
        self.attributes: dict[str, set[str]] = {}
        self.rows: IdentityMap[str] = IdentityMap()
