"""Changes to an `init_device_mesh` call that builds a two-dimensional mesh."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import argument, call_at
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import value_end
from fsdplint.syntax.layout import line_indent
from fsdplint.trace import Site

NAMES = 'mesh_dim_names=("replicate", "shard")'


def name_dimensions(rewrite: Rewrite, site: Site) -> bool:
    """Name the dimensions of the mesh; False if the call has unknown arguments."""
    target = call_at(site)
    if target is None:
        return False
    source, call = target
    if not call.args or any(arg.star for arg in call.args):
        return False
    if argument(call, 99, "mesh_dim_names") is not None:
        return False
    last = call.args[-1]
    start = source.span(last)[0]
    before = source.text[source.line_start(start) : start]
    break_line = not before.strip()
    between = f",\n{line_indent(source, start)}" if break_line else ", "
    rewrite.insert(source, value_end(source, last), f"{between}{NAMES}")
    return True


def swap_dimensions(rewrite: Rewrite, site: Site) -> bool:
    """Swap the elements of the shape and of the names, if the call spells out both."""
    target = call_at(site)
    if target is None:
        return False
    source, call = target
    shape, names = argument(call, 1, "mesh_shape"), argument(call, 99, "mesh_dim_names")
    if shape is None or names is None:
        return False
    if not _pair(shape.value) or not _pair(names.value):
        return False
    for display in (shape.value, names.value):
        _swap(rewrite, source, display)
    return True


def _pair(node: cst.BaseExpression) -> bool:
    return (
        isinstance(node, cst.Tuple | cst.List)
        and len(node.elements) == 2
        and all(isinstance(element, cst.Element) for element in node.elements)
    )


def _swap(rewrite: Rewrite, source: Source, node: cst.BaseExpression) -> None:
    assert isinstance(node, cst.Tuple | cst.List)
    one, other = (element.value for element in node.elements)
    one_text, other_text = source.code(one), source.code(other)
    rewrite.replace(source, one, other_text)
    rewrite.replace(source, other, one_text)
