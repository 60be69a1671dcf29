"""The backend of the default process group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.diagnostics.finding import Finding, Fix, Safety
from fsdplint.edits.quotes import string_literal
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import argument, call_at
from fsdplint.trace import ProcessGroupInit

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

_BOTH = "cpu:gloo,cuda:nccl"


def with_cpu_backend(finding: Finding, program: Program) -> Fix | None:
    """Add a CPU backend to `init_process_group("nccl")`, where the backend is NCCL.

    Returns None for any other backend, and for one that another function decides.
    """
    found = call_at(finding.site)
    backend = argument(found[1], 0, "backend") if found is not None else None
    if found is None or backend is None:
        return None
    source, value, rewrite = found[0], backend.value, Rewrite()
    literals = [one for one in _branches(value) if _is_nccl(one)]
    both = string_literal(source, _BOTH)
    if len(literals) == 1:
        text = source.code(literals[0]).replace("nccl", _BOTH)
        rewrite.replace(source, literals[0], text)
    elif _is_always_nccl(finding, program):
        rewrite.replace(source, value, both)
    elif isinstance(value, cst.Name | cst.Attribute):
        name, nccl = source.code(value), string_literal(source, "nccl")
        rewrite.replace(source, value, f"{both} if {name} == {nccl} else {name}")
    else:
        return None
    return rewrite.fix("Add a CPU backend to the group", Safety.SAFE)


def _branches(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The expressions that a conditional expression chooses from."""
    if isinstance(node, cst.IfExp):
        yield from _branches(node.body)
        yield from _branches(node.orelse)
    else:
        yield node


def _is_nccl(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == "nccl"


def _is_always_nccl(finding: Finding, program: Program) -> bool:
    """Whether the group has this backend in every configuration."""
    return all(
        event.backend == "nccl"
        for trace in program.traces
        for event in trace.of(ProcessGroupInit)
        if event.site == finding.site
    )
