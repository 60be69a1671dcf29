"""What the program has put on its parameters, and taken of them."""

from __future__ import annotations

from fsdplint.runtime.recorder.identity import IdentityMap


class ParameterMarks:
    """The hooks, attributes and rows of parameters.

    Attributes:
        hooks: of each handle of a hook, the module and the method that registered it.
        attributes: of each attribute that sharding took away, the modules whose parameters had it.
        rows: of what indexing a sharded parameter gave, the module of the parameter.
    """

    def __init__(self) -> None:
        self.hooks: IdentityMap[tuple[str, str]] = IdentityMap()
        self.attributes: dict[str, set[str]] = {}
        self.rows: IdentityMap[str] = IdentityMap()
