"""The expressions of a file by their last name, and those that name the state of an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from fsdplint.source.positions import descend
from fsdplint.source.source import Source, once

STATES = ("state_dict", "load_state_dict")
STATE = "*"  # the key of the attributes and texts `state_dict` and `load_state_dict`


def last_name(node: cst.CSTNode) -> str:
    """The name of a variable or an attribute; "" for anything else."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


@once
def nodes_by_name(source: Source) -> Mapping[str, Sequence[cst.CSTNode]]:
    """The variables and attributes of a file by their last name; under `STATE`, those that name
    the methods of a state."""
    found: dict[str, list[cst.CSTNode]] = {}
    for node in descend(source.tree):
        name = last_name(node)
        if name:
            found.setdefault(name, []).append(node)
        text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
        if text in STATES or (isinstance(node, cst.Attribute) and name in STATES):
            found.setdefault(STATE, []).append(node)
    return found
