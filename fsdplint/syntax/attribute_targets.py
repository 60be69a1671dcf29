"""The attributes to which code assigns."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.positions import code_children


def assigned_attributes(node: cst.CSTNode, *, augmented: bool) -> Iterator[cst.Attribute]:
    """The attributes that statements, loops and contexts in a piece of code assign to.

    augmented: whether `x.a += 1` counts, which needs an earlier value.
    """
    if isinstance(node, cst.AssignTarget | cst.For | cst.CompFor):
        yield from _attributes(node.target)
    elif isinstance(node, cst.AsName):
        yield from _attributes(node.name)
    elif isinstance(node, cst.AnnAssign) and node.value is not None:
        yield from _attributes(node.target)
    elif isinstance(node, cst.AugAssign) and augmented:
        yield from _attributes(node.target)
    for child in code_children(node):
        yield from assigned_attributes(child, augmented=augmented)


def _attributes(target: cst.CSTNode) -> Iterator[cst.Attribute]:
    if isinstance(target, cst.Attribute):
        yield target
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _attributes(element.value)
