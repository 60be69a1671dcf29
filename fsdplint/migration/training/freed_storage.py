"""Storage of flat parameters that a program frees, before it lets a model go.

    for m in model.modules():
        if isinstance(m, FSDP):
            _free_storage(m._handle.flat_param.data)

frees the storage of each parameter's shard instead. `reshard()` frees the whole parameters.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of

FREE = "torch.distributed.utils._free_storage"
STORAGES = {"untyped_storage", "storage", "_typed_storage"}
RESIZES = {"resize_", "_resize_"}
TITLE = "Free the storage of the shards"


def rewrite(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Rewrite a statement that frees `m._handle.flat_param`; whether it is one.

    node: `m._handle`, or the `flat_param` of it.
    """
    if node.attr.value == "flat_param":
        inner = node.value
        return isinstance(inner, cst.Attribute) and _freeing(migration, source, inner) is not None
    tensor = _freeing(migration, source, node)
    if tensor is None:
        return False
    statement = statement_of(source, node)
    module = source.code(node.value)
    parameter = fresh(source, node, "parameter", "shard")
    kind = migration.need(source, "torch.distributed.tensor", "DTensor", node)
    start, end = source.span(statement)
    first, last = source.span(tensor)
    text = source.text[start:first] + f"{parameter}.to_local()" + source.text[last:end]
    lines = [
        f"{module}.reshard()",
        f"for {parameter} in {module}.parameters():",
        f"\tif isinstance({parameter}, {kind}):",
        f"\t\t{text}",
    ]
    migration.replace_statement(source, node, lines)
    migration.step(source, node, TITLE)
    return True


def _freeing(
    migration: Migration, source: Source, handle: cst.Attribute
) -> cst.BaseExpression | None:
    """The tensor `m._handle.flat_param.data` that a statement in a loop over all modules frees."""
    tensor = source.parent(handle)
    if not isinstance(tensor, cst.Attribute) or tensor.attr.value != "flat_param":
        return None
    outer = source.parent(tensor)
    if isinstance(outer, cst.Attribute) and outer.attr.value == "data":
        tensor, outer = outer, source.parent(outer)
    statement = statement_of(source, handle)
    if not isinstance(statement, cst.Expr) or not _is_of_each_module(source, handle):
        return None
    call = statement.value
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    if isinstance(outer, cst.Arg):
        is_freed = outer is call.args[0] and migration.symbol(call.func) == FREE
    else:
        is_freed = _resizes_to_nothing(source, call, tensor)
    return tensor if is_freed else None


def _resizes_to_nothing(source: Source, call: cst.Call, tensor: cst.BaseExpression) -> bool:
    """Whether a call is `tensor.untyped_storage().resize_(0)`."""
    resize = call.func
    if not isinstance(resize, cst.Attribute) or resize.attr.value not in RESIZES:
        return False
    storage = resize.value
    method = storage.func if isinstance(storage, cst.Call) else None
    return (
        isinstance(method, cst.Attribute)
        and method.attr.value in STORAGES
        and method.value is tensor
        and source.code(call.args[0].value) == "0"
    )


def _is_of_each_module(source: Source, handle: cst.Attribute) -> bool:
    """Whether `m` of `m._handle` is each module of a model, one after the other."""
    module = handle.value
    if not isinstance(module, cst.Name):
        return False
    for around in ancestors(source, handle):
        if isinstance(around, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            return False
        if isinstance(around, cst.For):
            func = around.iter.func if isinstance(around.iter, cst.Call) else None
            return (
                isinstance(around.target, cst.Name)
                and around.target.value == module.value
                and isinstance(func, cst.Attribute)
                and func.attr.value == "modules"
            )
    return False
