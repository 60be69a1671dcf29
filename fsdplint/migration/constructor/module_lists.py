"""The texts of what the modules of a list hold."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.program_arguments import is_literal_index
from fsdplint.migration.text import is_repeatable
from fsdplint.syntax.arguments import elements


def single_module(modules: str) -> str | None:
    """The module in the display of a list of one module, such as `[model.side]`."""
    parts = elements(cst.parse_expression(modules))
    if parts is None or len(parts) != 1:
        return None
    part = parts[0]
    owner = part.value if isinstance(part, cst.Subscript) and is_literal_index(part) else part
    return cst.Module([]).code_for_node(part) if is_repeatable(owner) else None


def members_of(modules: str, kind: str) -> str:
    """The set of the "parameters", "buffers" or "modules" of some modules."""
    if (single := single_module(modules)) is not None:
        return f"set({single}.{kind}())"
    one = "part" if re.search(r"\bmodule\b", modules) else "module"
    letter = kind[0]
    return f"{{{letter} for {one} in {modules} for {letter} in {one}.{kind}()}}"
