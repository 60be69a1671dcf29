"""The lines that shard all modules of a model again, where FSDP2 has left parameters gathered."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source


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
