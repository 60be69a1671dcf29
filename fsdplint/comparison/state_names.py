"""States of which a program reads the names only: `for name in model.state_dict()`."""

from __future__ import annotations

import libcst as cst

from fsdplint.source.source import NodeSite
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import StateTaken

# Functions that read the keys of a dict.
_READS_KEYS = {"enumerate", "frozenset", "len", "list", "set", "sorted", "tuple"}


def gives_names(event: StateTaken) -> bool:
    """Whether a state is taken for its names, which are the same in every layout."""
    site = event.site
    if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
        return False
    node: cst.CSTNode = site.node
    parent = site.source.parent(node)
    if isinstance(parent, cst.Attribute) and parent.attr.value == "keys":
        return True
    if isinstance(parent, cst.For | cst.CompFor):
        return parent.iter is node
    call = site.source.parent(parent) if isinstance(parent, cst.Arg) else None
    return isinstance(call, cst.Call) and dotted_name(call.func) in _READS_KEYS
