"""Units of a model by their names, and the lines that shard them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.analysis.variables import fresh
from fsdplint.source.source import Source

EVERY = "*"  # the name of all elements of a container


@dataclass
class UnitTree:
    """The units in a module.

    Attributes:
        is_unit: whether the module itself is one.
        container: "list" or "dict" if its children are elements.
        children: the children that are units or hold some, by name.
    """

    is_unit: bool = False
    container: str = ""
    children: dict[str, UnitTree] = field(default_factory=dict)

    def lines(
        self,
        source: Source,
        at: cst.CSTNode,
        module: str,
        shard: Callable[[str, int], str],
        taken: tuple[str, ...] = (),
    ) -> list[str]:
        """The lines that shard the units, inner ones first.

        module: the text of the module. shard: the text of a call of `fully_shard` for a text of a
        module, at a depth of indentation. taken: the variables of the loops around the lines.
        """
        found: list[str] = []
        for name, child in self.children.items():
            if name == EVERY:
                values = f"{module}.values()" if self.container == "dict" else module
                variable = element_name(source, at, module, taken)
                inside = child.lines(source, at, variable, shard, (*taken, variable))
                found.append(f"for {variable} in {values}:")
                found += ["\t" + line for line in inside]
            else:
                found += child.lines(source, at, self._child(source, module, name), shard, taken)
        if self.is_unit:
            found.append(shard(module, len(taken)))
        return found

    def _child(self, source: Source, module: str, name: str) -> str:
        if not self.container:
            return f"{module}.{name}"
        key = name if self.container == "list" else string_literal(source, name)
        return f"{module}[{key}]"


def element_name(source: Source, at: cst.CSTNode, module: str, taken: tuple[str, ...] = ()) -> str:
    """The variable of a loop over the elements of a module: `block` for `model.blocks`."""
    name = module.rpartition(".")[2]
    plural = name.isidentifier() and name.endswith("s") and not name.endswith("ss")
    wanted = [name[:-1]] if plural and len(name) > 2 else []
    free = [one for one in (*wanted, "module", "submodule", "part") if one not in taken]
    return fresh(source, at, *free)
