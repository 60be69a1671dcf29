"""Functions and methods that have another name by now."""

from __future__ import annotations

import libcst as cst

from fsdplint.editing.bindings import bindings_of
from fsdplint.editing.rewrite import Rewrite
from fsdplint.program.source import Source

DCP = "torch.distributed.checkpoint"
OLD_DCP = "torch.distributed._shard.checkpoint"
KEPT = {"state_dict", "storage_writer", "storage_reader", "planner", "process_group", "no_dist"}


def rename_method(rewrite: Rewrite, source: Source, call: cst.Call, name: str) -> bool:
    """`model.old(...)` to `model.name(...)`."""
    if not isinstance(call.func, cst.Attribute):
        return False
    rewrite.replace(source, call.func.attr, name)
    return True


def rename_checkpoint(rewrite: Rewrite, source: Source, call: cst.Call, name: str) -> bool:
    """`dcp.save_state_dict(state, writer)` to `dcp.save(state, storage_writer=writer)`."""
    positional = [arg for arg in call.args if arg.keyword is None]
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if any(arg.star for arg in call.args) or len(positional) > 2 or not keywords <= KEPT:
        return False
    if len(positional) == 2:
        keyword = "storage_writer" if name == "save" else "storage_reader"
        start = source.span(positional[1].value)[0] - len(positional[1].value.lpar)
        if source.text[start : start + len(positional[1].value.lpar)].strip("("):
            return False  # brackets with something between them
        rewrite.insert(source, start, f"{keyword}=")
    if isinstance(call.func, cst.Attribute):
        rewrite.replace(source, call.func.attr, name)
    elif isinstance(call.func, cst.Name):
        rewrite.replace(source, call.func, rewrite.need_import(source, DCP, name, at=call))
        rewrite.unused(source, call.func.value)
    else:
        return False
    _move_imports(rewrite, source)
    return True


def _move_imports(rewrite: Rewrite, source: Source) -> None:
    """The package's first address, which warns, becomes its own in all imports of a file."""
    for statement in {item.statement for item in bindings_of(source).imports()}:
        if isinstance(statement, cst.ImportFrom):
            modules = [statement.module] if statement.module is not None else []
        else:
            modules = [alias.name for alias in statement.names if alias.asname is not None]
        for module in modules:
            if source.code(module) == OLD_DCP:
                rewrite.replace(source, module, DCP)
