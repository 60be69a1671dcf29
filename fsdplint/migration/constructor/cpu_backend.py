"""The backend of the process group of a model that is offloaded to the CPU.

`torch.nn.utils.clip_grads_with_norm_` reduces a norm of sharded gradients over the ranks. They are on the
CPU then, and NCCL has no collectives there. (FSDP508 does the same for `clip_grad_norm_`.)
"""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.fixes.syntax import argument, call_at
from fsdplint.migration.context import Migration
from fsdplint.trace import ProcessGroupInit

BOTH = "cpu:gloo,cuda:nccl"
TITLE = "Add a CPU backend to the group"
_CLIPS = "clip_grads_with_norm_"


def add(migration: Migration) -> None:
    """Add a CPU backend to `init_process_group("nccl")`, if the program clips with a given norm."""
    if not any(_CLIPS in source.text for source in migration.program.sources.values()):
        return
    for trace in migration.program.traces:
        for event in trace.of(ProcessGroupInit):
            found = call_at(event.site) if event.backend == "nccl" else None
            backend = argument(found[1], 0, "backend") if found is not None else None
            if found is None or backend is None or found[0] not in migration.sources:
                continue
            source, value = found[0], backend.value
            if isinstance(value, cst.SimpleString) and value.evaluated_value == "nccl":
                migration.substitute(source, value, string_literal(source, BOTH))
                migration.step(source, value, TITLE)
