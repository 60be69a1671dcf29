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
    The scaler is correct for FSDP1, where each rank sees its own part of the gradients. With DTensors, all ranks
    agree on overflows in `torch.amp.GradScaler`, and `ShardedGradScaler` will be removed with FSDP1.

    ## Fix safety
    Safe, as a part of the migration of the whole program.

    ## Since
    torch 2.5, the first whose `torch.amp.GradScaler` supports DTensors.

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
                    "`ShardedGradScaler` is only for FSDP1",
                    help="Use `torch.amp.GradScaler`, which supports DTensors.",
                )
