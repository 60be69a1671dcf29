"""`summon_full_params(...)` as a value that a `with` statement enters elsewhere.

`entered_blocks` finds this statement. A context manager that gathers the parameters with FSDP2 replaces
the call.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.source.source import Source


def context_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of the context manager that gathers parameters, which the file gets if it has none."""
    top = top_level(source, at)
    decorator = library_name(migration.rewrite, source, "contextlib.contextmanager", top)
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", top)
    return write_once(
        migration,
        source,
        top,
        "unsharded_parameters",
        [
            f"@{decorator}",
            "def unsharded_parameters(model, recurse=True):",
            '\t"""Unshard the parameters of a model, for the time of a block."""',
            "\tmodules = list(model.modules()) if recurse else [model]",
            f"\tmodules = [module for module in modules if isinstance(module, {kind})]",
            "\tfor module in modules:",
            "\t\tmodule.unshard()",
            "\ttry:",
            "\t\tyield",
            "\tfinally:",
            "\t\tfor module in modules:",
            "\t\t\tmodule.reshard()",
        ],
    )
