"""Values that assignments of one block pass on, one after the other.

state = load_sharded_optimizer_state_dict(...)
state = state["optimizer"]
state = FSDP.optim_state_dict_to_load(model, optimizer, state)
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.migration.analysis.variables import Definition, definitions
from fsdplint.migration.state_dicts.loaded_states import LoadReader

_STEPS = 8


@dataclass(frozen=True)
class Origin:
    """A call whose result, or an entry of it, a place reads, and the variable that gets the result."""

    call: cst.Call
    name: str


def origin(reader: LoadReader, node: cst.BaseExpression) -> Origin | None:
    """The call that a value comes from, through entries and variables of the node's block."""
    name = ""
    place: cst.CSTNode = node
    for _ in range(_STEPS):
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Name):
            found = _last_definition(reader, node, place)
            if found is None:
                return None
            name, node, place = node.value, found.value, found.statement
        else:
            break
    return Origin(node, name) if isinstance(node, cst.Call) and name else None


def _last_definition(reader: LoadReader, name: cst.Name, place: cst.CSTNode) -> Definition | None:
    """The assignment that gives a variable its value at a place.

    None if a variable with several assignments gets one in another block.
    """
    found = definitions(reader.source, name) or []
    if len(found) == 1:
        return found[0]
    block = reader.block_of(place)
    if any(reader.block_of(one.statement) is not block for one in found):
        return None
    start = reader.source.span(place)[0]
    earlier = [one for one in found if reader.source.span(one.statement)[1] <= start]
    return max(earlier, key=lambda one: reader.source.span(one.statement), default=None)
