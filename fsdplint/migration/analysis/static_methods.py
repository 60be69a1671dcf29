"""Static methods of FSDP1's class that code reads from a wrapped model or from its class.

model.state_dict_type(model, StateDictType.FULL_STATE_DICT)
type(model).optim_state_dict(model, optimizer)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from fsdplint.migration.names import STATIC_METHODS
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.qualified_names import walk


def static_methods(
    source: Source, is_wrapped: Callable[[cst.CSTNode], bool]
) -> Iterator[cst.Attribute]:
    """The attributes of a file that read such a method.

    is_wrapped: whether a node always is a model that FSDP1 wraps.
    """
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Attribute) and node.attr.value in STATIC_METHODS:
            if is_wrapped(_instance_of(node.value) or node.value):
                yield node


def _instance_of(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The object in `type(x)` and `x.__class__`, None for another expression."""
    if isinstance(node, cst.Attribute):
        return node.value if node.attr.value == "__class__" else None
    if isinstance(node, cst.Call) and is_constant(node.func, "type") and len(node.args) == 1:
        return node.args[0].value
    return None
