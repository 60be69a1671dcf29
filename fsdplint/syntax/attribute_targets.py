"""The attributes to which code assigns."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.source.positions import code_children


def assigned_attributes(node: cst.CSTNode, *, augmented: bool) -> Iterator[cst.Attribute]:
    """The attributes that statements, loops and contexts in a piece of code assign to.

    augmented: whether `x.a += 1` counts, which needs an earlier value.
    """
    todo = [node]
    while todo:
        current = todo.pop()
        if isinstance(current, cst.AssignTarget | cst.For | cst.CompFor):
            yield from _attributes(current.target)
        elif isinstance(current, cst.AsName):
            yield from _attributes(current.name)
        elif isinstance(current, cst.AnnAssign) and current.value is not None:
            yield from _attributes(current.target)
        elif isinstance(current, cst.AugAssign) and augmented:
            yield from _attributes(current.target)
        todo += reversed(code_children(current))


def _attributes(target: cst.CSTNode) -> Iterator[cst.Attribute]:
    if isinstance(target, cst.Attribute):
        yield target
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _attributes(element.value)
