"""The data that each rank trains on."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from file_syntax import FileSyntax, argument, without
from mutation_operator import Plan, operator
from planting import text_of


@operator("FSDP512")
def epoch_not_set(syntax: FileSyntax) -> Iterator[Plan]:
    """The sampler is not told the epoch."""
    samplers = list(syntax.calls("DistributedSampler"))
    shuffled = [c for c in samplers if "shuffle=False" not in text_of(c)]
    for call in syntax.method_calls("set_epoch"):
        statement = syntax.statement(call)
        if statement is None or not shuffled or len(list(syntax.method_calls("set_epoch"))) > 1:
            continue
        yield Plan(statement, {statement: []})


@operator("FSDP511")
def sampler_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """The loader has no sampler, so that every rank reads the same batches in the same order."""
    for call in syntax.calls("DataLoader"):
        sampler = argument(call, "sampler")
        dataset = argument(call, "dataset", 0)
        if sampler is None or dataset is None or argument(call, "shuffle") is not None:
            continue
        if "val" in text_of(call) or "eval" in text_of(call) or "test" in text_of(call):
            continue
        if _is_distributed(syntax, sampler.value) and "None" not in text_of(sampler.value):
            yield Plan(call, {call: without(call, "sampler")})


def _is_distributed(syntax: FileSyntax, sampler: cst.BaseExpression) -> bool:
    """Whether an expression is a `DistributedSampler`, or a name that is assigned nothing else."""
    calls = set(syntax.calls("DistributedSampler"))
    if sampler in calls:
        return True
    name = text_of(sampler)
    return any(name in syntax.targets(call) for call in calls)
