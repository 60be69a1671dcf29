"""FSDP209: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule
from fsdplint.trace import Fsdp1Used, Trace


class Fsdp1GradScaler(MigrationRule):
    """FSDP1's `ShardedGradScaler` scales the loss.

    ## What it does
    Finds `ShardedGradScaler(...)`.

    ## Why is this bad?
    It is right for FSDP1, where each rank sees its own part of the gradients. With DTensors
    `torch.amp.GradScaler` agrees on overflows between all ranks, and `ShardedGradScaler` belongs to what goes
    away with FSDP1.

    ## Fix safety
    Safe, as a part of the migration of the whole program.

    ## Since
    torch 2.5, where `torch.amp.GradScaler` learned of DTensors.

    ## References
    - https://github.com/pytorch/pytorch/pull/132816
    - pytorch/torchtitan, `docs/fsdp.md`
    """

    code = "FSDP209"
    name = "fsdp1-grad-scaler"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(Fsdp1Used):
            if event.api == "ShardedGradScaler":
                yield self.finding(
                    event,
                    "`ShardedGradScaler` is FSDP1's",
                    help="Use `torch.amp.GradScaler`, which knows DTensors.",
                )
