from __future__ import annotations
import libcst as cst
from fsdplint.program.source import Source
from fsdplint.rule import Import
def name_for(source, module, name, at, planned):
    offset = source.span(at)[0] if at is not None else None
    return name or module, Import(module, name, None, offset)
