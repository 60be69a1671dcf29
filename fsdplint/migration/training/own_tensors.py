"""Tensors that a function makes for itself, which no model holds and FSDP does not shard."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import definitions, home_of, reads
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source

MAKERS = {
    f"torch.{name}"
    for name in (
        "nn.Parameter tensor zeros ones rand randn empty full zeros_like ones_like rand_like "
        "randn_like empty_like full_like normal"
    ).split()
}
COPIES = {"clone", "detach", "requires_grad_", "to", "cuda", "float"}


def is_own_tensor(
    migration: Migration,
    source: Source,
    node: cst.BaseExpression,
    symbols: dict[cst.CSTNode, str],
) -> bool:
    """Whether a name is a variable of a function that holds a tensor which the function makes.

    A variable that is assigned on may be a parameter of a model, and so may one that a call gets which
    calls neither a function of torch nor a model.
    """
    if not isinstance(node, cst.Name):
        return False
    home = home_of(source, node)
    found = definitions(source, node) if isinstance(home, cst.FunctionDef) else None
    if home is None or not found or not all(_is_made(one.value, symbols) for one in found):
        return False
    return not any(
        _gives_away(migration, source, read, symbols) for read in reads(source, home, node.value)
    )


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


def _gives_away(
    migration: Migration, source: Source, read: cst.Name, symbols: dict[cst.CSTNode, str]
) -> bool:
    """Whether a read may make a tensor a parameter of a model."""
    node: cst.CSTNode = read
    parent = source.parent(node)
    while isinstance(parent, cst.Element | cst.List | cst.Tuple | cst.Set):
        node, parent = parent, source.parent(parent)
    if isinstance(parent, cst.Assign | cst.AnnAssign | cst.NamedExpr):
        return parent.value is node
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if not isinstance(call, cst.Call):
            return True
        name, called = symbols.get(call.func, ""), migration.values(call.func)
        if called and all(isinstance(value, ModuleValue) for value in called):
            return False
        return not name.startswith("torch.") or name.startswith("torch.nn.Parameter")
    return isinstance(parent, cst.Return | cst.Yield | cst.DictElement)
