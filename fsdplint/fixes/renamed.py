"""Functions and methods that have a new name."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.rewrite import Rewrite
from fsdplint.source.source import Source

DCP = "torch.distributed.checkpoint"
KEPT = {"state_dict", "storage_writer", "storage_reader", "planner", "process_group"}


def rename_method(rewrite: Rewrite, source: Source, call: cst.Call, name: str) -> bool:
    """`model.old(...)` to `model.name(...)`."""
    if not isinstance(call.func, cst.Attribute):
        return False
    rewrite.replace(source, call.func.attr, name)
    return True


def rename_checkpoint(
    rewrite: Rewrite, source: Source, call: cst.Call, name: str, *, no_dist: bool
) -> bool:
    """Replace `dcp.save_state_dict(state, writer)` by `dcp.save(state, storage_writer=writer)`.

    no_dist: whether every supported torch has this argument.
    """
    allowed = KEPT | ({"no_dist"} if no_dist else set())
    positional = [arg for arg in call.args if arg.keyword is None]
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if any(arg.star for arg in call.args) or len(positional) > 2 or not keywords <= allowed:
        return False
    if len(positional) == 2:
        keyword = "storage_writer" if name == "save" else "storage_reader"
        start = source.span(positional[1].value)[0] - len(positional[1].value.lpar)
        if source.text[start : start + len(positional[1].value.lpar)].strip("("):
            return False  # brackets with other text between them
        rewrite.insert(source, start, f"{keyword}=")
    if isinstance(call.func, cst.Attribute):
        rewrite.replace(source, call.func.attr, name)
    elif isinstance(call.func, cst.Name):
        rewrite.replace(source, call.func, rewrite.need_import(source, DCP, name, at=call))
        rewrite.remove_import_if_unused(source, call.func.value)
    else:
        return False
    return True
