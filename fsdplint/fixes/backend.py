"""The backend of the default process group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.diagnostics.finding import Finding, Fix, Safety
from fsdplint.edits.quotes import string_literal
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import argument, call_at
from fsdplint.trace import ProcessGroupInit

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


def with_cpu_backend(finding: Finding, program: Program) -> Fix | None:
    """Add a CPU backend to an `init_process_group("nccl")`; None for any other backend."""
    found = call_at(finding.site)
    backend = argument(found[1], 0, "backend") if found is not None else None
    if found is None or backend is None or not _is_always_nccl(finding, program):
        return None
    source, value, rewrite = found[0], backend.value, Rewrite()
    if isinstance(value, cst.SimpleString):
        text = source.code(value).replace("nccl", "cpu:gloo,cuda:nccl")
    else:
        text = string_literal(source, "cpu:gloo,cuda:nccl")
    rewrite.replace(source, value, text)
    return rewrite.fix("Add a CPU backend to the group", Safety.SAFE)


def _is_always_nccl(finding: Finding, program: Program) -> bool:
    """Whether the group has this backend in every configuration."""
    return all(
        event.backend == "nccl"
        for trace in program.traces
        for event in trace.of(ProcessGroupInit)
        if event.site == finding.site
    )
