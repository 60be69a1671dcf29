"""FSDP139: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, Site, Trace
from fsdplint.trace.queries.common import (
    PLAIN_OPTIMIZERS,
    class_name,
    first_step,
    only_fsdp2,
    sharded_here,
)


class OptimizerWithoutDTensors(Rule):
    """The optimizer of a model that `fully_shard` shards cannot update DTensors.

    ## What it does
    Finds optimizers of bitsandbytes (`AdamW8bit`, `Lion8bit`, and those in 32 bits) that step the
    parameters of a model that `fully_shard` shards.

    ## Why is this bad?
    FSDP2's parameters are DTensors. The operators of bitsandbytes have no rule for them, and the first
    step fails (seen with bitsandbytes 0.50 on the CPU):

        RuntimeError: bitsandbytes.optimizer_update_8bit_blockwise.default got mixed torch.Tensor and
        DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!

    torchao has optimizers with a state in 8 and 4 bits that take DTensors (`torchao.optim.AdamW8bit`).

    ## Since
    torch 2.4, the first with FSDP2. With FSDP1, whose parameters are plain tensors, these optimizers work.

    ## References
    - bitsandbytes-foundation/bitsandbytes#1633.
    """

    code = "FSDP139"
    name = "optimizer-without-dtensors"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen: set[Site] = set()
        for built in trace.of(OptimizerBuilt):
            step = first_step(trace, built, built)
            if built.library not in PLAIN_OPTIMIZERS or step is None or built.site in seen:
                continue
            sharded = [one for one in built.modules if only_fsdp2(trace, one, step)]
            if not sharded:
                continue
            seen.add(built.site)
            yield self.finding(
                built,
                f"`{built.class_name}` of {built.library} cannot update the sharded parameters of "
                f"`{class_name(trace, sharded[0])}`, and its first step fails",
                help="Use an optimizer of `torch.optim` or `torchao.optim`.",
                because=[*sharded_here(trace, sharded[0], step), (step, "first step here")],
            )
