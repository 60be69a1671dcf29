"""Tensors that a function makes for itself, which no model holds and FSDP does not shard."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.source.source import Source

MAKERS = {
    f"torch.{name}"
    for name in (
        "nn.Parameter tensor zeros ones rand randn empty full zeros_like ones_like rand_like "
        "randn_like empty_like full_like normal"
    ).split()
}
COPIES = {"clone", "detach", "requires_grad_", "to", "cuda", "float"}
REGISTERS = {"register_parameter", "setattr", "append", "register_buffer"}


def is_own_tensor(
    source: Source, node: cst.BaseExpression, symbols: dict[cst.CSTNode, str]
) -> bool:
    """Whether a name is a variable of a function that holds a tensor which the function makes.

    A variable that is assigned to an attribute or registered may be a model's parameter.
    """
    if not isinstance(node, cst.Name):
        return False
    home = home_of(source, node)
    found = definitions(source, node) if isinstance(home, cst.FunctionDef) else None
    if home is None or not found or not all(_is_made(one.value, symbols) for one in found):
        return False
    return not any(_gives_away(source, read) for read in reads(source, home, node.value))


def _is_made(value: cst.BaseExpression, symbols: dict[cst.CSTNode, str]) -> bool:
    """Whether an expression makes a tensor, or a copy of one that it makes."""
    if not isinstance(value, cst.Call):
        return False
    if symbols.get(value.func) in MAKERS:
        return True
    func = value.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value in COPIES
        and _is_made(func.value, symbols)
    )


def _gives_away(source: Source, read: cst.Name) -> bool:
    """Whether a read may make a tensor a parameter of a model."""
    parent = source.parent(read)
    if isinstance(parent, cst.Assign):
        return parent.value is read
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        func = call.func if isinstance(call, cst.Call) else None
        name = func.attr if isinstance(func, cst.Attribute) else func
        return isinstance(name, cst.Name) and name.value in REGISTERS
    return isinstance(parent, cst.Return)
