"""Gradients that are only read for a norm."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.training.reduced_sums import SAME, SQUARES
from fsdplint.source.source import Source

NORMS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm"}


def is_in_norm(source: Source, node: cst.Attribute, symbols: dict[cst.CSTNode, str]) -> bool:
    """Whether a gradient is only read for its norm, of any order, or for its square."""
    current: cst.CSTNode = node
    while True:
        parent = source.parent(current)
        if isinstance(parent, cst.Arg):
            call = source.parent(parent)
            return isinstance(call, cst.Call) and symbols.get(call.func, "") in NORMS
        if isinstance(parent, cst.BinaryOperation):
            return isinstance(parent.operator, cst.Power) and parent.left is current
        if not isinstance(parent, cst.Attribute):
            return False
        name, call = parent.attr.value, source.parent(parent)
        if not isinstance(call, cst.Call) or call.func is not parent:
            if name != "data":
                return False
            current = parent
        elif name == "norm" or name in SQUARES:
            return True
        elif name in SAME:
            current = call
        else:
            return False


def is_largest(source: Source, node: cst.Attribute) -> bool:
    """Whether a gradient is only read for its largest magnitude: `p.grad.detach().abs().max()`."""
    names, current = [], source.parent(node)
    while isinstance(current, cst.Attribute):
        names.append(current.attr.value)
        call = source.parent(current)
        current = source.parent(call) if isinstance(call, cst.Call) and not call.args else call
    end = next((at for at, name in enumerate(names) if name in ("max", "amax")), 0)
    return "abs" in names[:end] and set(names[:end]) <= SAME
