"""The lines that register methods of a model that run outside of its forward."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source

FUNCTION = "register_fsdp_forward_method"


def lines(migration: Migration, source: Source, call: cst.Call, model: str) -> list[str]:
    """The lines after the call that shards the model."""
    result = []
    for name, certain in migration.methods.by_call.get(call, {}).items():
        migration.methods.registered.add(call)
        register = migration.need(source, "torch.distributed.fsdp", FUNCTION, call)
        text = string_literal(source, name)
        line = f"{register}({model}, {text})"
        result += [line] if certain else [f"if hasattr({model}, {text}):", f"\t{line}"]
    return result
