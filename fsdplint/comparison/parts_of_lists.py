"""Shardings in loops over a part of a list: `for block in model.blocks[1:]`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import Event

# Functions whose result has the elements of their argument.
_KEEPS = {"list", "tuple", "reversed", "enumerate", "iter", "sorted"}


def part_of_list(event: Event) -> NodeSite | None:
    """The loop over a part of a list in which an event happens; None if there is none."""
    for site in (event.site, *event.stack):
        if isinstance(site, NodeSite):
            for loop, iterated in _loops(site.source, site.node):
                if _is_part(iterated):
                    return NodeSite(site.source, loop)
    return None


def _loops(source: Source, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """The loops around a node in its function, and what they iterate over."""
    current: cst.CSTNode | None = node
    while current is not None and not isinstance(current, cst.FunctionDef | cst.Lambda):
        if isinstance(current, cst.For):
            yield current, current.iter
        elif isinstance(current, cst.BaseSimpleComp):
            yield current, current.for_in.iter
        current = source.parent(current)


def _is_part(node: cst.BaseExpression) -> bool:
    """Whether an expression leaves elements of a list out."""
    node = _without_copies(node)
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return False
    bounds = node.slice[0].slice
    if not isinstance(bounds, cst.Slice) or (bounds.lower is None and bounds.upper is None):
        return False
    return not _leaves_root_out(_without_copies(node.value), bounds)


def _without_copies(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Call) and node.args and dotted_name(node.func) in _KEEPS:
        node = node.args[0].value
    return node


def _leaves_root_out(node: cst.BaseExpression, bounds: cst.Slice) -> bool:
    """Whether a slice is `list(model.modules())[1:]`: all modules but the model itself."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in ("modules", "named_modules")
        and bounds.upper is None
        and isinstance(bounds.lower, cst.Integer)
        and bounds.lower.evaluated_value == 1
    )
