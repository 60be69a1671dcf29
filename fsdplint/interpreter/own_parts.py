"""Objects of the program that give each rank its own part of the data: samplers and datasets.

Such an object holds the rank, and its methods read it. A subclass of torch's `DistributedSampler`
that keeps its `__iter__` does what the class does.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.values import Class, Instance, Value
from fsdplint.source.positions import code_children

_DISTRIBUTED = "torch.utils.data.DistributedSampler"


def gives_own_part(value: Value | None) -> bool:
    """Whether an object of the program certainly gives each rank other data."""
    if not isinstance(value, Instance):
        return False
    if _DISTRIBUTED in value.cls.library_bases() and value.cls.lookup("__iter__") is None:
        return True
    held = {name for name, one in value.attributes.items() if depends_on_rank(one)}
    return bool(held) and any(_reads(klass, held) for klass in value.cls.mro())


def _reads(klass: Class, names: set[str]) -> bool:
    """Whether a method other than the constructor reads one of the attributes."""
    for statement in klass.node.body.body:
        if isinstance(statement, cst.FunctionDef) and statement.name.value != "__init__":
            if any(name in names for name in _read_attributes(statement.body)):
                return True
    return False


def _read_attributes(node: cst.CSTNode) -> Iterator[str]:
    """The attributes of `self` in code."""
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
        if node.value.value == "self":
            yield node.attr.value
    for child in code_children(node):
        yield from _read_attributes(child)
