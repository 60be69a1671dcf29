"""Where a file gets the functions that the new code calls."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration
from fsdplint.migration.names import FSDP
from fsdplint.source.source import Source


def helper_place(migration: Migration, source: Source, at: cst.CSTNode) -> cst.CSTNode:
    """The top-level statement before which a function for `at` has to be defined.

    The calls of the constructor that stand above `at` may need the same function.
    """
    calls = [
        node
        for node in source.descend(source.tree)
        if isinstance(node, cst.Call) and migration.called_name(node) in (FSDP, "wrap")
    ]
    return top_level(source, min([at, *calls], key=source.span))
