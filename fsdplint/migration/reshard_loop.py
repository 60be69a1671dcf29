"""The lines that shard all modules of a model again, where FSDP2 has left parameters gathered."""

from __future__ import annotations

import itertools

import libcst as cst

from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of


def reshard_loop(migration: Migration, source: Source, at: cst.CSTNode, model: str) -> list[str]:
    """The lines of a loop over the modules of a model, for a place of a file.

    model: the text of the model.
    """
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", at)
    one = fresh(source, at, "module", "fsdp_module")
    return [
        f"for {one} in {model}.modules():",
        f"\tif isinstance({one}, {kind}):",
        f"\t\t{one}.reshard()",
    ]


def has_place(source: Source, node: cst.CSTNode) -> bool:
    """Whether a line before the statement of a call runs right before the call, each time."""
    statement = statement_of(source, node)
    around = itertools.takewhile(lambda one: one is not statement, ancestors(source, node))
    repeated = isinstance(statement, cst.While | cst.FunctionDef | cst.ClassDef)
    return not repeated and not any(isinstance(one, cst.Lambda | cst.BaseComp) for one in around)
